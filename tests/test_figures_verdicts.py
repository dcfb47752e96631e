"""Figures of verdicts: the matrix, what strategies withdraw, how far checks depend on thresholds,
how measures rank.
"""

import itertools
import math

import numpy as np
import pytest
from drawing import drawn, legend_of, texts
from made_up_runs import network, tidy_of

from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.results.figures.triangulation import MEASURES, SIDE

NAN = math.nan


def grid(figure):
    """The texts of a grid as ``{(row label, column label): text}``; labels on one line each."""
    ax = figure.axes[0]
    columns, rows = (
        [t.get_text().replace("\n", " ") for t in axis.get_ticklabels()]
        for axis in (ax.xaxis, ax.yaxis)
    )
    return {
        (rows[round(t.get_position()[1])], columns[round(t.get_position()[0])]): t.get_text()
        for t in ax.texts
    }


def squares(figure):
    """The texts of a grid as ``{(row, column): text}``, by number."""
    return {
        tuple(int(at) for at in reversed(text.get_position())): text.get_text()
        for text in figure.axes[0].texts
    }


def faces(figure):
    """Colour and hatch of each square as ``{(row, column): ...}``, by number."""
    filled = [patch for patch in figure.axes[0].patches if patch.get_fill()]
    return {
        (round(p.get_y() + 0.5), round(p.get_x() + 0.5)): (p.get_facecolor(), p.get_hatch())
        for p in filled
    }


def test_squares_say_what_fires_in_all_and_in_some_seeds_and_how_many_fail():
    seeds = (1, 2, 3)
    rows = [network("bp", setting=s, seed=seed) for s in ("vit", "mlp") for seed in seeds]
    rows += [network("dfa", setting="mlp", seed=s, accuracy=0.3, fires=fires, finite=s != 3)
             for s, fires in zip(seeds, ("ac", "c", "c"))]  # fmt: skip
    rows += [network("ep", setting="mlp", seed=s, accuracy=0.4, fires="c") for s in seeds]
    rows += [
        network("fa", setting="vit", seed=s, accuracy=0.2, depth_fires=False if s == 3 else None)
        for s in seeds
    ]
    figure = drawn("verdict_matrix", tidy_of(rows), labels={"bp": "BP", "vit": "ViT-Mini"})
    found = squares(figure)
    assert found == {  # by the number of settings, then accuracy
        (0, 0): "BP\ntrustworthy\npass 3/3", (0, 1): "fa\nincomplete\nincomplete 2/3",
        (1, 0): "BP\ntrustworthy\npass 3/3", (1, 1): "ep\nc\npass 3/3",
        (1, 2): "dfa\n(a), c, (\N{INFINITY})\nFAIL 1/3",
    }  # fmt: skip
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["ViT-Mini", "mlp"]
    looks = faces(figure)
    assert set(looks) == set(found)  # nothing is drawn for what was not run
    colours, hatches = zip(*(looks[at] for at in ((0, 0), (0, 1), (1, 1), (1, 2))))
    assert len(set(colours)) == 4 == len(set(hatches)) == len(legend_of(figure))


def test_a_setting_of_many_runs_takes_a_second_line():
    names = [f"own{i}" for i in range(8)]
    rows = [network(name, accuracy=0.9 - i / 10) for i, name in enumerate(names)] + [
        network("own7", setting="vit")
    ]
    found = squares(drawn("verdict_matrix", tidy_of(rows)))
    expected = (
        {(0, 0): "own7", (2, 0): "own7"}
        | {(0, i + 1): f"own{i}" for i in range(5)}
        | {(1, 0): "own5", (1, 1): "own6"}
    )
    assert {at: text.splitlines()[0] for at, text in found.items()} == expected


def test_everything_about_a_run_stays_in_its_square():
    methods = ("bp", "fa", "dfa", "ep", "state_bridge", "credit_bridge")
    checks = ("scale", "reference", "stability", "depth")
    distances = ((1, -0.5), (2, 0.6), (3, 0.2))  # on both sides of every limit
    rows = [
        network(name, seed=seed, finite=name != "fa" or distance > 0, fires="abcd" if distance < 0 else "",
                **{f"{check}_distance": distance for check in checks})
        for name in methods for seed, distance in distances
    ]  # fmt: skip
    figure = drawn("verdict_matrix", tidy_of(rows))
    (ax,) = figure.axes
    boxes = {id(text): box.transformed(ax.transData.inverted()) for text, box in texts(figure)}
    assert len(ax.texts) == 6
    for text in ax.texts:
        box, (column, _) = boxes[id(text)], text.get_position()
        assert (
            "(∞)" if text.get_text().startswith("fa\n") else "borderline\na, b, c, d"
        ) in text.get_text()
        assert column - 0.5 < box.x0 and box.x1 < column + 0.5, (
            f"{text.get_text()!r} leaves its square"
        )


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
    figure = drawn("decision_utility", tidy_of(rows), labels={"bp": "BP"})
    found = {}
    for (run, _), text in grid(figure).items():
        found[run] = f"{found.get(run, '')} {text}".strip()
    assert found == {  # accuracy only, cosine, shallow, (a) to (d), full protocol
        "a": "0/1 0/1 1/1 0/1 0/1 0/1 0/1 0/1", "b": "0/1 0/1 1/1 1/1 0/1 0/1 1/1 1/1",
        "BP": "0/2 0/2 0/2 0/2 1/2 0/2 0/2 1/2", "c": "0/1 1/1 n/a 0/1 1/1 1/1 0/1 1/1",
        "d": "0/1 n/a 0/1 n/a n/a 0/1 0/1 1/1", "e": "0/2 0/2 0/2 0/2 0/2 0/2 0/1 0/1",
        "f": "n/a 0/1 n/a 0/1 0/1 n/a n/a n/a",
    }  # fmt: skip
    looks = faces(figure)
    assert looks[0, 0] != looks[0, 2] != looks[3, 2] and looks[3, 2][1] and not looks[0, 0][1]


def curve(figure, panel, run, label=None):
    """Thresholds and fractions of one run's curve, that of its check or the one with that label."""
    ax = figure.axes[panel]
    row = [label.get_text().replace("\n", "") for label in figure.axes[0].get_yticklabels()].index(
        run
    )
    (line,) = (line for line in ax.lines if line.get_label() == (label or run.partition(" ")[0]))
    x, y = line.get_xydata().T
    return x, (row + 0.4 - y) / 0.8


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
        x, fractions = curve(figure, panel, "dfa (3)")
        assert x[1:-1].tolist() == thresholds and fractions == pytest.approx(expected)
    drawn_as = [{line.get_label(): line for line in ax.lines} for ax in figure.axes]
    assert [own["dfa"].get_drawstyle()[6:] for own in drawn_as] == ["post", "pre", "post", "pre"]
    assert [set(own["limit"].get_xdata()) for own in drawn_as] == [{20}, {3e-6}, {0.2}, {0.05}]
    assert figure.axes[3].get_title(loc="left").endswith("below 5 points")


def test_dark_areas_are_the_fractions_on_which_nothing_else_fires():
    seeds = [(60.0, {"fires": "ad"}), (10.0, {"fires": "b"}), (20.0, {}), (5.0, {"finite": False})]
    rows = [
        network("dfa", seed=i, max_growth=growth, **found)
        for i, (growth, found) in enumerate(seeds)
    ]
    figure = drawn("threshold_sensitivity", tidy_of(rows))
    x, fractions = curve(figure, 0, "dfa (4)", "dfa: alone")
    assert x[1:-1].tolist() == [5, 10, 20, 50, 60]
    assert fractions == pytest.approx(
        [0.25, 0.25, 0.25, 0, 0, 0, 0]
    )  # the third alone depends on (a)
    assert curve(figure, 0, "dfa (4)")[1] == pytest.approx([1, 0.75, 0.5, 0.25, 0.25, 0, 0])


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
    axes = drawn("threshold_sensitivity", tidy_of(rows)).axes
    found = ["separate: 11 to 694", "none separates", "no failing networks", "separate: 0 to 20"]
    assert [ax.get_xlabel().splitlines()[1] for ax in axes] == found
    gaps = [
        [line.get_xdata().tolist() for line in ax.lines if line.get_label() == "gap"] for ax in axes
    ]
    assert gaps == [[[11, 694]], [], [], [pytest.approx([0, 0.2])]]
    stability = axes[2]
    assert [text.get_text() for text in stability.texts] == ["n/a"]  # dfa has no value
    assert not [line for line in stability.lines if line.get_label() == "dfa"]


def texts_of(ax):
    return {text.get_position(): text.get_text() for text in ax.texts}


def lines_between(ax, run):
    """The places of a run under each measure and the next one."""
    return [line.get_ydata() for line in ax.lines if line.get_label() == run][1:-1]


def test_ranks_follow_from_means_over_the_measured_seeds_and_equal_ones_stay_as_they_were():
    seeds = [(0.1, -2.4e-4), (0.3, NAN), (NAN, NAN)]
    rows = [network("a", seed=s, deep_cosine=0.2, deep_rho=rho, deep_nudging=nats)
            for s, (rho, nats) in enumerate(seeds)]  # fmt: skip
    rows += [
        network("b", seed=s, deep_cosine=0.5, deep_rho=rho) for s, rho in enumerate((0.25, 0.25, 0))
    ]
    ax = drawn("triangulation", tidy_of(rows)).axes[0]
    texts = texts_of(ax)
    assert (
        texts[1, 0] == "1\n(0.2)\n2/3 seeds"
        and texts[2, 1] == "2\n($-2.4{\\times}10^{-4}$)\n1/3 seeds"
    )
    assert {texts[3, 0], texts[3, 1]} == {"1=\n(1)"}
    np.testing.assert_array_equal(lines_between(ax, "a"), [[1, 0], [0, 1], [1, 1]])


def test_high_cosine_rho_and_loss_decrease_and_low_nudging_are_best_and_lines_stop_where_a_run_has_no_value():
    rows = [
        network("a", deep_cosine=0.9, deep_rho=NAN, deep_nudging=-0.3, losses=(2.0, 1.0)),
        network("b", deep_cosine=0.5, deep_rho=0.3, deep_nudging=-0.1, losses=(2.5, 2.4, 1.0)),
        network("c", deep_cosine=-0.2, deep_rho=0.2, deep_nudging=0.2, losses=(1.0, 1.2)),
    ]
    ax = drawn("triangulation", tidy_of(rows), labels={"a": "A"}).axes[0]
    for run, expected in {"a": [0, NAN, 0, 1], "b": [1, 0, 1, 0], "c": [2, 1, 2, 2]}.items():
        np.testing.assert_array_equal(lines_between(ax, run), list(itertools.pairwise(expected)))
    texts = texts_of(ax)
    assert [texts[0, 0], texts[1, 1], texts[1, 2], texts[3, 1]] == [
        "1\n(0.9)",
        "2\n(0.2)",
        "n/a",
        "2\n(1)",
    ]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["A", "b", "c"]
    assert [label.get_text() for label in ax.child_axes[0].get_yticklabels()] == ["b", "A", "c"]
    assert [label.get_text() for label in ax.get_xticklabels()] == list(MEASURES.values())
    for text in ax.texts:
        box = text.get_window_extent().transformed(ax.transData.inverted())
        x = text.get_position()[0]
        assert x - SIDE < box.x0 and box.x1 < x + SIDE, f"{text.get_text()!r} meets a line"
