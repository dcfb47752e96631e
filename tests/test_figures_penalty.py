"""The figure of a penalty sweep: what is drawn equals the data, and is readable."""

from dataclasses import replace

import numpy as np
import pytest
from drawing import EXPLODED, HEALTHY, TITLE, assert_readable, everything, legend_of, lines, tables, tidy_of

from fa_audit.results.figures import penalty_rescue

PENALTIES = ("", "+penalty1e-3", "+penalty1e-1")


def sweep(methods, penalties=PENALTIES, **options):
    """A penalty sweep: the larger the penalty, the smaller the states, the better the credit."""
    kinds = {
        method + suffix: (0.5 + 0.04 * i, 0.52, 1e3 / 10**i, 1e6 / 10**i, 1e-6, 0.1)
        for method in methods
        for i, suffix in enumerate(penalties)
    }
    return tidy_of(*tables(kinds, **options))


def rescue(tidy, **options):
    return penalty_rescue.draw(tidy, **{"title": TITLE, "labels": {}} | options)


def panels_of(figure):
    """The panels of the penalties, of the two metrics, and of the accuracy."""
    *over_time, cosine, rho, accuracy = figure.axes
    return over_time, cosine, rho, accuracy


def test_last_states_stand_in_the_panel_of_their_penalty():
    tidy = sweep(["dfa", "bp"])
    over_time, *_ = panels_of(rescue(tidy))
    assert [ax.get_title(loc="left") for ax in over_time] == [f"(a) $\\lambda$ = {x}" for x in ("0", "1e-3", "1e-1")]
    last = tidy.trajectories[tidy.trajectories["layer"] == 4]
    for ax, suffix in zip(over_time, PENALTIES, strict=True):
        for method in ("dfa", "bp"):
            group = last[last["run"] == method + suffix]
            expected = [seed[["epoch", "hidden_norm"]].to_numpy().tolist() for _, seed in group.groupby("seed")]
            assert [line.tolist() for line in lines(ax, method)] == expected


@pytest.mark.parametrize(("panel", "column"), [(1, "deep_cosine"), (2, "deep_rho")])
def test_credit_stands_at_the_place_of_its_penalty_with_its_mean(panel, column):
    tidy = sweep(["dfa", "bp"])
    tidy.runs.loc[(tidy.runs["run"] == "dfa") & (tidy.runs["seed"] == 42), column] = np.nan
    ax = panels_of(rescue(tidy))[panel]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "1e-3", "1e-1"]
    (points,) = lines(ax, "dfa")
    of = [tidy.runs.loc[tidy.runs["run"] == "dfa" + suffix, column].to_numpy() for suffix in PENALTIES]
    np.testing.assert_array_equal(points[:, 1], np.concatenate(of))
    assert np.round(points[:, 0]).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    means = [line for line in lines(ax, "mean over seeds") if line[0, 0] == points[0, 0]]
    assert means[0][:, 1].tolist() == pytest.approx([(of[0][1] + of[0][2]) / 2, sum(of[1]) / 3, sum(of[2]) / 3])


def test_bars_are_means_over_seeds_under_the_line_of_the_own_frozen_baseline():
    tidy = sweep(["dfa", "bp"])
    tidy.runs.loc[tidy.runs["run"] == "bp", "own_frozen_acc"] = np.nan
    *_, accuracy = panels_of(rescue(tidy))
    means = tidy.runs.groupby("run")[["accuracy", "own_frozen_acc"]].mean()
    for method in ("dfa", "bp"):
        bars = [bar for container in accuracy.containers if container.get_label() == method for bar in container]
        expected = [means.loc[method + suffix] for suffix in PENALTIES]
        assert [bar.get_height() for bar in bars] == pytest.approx([mean["accuracy"] for mean in expected])
        assert {bar.get_y() for bar in bars} == {0}
        for place, (bar, mean) in enumerate(zip(bars, expected)):
            middle = bar.get_x() + bar.get_width() / 2
            assert round(middle) == place
            (frozen,) = [
                line for line in lines(accuracy, "own frozen baseline") if abs(line[:, 0].mean() - middle) < 1e-9
            ]
            np.testing.assert_allclose(frozen[:, 1], mean["own_frozen_acc"])
    points = np.concatenate(lines(accuracy, "dfa"))[:, 1]
    of = [tidy.runs.loc[tidy.runs["run"] == "dfa" + suffix, "accuracy"] for suffix in PENALTIES]
    assert points.tolist() == np.concatenate(of).tolist()


def test_a_method_is_one_entry_with_its_label_and_the_number_of_its_seeds():
    tidy = sweep(["dfa", "bp"])
    missing = (tidy.runs["run"] == "dfa+penalty1e-3") & (tidy.runs["seed"] == 42)
    names = legend_of(
        rescue(replace(tidy, runs=tidy.runs[~missing]), labels={"dfa": "DFA", "dfa+penalty1e-3": "not this"})
    )
    assert sorted(names[:2]) == ["DFA (n = 2 to 3)", "bp (n = 3)"]
    assert names[2:] == ["one seed", "mean over seeds", "own frozen baseline"]


def test_audited_baselines_are_not_their_method_without_a_penalty():
    kinds = {"dfa": EXPLODED, "dfa+penalty1e-2": HEALTHY, "dfa+frozen": HEALTHY, "dfa+shallow": HEALTHY}
    tidy = tidy_of(*tables(kinds))
    tidy.runs.loc[tidy.runs["run"] == "dfa+shallow", ["deep_cosine", "deep_rho", "own_frozen_acc"]] = np.nan
    figure = rescue(tidy)
    assert {name.partition(" ")[0] for name in legend_of(figure)[:3]} == {"dfa", "dfa+frozen", "dfa+shallow"}
    *_, accuracy = panels_of(figure)
    heights = [bar.get_height() for box in accuracy.containers if box.get_label() == "dfa" for bar in box]
    assert heights == pytest.approx(tidy.runs.groupby("run")["accuracy"].mean()[["dfa", "dfa+penalty1e-2"]].tolist())


def test_a_penalty_sweep_marks_what_leaves_the_scale():
    tidy = sweep(["dfa", "bp"])
    tidy.trajectories.loc[tidy.trajectories["run"] == "dfa", "hidden_norm"] = np.inf
    figure = rescue(tidy)
    over_time, *_ = panels_of(figure)
    assert [len(lines(ax, "infinite")) for ax in over_time] == [3, 0, 0]
    assert legend_of(figure)[-1] == "infinite"
    assert_readable(figure)


def test_many_penalties_take_two_rows_and_the_lowest_panels_have_the_epochs():
    penalties = ["", *(f"+penalty{k}e-{i}" for i in (1, 2, 3) for k in (1, 5))]
    figure = rescue(sweep(["dfa"], penalties, seeds=(1,)))
    over_time = [ax for ax in panels_of(figure)[0] if ax.get_visible()]
    assert [ax.get_xlabel() for ax in over_time] == ["", "", *["epoch"] * 5]
    assert [ax.xaxis.get_tick_params()["labelbottom"] for ax in over_time] == [False] * 2 + [True] * 5
    assert_readable(figure)


@pytest.mark.parametrize(
    ("methods", "penalties", "options"),
    [
        (["bp", "fa", "dfa", "state_bridge", "credit_bridge"], PENALTIES, {}),
        ([f"some_module_{i}:AnotherFeedbackAlignment" for i in range(11)], [*PENALTIES, "+penalty1e-2"], {}),
        (["dfa"], [""], {"seeds": (1,)}),
    ],
    ids=["five", "eleven", "one"],
)
def test_a_penalty_sweep_is_readable(methods, penalties, options):
    assert_readable(rescue(sweep(methods, penalties, **options)))


def test_the_order_of_the_rows_does_not_matter():
    tidy = sweep(["dfa", "bp"])
    turned = replace(tidy, runs=tidy.runs.iloc[::-1], trajectories=tidy.trajectories.iloc[::-1])
    assert str(everything(rescue(turned))) == str(everything(rescue(tidy)))
