"""Figures of norms, credit and accuracy: what is drawn equals the tables."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from drawing import drawn, legend_of, lines, markers, words
from made_up_runs import EXPLODED, network, several, tidy_of

from fa_audit.core.errors import AuditError
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures import (
    audit_overview,
    credit_layers,
    depth_ladder,
    depth_sweep,
    penalty_rescue,
    trajectories,
)

NAN = np.nan
RUNS = {"bp": {}, "fa": {"accuracy": 0.4, "max_growth": 700.0, "cosines": (0.5, 0.3)}, "dfa": EXPLODED}
ORDER = ["bp", "fa", "dfa"]  # by accuracy
DEPTHS = (2, 4, 12)


@pytest.fixture
def tidy():
    return tidy_of(several(RUNS))


@pytest.fixture
def depths():
    return tidy_of(*(several(RUNS, setting=f"depth{depth}", depth=depth) for depth in DEPTHS))


def of(table, run, column):
    return table[table["run"] == run].sort_values("seed")[column].tolist()


def mean_lines(ax, runs=ORDER):
    """The lines of the means by run; they are drawn in the order of the runs' own markers."""
    order = [line.get_label() for line in ax.lines if line.get_label() in runs]
    return dict(zip(dict.fromkeys(order), lines(ax, "mean over seeds"), strict=True))


# ---- overview


def test_the_overview_has_every_seed_its_mean_and_its_baselines_in_the_order_of_accuracy(tidy):
    figure = drawn(audit_overview, tidy, labels={"bp": "BP", "dfa": "DFA + all"},
                   thresholds=DiagnosticThresholds(frozen_acc_margin_pp=5.0))  # fmt: skip
    for ax, column in zip(figure.axes, ("max_growth", "grad_norm_last", "stability", "accuracy"), strict=True):
        means = [bar.get_segments()[0] for bar in ax.collections if bar.get_label() == "mean"]
        for position, run in enumerate(ORDER):
            (points,) = lines(ax, run)
            assert points[:, 1].tolist() == of(tidy.runs, run, column)
            assert np.abs(points[:, 0] - position).max() < 0.5
            assert means[position][0, 1] == pytest.approx(np.mean(of(tidy.runs, run, column)))
    accuracy = figure.axes[3]
    assert [text.get_text() for text in accuracy.get_xticklabels()] == ["BP", "fa", "DFA\n+ all"]
    for position, run in enumerate(ORDER):
        for column, label in (("own_frozen_acc", "own frozen baseline"), ("bp_frozen_acc", "bp+frozen baseline")):
            points = lines(accuracy, label)[position]
            assert points[:, 1].tolist() == of(tidy.runs, run, column)
            assert ((points[:, 0] > position) & (points[:, 0] < position + 0.5)).all()
        asked = lines(accuracy, "asked")[position]  # the accuracy below which the depth check fires
        assert asked[:, 1] == pytest.approx(np.array(of(tidy.runs, run, "own_frozen_acc")) + 0.05)
        assert asked[:, 0].tolist() == lines(accuracy, run)[0][:, 0].tolist()
    assert len({line.get_marker() for line in accuracy.lines if "baseline" in line.get_label()}) == 2
    assert "own frozen + 5 points: fires below" in words(figure)


# ---- credit of every layer


def test_the_aggregate_is_the_mean_over_the_blocks_that_have_a_cosine():
    rows = [network("dfa", seed=1, cosines=(0.42, NAN, -0.015)), network("dfa", seed=2, cosines=(-1.0,))]
    aggregate = drawn(credit_layers, tidy_of(rows)).axes[0]
    assert lines(aggregate, "dfa")[0].tolist() == [[pytest.approx(0.2025), 0.6], [-1.0, 0.6]]


def test_every_block_and_state_has_its_seeds_and_the_line_of_their_means(tidy):
    _, cosine, gradient = drawn(credit_layers, tidy).axes
    for (ax, column), run in itertools.product(((cosine, "cosine"), (gradient, "grad_norm")), ORDER):
        table = tidy.layers[tidy.layers["run"] == run].dropna(subset=[column])
        found = markers(ax, run)
        assert sorted(y for _, y, _ in found) == sorted(table[column])
        assert sorted(round(x) for x, _, _ in found) == sorted(table["layer"])
        expected = table.groupby("layer")[column].mean()
        np.testing.assert_allclose(mean_lines(ax)[run][: len(expected), 1], expected)


def test_markers_are_hollow_where_the_reference_is_below_its_limit(tidy):
    tidy.layers.loc[(tidy.layers["run"] == "dfa") & (tidy.layers["layer"] == 1), "grad_norm"] = NAN
    for limit in (1e-7, 1e-2):
        limits = DiagnosticThresholds(g_norm_floor=limit)
        aggregate, cosine, gradient = drawn(credit_layers, tidy, thresholds=limits).axes
        for run in ORDER:
            table = tidy.layers[tidy.layers["run"] == run]
            below = table.loc[table["grad_norm"] < limit, "cosine"].dropna()
            assert sorted(y for _, y, hollow in markers(cosine, run) if hollow) == sorted(below)
            assert all(hollow == (y < limit) for _, y, hollow in markers(gradient, run))
            last = tidy.runs[tidy.runs["run"] == run].set_index("accuracy")["grad_norm_last"]
            assert all(hollow == (last[y] < limit) for _, y, hollow in markers(aggregate, run))


def test_what_was_not_measured_is_a_gap_and_the_number_of_seeds_says_so(tidy):
    dfa, shallow = tidy.layers["run"] == "dfa", tidy.layers["run"] == "fa"
    tidy.layers.loc[dfa & (tidy.layers["layer"] == 0), "cosine"] = NAN
    tidy.layers.loc[dfa & (tidy.layers["layer"] == 1) & (tidy.layers["seed"] == 42), "cosine"] = NAN
    tidy.layers.loc[shallow, "cosine"] = NAN  # a network without blocks
    figure = drawn(credit_layers, replace(tidy, layers=tidy.layers[~shallow | (tidy.layers["layer"] == 0)]))
    assert np.isnan(mean_lines(figure.axes[1])["dfa"][:, 1]).tolist() == [True, False, True]
    assert not markers(figure.axes[1], "fa") and len(markers(figure.axes[2], "fa")) == 3
    assert legend_of(figure)[:3] == ["bp (n = 3)", "fa (n = 3)", "dfa (n = 2 to 3)"]


# ---- trajectories


@pytest.fixture
def two():
    shallower = several({"dfa": {**EXPLODED, "first_scale_flag": 1}, "fa": {}}, setting="shallower", depth=2)
    return tidy_of(several(RUNS, setting="deep"), shallower)


def panels_of(figure):
    return np.array(figure.axes).reshape(-1, 3)


def test_every_setting_has_a_row_with_the_last_states_of_its_own_networks(two):
    two.trajectories.loc[two.trajectories["setting"] == "deep", "test_accuracy"] /= 10
    figure = drawn(trajectories, two, labels={"deep": "Four blocks", "bp": "BP"})
    panels = panels_of(figure)
    for (setting, depth), row in zip({"deep": 4, "shallower": 2}.items(), panels, strict=True):
        last = two.trajectories[(two.trajectories["setting"] == setting) & (two.trajectories["layer"] == depth)]
        for (column, ax), run in itertools.product(zip(("hidden_norm", "grad_norm", "test_accuracy"), row), ORDER):
            group = last[last["run"] == run].groupby("seed")
            expected = [seed[["epoch", column]].to_numpy().tolist() for _, seed in group]
            assert [line.tolist() for line in lines(ax, run)] == expected
    (hidden, gradient, accuracy), below = panels
    assert hidden.get_ylim() == below[0].get_ylim() and gradient.get_ylim() == below[1].get_ylim()
    assert accuracy.get_ylim()[1] < 0.1 < below[2].get_ylim()[1]
    headings = [[ax.get_title(loc="left") for ax in row] for row in panels]
    assert headings == [["Four blocks", "", ""], ["shallower", "", ""]]
    assert legend_of(figure) == ["BP", "fa", "dfa", trajectories.FIRST]


def test_rings_stand_where_the_checks_first_fired_in_each_run_and_seed(two):
    where = (two.runs["setting"] == "deep") & (two.runs["seed"] == 123)
    two.runs.loc[where, ["first_scale_flag", "first_reference_flag"]] = [3, NAN]
    for (setting, depth), (hidden, gradient, accuracy) in zip(
        {"deep": 4, "shallower": 2}.items(), panels_of(drawn(trajectories, two))
    ):
        runs = two.runs[two.runs["setting"] == setting]
        last = two.trajectories[(two.trajectories["setting"] == setting) & (two.trajectories["layer"] == depth)]
        for ax, flag, column in (
            (hidden, "first_scale_flag", "hidden_norm"), (gradient, "first_reference_flag", "grad_norm"),
        ):  # fmt: skip
            fired = runs.dropna(subset=[flag]).merge(last, on=["run", "seed"])
            fired = fired[fired["epoch"] == fired[flag]]
            rings = [ring.tolist() for found in lines(ax, trajectories.FIRST) for ring in found]
            assert sorted(rings) == sorted(fired[["epoch", column]].to_numpy().tolist()) and rings
        assert not lines(accuracy, trajectories.FIRST)


# ---- depths


def test_every_depth_has_its_seeds_and_the_line_of_their_means(depths):
    depths.runs.loc[(depths.runs["run"] == "dfa") & (depths.runs["setting"] == "depth4"), "own_frozen_acc"] = NAN
    runs = depths.runs.assign(margin=100 * (depths.runs["accuracy"] - depths.runs["own_frozen_acc"]))
    figure = drawn(depth_sweep, depths)
    for ax, column in zip(figure.axes, ("accuracy", "max_growth", "grad_norm_last", "margin"), strict=True):
        for run in ORDER:
            expected = [of(runs[runs["depth"] == depth], run, column) for depth in DEPTHS]
            (points,) = lines(ax, run)
            np.testing.assert_allclose(points[:, 1], np.concatenate(expected), rtol=1e-12)
            assert np.round(points[:, 0]).tolist() == np.repeat(DEPTHS, 3).tolist()
            np.testing.assert_allclose(mean_lines(ax)[run][:, 1], [np.mean(values) for values in expected])
    assert [label.get_text() for label in figure.axes[2].get_xticklabels()] == ["2", "4", "12"]
    depths.runs["depth"] = 4
    with pytest.raises(
        AuditError, match=r"depth2, depth4, depth12 all have depth 4; expected settings that differ in depth"
    ):
        drawn(depth_sweep, depths)


# ---- ladder


def ladder(methods=("bp", "dfa"), seeds=(1, 2), depth=3):
    """Every rung of some methods; accuracy 0.5, minus a tenth per frozen block, plus a hundredth per seed."""
    return [
        network(f"{method}+frozen{frozen}" if frozen else method, seed=seed, depth=depth, frozen_blocks=frozen,
                accuracy=0.5 - frozen / 10 + seed / 100 - rank / 5, own_frozen_acc=0.2 + seed / 100 - rank / 5)
        for rank, method in enumerate(methods) for seed, frozen in itertools.product(seeds, range(depth))
    ]  # fmt: skip


def test_rungs_go_from_the_frozen_baseline_to_the_whole_plain_network():
    others = [
        network("bp+penalty1e-2", penalty=0.01, depth=3), network("bp+shallow", shallow=True, depth=3),
        network("bp+random_targets", random_targets=True, depth=3),
        network("bp+frozen", frozen_blocks=3, depth=3, own_frozen_acc=NAN),
    ]  # fmt: skip
    found = depth_ladder.rungs(tidy_of(ladder(("bp",)), others).runs)
    assert found["k"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and found["seed"].tolist() == [1, 2] * 4
    assert found["accuracy"].tolist() == pytest.approx([0.21, 0.22, 0.31, 0.32, 0.41, 0.42, 0.51, 0.52])
    missing = ladder(("bp",), seeds=(1,))
    missing[0]["own_frozen_acc"], missing[1]["accuracy"] = NAN, NAN
    assert depth_ladder.rungs(tidy_of(missing).runs)["k"].tolist() == [1, 3]
    with pytest.raises(AuditError, match=r"found bp\+penalty1e-2, bp\+random_targets.*; expected runs of a ladder"):
        drawn(depth_ladder, tidy_of(others[:3]))


def test_every_seed_is_a_point_and_the_line_goes_through_the_means():
    rows = [row for row in ladder() if (row["run"], row["seed"]) != ("dfa+frozen1", 2) and row["run"] != "bp+frozen2"]
    figure = drawn(depth_ladder, tidy_of(rows), labels={"dfa": "DFA"})
    (bp,), (dfa,) = lines(figure.axes[0], "bp"), lines(figure.axes[0], "dfa")
    assert bp[:, 0] == pytest.approx(np.repeat([0, 2, 3], 2) - 0.06)
    assert bp[:, 1] == pytest.approx([0.21, 0.22, 0.41, 0.42, 0.51, 0.52])
    assert dfa[:, 0] == pytest.approx(np.array([0, 0, 1, 1, 2, 3, 3]) + 0.06)
    (means,) = lines(figure.axes[0], "bp mean")
    np.testing.assert_allclose(means[:, 1], [0.215, NAN, 0.415, 0.515])  # no line over a rung that was not measured
    assert legend_of(figure) == ["bp (n = 2)", "DFA (n = 1 to 2)"]


# ---- penalties

PENALTIES = ("", "+penalty1e-3", "+penalty1e-1")


@pytest.fixture
def sweep():
    """The larger the penalty, the smaller the states, the better the credit."""
    return tidy_of(several({
        method + suffix: {"accuracy": 0.5 + 0.04 * i, "hidden_norm_last": 1e6 / 10**i, "own_frozen_acc": 0.52}
        for method in ("dfa", "bp") for i, suffix in enumerate(PENALTIES)
    }))  # fmt: skip


def test_last_states_stand_in_the_panel_of_their_penalty(sweep):
    *over_time, _, _, _ = drawn(penalty_rescue, sweep).axes
    assert [ax.get_title(loc="left") for ax in over_time] == [f"(a) $\\lambda$ = {x}" for x in ("0", "1e-3", "1e-1")]
    last = sweep.trajectories[sweep.trajectories["layer"] == 4]
    for (ax, suffix), method in itertools.product(zip(over_time, PENALTIES, strict=True), ("dfa", "bp")):
        group = last[last["run"] == method + suffix].groupby("seed")
        expected = [seed[["epoch", "hidden_norm"]].to_numpy().tolist() for _, seed in group]
        assert [line.tolist() for line in lines(ax, method)] == expected


@pytest.mark.parametrize(("panel", "column"), [(-3, "deep_cosine"), (-2, "deep_rho")])
def test_credit_stands_at_the_place_of_its_penalty_with_its_mean(sweep, panel, column):
    sweep.runs.loc[(sweep.runs["run"] == "dfa") & (sweep.runs["seed"] == 42), column] = NAN
    figure = drawn(penalty_rescue, sweep, labels={"dfa": "DFA", "dfa+penalty1e-3": "not this"})
    ax = figure.axes[panel]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "1e-3", "1e-1"]
    (points,) = lines(ax, "dfa")
    values = [of(sweep.runs, "dfa" + suffix, column) for suffix in PENALTIES]
    np.testing.assert_array_equal(points[:, 1], np.concatenate(values))
    assert np.round(points[:, 0]).tolist() == np.repeat([0, 1, 2], 3).tolist()
    assert mean_lines(ax, ("dfa", "bp"))["dfa"][:, 1] == pytest.approx([np.nanmean(found) for found in values])
    names = ["DFA (n = 2 to 3)", "bp (n = 3)"]
    assert legend_of(figure) == [*names, "one seed", "mean over seeds", "own frozen baseline"]


def test_bars_are_means_over_seeds_under_the_line_of_the_own_frozen_baseline(sweep):
    frozen_run = several({"dfa+frozen": {"own_frozen_acc": NAN, "deep_cosine": NAN, "deep_rho": NAN}})
    sweep = tidy_of(frozen_run, several({"dfa": {}, "dfa+penalty1e-3": {"own_frozen_acc": NAN}}))
    figure = drawn(penalty_rescue, sweep)
    accuracy, means = figure.axes[-1], sweep.runs.groupby("run")[["accuracy", "own_frozen_acc"]].mean()
    bars = {label: [bar for box in accuracy.containers if box.get_label() == label for bar in box]
            for label in ("dfa", "dfa+frozen")}  # fmt: skip
    assert [bar.get_height() for bar in bars["dfa+frozen"]] == pytest.approx([means.loc["dfa+frozen", "accuracy"]])
    for place, (bar, suffix) in enumerate(zip(bars["dfa"], PENALTIES)):
        middle = bar.get_x() + bar.get_width() / 2
        assert bar.get_y() == 0 and round(middle) == place
        assert bar.get_height() == pytest.approx(means.loc["dfa" + suffix, "accuracy"])
        (line,) = [x for x in lines(accuracy, "own frozen baseline") if abs(x[:, 0].mean() - middle) < 1e-9]
        np.testing.assert_allclose(line[:, 1], means.loc["dfa" + suffix, "own_frozen_acc"])
    points = np.concatenate(lines(accuracy, "dfa"))[:, 1]
    assert points.tolist() == of(sweep.runs, "dfa", "accuracy") + of(sweep.runs, "dfa+penalty1e-3", "accuracy")
