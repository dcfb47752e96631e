"""Figures of verdicts: the matrix, what strategies withdraw, how far checks depend on thresholds, how measures rank."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from drawing import drawn
from made_up_runs import EXPLODED, network, several, tidy_of

from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures import decision_utility, threshold_sensitivity, triangulation, verdict_matrix
from fa_audit.results.figures.threshold_sensitivity import Calibration, calibrate, deciding_values
from fa_audit.results.figures.triangulation import MEASURES, rank, seed_values

NAN = math.nan


def grid(figure):
    """The texts of a grid as ``{(row label, column label): text}``; labels on one line each."""
    ax = figure.axes[0]
    columns, rows = ([t.get_text().replace("\n", " ") for t in axis.get_ticklabels()] for axis in (ax.xaxis, ax.yaxis))
    return {(rows[round(t.get_position()[1])], columns[round(t.get_position()[0])]): t.get_text() for t in ax.texts}


def faces(figure):
    """Colour and hatch of each square as ``{(row, column): ...}``, by number."""
    filled = [patch for patch in figure.axes[0].patches if patch.get_fill()]
    return {(round(p.get_y() + 0.5), round(p.get_x() + 0.5)): (p.get_facecolor(), p.get_hatch()) for p in filled}


# ---- verdict matrix


def test_squares_say_what_fires_in_all_and_in_some_seeds_and_how_many_fail():
    seeds = (1, 2, 3)
    rows = [network("bp", setting=s, seed=seed) for s in ("vit", "mlp") for seed in seeds]
    rows += [network("dfa", setting="mlp", seed=s, accuracy=0.3, fires=fires, finite=s != 3)
             for s, fires in zip(seeds, ("ac", "c", "c"))]  # fmt: skip
    rows += [network("ep", setting="mlp", seed=s, accuracy=0.4, fires="c") for s in seeds]
    rows += [network("fa", setting="vit", seed=s, accuracy=0.2, depth_fires=False if s == 3 else None) for s in seeds]
    figure = drawn(verdict_matrix, tidy_of(rows), labels={"bp": "BP", "vit": "ViT-Mini"})
    found = grid(figure)
    assert found == {
        ("BP", "ViT-Mini"): "trustworthy\npass 3/3", ("BP", "mlp"): "trustworthy\npass 3/3",
        ("ep", "ViT-Mini"): "not run", ("ep", "mlp"): "c\npass 3/3",
        ("dfa", "ViT-Mini"): "not run", ("dfa", "mlp"): "(a), c, (\N{INFINITY})\nFAIL 1/3",
        ("fa", "ViT-Mini"): "incomplete\nincomplete 2/3", ("fa", "mlp"): "not run",
    }  # fmt: skip
    assert list(dict.fromkeys(found)) and [row for row, _ in found][::2] == ["BP", "ep", "dfa", "fa"]  # by accuracy
    looks = faces(figure)
    passed, walk_back, failed, incomplete, absent = (looks[at] for at in ((0, 0), (1, 1), (2, 1), (3, 0), (3, 1)))
    assert len({state[0] for state in (passed, walk_back, failed, incomplete, absent)}) == 5
    assert len({state[1] for state in (passed, walk_back, failed, incomplete)}) == 4
    assert len({text.get_text() for text in figure.legends[0].get_texts()}) == 4


# ---- decision utility


def test_every_strategy_withdraws_by_its_own_rule():
    rows = [
        network("bp"),
        network("a", shallow_acc=0.6, cosines=(0.5, -0.1)),  # as good as the shallow network: not above it
        network("b", shallow_acc=0.61, cosines=(0.1, -0.1), fires="ad"),
        network("c", cosines=(NAN, -0.1), fires="bc", shallow_acc=NAN),
        network("d", cosines=(NAN, NAN), finite=False, scale_fires=None, reference_fires=None),
        network("e", depth_fires=None),
        network("f", accuracy=NAN, stability_fires=None, depth_fires=None),
    ]
    expected = {
        "accuracy": [0, 0, 0, 0, 0, 0, NAN], "cosine": [0, 0, 0, 1, NAN, 0, 0], "shallow": [0, 1, 1, NAN, 0, 0, NAN],
        "a": [0, 0, 1, 0, NAN, 0, 0], "b": [0, 0, 0, 1, NAN, 0, 0], "c": [0, 0, 0, 1, 0, 0, NAN],
        "d": [0, 0, 1, 0, 0, NAN, NAN], "full": [0, 0, 1, 1, 1, NAN, NAN],
    }  # fmt: skip
    found = decision_utility.withdrawals(tidy_of(rows))
    found.loc[2, "cosine"] = 0  # the mean of 0.1 and -0.1 is 0 but for its last bit
    pd.testing.assert_frame_equal(found, pd.DataFrame(expected, dtype=float))


def test_squares_count_seeds_of_all_settings_where_a_strategy_has_its_number():
    rows = [network("bp", setting=s, seed=1) for s in ("mlp", "vit")]
    rows += [network("dfa", setting="mlp", **EXPLODED), network("dfa", setting="vit", accuracy=0.5)]
    rows += [network("fa", setting="mlp", seed=s, accuracy=0.2, depth_fires=None if s == 1 else False, shallow_acc=NAN)
             for s in (1, 2)]  # fmt: skip
    figure = drawn(decision_utility, tidy_of(rows), labels={"dfa": "DFA"})
    found = grid(figure)
    assert found["DFA", "full protocol"] == found["DFA", "accuracy + (b) reference"] == "1/2"
    assert found["DFA", "accuracy only"] == found["DFA", "accuracy + cosine"] == "0/2"
    assert found["fa", "accuracy + (d) depth utility"] == "0/1"
    assert found["fa", "accuracy + shallow baseline"] == "n/a"
    looks = faces(figure)
    assert looks[0, 0] != looks[1, 7] != looks[2, 2] and looks[2, 2][1] and not looks[0, 0][1]
    rows = [network(f"r{many}", seed=s, fires="a" * (s <= many)) for many in range(5) for s in (1, 2, 3, 4)]
    looks = faces(drawn(decision_utility, tidy_of(rows)))
    light = [0.3 * r + 0.6 * g + 0.1 * b for r, g, b, _ in (looks[row, 7][0] for row in range(5))]
    assert light == sorted(light, reverse=True) and len(set(light)) == 5  # the darker, the more is withdrawn


# ---- threshold sensitivity


def curve(figure, panel, run, label=None):
    """Thresholds and fractions of one run's curve, that of its check or the one with that label."""
    ax = figure.axes[panel]
    row = [label.get_text().replace("\n", "") for label in figure.axes[0].get_yticklabels()].index(run)
    (line,) = (line for line in ax.lines if line.get_label() == (label or run.partition(" ")[0]))
    x, y = line.get_xydata().T
    return x, (row + 0.4 - y) / 0.8


def spread(**columns):
    """Three seeds of DFA whose values are given, without any depth utility, and one of BP."""
    failed = {"fires": "abd", "accuracy": 0.4, "own_frozen_acc": 0.4}
    seeds = [{name: values[seed] for name, values in columns.items()} for seed in range(3)]
    return tidy_of([network("bp"), *(network("dfa", seed=i, **failed, **found) for i, found in enumerate(seeds))])


def test_deciding_values_are_absent_where_a_check_was_not_evaluated():
    rows = [network("bp"), network("fa", max_growth=math.inf, grad_norm_last=math.inf, own_frozen_acc=NAN)]
    rows.append(network("dfa", max_growth=NAN, grad_norm_last=NAN, stability=NAN, accuracy=NAN))
    found = deciding_values(pd.DataFrame(rows)).to_numpy()
    np.testing.assert_allclose(found, [[1.5, 1e-3, 0.05, 0.2], [math.inf, NAN, 0.05, NAN], [NAN] * 4])


def test_curves_are_the_fractions_that_fire_at_each_threshold():
    tidy = spread(max_growth=[2.0, 60.0, math.inf], grad_norm_last=[0.0, 1e-8, 1e-4], stability=[0.1, NAN, 0.5])
    figure = drawn(threshold_sensitivity, tidy)
    for panel, thresholds, expected in (
        (0, [1.5, 2, 50, 60], [1, 1, 2 / 3, 2 / 3, 1 / 3, 1 / 3]),
        (1, [1e-8, 1e-7, 1e-4, 1e-3], [1 / 3, 1 / 3, 2 / 3, 2 / 3, 1, 1]),
        (2, [0.05, 0.1, 0.3, 0.5], [1, 1, 0.5, 0.5, 0, 0]),
    ):
        x, fractions = curve(figure, panel, "dfa (3)")
        assert x[1:-1].tolist() == thresholds and fractions == pytest.approx(expected)
    styles = [next(line for line in ax.lines if line.get_label() == "dfa").get_drawstyle() for ax in figure.axes]
    assert styles == ["steps-post", "steps-pre", "steps-post", "steps-pre"]


def test_lines_are_the_fractions_that_the_verdict_walks_back():
    seeds = [(60.0, {"fires": "ad"}), (10.0, {"fires": "b"}), (20.0, {}), (5.0, {"finite": False})]
    rows = [network("dfa", seed=i, max_growth=growth, **found) for i, (growth, found) in enumerate(seeds)]
    figure = drawn(threshold_sensitivity, tidy_of(rows))
    x, fractions = curve(figure, 0, "dfa (4)", "dfa: walked back")
    assert x[1:-1].tolist() == [5, 10, 20, 50, 60]
    assert fractions == pytest.approx([1, 1, 1, 0.75, 0.75, 0.75, 0.75])  # the third alone depends on (a)
    assert curve(figure, 0, "dfa (4)")[1] == pytest.approx([1, 0.75, 0.5, 0.25, 0.25, 0, 0])
    fractions = curve(figure, 2, "dfa (4)", "dfa: walked back")[1]
    assert fractions[1:] == pytest.approx([0.75] * (len(fractions) - 1))  # stability decides nothing at its values


def test_calibration_compares_trusted_with_failing_networks():
    runs = pd.DataFrame([
        network("bp", seed=1, max_growth=4.0, fires="d"), network("bp", seed=2, max_growth=11.0),
        network("bp+random_targets", random_targets=True, max_growth=700.0, fires="d"),
        network("dfa", max_growth=694.0, fires="ab"), network("ep", max_growth=9.0),
        network("fa", max_growth=NAN, fires="d"), network("usf", max_growth=1.0, depth_fires=None),
        network("kp", max_growth=2.0, fires="a"),  # which alone is no failure
    ])  # fmt: skip
    found = {check: calibrate(check, runs, runs["max_growth"]) for check in ("growth", "reference", "depth_margin")}
    assert found == {"growth": Calibration(11.0, 694.0), "reference": Calibration(4.0, 694.0),
                     "depth_margin": Calibration(4.0, 700.0)}  # fmt: skip
    for part, expected in ((runs[2:], (9.0, 694.0)), (runs[2:4], (None, 694.0)), (runs[:2], (11.0, None))):
        assert calibrate("growth", part, part["max_growth"]) == Calibration(*expected)
    assert Calibration(11.0, 694.0).gap("growth") == Calibration(694.0, 11.0).gap("reference") == (11.0, 694.0)
    none = [Calibration(694.0, 11.0), Calibration(5.0, 5.0), Calibration(None, 11.0), Calibration(11.0, None)]
    assert [calibration.gap("growth") for calibration in none] == [None] * 4


def test_gaps_are_marked_where_there_are_some_and_both_edges_are_named():
    tidy = spread(max_growth=[60.0, math.inf, 700.0], grad_norm_last=[1e-2, 1e-8, 1e-9], stability=[NAN] * 3)
    growth, gradient, stability, depth = drawn(threshold_sensitivity, tidy).axes
    (band,) = growth.patches
    assert [band.get_x(), band.get_x() + band.get_width()] == pytest.approx([1.5, 60])
    assert growth.get_xlabel().endswith("trusted ≤ 1.5, failing ≥ 60: gap")
    assert not gradient.patches and not stability.patches
    assert gradient.get_xlabel().endswith("trusted ≥ 0.001, failing ≤ 0.01: no gap")
    assert stability.get_xlabel().endswith("trusted ≤ 0.05, no failing")
    assert depth.get_xlabel().endswith("trusted ≥ 20, failing ≤ 0: gap")
    assert [text.get_text() for text in stability.texts] == ["n/a"]  # dfa has no value
    assert not [line for line in stability.lines if line.get_label() == "dfa"]
    growth = drawn(threshold_sensitivity, spread(max_growth=[math.inf] * 3)).axes[0]
    (band,) = growth.patches
    assert band.get_x() + band.get_width() == pytest.approx(growth.get_xlim()[1])  # a gap without end stays in


def test_the_protocols_thresholds_are_lines():
    limits = DiagnosticThresholds(20, 3e-6, 0.2, 5.0)
    axes = drawn(threshold_sensitivity, tidy_of(several({"bp": {}})), thresholds=limits).axes
    found = [set(next(line for line in ax.lines if line.get_label() == "limit").get_xdata()) for ax in axes]
    assert found == [{20}, {3e-6}, {0.2}, {0.05}]
    assert axes[3].get_title(loc="left").endswith("fires below 5 points")


# ---- triangulation


def three():
    """Networks that every measure ranks differently."""
    return [
        network("a", deep_cosine=0.9, deep_rho=0.1, deep_nudging=-0.3, losses=(2.0, 1.0)),
        network("b", deep_cosine=0.5, deep_rho=0.3, deep_nudging=-0.1, losses=(2.5, 2.4, 1.0)),
        network("c", deep_cosine=-0.2, deep_rho=0.2, deep_nudging=0.2, losses=(1.0, 1.2)),
    ]


def ranked(rows, measure):
    """``{run: (rank, place)}`` under one measure."""
    found = rank(seed_values(tidy_of(rows)))
    return {entry.run: (entry.rank, entry.place) for entry in found[found["measure"] == measure].itertuples()}


def test_high_cosine_rho_and_loss_decrease_and_low_nudging_are_best():
    first = {"deep_cosine": "abc", "deep_rho": "bca", "deep_nudging": "abc", "loss_decrease": "bac"}
    for measure, order in first.items():
        assert ranked(three(), measure) == {run: (place + 1, place) for place, run in enumerate(order)}
    equal = [network("a", deep_cosine=0.2, deep_rho=0.5), network("b", deep_cosine=0.5, deep_rho=0.5),
             network("c", deep_cosine=0.1, deep_rho=0.1)]  # fmt: skip
    assert ranked(equal, "deep_rho") == {"b": (1, 0), "a": (1, 1), "c": (3, 2)}  # equal ones as under the one before
    texts = [text.get_text() for text in drawn(triangulation, tidy_of(equal)).axes[0].texts]
    assert texts.count("1= 0.5") == 2 and texts.count("1. 0.5") == 1 and "3. 0.1" in texts


def test_the_loss_decreases_from_the_first_epoch_to_the_last():
    more = {"d": (1.0,), "e": (3.0, 2.0, NAN), "f": (NAN, 1.0), "g": (2.0, math.inf)}
    rows = [*three(), *(network(run, losses=losses) for run, losses in more.items())]
    found = seed_values(tidy_of(rows)).set_index("run")["loss_decrease"].to_dict()
    assert found == pytest.approx(dict(zip("abcdefg", [1.0, 1.5, -0.2, NAN, NAN, NAN, -math.inf])), nan_ok=True)


def test_ranks_follow_from_means_over_the_measured_seeds_whose_number_is_shown():
    rows = [network("a", seed=s, deep_rho=rho, deep_nudging=NAN if s else -2.4e-4)
            for s, rho in enumerate([0.1, 0.3, NAN])]  # fmt: skip
    rows += [network("b", seed=s, deep_rho=rho) for s, rho in enumerate((0.25, 0.25, 0))]
    found = rank(seed_values(tidy_of(rows)))
    entry = found[(found["measure"] == "deep_rho") & (found["run"] == "a")].iloc[0]
    assert (entry["mean"], entry["measured"], entry["of"], entry["rank"]) == (pytest.approx(0.2), 2, 3, 1)
    texts = [text.get_text() for text in drawn(triangulation, tidy_of(rows)).axes[0].texts]
    assert "2. $-2.4{\\times}10^{-4}$\n1/3 seeds" in texts


def test_lines_go_from_place_to_place_and_texts_stand_there():
    ax = drawn(triangulation, tidy_of(three()), labels={"a": "A"}).axes[0]
    for run, expected in {"a": [0, 2, 0, 1], "b": [1, 0, 1, 0], "c": [2, 1, 2, 2]}.items():
        inner = [line for line in ax.lines if line.get_label() == run][1:-1]
        assert [line.get_ydata().tolist() for line in inner] == [list(pair) for pair in itertools.pairwise(expected)]
        assert [np.round(line.get_xdata().mean(), 6) for line in inner] == [0.5, 1.5, 2.5]
    printed = {text.get_position(): text.get_text() for text in ax.texts}
    assert [printed[0, 0], printed[1, 2], printed[2, 2]] == ["1. 0.9", "3. 0.1", "3. 0.2"]
    assert printed[2, 0] == "1. \N{MINUS SIGN}0.3" and printed[3, 0] == "1. 1.5"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["A", "b", "c"]
    assert [label.get_text() for label in ax.child_axes[0].get_yticklabels()] == ["b", "A", "c"]
    assert [label.get_text() for label in ax.get_xticklabels()] == list(MEASURES.values())
    for text in ax.texts:
        box = text.get_window_extent().transformed(ax.transData.inverted())
        x = text.get_position()[0]
        assert x - triangulation.SIDE < box.x0 and box.x1 < x + triangulation.SIDE, f"{text.get_text()!r} meets a line"


def test_a_run_without_a_value_has_no_rank_and_an_interrupted_line():
    rows = three()
    rows[0]["deep_rho"] = NAN
    found = ranked(rows, "deep_rho")
    assert found.pop("a")[1] == 2 and found == {"b": (1, 0), "c": (2, 1)}
    ax = drawn(triangulation, tidy_of(rows)).axes[0]
    ends = [np.isnan(line.get_ydata()).tolist() for line in ax.lines if line.get_label() == "a"]
    assert ends == [[False] * 2, [False, True], [True, False], [False] * 2, [False] * 2]
    (absent,) = (text for text in ax.texts if text.get_text() == "n/a")
    assert absent.get_position() == (1, 2)
