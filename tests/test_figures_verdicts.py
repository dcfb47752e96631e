"""Figures of verdicts: the matrix, what reporting strategies withdraw, and how far checks depend on thresholds."""

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from networks_of_tables import EXPLODED, LONG, WALK_BACK, assert_panels_readable, crowd, network, tidy_of

from fa_audit.core.registry import load
from fa_audit.core.thresholds import DiagnosticThresholds, depth_margin, fires
from fa_audit.results.figures import (
    FIGURES,
    FIGURES_OF_ONE,
    decision_utility,
    depth_ladder,
    style,
    threshold_sensitivity,
    triangulation,
    verdict_matrix,
)
from fa_audit.results.figures.threshold_sensitivity import Calibration, calibrate
from fa_audit.results.figures.verdicts import deciding_values, named

SEVERAL = (verdict_matrix, decision_utility, threshold_sensitivity)
ALL = (*SEVERAL, depth_ladder, triangulation)
SIX = tuple(f"a_setting_with_a_long_name_{i}" for i in range(6))
TITLE = "Verdicts across architectures"
NAN = math.nan


def drawn(module, tidy, **options):
    return module.draw(tidy, **{"title": TITLE, "labels": {}} | options)


def grid(figure):
    """The texts of a grid's cells as ``{(row label, column label): text}``; labels on one line each."""
    ax = figure.axes[0]
    columns, rows = ([t.get_text().replace("\n", " ") for t in axis.get_ticklabels()] for axis in (ax.xaxis, ax.yaxis))
    return {(rows[round(t.get_position()[1])], columns[round(t.get_position()[0])]): t.get_text() for t in ax.texts}


def faces(figure):
    """Colour and hatch of each cell as ``{(row, column): ...}``, by number."""
    filled = [patch for patch in figure.axes[0].patches if patch.get_fill()]
    return {(round(p.get_y() + 0.5), round(p.get_x() + 0.5)): (p.get_facecolor(), p.get_hatch()) for p in filled}


# ---- what all share


def test_the_registry_leads_to_every_figure_and_no_torch():
    for module in ALL:
        kind = module.__name__.rpartition(".")[2]
        assert load("figure", FIGURES, kind) is module.draw
        assert (kind in FIGURES_OF_ONE) == (module not in SEVERAL)
    names = ", ".join(module.__name__ for module in ALL)
    code = f"import sys, {names}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("check", "fired", "on_the_limit", "spared"),
    [("growth", 50.1, 50, 49.9), ("reference", 0.9e-7, 1e-7, 2e-7),
     ("stability", 0.31, 0.3, 0.29), ("depth_margin", 0.019, 0.02, 0.021)],
)  # fmt: skip
def test_a_check_fires_strictly_beyond_its_limit(check, fired, on_the_limit, spared):
    limit = getattr(DiagnosticThresholds(), check)
    assert [fires(check, value, limit) for value in (fired, on_the_limit, spared, NAN)] == [True, False, False, False]
    assert fires(check, np.array([fired, spared]), limit).tolist() == [True, False]


def test_two_points_are_two_points():
    assert 0.36 - 0.34 < 0.02 and depth_margin(0.36, 0.34) == 0.02
    assert depth_margin(pd.Series([0.36]), pd.Series([0.34])).tolist() == [0.02]


def test_deciding_values_are_absent_where_a_check_was_not_evaluated():
    rows = [network("bp"), network("fa", max_growth=math.inf, grad_norm_last=math.inf, own_frozen_acc=NAN)]
    rows.append(network("dfa", max_growth=NAN, grad_norm_last=NAN, stability=NAN, accuracy=NAN))
    found = deciding_values(pd.DataFrame(rows))
    assert found.iloc[0].tolist() == [1.5, 1e-3, 0.05, 0.2]
    assert found.iloc[1, 0] == math.inf and found.iloc[1, [1, 3]].isna().all()
    assert found.iloc[2].isna().all()


def test_reasons_are_read_from_verdicts_that_walk_back_only():
    assert named("needs walk-back (a, c, non-finite)") == ("a", "c", "non-finite")
    assert named("trustworthy") == named("incomplete (b, d not evaluated)") == named(NAN) == named(None) == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.6623, "0.662"), (-0.25, "\N{MINUS SIGN}0.25"), (0.0, "0"), (math.inf, "inf"), (1e-7, "$10^{-7}$"),
     (-2.345e-4, r"$-2.35{\times}10^{-4}$"), (999.9, r"$10^{3}$"), (50, "50"), (1.2e4, r"$1.2{\times}10^{4}$")],
)  # fmt: skip
def test_numbers_have_three_digits(value, text):
    assert style.number(value) == text


# ---- verdict matrix


def matrix():
    seeds = (1, 2, 3)
    rows = [network("bp", setting=s, seed=seed) for s in ("mlp", "vit") for seed in seeds]
    some = {1: "a, c", 2: "c", 3: "c, non-finite"}
    rows += [network("dfa", setting="mlp", seed=s, three_check="FAIL(D3)" if s == 1 else "PASS", accuracy=0.3,
                     four_check=WALK_BACK(some[s])) for s in seeds]  # fmt: skip
    rows += [network("ep", setting="mlp", seed=s, accuracy=0.4, four_check=WALK_BACK("c")) for s in seeds]
    missing = ["INCOMPLETE(D3 not evaluated)", NAN, "PASS"]
    rows += [network("fa", setting="vit", seed=s, three_check=three, accuracy=0.2,
                     four_check="trustworthy" if s == 3 else "incomplete (d not evaluated)")
             for s, three in zip(seeds, missing)]  # fmt: skip
    return tidy_of(rows, ("vit", "mlp"))


def test_cells_say_what_fires_in_all_and_in_some_seeds_and_how_many_fail():
    found = grid(drawn(verdict_matrix, matrix(), labels={"bp": "BP", "vit": "ViT-Mini"}))
    assert found == {
        ("BP", "ViT-Mini"): "trustworthy\npass 3/3",
        ("BP", "mlp"): "trustworthy\npass 3/3",
        ("dfa", "ViT-Mini"): "not run",
        ("dfa", "mlp"): "(a), c, (\N{INFINITY})\nFAIL 1/3",
        ("ep", "ViT-Mini"): "not run",
        ("ep", "mlp"): "c\npass 3/3",
        ("fa", "ViT-Mini"): "incomplete\nincomplete 2/3",
        ("fa", "mlp"): "not run",
    }


def test_rows_stand_by_accuracy_and_columns_as_they_are_given():
    ax = drawn(verdict_matrix, matrix()).axes[0]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["vit", "mlp"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["bp", "ep", "dfa", "fa"]
    assert ax.yaxis_inverted()


def test_every_state_has_a_colour_and_a_hatch_of_its_own():
    found = faces(drawn(verdict_matrix, matrix()))
    passed, walk_back, failed, incomplete, absent = (found[cell] for cell in ((0, 0), (1, 1), (2, 1), (3, 0), (3, 1)))
    assert len({state[0] for state in (passed, walk_back, failed, incomplete, absent)}) == 5
    assert len({state[1] for state in (passed, walk_back, failed, incomplete)}) == 4
    states = {text.get_text() for text in drawn(verdict_matrix, matrix()).legends[0].get_texts()}
    assert len(states) == 4


def test_one_seed_that_did_not_pass_is_no_pass():
    rows = [network("bp", seed=1), network("bp", seed=2, four_check="incomplete (c not evaluated)")]
    assert faces(drawn(verdict_matrix, tidy_of(rows)))[0, 0][1] == verdict_matrix.INCOMPLETE.hatch
    assert grid(drawn(verdict_matrix, tidy_of(rows))) == {("bp", "main"): "incomplete\npass 2/2"}


# ---- decision utility


def test_every_strategy_withdraws_by_its_own_rule():
    rows = [
        network("bp"),
        network("a", shallow_acc=0.6, cosines=(0.5, -0.1)),  # as good as the shallow network: not above it
        network("b", shallow_acc=0.61, cosines=(0.1, -0.1), four_check=WALK_BACK("a, d")),
        network("c", cosines=(NAN, -0.1), four_check=WALK_BACK("b, c"), shallow_acc=NAN),
        network("d", cosines=(NAN, NAN), four_check=WALK_BACK("non-finite"), max_growth=NAN, grad_norm_last=NAN),
        network("e", four_check="incomplete (d not evaluated)", own_frozen_acc=NAN),
        network("f", accuracy=NAN, four_check=NAN, stability=NAN),
    ]
    found = decision_utility.withdrawals(tidy_of(rows))
    expected = {  # accuracy, cosine, shallow, a, b, c, d, full
        "bp": [0, 0, 0, 0, 0, 0, 0, 0],
        "a": [0, 0, 1, 0, 0, 0, 0, 0],
        "b": [0, 1, 1, 1, 0, 0, 1, 1],
        "c": [0, 1, NAN, 0, 1, 1, 0, 1],
        "d": [0, NAN, 0, NAN, NAN, 0, 0, 1],
        "e": [0, 0, 0, 0, 0, 0, NAN, NAN],
        "f": [NAN, 0, NAN, 0, 0, NAN, NAN, NAN],
    }
    assert list(found.columns) == ["accuracy", "cosine", "shallow", "a", "b", "c", "d", "full"]
    np.testing.assert_array_equal(found.to_numpy(), np.array(list(expected.values()), dtype=float))


def test_the_cosine_is_that_of_all_blocks_of_the_same_network():
    tidy = tidy_of(
        [network("dfa", seed=1, cosines=(0.42, 0.006, -0.015, -0.004)), network("dfa", seed=2, cosines=(-1,))]
    )
    shuffled = tidy.layers.iloc[::-1]
    means = replace(tidy, layers=shuffled).mean_cosine()
    assert means.tolist() == pytest.approx([0.10175, -1])


def test_cells_count_seeds_of_all_settings_where_a_strategy_has_its_number():
    rows = [network("bp", setting=s, seed=1) for s in ("mlp", "vit")]
    rows += [network("dfa", setting="mlp", seed=1, **EXPLODED), network("dfa", setting="vit", seed=1, accuracy=0.5)]
    rows += [network("fa", setting="mlp", seed=s, accuracy=0.2, own_frozen_acc=NAN if s == 1 else 0.1, shallow_acc=NAN)
             for s in (1, 2)]  # fmt: skip
    figure = drawn(decision_utility, tidy_of(rows, ("mlp", "vit")), labels={"dfa": "DFA"})
    found = grid(figure)
    assert found["DFA", "full protocol"] == found["DFA", "accuracy + (b) reference"] == "1/2"
    assert found["DFA", "accuracy only"] == found["DFA", "accuracy + cosine"] == "0/2"
    assert found["fa", "accuracy + (d) depth utility"] == "0/1"
    assert found["fa", "accuracy + shallow baseline"] == "n/a"
    colours = faces(figure)
    assert colours[0, 0] != colours[1, 7] != colours[2, 2]
    assert colours[2, 2][1] and not colours[0, 0][1]


def test_the_darker_the_cell_the_more_is_withdrawn():
    rows = [network("bp", seed=s, four_check=WALK_BACK("a") if s <= many else "trustworthy") | {"run": f"r{many}"}
            for many in range(5) for s in (1, 2, 3, 4)]  # fmt: skip
    found = faces(drawn(decision_utility, tidy_of(rows)))
    light = [0.3 * r + 0.6 * g + 0.1 * b for r, g, b, _ in (found[row, 7][0] for row in range(5))]
    assert light == sorted(light, reverse=True) and len(set(light)) == 5


# ---- threshold sensitivity


def curve(figure, panel, run, label=None):
    """DiagnosticThresholds and fractions of one run's curve, that of its check or the one with that label."""
    ax = figure.axes[panel]
    row = [label.get_text().replace("\n", "") for label in figure.axes[0].get_yticklabels()].index(run)
    (line,) = (line for line in ax.lines if line.get_label() == (label or run.partition(" ")[0]))
    x, y = line.get_xydata().T
    return x, (row + 0.4 - y) / 0.8


def spread(**columns):
    """Three seeds of DFA whose values are given, without any depth utility, and one of BP."""
    seeds = [{name: values[seed] for name, values in columns.items()} for seed in range(3)]
    failed = {"three_check": "FAIL(D1+D2+D3)", "accuracy": 0.4, "own_frozen_acc": 0.4}
    return tidy_of([network("bp"), *(network("dfa", seed=i, **failed, **found) for i, found in enumerate(seeds))])


def test_curves_are_the_fractions_that_fire_at_each_threshold():
    tidy = spread(max_growth=[2.0, 60.0, math.inf], grad_norm_last=[0.0, 1e-8, 1e-4], stability=[0.1, NAN, 0.5])
    figure = drawn(threshold_sensitivity, tidy)
    x, fractions = curve(figure, 0, "dfa (3)")
    assert x[1:-1].tolist() == [1.5, 2, 50, 60]
    assert fractions == pytest.approx([1, 1, 2 / 3, 2 / 3, 1 / 3, 1 / 3])
    x, fractions = curve(figure, 1, "dfa (3)")
    assert x[1:-1].tolist() == [1e-8, 1e-7, 1e-4, 1e-3]
    assert fractions == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3, 1, 1])
    x, fractions = curve(figure, 2, "dfa (3)")
    assert x[1:-1].tolist() == [0.05, 0.1, 0.3, 0.5]
    assert fractions == pytest.approx([1, 1, 0.5, 0.5, 0, 0])
    styles = [next(line for line in ax.lines if line.get_label() == "dfa").get_drawstyle() for ax in figure.axes]
    assert styles == ["steps-post", "steps-pre", "steps-post", "steps-pre"]


def test_lines_are_the_fractions_that_the_verdict_walks_back():
    verdicts = ["needs walk-back (a, d)", "needs walk-back (b)", "trustworthy", "needs walk-back (non-finite)"]
    growth = [60.0, 10.0, 20.0, 5.0]
    rows = [network("dfa", seed=i, max_growth=g, four_check=v) for i, (g, v) in enumerate(zip(growth, verdicts))]
    figure = drawn(threshold_sensitivity, tidy_of(rows))
    x, fractions = curve(figure, 0, "dfa (4)", "dfa: walked back")
    assert x[1:-1].tolist() == [5, 10, 20, 50, 60]
    assert fractions == pytest.approx([1, 1, 1, 0.75, 0.75, 0.75, 0.75])  # the third alone depends on (a)
    assert curve(figure, 0, "dfa (4)")[1] == pytest.approx([1, 0.75, 0.5, 0.25, 0.25, 0, 0])
    fractions = curve(figure, 2, "dfa (4)", "dfa: walked back")[1]
    assert fractions[1:] == pytest.approx([0.75] * (len(fractions) - 1))  # stability decides nothing at its values


def test_a_run_without_values_says_so():
    figure = drawn(threshold_sensitivity, spread(stability=[NAN] * 3))
    assert [text.get_text() for text in figure.axes[2].texts] == ["n/a"]
    assert not [line for line in figure.axes[2].lines if line.get_label() == "dfa"]


def test_the_protocols_thresholds_are_lines():
    given = DiagnosticThresholds(growth=20, reference=3e-6, stability=0.2, depth_margin=0.05)
    for limits, options in ((DiagnosticThresholds(), {}), (given, {"thresholds": given})):
        axes = drawn(threshold_sensitivity, crowd(1), **options).axes
        lines = [next(line for line in ax.lines if line.get_label() == "limit").get_xdata() for ax in axes]
        assert [set(x) for x in lines] == [
            {limits.growth}, {limits.reference}, {limits.stability}, {limits.depth_margin}
        ]  # fmt: skip
    assert axes[3].get_title(loc="left").endswith("fires below 5 points")


def test_calibration_compares_trusted_with_failing_networks():
    rows = [network("bp", seed=1, max_growth=4.0, three_check="FAIL(D3)"), network("bp", seed=2, max_growth=11.0)]
    rows += [network("bp+random_targets", random_targets=True, max_growth=700.0, three_check="FAIL(D3)")]
    rows += [network("dfa", max_growth=694.0, three_check="FAIL(D1+D2)"), network("ep", max_growth=9.0)]
    rows += [network("fa", max_growth=NAN, three_check="FAIL(D3)"), network("usf", max_growth=1.0, three_check=NAN)]
    runs = pd.DataFrame(rows)
    assert calibrate("growth", runs, runs["max_growth"]) == Calibration(11.0, 694.0)
    assert calibrate("reference", runs, runs["max_growth"]) == Calibration(4.0, 694.0)
    assert calibrate("depth_margin", runs, runs["max_growth"]) == Calibration(4.0, 700.0)
    assert calibrate("growth", runs[2:], runs["max_growth"][2:]) == Calibration(9.0, 694.0)  # ep
    assert calibrate("growth", runs[2:4], runs["max_growth"][2:4]) == Calibration(None, 694.0)
    assert calibrate("growth", runs[:2], runs["max_growth"][:2]) == Calibration(11.0, None)


def test_a_gap_is_where_a_threshold_separates_both():
    assert Calibration(11.0, 694.0).gap("growth") == (11.0, 694.0)
    assert Calibration(694.0, 11.0).gap("reference") == (11.0, 694.0)
    assert Calibration(694.0, 11.0).gap("growth") is Calibration(5.0, 5.0).gap("growth") is None
    assert Calibration(None, 11.0).gap("growth") is Calibration(11.0, None).gap("growth") is None


def test_gaps_are_marked_where_there_are_some_and_both_edges_are_said():
    tidy = spread(max_growth=[60.0, math.inf, 700.0], grad_norm_last=[1e-2, 1e-8, 1e-9], stability=[NAN] * 3)
    growth, gradient, stability, depth = drawn(threshold_sensitivity, tidy).axes
    (band,) = (patch for patch in growth.patches)
    assert [band.get_x(), band.get_x() + band.get_width()] == pytest.approx([1.5, 60])
    assert growth.get_xlabel().endswith("trusted ≤ 1.5, failing ≥ 60: gap")
    assert not gradient.patches and not stability.patches
    assert gradient.get_xlabel().endswith("trusted ≥ 0.001, failing ≤ 0.01: no gap")
    assert stability.get_xlabel().endswith("trusted ≤ 0.05, no failing")
    assert depth.get_xlabel().endswith("trusted ≥ 20, failing ≤ 0: gap")


def test_a_gap_without_end_stays_on_the_panel():
    growth = drawn(threshold_sensitivity, spread(max_growth=[math.inf] * 3)).axes[0]
    (band,) = growth.patches
    assert band.get_x() + band.get_width() == pytest.approx(growth.get_xlim()[1])


# ---- all can be read


@pytest.mark.parametrize("module", SEVERAL)
@pytest.mark.parametrize(
    "tidy",
    [
        crowd(settings=SIX),
        crowd(1, seeds=(42,)),
        crowd(2, name=r"$\alpha$_50%_é"),
        tidy_of([network(LONG, **EXPLODED)]),
    ],
    ids=["crowd", "one", "characters", "long"],
)
def test_no_text_overlaps_or_is_cut(module, tidy):
    assert_panels_readable(drawn(module, tidy, title=" ".join([TITLE] * 5)))
