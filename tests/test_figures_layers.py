"""Figures of credit per layer and of networks of several depths: what is drawn equals the data, and is readable."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from drawing import (
    ELEVEN,
    EXPLODED,
    FOUR,
    HEALTHY,
    LONG,
    SEEDS,
    TITLE,
    assert_readable,
    everything,
    layers_of,
    legend_of,
    lines,
    tables,
    tidy_of,
)

from fa_audit.core.errors import AuditError
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures import credit_layers, depth_sweep

DEPTHS = (2, 4, 12)
COLUMNS = ("accuracy", "max_growth", "grad_norm_last", "margin")


def network(kinds, *, depth=4, **options):
    """One setting with its per-layer table."""
    runs, history = tables(kinds, depth=depth, **options)
    return tidy_of(runs, history, layers_of(runs, depth=depth))


def credit(tidy, **options):
    return credit_layers.draw(tidy, **{"title": TITLE, "labels": {}} | options)


def networks(kinds, depths=DEPTHS, **options):
    """One setting per depth: the deeper, the larger the growth."""
    parts = []
    for depth in depths:
        grown = {run: (kind[0], kind[1], kind[2] ** (depth / 4), *kind[3:]) for run, kind in kinds.items()}
        parts.append(tables(grown, setting=f"depth{depth}", depth=depth, **options)[0])
    return tidy_of(pd.concat(parts, ignore_index=True))


def depths(tidy, **options):
    return depth_sweep.draw(tidy, **{"title": TITLE, "labels": {}} | options)


def rows_of(table, run):
    return table[table["run"] == run].sort_values("seed")


def faces(ax, label):
    """x, y and whether the marker is hollow, of every drawn marker of a run."""
    return sorted(
        (x, y, line.get_markerfacecolor() == "white")
        for line in ax.lines
        if line.get_label() == label
        for x, y in line.get_xydata()
        if not np.isnan(y)
    )


def mean_lines(ax, runs):
    """The lines of the means by run; they are drawn in the order of the runs' own markers."""
    order = [line.get_label() for line in ax.lines if line.get_label() in runs]
    return dict(zip(dict.fromkeys(order), lines(ax, "mean over seeds"), strict=True))


def test_the_aggregate_is_the_mean_over_the_blocks_that_have_a_cosine():
    tidy = network(FOUR)
    tidy.layers.loc[(tidy.layers["run"] == "fa") & (tidy.layers["layer"] == 0), "cosine"] = np.nan
    tidy.layers.loc[tidy.layers["layer"] == 3, "cosine"] += 0.6
    aggregate = credit(tidy).axes[0]
    for run in FOUR:
        runs = rows_of(tidy.runs, run)
        steps = [-0.1, -0.2, 0.3] if run == "fa" else [0, -0.1, -0.2, 0.3]  # of `layers_of`, from block to block
        expected = runs["deep_cosine"] + 0.3 + np.mean(steps)
        np.testing.assert_allclose(lines(aggregate, run)[0], np.column_stack([expected, runs["accuracy"]]))


def test_every_block_and_state_has_its_seeds_and_the_line_of_their_means():
    tidy = network(FOUR)
    _, cosine, gradient = credit(tidy).axes
    for ax, column in ((cosine, "cosine"), (gradient, "grad_norm")):
        for run in FOUR:
            table = tidy.layers[tidy.layers["run"] == run].dropna(subset=[column])
            drawn = faces(ax, run)
            assert sorted(y for _, y, _ in drawn) == sorted(table[column])
            assert sorted(round(x) for x, _, _ in drawn) == sorted(table["layer"])
            expected = [sum(table.loc[table["layer"] == layer, column]) / 3 for layer in sorted(set(table["layer"]))]
            np.testing.assert_allclose(mean_lines(ax, FOUR)[run][: len(expected), 1], expected)
    assert max(x for x, _, _ in faces(cosine, "bp")) < 3.5 < max(x for x, _, _ in faces(gradient, "bp"))


def test_markers_are_hollow_where_the_reference_is_below_its_limit():
    tidy = network(FOUR)
    tidy.layers.loc[(tidy.layers["run"] == "dfa") & (tidy.layers["layer"] == 2), "grad_norm"] = np.nan
    for limit in (1e-7, 1e-5):
        aggregate, cosine, gradient = credit(tidy, thresholds=DiagnosticThresholds(reference=limit)).axes
        assert set(lines(gradient, "limit")[0][:, 1]) == {limit}
        for run in FOUR:
            table = tidy.layers[tidy.layers["run"] == run]
            below = table.loc[table["grad_norm"] < limit, "cosine"].dropna()
            assert sorted(y for _, y, hollow in faces(cosine, run) if hollow) == sorted(below)
            assert all(hollow == (y < limit) for _, y, hollow in faces(gradient, run))
            last = rows_of(tidy.runs, run).set_index("accuracy")["grad_norm_last"]
            assert all(hollow == (last[y] < limit) for _, y, hollow in faces(aggregate, run))
    assert [hollow for _, _, hollow in faces(aggregate, "fa")] == [True] * 3
    assert [hollow for _, _, hollow in faces(aggregate, "bp")] == [False] * 3


def test_what_was_not_measured_is_a_gap_and_the_number_of_seeds_says_so():
    tidy = network({"bp": HEALTHY, "dfa": EXPLODED})
    dfa = tidy.layers["run"] == "dfa"
    tidy.layers.loc[dfa & (tidy.layers["layer"] == 1), "cosine"] = np.nan
    tidy.layers.loc[dfa & (tidy.layers["layer"] == 2) & (tidy.layers["seed"] == 42), "cosine"] = np.nan
    figure = credit(tidy)
    mean = mean_lines(figure.axes[1], ("bp", "dfa"))["dfa"][:, 1]
    assert np.isnan(mean).tolist() == [False, True, False, False, True]
    others = tidy.layers[dfa & (tidy.layers["layer"] == 2) & (tidy.layers["seed"] != 42)]["cosine"]
    assert mean[2] == pytest.approx(sum(others) / 2)
    assert legend_of(figure)[:2] == ["bp (n = 3)", "dfa (n = 2 to 3)"]


def test_zero_and_infinite_gradients_are_arrows_and_have_no_mean():
    tidy = network({"bp": HEALTHY, "dfa": EXPLODED})
    tidy.layers.loc[(tidy.layers["run"] == "dfa") & (tidy.layers["layer"] == 4), "grad_norm"] = 0.0
    tidy.layers.loc[(tidy.layers["run"] == "bp") & (tidy.layers["layer"] == 1), "grad_norm"] = np.inf
    figure = credit(tidy)
    gradient = figure.axes[2]
    (zeros,), (infinite,) = lines(gradient, "zero"), lines(gradient, "infinite")
    assert np.round(zeros[:, 0]).tolist() == [4] * 3 and np.round(infinite[:, 0]).tolist() == [1] * 3
    assert np.isnan(mean_lines(gradient, ("bp", "dfa"))["bp"][1, 1])
    assert legend_of(figure)[-2:] == ["infinite", "zero"]
    assert_readable(figure)


def test_audited_baselines_without_blocks_have_a_gradient_and_no_cosine():
    tidy = network({"bp": HEALTHY, "bp+frozen": HEALTHY, "bp+shallow": HEALTHY})
    shallow = tidy.layers["run"] == "bp+shallow"
    tidy.layers.loc[shallow, "cosine"] = np.nan
    figure = credit(replace(tidy, layers=tidy.layers[~shallow | (tidy.layers["layer"] == 0)]))
    assert not faces(figure.axes[1], "bp+shallow") and len(faces(figure.axes[2], "bp+shallow")) == 3
    assert len(faces(figure.axes[0], "bp+frozen")) == 3
    assert "bp+shallow (n = 3)" in legend_of(figure)


@pytest.mark.parametrize(
    ("kinds", "options"),
    [(FOUR, {}), (ELEVEN, {"depth": 12}), ({LONG: EXPLODED}, {"seeds": SEEDS[:1]})],
    ids=["four", "eleven", "one"],
)
def test_credit_per_layer_is_readable(kinds, options):
    assert_readable(credit(network(kinds, **options), labels={"dfa": r"α–β & 50 % #1 ~^\x{}"}))  # noqa: RUF001


def test_every_depth_has_its_seeds_and_the_line_of_their_means():
    tidy = networks(FOUR)
    runs = tidy.runs.assign(margin=[100 * (a - b) for a, b in zip(tidy.runs["accuracy"], tidy.runs["own_frozen_acc"])])
    axes = depths(tidy).axes
    for ax, column in zip(axes, COLUMNS, strict=True):
        for run in FOUR:
            expected = [rows_of(runs[runs["depth"] == depth], run)[column] for depth in DEPTHS]
            (points,) = lines(ax, run)
            np.testing.assert_allclose(points[:, 1], np.concatenate(expected), rtol=1e-12)
            assert np.round(points[:, 0]).tolist() == np.repeat(DEPTHS, 3).tolist()
            np.testing.assert_allclose(mean_lines(ax, FOUR)[run][:, 1], [sum(values) / 3 for values in expected])
    assert [label.get_text() for label in axes[2].get_xticklabels()] == ["2", "4", "12"]


def test_limits_of_depth_are_those_of_the_checks():
    given = DiagnosticThresholds(growth=20, reference=3e-6, depth_margin=0.05)
    for limits, options in ((DiagnosticThresholds(), {}), (given, {"thresholds": given})):
        accuracy, growth, gradient, margin = depths(networks(FOUR), **options).axes
        for ax, limit in ((growth, limits.growth), (gradient, limits.reference), (margin, 100 * limits.depth_margin)):
            assert set(lines(ax, "limit")[0][:, 1]) == {limit}
            shade = sorted([ax.patches[0].get_y(), ax.patches[0].get_y() + ax.patches[0].get_height()])
            edge = ax.get_ylim()[1 if ax is growth else 0]
            assert shade == pytest.approx(sorted([limit, edge]))
        assert not lines(accuracy, "limit")


def test_there_is_room_on_both_sides_of_a_limit():
    tidy = networks({"bp": HEALTHY, "dfa": EXPLODED})
    gradient = depths(
        replace(tidy, runs=tidy.runs.assign(grad_norm_last=tidy.runs["grad_norm_last"].clip(2.3e-7)))
    ).axes[2]
    low, high = np.log10(gradient.get_ylim())
    assert (-7 - low) / (high - low) > 0.05


def test_settings_of_the_same_depth_are_refused():
    tidy = networks({"bp": HEALTHY}, (2, 4))
    tidy.runs["depth"] = 4
    with pytest.raises(AuditError, match=r"depth2, depth4 all have depth 4; expected settings that differ in depth"):
        depths(tidy)


def test_depths_without_a_value_and_infinite_growth():
    tidy = networks({"bp": HEALTHY, "dfa": EXPLODED, "bp+frozen": HEALTHY})
    deep = (tidy.runs["run"] == "dfa") & (tidy.runs["depth"] == 12)
    tidy.runs.loc[deep, "max_growth"] = np.inf
    tidy.runs.loc[tidy.runs["run"] == "bp+frozen", "own_frozen_acc"] = np.nan
    tidy.runs.loc[deep & (tidy.runs["seed"] == 42), "accuracy"] = np.nan
    figure = depths(tidy)
    _, growth, _, margin = figure.axes
    (arrows,) = lines(growth, "infinite")
    assert np.round(arrows[:, 0]).tolist() == [12] * 3
    assert not faces(margin, "bp+frozen") and len(faces(margin, "dfa")) == 8
    assert {"bp (n = 3)", "dfa (n = 2 to 3)", "bp+frozen (n = 3)"} <= set(legend_of(figure))
    assert_readable(figure)


@pytest.mark.parametrize(
    ("kinds", "values", "options"),
    [(ELEVEN, (2, 4, 6, 8, 12), {}), ({LONG: EXPLODED}, (4,), {"seeds": SEEDS[:1]})],
    ids=["eleven", "one"],
)
def test_a_depth_sweep_is_readable(kinds, values, options):
    assert_readable(depths(networks(kinds, values, **options), title=" ".join([TITLE] * 3)))


def test_the_order_of_the_rows_does_not_matter():
    one, several = network(FOUR), networks(FOUR)
    turned = replace(one, runs=one.runs.iloc[::-1], layers=one.layers.iloc[::-1])
    assert str(everything(credit(turned))) == str(everything(credit(one)))
    assert str(everything(depths(replace(several, runs=several.runs.iloc[::-1])))) == str(everything(depths(several)))
