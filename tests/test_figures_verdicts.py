"""Figures of verdicts: the matrix, what strategies withdraw, how far checks depend on thresholds,
how measures rank.
"""

import math

import numpy as np
import pytest
from drawing import drawn
from made_up_runs import network, run, tidy_of
from matplotlib.colors import to_hex

from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.results.figures.squares import OUTCOMES, outcome_of

NAN = math.nan


def squares(figure):
    """Text and colour of every square as ``{(row label, column label): ...}``, labels in one line."""
    ax = figure.axes[0]
    columns, rows = (
        [text.get_text().replace("\n", " ") for text in axis.get_ticklabels()]
        for axis in (ax.xaxis, ax.yaxis)
    )
    found = {}
    for text, patch in zip(ax.texts, ax.patches, strict=True):
        column, row = text.get_position()
        assert (patch.get_x() + 0.5, patch.get_y() + 0.5) == (column, row)
        colour = to_hex(patch.get_facecolor()).upper()
        found[rows[row], columns[column]] = (text.get_text(), colour)
    return found


@pytest.mark.parametrize(
    ("given", "name", "checks"),
    [
        ({}, "pass", ""),
        ({"fires": "d"}, "FAIL", "D3"),
        ({"fires": "a"}, "walk-back", "D1"),  # D1 counts beside another check only
        ({"fires": "abc"}, "FAIL", "D1, D2, C"),
        ({"depth_fires": None}, "incomplete", ""),
        ({"finite": [True, True, False]}, "FAIL", "\N{INFINITY}"),
        ({"depth_distance": [0.03, -0.02, 0.03]}, "pass", "D3?"),
    ],
)
def test_a_run_over_seeds_has_one_outcome_and_the_checks_that_decide_it(given, name, checks):
    assert outcome_of(tidy_of(run("dfa", **given)).runs) == (name, checks)


def test_the_matrix_has_a_square_for_every_run_in_every_setting_that_has_it():
    rows = run("bp", setting="vit") + run("bp", setting="mlp", n=2)
    rows += run("dfa", setting="mlp", accuracy=0.3, fires="ac")
    rows += [network("fa", setting="vit", depth_fires=None)]
    found = squares(drawn("verdict_matrix", tidy_of(rows), labels={"bp": "BP", "vit": "ViT-Mini"}))
    outcomes = {("BP", "ViT-Mini"): ("pass", "", 3), ("BP", "mlp"): ("pass", "", 2),
                ("dfa", "mlp"): ("walk-back", "D1, C", 3), ("fa", "ViT-Mini"): ("incomplete", "", 1)}  # fmt: skip
    for place, (name, checks, n) in outcomes.items():
        text, colour = found.pop(place)
        assert text.splitlines() == [name, *filter(None, [checks]), f"n = {n}"]
        assert colour == OUTCOMES[name][0]
    assert not found


def test_squares_count_the_seeds_of_all_settings_that_a_strategy_withdraws_where_it_has_its_number():
    rows = [
        network("a", shallow_acc=0.6, cosines=(0.5, -0.1)),  # as good as the shallow network: not above it
        network("b", shallow_acc=0.61, cosines=(0.2, -0.1), fires="ad"),
        network("bp"), network("bp", setting="vit", fires="b"),
        network("c", cosines=(NAN, -0.1), fires="bc", shallow_acc=NAN),
        network("d", cosines=(NAN, NAN), finite=False, scale_fires=None, reference_fires=None),
        network("e", seed=1, depth_fires=None), network("e", seed=2),
        network("f", accuracy=NAN, stability_fires=None, depth_fires=None),
    ]  # fmt: skip
    found, colours = {}, {}
    figure = drawn("decision_utility", tidy_of(rows), labels={"bp": "BP"})
    for (name, _), (text, colour) in squares(figure).items():
        found[name] = f"{found.get(name, '')} {text}".strip()
        colours.setdefault(text, set()).add(colour)
    assert found == {  # accuracy only, cosine, shallow, (a) to (d), full protocol
        "a": "0/1 0/1 1/1 0/1 0/1 0/1 0/1 0/1", "b": "0/1 0/1 1/1 1/1 0/1 0/1 1/1 1/1",
        "BP": "0/2 0/2 0/2 0/2 1/2 0/2 0/2 1/2", "c": "0/1 1/1 n/a 0/1 1/1 1/1 0/1 1/1",
        "d": "0/1 n/a 0/1 n/a n/a 0/1 0/1 1/1", "e": "0/2 0/2 0/2 0/2 0/2 0/2 0/1 0/1",
        "f": "n/a 0/1 n/a 0/1 0/1 n/a n/a n/a",
    }  # fmt: skip
    assert all(len(same) == 1 for same in colours.values())
    assert len({*colours["0/1"], *colours["1/2"], *colours["1/1"], *colours["n/a"]}) == 4


def curve(figure, panel, run):
    """Thresholds and fractions of one run's curve."""
    names = [label.get_text().partition(" ")[0] for label in figure.axes[0].get_yticklabels()]
    (line,) = (line for line in figure.axes[panel].lines if line.get_label() == run)
    x, y = line.get_xydata().T
    return x, (names.index(run) + 0.4 - y) / 0.8


def test_curves_are_the_fractions_that_fire_at_each_threshold_beside_the_protocols_own():
    """A value that was not measured, or a gradient that is infinite, is in no fraction."""
    values = [(2.0, 0.0, 0.1), (60.0, 1e-8, NAN), (math.inf, math.inf, 0.5)]
    rows = [network("dfa", seed=i, accuracy=0.4, max_growth=growth, grad_norm_last=norm, stability=cosine)
            for i, (growth, norm, cosine) in enumerate(values)]  # fmt: skip
    limits = DiagnosticThresholds(20, 3e-6, 0.2, 5.0)
    figure = drawn("threshold_sensitivity", tidy_of(network("bp"), rows), thresholds=limits)
    for panel, thresholds, expected in (
        (0, [1.5, 2, 20, 60], [1, 1, 2 / 3, 2 / 3, 1 / 3, 1 / 3]),
        (1, [1e-8, 3e-6, 1e-3], [0.5, 0.5, 1, 1, 1]),
        (2, [0.05, 0.1, 0.2, 0.5], [1, 1, 0.5, 0.5, 0, 0]),
    ):
        x, fractions = curve(figure, panel, "dfa")
        assert x[1:-1].tolist() == thresholds and fractions == pytest.approx(expected)
    drawn_as = [{line.get_label(): line for line in ax.lines} for ax in figure.axes]
    assert [own["dfa"].get_drawstyle()[6:] for own in drawn_as] == ["post", "pre", "post", "pre"]
    assert [set(own["limit"].get_xdata()) for own in drawn_as] == [{20}, {3e-6}, {0.2}, {5}]


def test_dark_areas_are_the_fractions_on_which_nothing_else_fires():
    seeds = [(60.0, {"fires": "ad"}), (10.0, {"fires": "b"}), (20.0, {}), (5.0, {"finite": False})]
    rows = [network("dfa", seed=i, max_growth=growth, **found) for i, (growth, found) in enumerate(seeds)]  # fmt: skip
    none = network("ep", stability=NAN)
    figure = drawn("threshold_sensitivity", tidy_of(rows, none))
    x, fractions = curve(figure, 0, "dfa")
    assert x[1:-1].tolist() == [1.5, 5, 10, 20, 50, 60]
    assert fractions == pytest.approx([1, 1, 0.75, 0.5, 0.25, 0.25, 0, 0])
    dark = figure.axes[0].collections[1]  # on the light one
    heights = (0.4 - dark.get_paths()[0].vertices[:, 1]) / 0.8
    assert heights.max() == pytest.approx(0.25)  # the third alone depends on (a)
    assert [text.get_text() for text in figure.axes[2].texts] == ["n/a"]


def test_ranks_follow_from_means_over_the_measured_seeds_and_some_runs_have_no_value():
    """High cosine, rho and loss decrease and low nudging are best."""
    rows = run("a", deep_cosine=0.9, deep_rho=[0.1, 0.3, NAN], deep_nudging=-0.3, losses=(2.0, 1.0))
    rows += run("b", deep_cosine=0.5, deep_rho=0.25, deep_nudging=-0.1, losses=(2.5, 2.4, 1.0))
    rows += run("c", deep_cosine=-0.2, deep_rho=NAN, deep_nudging=0.2, losses=(1.0,))
    rows += run("d", deep_cosine=-0.3, deep_rho=0.25, deep_nudging=0.3, losses=(1.5, 1.0))
    found = [text for text, _ in squares(drawn("triangulation", tidy_of(rows))).values()]
    ranks = np.reshape([text.splitlines()[0] for text in found], (4, 4)).tolist()
    assert ranks == [
        ["1", "3", "1", "2"],
        ["2", "1", "2", "1"],
        ["3", "n/a", "3", "n/a"],
        ["4", "1", "4", "3"],
    ]
    assert found[1].splitlines()[1:] == ["(0.2)", "2/3 seeds"]
