"""Figures of norms, credit and accuracy: what is drawn equals the tables."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from drawing import drawn, legend_of, lines, markers, words
from made_up_runs import EXPLODED, network, several, tidy_of

from fa_audit.core.errors import AuditError
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures.trajectories import FIRST

NAN = np.nan
RUNS = {"bp": {}, "fa": {"accuracy": 0.4, "max_growth": 700.0, "cosines": (0.5, 0.3)}, "dfa": EXPLODED}
ORDER = ["bp", "fa", "dfa"]  # by accuracy
DEPTHS = (2, 4, 12)


@pytest.fixture
def tidy():
    return tidy_of(several(RUNS))


def of(table, run, column):
    return table[table["run"] == run].sort_values("seed")[column].tolist()


def mean_lines(ax, runs=ORDER):
    """The lines of the means by run; they are drawn in the order of the runs' own markers."""
    order = [line.get_label() for line in ax.lines if line.get_label() in runs]
    return dict(zip(dict.fromkeys(order), lines(ax, "mean over seeds"), strict=True))


def assert_seeds(ax, run, values):
    """Check that every seed's value stands as a point near its place; `values` has those of place after place."""
    (points,) = lines(ax, run)
    np.testing.assert_allclose(points[:, 1], np.concatenate([*values.values()]), rtol=1e-12)
    assert np.round(points[:, 0]).tolist() == [place for place, found in values.items() for _ in found]


def assert_curves(ax, run, last, column):
    """Check that a run has a curve of each seed over epochs; `last` has the rows of the last state."""
    seeds = last[last["run"] == run].groupby("seed")
    expected = [seed[["epoch", column]].to_numpy().tolist() for _, seed in seeds]
    assert [line.tolist() for line in lines(ax, run)] == expected


def test_the_overview_has_every_seed_its_mean_and_its_baselines_in_the_order_of_accuracy(tidy):
    limits = DiagnosticThresholds(frozen_acc_margin_pp=5.0)
    figure = drawn("audit_overview", tidy, labels={"bp": "BP", "dfa": "DFA + all"}, thresholds=limits)
    for ax, column in zip(figure.axes, ("max_growth", "grad_norm_last", "stability", "accuracy"), strict=True):
        means = [bar.get_segments()[0][0, 1] for bar in ax.collections if bar.get_label() == "mean"]
        assert means == pytest.approx([np.mean(of(tidy.runs, run, column)) for run in ORDER])
        for position, run in enumerate(ORDER):
            assert_seeds(ax, run, {position: of(tidy.runs, run, column)})
    accuracy = figure.axes[3]
    assert [text.get_text() for text in accuracy.get_xticklabels()] == ["BP", "fa", "DFA\n+ all"]
    for position, run in enumerate(ORDER):
        own, bp, asked = (
            lines(accuracy, label)[position] for label in ("own frozen baseline", "bp+frozen baseline", "asked")
        )
        frozen = of(tidy.runs, run, "own_frozen_acc")
        assert own[:, 1].tolist() == frozen and bp[:, 1].tolist() == of(tidy.runs, run, "bp_frozen_acc")
        assert asked[:, 1] == pytest.approx(np.array(frozen) + 0.05)  # below which the depth check fires
    assert "own frozen + 5 points: fires below" in words(figure)


def test_every_measured_block_and_state_has_its_seeds_and_the_line_of_their_means(tidy):
    dfa, shallow = tidy.layers["run"] == "dfa", tidy.layers["run"] == "fa"
    tidy.layers.loc[dfa & (tidy.layers["layer"] == 0), "cosine"] = NAN
    tidy.layers.loc[dfa & (tidy.layers["layer"] == 1) & (tidy.layers["seed"] == 42), "cosine"] = NAN
    tidy.layers.loc[shallow, "cosine"] = NAN  # a network without blocks
    tidy = replace(tidy, layers=tidy.layers[~shallow | (tidy.layers["layer"] == 0)])
    figure = drawn("credit_layers", tidy)
    for (ax, column), run in itertools.product(zip(figure.axes[1:], ("cosine", "grad_norm")), ORDER):
        table = tidy.layers[tidy.layers["run"] == run]
        found, measured = markers(ax, run), table.dropna(subset=[column])
        assert sorted(y for _, y, _ in found) == sorted(measured[column])
        assert sorted(round(x) for x, _, _ in found) == sorted(measured["layer"])
        if found:
            np.testing.assert_allclose(mean_lines(ax)[run][:, 1], table.groupby("layer")[column].mean())
        aggregate = np.transpose([table.groupby("seed")["cosine"].mean(), of(tidy.runs, run, "accuracy")])
        np.testing.assert_allclose(lines(figure.axes[0], run)[0], aggregate)
    assert legend_of(figure)[:3] == ["bp (n = 3)", "fa (n = 3)", "dfa (n = 2 to 3)"]


def test_markers_are_hollow_where_the_reference_is_below_its_limit(tidy):
    tidy.layers.loc[(tidy.layers["run"] == "dfa") & (tidy.layers["layer"] == 1), "grad_norm"] = NAN
    for limit in (1e-7, 1e-2):
        limits = DiagnosticThresholds(g_norm_floor=limit)
        aggregate, cosine, gradient = drawn("credit_layers", tidy, thresholds=limits).axes
        for run in ORDER:
            table = tidy.layers[tidy.layers["run"] == run]
            below = table.loc[table["grad_norm"] < limit, "cosine"].dropna()
            assert sorted(y for _, y, hollow in markers(cosine, run) if hollow) == sorted(below)
            assert all(hollow == (y < limit) for _, y, hollow in markers(gradient, run))
            last = tidy.runs[tidy.runs["run"] == run].set_index("accuracy")["grad_norm_last"]
            assert all(hollow == (last[y] < limit) for _, y, hollow in markers(aggregate, run))


def test_every_setting_has_a_row_of_its_last_states_with_rings_where_the_checks_first_fired():
    shallower = several({"dfa": {**EXPLODED, "first_scale_flag": 1}, "fa": {}}, setting="shallower", depth=2)
    two = tidy_of(several(RUNS, setting="deep"), shallower)
    two.trajectories.loc[two.trajectories["setting"] == "deep", "test_accuracy"] /= 10
    where = (two.runs["setting"] == "deep") & (two.runs["seed"] == 123)
    two.runs.loc[where, ["first_scale_flag", "first_reference_flag"]] = [3, NAN]
    figure = drawn("trajectories", two, labels={"deep": "Four blocks", "bp": "BP"})
    panels = np.array(figure.axes).reshape(-1, 3)
    flags = {"hidden_norm": "first_scale_flag", "grad_norm": "first_reference_flag", "test_accuracy": None}
    for (setting, depth), row in zip({"deep": 4, "shallower": 2}.items(), panels, strict=True):
        runs = two.runs[two.runs["setting"] == setting]
        last = two.trajectories[(two.trajectories["setting"] == setting) & (two.trajectories["layer"] == depth)]
        for ax, (column, flag) in zip(row, flags.items()):
            for run in ORDER:
                assert_curves(ax, run, last, column)
            both = last.merge(runs, on=["run", "seed"])
            fired = both[both["epoch"] == both[flag]] if flag else both[:0]
            rings = [ring.tolist() for found in lines(ax, FIRST) for ring in found]
            assert sorted(rings) == sorted(fired[["epoch", column]].to_numpy().tolist()) and bool(rings) == bool(flag)
    (hidden, gradient, accuracy), below = panels
    assert hidden.get_ylim() == below[0].get_ylim() and gradient.get_ylim() == below[1].get_ylim()
    assert accuracy.get_ylim()[1] < 0.1 < below[2].get_ylim()[1]
    assert [row[0].get_title(loc="left") for row in panels] == ["Four blocks", "shallower"]
    assert legend_of(figure) == ["BP", "fa", "dfa", FIRST]
    short = {"losses": (2.0,), "depth": 4}
    one = tidy_of(several({"dfa": {}, "dfa+epoch0": short, "dfa+epoch1": short}))
    one.trajectories.loc[one.trajectories["run"] == "dfa+epoch0", "epoch"] = 0
    figure = drawn("trajectories", one)
    assert legend_of(figure) == ["dfa"]
    assert [curve[:, 0].tolist() for curve in lines(figure.axes[0], "dfa")] == [[0, 1, 2, 3]] * 3


def test_every_depth_has_its_seeds_and_the_line_of_their_means():
    depths = tidy_of(*(several(RUNS, setting=f"depth{depth}", depth=depth) for depth in DEPTHS))
    depths.runs.loc[(depths.runs["run"] == "dfa") & (depths.runs["setting"] == "depth4"), "own_frozen_acc"] = NAN
    runs = depths.runs.assign(margin=100 * (depths.runs["accuracy"] - depths.runs["own_frozen_acc"]))
    figure = drawn("depth_sweep", depths)
    panels = zip(figure.axes, ("accuracy", "max_growth", "grad_norm_last", "margin"), strict=True)
    for (ax, column), run in itertools.product(panels, ORDER):
        values = {depth: of(runs[runs["depth"] == depth], run, column) for depth in DEPTHS}
        assert_seeds(ax, run, values)
        np.testing.assert_allclose(mean_lines(ax)[run][:, 1], [np.mean(found) for found in values.values()])
    assert [label.get_text() for label in figure.axes[2].get_xticklabels()] == ["2", "4", "12"]
    depths.runs["depth"] = 4
    with pytest.raises(AuditError, match=r"depth2, depth4, depth12 all have depth 4; expected .* that differ in depth"):
        drawn("depth_sweep", depths)


def test_rungs_go_from_the_frozen_baseline_to_the_whole_plain_network():
    """Accuracy is 0.5, minus a tenth per frozen block, plus a hundredth per seed; rungs that were not run are gaps."""
    rows = [
        network(f"{method}+frozen{frozen}" if frozen else method, seed=seed, depth=3, frozen_blocks=frozen,
                accuracy=0.5 - frozen / 10 + seed / 100 - rank / 5, own_frozen_acc=0.2 + seed / 100 - rank / 5)
        for rank, method in enumerate(("bp", "dfa")) for seed, frozen in itertools.product((1, 2), range(3))
        if (method, frozen) != ("bp", 2) and (method, seed, frozen) != ("dfa", 2, 1)
    ]  # fmt: skip
    others = [
        network("bp+penalty1e-2", penalty=0.01, depth=3), network("bp+shallow", shallow=True, depth=3),
        network("bp+random_targets", random_targets=True, depth=3),
    ]  # fmt: skip
    frozen = network("bp+frozen", frozen_blocks=3, depth=3, own_frozen_acc=NAN)
    figure = drawn("depth_ladder", tidy_of(rows, others, frozen, network("bp+epoch1", depth=3)), labels={"dfa": "DFA"})
    ax = figure.axes[0]
    assert_seeds(ax, "bp+epoch1", {0: [0.4], 3: [0.6]})
    assert_seeds(ax, "bp", {0: [0.21, 0.22], 2: [0.41, 0.42], 3: [0.51, 0.52]})
    assert_seeds(ax, "dfa", {0: [0.01, 0.02], 1: [0.11, 0.12], 2: [0.21], 3: [0.31, 0.32]})
    (means,) = lines(ax, "bp mean")
    np.testing.assert_allclose(means[:, 1], [0.215, NAN, 0.415, 0.515])
    assert legend_of(figure) == ["bp+epoch1 (n = 1)", "bp (n = 2)", "DFA (n = 1 to 2)"]
    with pytest.raises(AuditError, match=r"found bp\+penalty1e-2, bp\+random_targets.*; expected runs of a ladder"):
        drawn("depth_ladder", tidy_of(others))


PENALTIES = ("", "+penalty1e-3", "+penalty1e-1")
SWEEP = {  # the larger the penalty, the smaller the states, the better the credit
    method + suffix: {"accuracy": 0.5 + 0.04 * i, "hidden_norm_last": 1e6 / 10**i, "own_frozen_acc": 0.52}
    for method in ("dfa", "bp") for i, suffix in enumerate(PENALTIES)
}  # fmt: skip


def test_last_states_and_credit_stand_at_their_penalty():
    sweep = tidy_of(several(SWEEP))
    missing = (sweep.runs["run"] == "dfa") & (sweep.runs["seed"] == 42)
    sweep.runs.loc[missing, ["deep_cosine", "deep_rho"]] = NAN
    figure = drawn("penalty_rescue", sweep, labels={"dfa": "DFA", "dfa+penalty1e-3": "not this"})
    *over_time, cosine, rho, _ = figure.axes
    assert [ax.get_title(loc="left") for ax in over_time] == [f"(a) $\\lambda$ = {x}" for x in ("0", "1e-3", "1e-1")]
    last = sweep.trajectories[sweep.trajectories["layer"] == 4]
    for (ax, suffix), method in itertools.product(zip(over_time, PENALTIES, strict=True), ("dfa", "bp")):
        assert_curves(ax, method, last[last["run"] == method + suffix].assign(run=method), "hidden_norm")
    for ax, column in ((cosine, "deep_cosine"), (rho, "deep_rho")):
        assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "1e-3", "1e-1"]
        values = {place: of(sweep.runs, "dfa" + suffix, column) for place, suffix in enumerate(PENALTIES)}
        assert_seeds(ax, "dfa", values)
        means = mean_lines(ax, ("dfa", "bp"))["dfa"][:, 1]
        assert means == pytest.approx([np.nanmean(found) for found in values.values()])
    assert legend_of(figure)[:2] == ["DFA (n = 2 to 3)", "bp (n = 3)"]


def test_bars_are_means_over_seeds_under_the_line_of_the_own_frozen_baseline():
    frozen_run = several({"dfa+frozen": {"own_frozen_acc": NAN, "deep_cosine": NAN, "deep_rho": NAN}})
    sweep = tidy_of(frozen_run, several({"dfa": {}, "dfa+penalty1e-3": {"own_frozen_acc": NAN}}))
    accuracy = drawn("penalty_rescue", sweep).axes[-1]
    means = sweep.runs.groupby("run")[["accuracy", "own_frozen_acc"]].mean()
    assert len(accuracy.containers) == 3
    for box in accuracy.containers:
        (bar,), middle = box, box[0].get_x() + box[0].get_width() / 2
        run = box.get_label() + ("+penalty1e-3" if round(middle) == 1 else "")
        assert bar.get_height() == pytest.approx(means.loc[run, "accuracy"]) and bar.get_y() == 0
        (line,) = [x for x in lines(accuracy, "own frozen baseline") if abs(x[:, 0].mean() - middle) < 1e-9]
        np.testing.assert_allclose(line[:, 1], means.loc[run, "own_frozen_acc"])
    points = np.concatenate(lines(accuracy, "dfa"))[:, 1]
    assert points.tolist() == of(sweep.runs, "dfa", "accuracy") + of(sweep.runs, "dfa+penalty1e-3", "accuracy")
