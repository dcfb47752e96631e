"""Figures of verdicts: the matrix, what strategies withdraw, how far checks depend on thresholds, how measures rank."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from drawing import drawn, legend_of
from made_up_runs import EXPLODED, network, tidy_of

from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures import decision_utility, threshold_sensitivity, triangulation, verdict_matrix
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
    assert [row for row, _ in found][::2] == ["BP", "ep", "dfa", "fa"]  # by accuracy
    looks = faces(figure)
    colours, hatches = zip(*(looks[at] for at in ((0, 0), (1, 1), (2, 1), (3, 0), (3, 1))))
    assert len(set(colours)) == 5 and len(set(hatches[:4])) == 4 == len(legend_of(figure))


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


def test_curves_are_the_fractions_that_fire_at_each_threshold_beside_the_protocols_own():
    """A value that was not measured, or a gradient that is infinite, is in no fraction."""
    tidy = spread(max_growth=[2.0, 60.0, math.inf], grad_norm_last=[0.0, 1e-8, math.inf], stability=[0.1, NAN, 0.5])
    limits = DiagnosticThresholds(growth=20, reference=3e-6, stability=0.2, depth_margin=0.05)
    figure = drawn(threshold_sensitivity, tidy, thresholds=limits)
    for panel, thresholds, expected in (
        (0, [1.5, 2, 20, 60], [1, 1, 2 / 3, 2 / 3, 1 / 3, 1 / 3]),
        (1, [1e-8, 3e-6, 1e-3], [0.5, 0.5, 1, 1, 1]),
        (2, [0.05, 0.1, 0.2, 0.5], [1, 1, 0.5, 0.5, 0, 0]),
    ):
        x, fractions = curve(figure, panel, "dfa (3)")
        assert x[1:-1].tolist() == thresholds and fractions == pytest.approx(expected)
    drawn_as = [{line.get_label(): line for line in ax.lines} for ax in figure.axes]
    assert [own["dfa"].get_drawstyle()[6:] for own in drawn_as] == ["post", "pre", "post", "pre"]
    assert [set(own["limit"].get_xdata()) for own in drawn_as] == [{20}, {3e-6}, {0.2}, {0.05}]
    assert figure.axes[3].get_title(loc="left").endswith("fires below 5 points")


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


def test_the_calibration_compares_trusted_with_failing_networks_and_marks_the_gap_between_them():
    at_chance = {"fires": "d", "accuracy": 0.4, "own_frozen_acc": 0.4}
    rows = [
        network("bp", seed=1, max_growth=4.0, fires="d"), network("bp", seed=2, max_growth=11.0),
        network("bp+random_targets", random_targets=True, max_growth=700.0, **at_chance),
        network("dfa", max_growth=694.0, grad_norm_last=1e-2, stability=NAN, fires="ab"),
        network("ep", max_growth=9.0), network("fa", max_growth=NAN, **at_chance),
        network("usf", max_growth=1.0, depth_fires=None),
        network("kp", max_growth=2.0, fires="a"),  # which alone is no failure
    ]  # fmt: skip
    axes = drawn(threshold_sensitivity, tidy_of(rows)).axes
    found = ["trusted ≤ 11, failing ≥ 694: gap", "trusted ≥ 0.001, failing ≤ 0.01: no gap",
             "trusted ≤ 0.05, no failing", "trusted ≥ 20, failing ≤ 0: gap"]  # fmt: skip
    assert [ax.get_xlabel().splitlines()[1] for ax in axes] == found
    assert [len(ax.patches) for ax in axes] == [1, 0, 0, 1]
    (band,) = axes[0].patches
    assert [band.get_x(), band.get_x() + band.get_width()] == pytest.approx([11, 694])
    stability = axes[2]
    assert [text.get_text() for text in stability.texts] == ["n/a"]  # dfa has no value
    assert not [line for line in stability.lines if line.get_label() == "dfa"]


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


def test_ranks_follow_from_means_over_the_measured_seeds_whose_number_is_shown():
    rows = [network("a", seed=s, deep_rho=rho, deep_nudging=NAN if s else -2.4e-4)
            for s, rho in enumerate([0.1, 0.3, NAN])]  # fmt: skip
    rows += [network("b", seed=s, deep_rho=rho) for s, rho in enumerate((0.25, 0.25, 0))]
    found = rank(seed_values(tidy_of(rows)))
    entry = found[(found["measure"] == "deep_rho") & (found["run"] == "a")].iloc[0]
    assert (entry["mean"], entry["measured"], entry["of"], entry["rank"]) == (pytest.approx(0.2), 2, 3, 1)
    texts = [text.get_text() for text in drawn(triangulation, tidy_of(rows)).axes[0].texts]
    assert "2. $-2.4{\\times}10^{-4}$\n1/3 seeds" in texts


def test_lines_go_from_place_to_place_and_stop_where_a_run_has_no_value():
    rows = three()
    rows[0]["deep_rho"] = NAN
    ax = drawn(triangulation, tidy_of(rows), labels={"a": "A"}).axes[0]
    for run, expected in {"a": [0, NAN, 0, 1], "b": [1, 0, 1, 0], "c": [2, 1, 2, 2]}.items():
        inner = [line.get_ydata() for line in ax.lines if line.get_label() == run][1:-1]
        np.testing.assert_array_equal(inner, list(itertools.pairwise(expected)))
    printed = {text.get_position(): text.get_text() for text in ax.texts}
    assert [printed[0, 0], printed[1, 1], printed[1, 2], printed[3, 0]] == ["1. 0.9", "2. 0.2", "n/a", "1. 1.5"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["A", "b", "c"]
    assert [label.get_text() for label in ax.child_axes[0].get_yticklabels()] == ["b", "A", "c"]
    assert [label.get_text() for label in ax.get_xticklabels()] == list(MEASURES.values())
    for text in ax.texts:
        box = text.get_window_extent().transformed(ax.transData.inverted())
        x = text.get_position()[0]
        assert x - triangulation.SIDE < box.x0 and box.x1 < x + triangulation.SIDE, f"{text.get_text()!r} meets a line"
