"""Figures of norms, credit and accuracy: what is drawn equals the tables."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from drawing import drawn, legend_of, lines, markers
from made_up_runs import EXPLODED, network, several, tidy_of

from fa_audit.core.errors import AuditError
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.results.figures import style
from fa_audit.results.figures.training import FIRST

NAN = np.nan
RUNS = {
    "bp": {},
    "fa": {"accuracy": 0.4, "max_growth": 700.0, "cosines": (0.5, 0.3)},
    "dfa": EXPLODED,
}
ORDER = ["bp", "fa", "dfa"]  # by accuracy


@pytest.fixture
def tidy():
    return tidy_of(several(RUNS))


def of(table, run, column):
    return table[table["run"] == run].sort_values("seed")[column].tolist()


def assert_seeds_and_means(ax, rows, x, y, order=ORDER):
    """Check that every row of a run is a marker, and that a line goes through their means."""
    rows = rows.dropna(subset=[y])
    # The best run is drawn last, on top.
    for name, line in zip(reversed(order), lines(ax, "mean over seeds"), strict=True):
        own = rows[rows["run"] == name]
        found = [(place, value) for place, value, _ in markers(ax, name)]
        expected = sorted(own[[x, y]].itertuples(index=False, name=None))
        assert np.array(found) == pytest.approx(np.array(expected))
        means = own.groupby(x)[y].mean().to_numpy(float)
        assert line[~np.isnan(line[:, 1]), 1] == pytest.approx(means)


def assert_curves(ax, name, states, column):
    """Check that a run has a curve of each seed; `states` has the rows of its last state."""
    expected = []
    for _, seed in states[states["run"] == name].groupby("seed"):
        expected.append(seed[["epoch", column]].to_numpy().tolist())
    assert [line.tolist() for line in lines(ax, name)] == expected


def test_the_overview_has_every_seed_its_mean_and_its_baselines_in_the_order_of_accuracy(tidy):
    tidy.runs.loc[tidy.runs["run"] == "fa", "bp_frozen_acc"] -= 0.1  # a baseline of another rate
    limits = DiagnosticThresholds(frozen_acc_margin_pp=5.0)
    figure = drawn("audit_overview", tidy, labels={"bp": "BP", "dfa": "All DFA"}, thresholds=limits)
    columns = ("max_growth", "grad_norm_last", "stability", "accuracy")
    for ax, column in zip(figure.axes, columns, strict=True):
        for row, (name, mean) in enumerate(zip(ORDER, lines(ax, "mean"), strict=True)):
            (points,) = lines(ax, name)
            assert points[:, 0].tolist() == of(tidy.runs, name, column)
            assert mean[0, 0] == pytest.approx(points[:, 0].mean())
            # The seeds stand around the run's tick.
            assert points[:, 1].mean() == pytest.approx(row) and np.ptp(points[:, 1]) < 1
    names = [text.get_text().splitlines()[0] for text in figure.axes[0].get_yticklabels()]
    assert names == ["BP", "fa", "All DFA"]
    (frozen,), (asked,) = (lines(ax, name) for name in ("own frozen", "asked"))
    expected = tidy.runs.sort_values("seed")["own_frozen_acc"].to_numpy()
    assert sorted(frozen[:, 0]) == sorted(expected)
    assert sorted(asked[:, 0]) == pytest.approx(sorted(expected + 0.05))
    for row, (name, bp) in enumerate(zip(ORDER, lines(ax, "bp+frozen"), strict=True)):
        assert bp[:, 0] == pytest.approx(np.mean(of(tidy.runs, name, "bp_frozen_acc")))
        assert bp[:, 1].tolist() == [row - 0.5, row + 0.5]


def test_every_measured_block_and_state_has_its_seeds_and_the_line_of_their_means(tidy):
    dfa, shallow = tidy.layers["run"] == "dfa", tidy.layers["run"] == "fa"
    first, second = tidy.layers["layer"] == 0, tidy.layers["layer"] == 1
    missing = shallow | (dfa & first) | (dfa & second & (tidy.layers["seed"] == 42))
    tidy.layers.loc[missing, "cosine"] = NAN
    tidy = replace(tidy, layers=tidy.layers[~shallow | first])  # a network without blocks
    figure = drawn("credit_layers", tidy)
    _, cosine, gradient = figure.axes
    assert_seeds_and_means(cosine, tidy.layers, "layer", "cosine")
    assert_seeds_and_means(gradient, tidy.layers, "layer", "grad_norm")
    assert legend_of(figure)[:3] == ["bp (n = 3)", "fa (n = 3)", "dfa (n = 2 to 3)"]


@pytest.mark.parametrize("limit", [1e-7, 1e-2])
def test_markers_are_hollow_where_the_reference_is_below_its_limit(tidy, limit):
    tidy.layers.loc[(tidy.layers["run"] == "dfa") & (tidy.layers["layer"] == 1), "grad_norm"] = NAN
    limits = DiagnosticThresholds(g_norm_floor=limit)
    aggregate, cosine, gradient = drawn("credit_layers", tidy, thresholds=limits).axes
    for name in ORDER:
        table = tidy.layers[tidy.layers["run"] == name]
        output = table.groupby("seed")["grad_norm"].shift(-1)
        below = table.loc[output < limit, "cosine"].dropna()
        assert sorted(y for _, y, hollow in markers(cosine, name) if hollow) == sorted(below)
        assert all(hollow == (y < limit) for _, y, hollow in markers(gradient, name))
        last = tidy.runs[tidy.runs["run"] == name].set_index("accuracy")["grad_norm_last"]
        assert all(hollow == (last[y] < limit) for _, y, hollow in markers(aggregate, name))


def test_every_setting_has_a_row_of_its_last_states_with_rings_where_the_checks_first_fired():
    dfa = {**EXPLODED, "first_scale_flag": 1}
    shallower = several({"dfa": dfa, "fa": {}}, setting="shallower", depth=2)
    two = tidy_of(several(RUNS, setting="deep"), shallower)
    two.trajectories.loc[two.trajectories["setting"] == "deep", "test_accuracy"] /= 10
    figure = drawn("trajectories", two, labels={"deep": "Four blocks", "bp": "BP"})
    panels = np.array(figure.axes).reshape(-1, 3)
    flags = {
        "hidden_norm": "first_scale_flag",
        "grad_norm": "first_reference_flag",
        "test_accuracy": None,
    }
    for (setting, depth), row in zip({"deep": 4, "shallower": 2}.items(), panels, strict=True):
        own = two.of(setting)
        last = own.trajectories[own.trajectories["layer"] == depth]
        both = last.merge(own.runs, on=["run", "seed"])
        for ax, (column, flag) in zip(row, flags.items(), strict=True):
            for name in ORDER:
                assert_curves(ax, name, last, column)
            fired = both[both["epoch"] == both[flag]] if flag else both[:0]
            rings = [ring.tolist() for found in lines(ax, FIRST) for ring in found]
            assert sorted(rings) == sorted(fired[["epoch", column]].to_numpy().tolist())
            assert bool(rings) == bool(flag)
    (hidden, gradient, accuracy), below = panels
    assert hidden.get_ylim() == below[0].get_ylim() and gradient.get_ylim() == below[1].get_ylim()
    assert accuracy.get_ylim()[1] < 0.1 < below[2].get_ylim()[1]
    assert legend_of(figure) == ["BP", "fa", "dfa", FIRST]


def test_snapshots_begin_the_curve_of_their_run():
    short = {"losses": (2.0,), "depth": 4}
    one = tidy_of(several({"dfa": {}, "dfa+epoch0": short, "dfa+epoch1": short}))
    one.trajectories.loc[one.trajectories["run"] == "dfa+epoch0", "epoch"] = 0
    figure = drawn("trajectories", one)
    assert legend_of(figure) == ["dfa"]
    assert [curve[:, 0].tolist() for curve in lines(figure.axes[0], "dfa")] == [[0, 1, 2, 3]] * 3


def test_every_depth_has_its_seeds_and_the_line_of_their_means():
    depths = [several(RUNS, setting=f"depth{depth}", depth=depth) for depth in (2, 4, 12)]
    tidy = tidy_of(*depths)
    runs = tidy.runs.assign(margin=100 * (tidy.runs["accuracy"] - tidy.runs["own_frozen_acc"]))
    columns = ("accuracy", "max_growth", "grad_norm_last", "margin")
    for ax, column in zip(drawn("depth_sweep", tidy).axes, columns, strict=True):
        assert_seeds_and_means(ax, runs, "depth", column)
    tidy.runs["depth"] = 4
    with pytest.raises(AuditError, match="depth2, depth4, depth12 all have depth 4"):
        drawn("depth_sweep", tidy)


def test_rungs_go_from_the_frozen_baseline_to_the_whole_plain_network():
    """Rungs that were not run have no mark, and other runs no line."""
    rows, rungs = [], []
    for seed, frozen in ((1, 0), (1, 1), (1, 2), (2, 0), (2, 2)):
        accuracy, baseline = 0.5 - frozen / 10 + seed / 100, 0.1 + seed / 100
        name = f"dfa+frozen{frozen}" if frozen else "dfa"
        given = {"frozen_blocks": frozen, "accuracy": accuracy, "own_frozen_acc": baseline}
        rows.append(network(name, seed=seed, depth=3, **given))
        rungs += [(3 - frozen, accuracy)] + ([] if frozen else [(0, baseline)])
    others = [
        network("bp+penalty1e-2", penalty=0.01, depth=3),
        network("bp+shallow", shallow=True, depth=3),
        network("bp+random_targets", random_targets=True, depth=3),
    ]
    wider = network("dfa", setting="wider", depth=2, accuracy=0.3)
    tidy = tidy_of(rows, others, network("bp+epoch1", depth=3), wider)
    figure = drawn("depth_ladder", tidy, labels={"dfa": "DFA", "wider": "Wider"})
    expected = [("bp+epoch1", 0, 0.4), ("bp+epoch1", 3, 0.6), *(("dfa", *rung) for rung in rungs)]
    expected = pd.DataFrame(expected, columns=["run", "k", "y"])
    main, other = figure.axes
    assert_seeds_and_means(main, expected, "k", "y", ["bp+epoch1", "dfa"])
    assert markers(other, "dfa") == [(0, 0.4, False), (2, 0.3, False)]
    # Seeds are counted by network, not over all of them.
    assert legend_of(figure)[:2] == ["bp+epoch1 (n = 1)", "DFA (n = 1 to 2)"]
    with pytest.raises(AuditError, match="expected runs of a ladder"):
        drawn("depth_ladder", tidy_of(others))


def test_norms_and_credit_and_accuracy_stand_at_their_penalty():
    """The larger the penalty, the smaller the states, the better the credit."""
    penalties = {0: "", 1e-3: "+penalty1e-3", 1e-1: "+penalty1e-1"}
    given = {}
    for method, (i, suffix) in itertools.product(("dfa", "bp"), enumerate(penalties.values())):
        given[method + suffix] = {"accuracy": 0.5 + 0.04 * i, "hidden_norm_last": 1e6 / 10**i}
    sweep = tidy_of(several(given))
    missing = (sweep.runs["run"] == "dfa") & (sweep.runs["seed"] == 42)
    sweep.runs.loc[missing, ["deep_cosine_at_input", "deep_rho_at_input"]] = NAN
    figure = drawn("penalty_rescue", sweep, labels={"dfa": "DFA", "dfa+penalty1e-3": "not this"})
    states, gradients, against = np.reshape(figure.axes, (3, 3))
    last = sweep.trajectories[sweep.trajectories["layer"] == 4]
    for row, column in ((states, "hidden_norm"), (gradients, "grad_norm")):
        for ax, suffix in zip(row, penalties.values(), strict=True):
            assert_curves(ax, "dfa", last[last["run"] == f"dfa{suffix}"].assign(run="dfa"), column)
    places = sweep.runs["penalty"].map([*penalties].index)
    runs = sweep.runs.assign(run=sweep.runs["method"], place=places)
    columns = ("deep_cosine_at_input", "deep_rho_at_input", "accuracy")
    for ax, column in zip(against, columns, strict=True):
        assert_seeds_and_means(ax, runs, "place", column, ["dfa", "bp"])
        names = [label.get_text() for label in ax.get_xticklabels()]
        assert names == ["0", style.power(1e-3), style.power(1e-1)]
    assert legend_of(figure)[:2] == ["DFA (n = 2 to 3)", "bp (n = 3)"]


def test_fresh_feedback_is_a_bar_of_two_deviations_and_the_own_frozen_baseline_a_line():
    none = {"fresh_b_mean": NAN, "fresh_b_std": NAN, "own_frozen_acc": NAN}
    fresh = {
        "dfa": {"fresh_b_mean": 0.01, "fresh_b_std": 0.03},
        "dfa+penalty1e-3": {"fresh_b_std": 0.01},
    }
    sweep = tidy_of(several({"bp": none} | fresh))
    figure = drawn("penalty_rescue", sweep)
    *_, cosine, _, accuracy = figure.axes
    boxes = [box.get_bbox() for boxes in cosine.containers for box in boxes]
    ends = [(box.x0 + box.width / 2, box.y0, box.y1) for box in boxes if np.isfinite(box.height)]
    assert ends == [pytest.approx((0, -0.05, 0.07)), pytest.approx((1, -0.02, 0.02))]
    found = np.concatenate(lines(accuracy, "own frozen baseline"))[:, 1]
    frozen = sweep.runs.loc[sweep.runs["method"] == "dfa", "own_frozen_acc"].mean()
    assert found[np.isfinite(found)] == pytest.approx(frozen)
    # Neither is in the legend where no run has it.
    without = legend_of(drawn("penalty_rescue", tidy_of(several({"bp": none}))))
    assert len(legend_of(figure)) == 2 + len(without) + 1 and len(without) == 3


def test_the_mean_over_blocks_stands_between_the_first_and_the_deep_ones():
    """Cosines of blocks 0 to 2; a network whose first block has none has no row."""
    deep = {"cosines": (0.6, 0.0, -0.3), "depth": 3}
    early, headless = {"cosines": (0.2, 0.1)}, {"cosines": (NAN, 0.5)}
    tidy = tidy_of(several({"bp": {}, "dfa": deep, "dfa+epoch1": early, "ep": headless}))
    ax = drawn("layer0_dominance", tidy, labels={"dfa": "DFA"}).axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["bp", "dfa+epoch1", "DFA"]
    parts = {"first": [0.8, 0.2, 0.6], "all": [0.8, 0.15, 0.1], "deep": [0.8, 0.1, -0.15]}
    for part, expected in parts.items():
        for row, (name, value) in enumerate(zip(("bp", "dfa+epoch1", "dfa"), expected)):
            (mark,), (seeds,) = lines(ax, f"{name}: {part}"), lines(ax, f"{name}: {part}, seeds")
            assert mark.tolist() == [[pytest.approx(value), row]] and len(seeds) == 3
    with pytest.raises(AuditError, match="expected at least two blocks"):
        drawn("layer0_dominance", tidy_of(network("bp", cosines=(0.5,))))
