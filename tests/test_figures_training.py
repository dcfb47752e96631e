"""Figures of norms, credit and accuracy: what is drawn equals the tables."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from drawing import drawn, legend_of, lines, markers
from made_up_runs import EXPLODED, network, several, tidy_of

from fa_audit.core.errors import AuditError
from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.results.figures.audit_overview import BP
from fa_audit.results.figures.training import FIRST

NAN = np.nan
RUNS = {
    "bp": {},
    "fa": {"accuracy": 0.4, "max_growth": 700.0, "cosines": (0.5, 0.3)},
    "dfa": EXPLODED,
}
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
    """Check that every seed's value stands as a point; `values` has those of place after place."""
    (points,) = lines(ax, run)
    np.testing.assert_allclose(points[:, 1], np.concatenate([*values.values()]), rtol=1e-12)
    assert points[:, 0].tolist() == [place for place, found in values.items() for _ in found]


def assert_curves(ax, run, last, column):
    """Check that a run has a curve of each seed; `last` has the rows of the last state."""
    seeds = last[last["run"] == run].groupby("seed")
    expected = [seed[["epoch", column]].to_numpy().tolist() for _, seed in seeds]
    assert [line.tolist() for line in lines(ax, run)] == expected


def test_the_overview_has_every_seed_its_mean_and_its_baselines_in_the_order_of_accuracy(tidy):
    limits = DiagnosticThresholds(frozen_acc_margin_pp=5.0)
    figure = drawn("audit_overview", tidy, labels={"bp": "BP", "dfa": "All DFA"}, thresholds=limits)
    columns = ("max_growth", "grad_norm_last", "stability", "accuracy")
    for ax, column in zip(figure.axes, columns, strict=True):
        means = [bar.get_segments()[0][0, 0] for bar in ax.collections if bar.get_label() == "mean"]
        assert means == pytest.approx([np.mean(of(tidy.runs, run, column)) for run in ORDER])
        for row, run in enumerate(ORDER):
            (points,) = lines(ax, run)
            assert points[:, 0].tolist() == of(tidy.runs, run, column)
            # The seeds stand around the run's tick.
            assert points[:, 1].mean() == pytest.approx(row) and np.ptp(points[:, 1]) < 1
    names = [text.get_text().splitlines()[0] for text in figure.axes[0].get_yticklabels()]
    assert names == ["BP", "fa", "All DFA"]
    accuracy = figure.axes[3]
    owns, asked = lines(accuracy, "own frozen baseline"), lines(accuracy, "asked")
    for position, run in enumerate(ORDER):
        frozen = of(tidy.runs, run, "own_frozen_acc")
        assert owns[position][:, 0].tolist() == frozen
        assert asked[position][:, 0] == pytest.approx(np.array(frozen) + 0.05)
    (bp,) = lines(accuracy, BP["label"])
    assert bp[:, 0] == pytest.approx(tidy.runs["bp_frozen_acc"].mean())


def test_every_measured_block_and_state_has_its_seeds_and_the_line_of_their_means(tidy):
    dfa, shallow = tidy.layers["run"] == "dfa", tidy.layers["run"] == "fa"
    first, second = tidy.layers["layer"] == 0, tidy.layers["layer"] == 1
    missing = shallow | (dfa & first) | (dfa & second & (tidy.layers["seed"] == 42))
    tidy.layers.loc[missing, "cosine"] = NAN
    tidy = replace(tidy, layers=tidy.layers[~shallow | first])  # a network without blocks
    figure = drawn("credit_layers", tidy)
    panels = zip(figure.axes[1:], ("cosine", "grad_norm"))
    for (ax, column), run in itertools.product(panels, ORDER):
        table = tidy.layers[tidy.layers["run"] == run]
        found = [(x, y) for x, y, _ in markers(ax, run)]
        measured = table.dropna(subset=[column])[["layer", column]]
        assert sorted(found) == sorted(map(tuple, measured.to_numpy().tolist()))
        if found:
            means = table.groupby("layer")[column].mean()
            np.testing.assert_allclose(mean_lines(ax)[run][:, 1], means)
        cosines, accuracies = table.groupby("seed")["cosine"].mean(), of(tidy.runs, run, "accuracy")
        aggregate = np.transpose([cosines, accuracies])
        np.testing.assert_allclose(lines(figure.axes[0], run)[0], aggregate)
    assert legend_of(figure)[:3] == ["bp (n = 3)", "fa (n = 3)", "dfa (n = 2 to 3)"]


@pytest.mark.parametrize("limit", [1e-7, 1e-2])
def test_markers_are_hollow_where_the_reference_is_below_its_limit(tidy, limit):
    tidy.layers.loc[(tidy.layers["run"] == "dfa") & (tidy.layers["layer"] == 1), "grad_norm"] = NAN
    limits = DiagnosticThresholds(g_norm_floor=limit)
    aggregate, cosine, gradient = drawn("credit_layers", tidy, thresholds=limits).axes
    for run in ORDER:
        table = tidy.layers[tidy.layers["run"] == run]
        output = table.groupby("seed")["grad_norm"].shift(-1)
        below = table.loc[output < limit, "cosine"].dropna()
        assert sorted(y for _, y, hollow in markers(cosine, run) if hollow) == sorted(below)
        assert all(hollow == (y < limit) for _, y, hollow in markers(gradient, run))
        last = tidy.runs[tidy.runs["run"] == run].set_index("accuracy")["grad_norm_last"]
        assert all(hollow == (last[y] < limit) for _, y, hollow in markers(aggregate, run))


def test_every_setting_has_a_row_of_its_last_states_with_rings_where_the_checks_first_fired():
    dfa = {**EXPLODED, "first_scale_flag": 1}
    shallower = several({"dfa": dfa, "fa": {}}, setting="shallower", depth=2)
    two = tidy_of(several(RUNS, setting="deep"), shallower)
    two.trajectories.loc[two.trajectories["setting"] == "deep", "test_accuracy"] /= 10
    figure = drawn("trajectories", two, labels={"deep": "Four blocks", "bp": "BP"})
    panels = np.array(figure.axes).reshape(-1, 3)
    flags = {"hidden_norm": "first_scale_flag", "grad_norm": "first_reference_flag"}
    for (setting, depth), row in zip({"deep": 4, "shallower": 2}.items(), panels, strict=True):
        own = two.of(setting)
        last = own.trajectories[own.trajectories["layer"] == depth]
        both = last.merge(own.runs, on=["run", "seed"])
        for ax, column in zip(row, ("hidden_norm", "grad_norm", "test_accuracy")):
            for run in ORDER:
                assert_curves(ax, run, last, column)
            fired = both[both["epoch"] == both[flags[column]]] if column in flags else both[:0]
            rings = [ring.tolist() for found in lines(ax, FIRST) for ring in found]
            assert sorted(rings) == sorted(fired[["epoch", column]].to_numpy().tolist())
            assert bool(rings) == (column in flags)
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
    depths = tidy_of(*(several(RUNS, setting=f"depth{depth}", depth=depth) for depth in DEPTHS))
    margin = 100 * (depths.runs["accuracy"] - depths.runs["own_frozen_acc"])
    runs = depths.runs.assign(margin=margin)
    figure = drawn("depth_sweep", depths)
    panels = zip(figure.axes, ("accuracy", "max_growth", "grad_norm_last", "margin"), strict=True)
    for (ax, column), run in itertools.product(panels, ORDER):
        values = {depth: of(runs[runs["depth"] == depth], run, column) for depth in DEPTHS}
        assert_seeds(ax, run, values)
        means = [np.mean(found) for found in values.values()]
        np.testing.assert_allclose(mean_lines(ax)[run][:, 1], means)
    depths.runs["depth"] = 4
    with pytest.raises(AuditError, match="depth2, depth4, depth12 all have depth 4"):
        drawn("depth_sweep", depths)


def test_rungs_go_from_the_frozen_baseline_to_the_whole_plain_network():
    """Accuracy is 0.5, minus a tenth per frozen block, plus a hundredth per seed; rungs that were
    not run have no mark.
    """
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
    wider = network("dfa", setting="wider", depth=2, accuracy=0.3)
    tidy = tidy_of(rows, others, frozen, network("bp+epoch1", depth=3), wider)
    figure = drawn("depth_ladder", tidy, labels={"dfa": "DFA", "wider": "Wider"})
    ax, other = figure.axes
    assert_seeds(other, "dfa", {0: [0.4], 2: [0.3]})
    assert_seeds(ax, "bp+epoch1", {0: [0.4], 3: [0.6]})
    assert_seeds(ax, "bp", {0: [0.21, 0.22], 2: [0.41, 0.42], 3: [0.51, 0.52]})
    assert_seeds(ax, "dfa", {0: [0.01, 0.02], 1: [0.11, 0.12], 2: [0.21], 3: [0.31, 0.32]})
    means = lines(ax, "mean over seeds")
    assert any(
        line[:, 1] == pytest.approx([0.215, 0.415, 0.515]) for line in means if len(line) == 3
    )
    # Seeds are counted by network, not over all of them.
    assert legend_of(figure) == ["bp+epoch1 (n = 1)", "bp (n = 2)", "DFA (n = 1 to 2)"]
    with pytest.raises(AuditError, match="expected runs of a ladder"):
        drawn("depth_ladder", tidy_of(others))


PENALTIES = ("", "+penalty1e-3", "+penalty1e-1")
SWEEP = {  # the larger the penalty, the smaller the states, the better the credit
    method + suffix: {"accuracy": 0.5 + 0.04 * i, "hidden_norm_last": 1e6 / 10**i, "own_frozen_acc": 0.52}
    for method in ("dfa", "bp") for i, suffix in enumerate(PENALTIES)
}  # fmt: skip


def test_norms_and_credit_and_accuracy_stand_at_their_penalty():
    sweep = tidy_of(several(SWEEP))
    missing = (sweep.runs["run"] == "dfa") & (sweep.runs["seed"] == 42)
    sweep.runs.loc[missing, ["deep_cosine_at_input", "deep_rho_at_input"]] = NAN
    figure = drawn("penalty_rescue", sweep, labels={"dfa": "DFA", "dfa+penalty1e-3": "not this"})
    states, gradients, (*below,) = np.reshape(figure.axes, (3, 3))
    last = sweep.trajectories[sweep.trajectories["layer"] == 4]
    for row, column in ((states, "hidden_norm"), (gradients, "grad_norm")):
        for ax, suffix in zip(row, PENALTIES, strict=True):
            for method in ("dfa", "bp"):
                own = last[last["run"] == method + suffix].assign(run=method)
                assert_curves(ax, method, own, column)
    for ax, column in zip(
        below, ("deep_cosine_at_input", "deep_rho_at_input", "accuracy"), strict=True
    ):
        labels = [label.get_text() for label in ax.get_xticklabels()]
        assert labels == ["0", "$10^{-3}$", "$10^{-1}$"]
        values = {i: of(sweep.runs, "dfa" + suffix, column) for i, suffix in enumerate(PENALTIES)}
        assert_seeds(ax, "dfa", values)
        means = mean_lines(ax, ("dfa", "bp"))["dfa"][:, 1]
        assert means == pytest.approx([np.nanmean(found) for found in values.values()])
    assert legend_of(figure)[:2] == ["DFA (n = 2 to 3)", "bp (n = 3)"]


def test_fresh_feedback_is_a_bar_of_two_deviations_and_the_own_frozen_baseline_a_line():
    fresh = {"fresh_b_mean": 0.01, "fresh_b_std": 0.03}
    none = {"fresh_b_mean": NAN, "fresh_b_std": NAN, "own_frozen_acc": NAN}
    sweep = tidy_of(several({"dfa": fresh, "bp": none, "dfa+penalty1e-3": {"fresh_b_std": 0.01}}))
    figure = drawn("penalty_rescue", sweep)
    *_, cosine, _, accuracy = figure.axes
    bars = np.array([box.get_bbox().get_points() for boxes in cosine.containers for box in boxes])
    assert bars[:, :, 0].mean(axis=1) == pytest.approx([0, 1])
    assert bars[:, :, 1].ravel() == pytest.approx([-0.05, 0.07, -0.02, 0.02])
    (line,) = lines(accuracy, "own frozen baseline")
    frozen = sweep.runs.loc[sweep.runs["method"] == "dfa", "own_frozen_acc"]
    assert line[:, 1] == pytest.approx(frozen.mean())
    # Neither is in the legend where no run has it.
    without = legend_of(drawn("penalty_rescue", tidy_of(several({"bp": none}))))
    assert len(legend_of(figure)) == 2 + len(without) + 1 and len(without) == 3


def test_the_mean_over_blocks_stands_between_the_first_and_the_deep_ones():
    """Cosines of blocks 0 to 2; a network whose first block has none has no row."""
    deep = {"cosines": (0.6, 0.0, -0.3), "depth": 3}
    early, headless = {"cosines": (0.2, 0.1)}, {"cosines": (NAN, 0.5)}
    tidy = tidy_of(several({"bp": {}, "dfa": deep, "dfa+epoch1": early, "ep": headless}))
    ax = drawn("layer0_dominance", tidy, labels={"dfa": "DFA"}).axes[0]
    rows = [label.get_text() for label in ax.get_yticklabels()]
    assert rows == ["bp", "dfa+epoch1", "DFA"]
    parts = {"first": [0.8, 0.2, 0.6], "all": [0.8, 0.15, 0.1], "deep": [0.8, 0.1, -0.15]}
    for part, expected in parts.items():
        for row, (run, value) in enumerate(zip(("bp", "dfa+epoch1", "dfa"), expected)):
            (mark,), (seeds,) = lines(ax, f"{run}: {part}"), lines(ax, f"{run}: {part}, seeds")
            assert mark.tolist() == [[pytest.approx(value), row]] and len(seeds) == 3
    with pytest.raises(AuditError, match="expected two blocks or more"):
        drawn("layer0_dominance", tidy_of(network("bp", cosines=(0.5,))))
