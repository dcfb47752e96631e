"""Figures of several settings over training: what is drawn equals the data, and is readable."""

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
    legend_of,
    lines,
    tables,
    texts,
    tidy_of,
)

from fa_audit.core.registry import load
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures import FIGURES, FIGURES_OF_ONE, trajectories

DEPTHS = {"deep": 4, "shallower": 2}
ODD = {"dfa": r"α–β & 50 % #1 ~^\x{}", "shallower": "Ünïcödé_setting: 100 % $\\lambda$"}  # noqa: RUF001


def settings_of(kinds_by_setting, **options):
    """Several settings, each with its own runs and depth."""
    parts = [
        tables(kinds, setting=name, depth=DEPTHS.get(name, 4), **options) for name, kinds in kinds_by_setting.items()
    ]
    return tidy_of(*(pd.concat(part, ignore_index=True) for part in zip(*parts)))


def curves(tidy, **options):
    return trajectories.draw(tidy, **{"title": TITLE, "labels": {}} | options)


def rows_of(figure):
    return np.array(figure.axes).reshape(-1, 3)


@pytest.fixture
def two():
    return settings_of({"deep": FOUR, "shallower": {"dfa": EXPLODED, "fa": HEALTHY}})


def test_the_registry_knows_the_figures_and_which_show_one_setting():
    for kind in ("credit_layers", "depth_sweep", "penalty_rescue", "trajectories"):
        assert callable(load("figure", FIGURES, kind))
    assert {"credit_layers", "penalty_rescue"} <= FIGURES_OF_ONE
    assert not {"depth_sweep", "trajectories"} & FIGURES_OF_ONE


def test_every_setting_has_a_row_with_the_last_states_of_its_own_networks(two):
    for setting, row in zip(DEPTHS, rows_of(curves(two)), strict=True):
        of = two.of(setting).trajectories
        for column, ax in zip(("hidden_norm", "grad_norm", "test_accuracy"), row, strict=True):
            for run in FOUR:
                group = of[(of["run"] == run) & (of["layer"] == DEPTHS[setting])]
                expected = [seed[["epoch", column]].to_numpy().tolist() for _, seed in group.groupby("seed")]
                assert [line.tolist() for line in lines(ax, run)] == expected


def test_a_run_looks_the_same_in_every_row(two):
    looks = [
        {
            (line.get_color(), line.get_marker(), line.get_linestyle())
            for ax in row
            for line in ax.lines
            if line.get_label() == "dfa"
        }
        for row in rows_of(curves(two))
    ]
    assert looks[0] == looks[1] and len(looks[0]) == 1


def test_rows_are_named_by_the_labels_of_their_settings_under_one_legend(two):
    figure = curves(two, labels={"deep": "Four blocks", "bp": "BP"})
    headings = [[ax.get_title(loc="left") for ax in row] for row in rows_of(figure)]
    assert headings == [["Four blocks", "", ""], ["shallower", "", ""]]
    assert legend_of(figure)[0] == "BP" and legend_of(figure).count("dfa") == 1


def test_the_norms_have_one_scale_and_every_setting_its_accuracies(two):
    two.trajectories.loc[two.trajectories["setting"] == "deep", "test_accuracy"] /= 10
    (hidden, gradient, accuracy), below = rows_of(curves(two, thresholds=DiagnosticThresholds(reference=1e-6)))
    assert hidden.get_ylim() == below[0].get_ylim() and gradient.get_ylim() == below[1].get_ylim()
    assert accuracy.get_ylim()[1] < 0.1 < below[2].get_ylim()[1]
    assert all(ax.get_yscale() == "log" for ax in (hidden, gradient, *below[:2]))
    assert [set(lines(ax, "limit")[0][:, 1]) for ax in (gradient, below[1])] == [{1e-6}, {1e-6}]


def test_rings_stand_where_the_checks_first_fired_in_each_run_and_seed(two):
    where = (two.runs["setting"] == "deep") & (two.runs["run"] == "dfa") & (two.runs["seed"] == 123)
    two.runs.loc[where, ["first_scale_flag", "first_reference_flag"]] = [9, np.nan]
    for setting, (hidden, gradient, accuracy) in zip(DEPTHS, rows_of(curves(two))):
        part = two.of(setting)
        last = part.trajectories[part.trajectories["layer"] == DEPTHS[setting]]
        for ax, flag, column in (
            (hidden, "first_scale_flag", "hidden_norm"),
            (gradient, "first_reference_flag", "grad_norm"),
        ):
            fired = part.runs.dropna(subset=[flag]).merge(last, on=["run", "seed"])
            fired = fired[fired["epoch"] == fired[flag]]
            rings = [ring.tolist() for drawn in lines(ax, trajectories.FIRST) for ring in drawn]
            assert sorted(rings) == sorted(fired[["epoch", column]].to_numpy().tolist()) and rings
        assert not lines(accuracy, trajectories.FIRST)


def test_rings_follow_values_off_the_scale_and_have_no_legend_where_nothing_fired(two):
    late = (two.trajectories["run"] == "dfa") & (two.trajectories["epoch"] >= 4)
    two.trajectories.loc[late, "hidden_norm"] = np.inf
    two.trajectories.loc[late, "grad_norm"] = 0.0
    hidden, gradient, _ = rows_of(curves(two))[1]
    at = [ring.tolist() for drawn in lines(hidden, trajectories.FIRST) for ring in drawn]
    assert at == [[4, 0.96]] * len(SEEDS)
    assert [ring.tolist() for drawn in lines(gradient, trajectories.FIRST) for ring in drawn] == [[7, 0.04]] * 3
    assert trajectories.FIRST in legend_of(curves(two))
    two.runs[["first_scale_flag", "first_reference_flag"]] = np.nan
    assert trajectories.FIRST not in legend_of(curves(two))


def test_one_epoch_has_one_whole_number_on_its_axis():
    figure = curves(settings_of({"deep": {"bp": HEALTHY}, "shallower": {LONG: EXPLODED}}, epochs=1, seeds=SEEDS[:1]))
    assert_readable(figure)
    assert [text for text, _ in texts(figure)].count("1") == 6


def test_four_settings_of_eleven_runs_with_long_labels_fit_on_a_page():
    names = ("a", "b", "c", "d")
    labels = {name: f"{TITLE}, everything else as in the main audit, {name}" for name in names} | ODD
    figure = curves(settings_of(dict.fromkeys(names, ELEVEN)), labels=labels, title=" ".join([TITLE] * 3))
    assert_readable(figure)
    assert tuple(figure.get_size_inches()) <= (6.9, 9.0)
    left, middle, right = ([ax.get_position().width for ax in column] for column in rows_of(figure).T)
    assert min(left + middle + right) > 0.2  # long headings leave the panels their width


def test_odd_characters_are_printed_as_they_are(two):
    found = [text for text, _ in texts(curves(two, labels=ODD))]
    assert {ODD["dfa"], ODD["shallower"]} <= set(found)


def test_the_order_of_the_rows_does_not_matter(two):
    turned = replace(two, runs=two.runs.iloc[::-1], trajectories=two.trajectories.iloc[::-1])
    assert str(everything(curves(turned))) == str(everything(curves(two)))
