"""Figures: what is drawn equals the data, nothing overlaps or is cut, the same figure is the same file."""

import subprocess
import sys

import matplotlib
import numpy as np
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
    legend_of,
    lines,
    tables,
    texts,
    tidy_of,
)
from matplotlib.figure import Figure

from fa_audit.core.errors import AuditError
from fa_audit.core.registry import load
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.methods import METHODS
from fa_audit.results.figures import FIGURES, audit_overview, style, trajectories

ORIGIN = "commit abc1234; spec 5678"


def overview(runs, history, **options):
    return audit_overview.draw(tidy_of(runs, history), **{"title": TITLE, "labels": {}} | options)


def curves(runs, history, **options):
    return trajectories.draw(tidy_of(runs, history), **{"title": TITLE, "labels": {}} | options)


def test_registry_leads_to_the_figures_without_importing_them():
    assert load("figure", FIGURES, "audit_overview") is audit_overview.draw
    assert load("figure", FIGURES, "trajectories") is trajectories.draw
    code = (
        "import sys, fa_audit.results.figures, fa_audit.results.tables;"
        " sys.exit(bool({'matplotlib', 'pandas'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_styles_follow_from_the_names_alone():
    names = [f"run{i:02d}" for i in range(77 - len(METHODS))]
    styles = style.run_styles(names)
    assert styles == style.run_styles(reversed(names))
    assert len({(look.colour, look.marker) for look in styles.values()}) == 77


def test_a_method_looks_the_same_in_every_figure_and_no_other_looks_like_it():
    few, many = style.run_styles(["dfa", "bp"]), style.run_styles(["a", "dfa+penalty1e-2", "dfa", "fa", "bp"])
    assert (few["bp"], few["dfa"]) == (many["bp"], many["dfa"])
    assert len({(look.colour, look.line) for look in many.values()}) == len(METHODS) + 2


def test_points_and_means_equal_the_data():
    runs, history = tables(FOUR)
    columns = ("max_growth", "grad_norm_last", "stability", "accuracy")
    for ax, column in zip(overview(runs, history).axes, columns, strict=True):
        for position, run in enumerate(["bp", "dfa+penalty1e-2", "fa", "dfa"]):
            (points,) = lines(ax, run)
            expected = runs.loc[runs["run"] == run, column].tolist()
            assert points[:, 1].tolist() == expected
            assert np.abs(points[:, 0] - position).max() < 0.5
        means = [bar.get_segments()[0] for bar in ax.collections if bar.get_label() == "mean"]
        assert [mean[0, 1] for mean in means] == pytest.approx(
            runs.groupby("run")[column].mean()[["bp", "dfa+penalty1e-2", "fa", "dfa"]].tolist()
        )


def test_runs_stand_in_the_order_of_their_accuracy_with_labels():
    runs, history = tables(FOUR)
    figure = overview(runs, history, labels={"bp": "BP", "dfa+penalty1e-2": "DFA + penalty"})
    for ax in figure.axes[2:]:
        assert [text.get_text() for text in ax.get_xticklabels()] == ["BP", "DFA\n+ penalty", "fa", "dfa"]


def test_both_frozen_baselines_stand_beside_their_run():
    runs, history = tables(FOUR)
    accuracy = overview(runs, history).axes[3]
    for column, label in (("own_frozen_acc", "own frozen baseline"), ("bp_frozen_acc", "bp+frozen baseline")):
        for position, run in enumerate(["bp", "dfa+penalty1e-2", "fa", "dfa"]):
            points = lines(accuracy, label)[position]
            assert points[:, 1].tolist() == runs.loc[runs["run"] == run, column].tolist()
            assert ((points[:, 0] > position) & (points[:, 0] < position + 0.5)).all()
    markers = {line.get_marker() for line in accuracy.lines if "baseline" in line.get_label()}
    assert len(markers) == 2


def test_the_accuracy_that_the_depth_check_asks_for_is_marked_at_every_seed():
    runs, history = tables(FOUR)
    accuracy = overview(runs, history, thresholds=DiagnosticThresholds(depth_margin=0.05)).axes[3]
    for position, run in enumerate(["bp", "dfa+penalty1e-2", "fa", "dfa"]):
        asked, seeds = lines(accuracy, "asked")[position], lines(accuracy, run)[0]
        expected = runs.loc[runs["run"] == run, "own_frozen_acc"] + 0.05
        assert asked[:, 1].tolist() == pytest.approx(expected.tolist())
        assert asked[:, 0].tolist() == seeds[:, 0].tolist()
    shown = [text for text, _ in texts(overview(runs, history))]
    assert "own frozen + 2 points: fires below" in shown


@pytest.mark.parametrize("text", ["$x_$", "US$ 5 and_$ 6_"])
def test_a_text_that_is_no_formula_is_named(text):
    with pytest.raises(AuditError, match=r"cannot be read .*expected one such as"):
        style.check_texts(["BP", text])
    style.check_texts(["", "$5", r"\$5 and \$6", r"$\alpha$", "50 %_é"])


def test_limits_are_drawn_shaded_and_named():
    runs, history = tables(FOUR)
    given = DiagnosticThresholds(growth=20, reference=3e-6, stability=0.2)
    for limits, options in ((DiagnosticThresholds(), {}), (given, {"thresholds": given})):
        growth, gradient, stability, accuracy = overview(runs, history, **options).axes
        expected = {growth: limits.growth, gradient: limits.reference, stability: limits.stability}
        for ax, limit in expected.items():
            assert set(lines(ax, "limit")[0][:, 1]) == {limit}
            low, high = ax.patches[0].get_y(), ax.patches[0].get_y() + ax.patches[0].get_height()
            edge = ax.get_ylim()[0 if ax is gradient else 1]
            assert sorted([low, high]) == pytest.approx(sorted([limit, edge]))
        assert not lines(accuracy, "limit")  # every seed has its own
        assert set(lines(curves(runs, history, **options).axes[1], "limit")[0][:, 1]) == {limits.reference}
    named = [text for text, _ in texts(overview(runs, history))]
    assert {"fires\nabove\n50", "fires\nbelow\n$10^{-7}$", "fires\nabove\n0.3"} <= set(named)
    assert "fires\nbelow\n$3{\\times}10^{-6}$" in [text for text, _ in texts(overview(runs, history, thresholds=given))]


def test_infinite_zero_and_missing_values():
    runs, history = tables(FOUR)
    first = runs["seed"] == SEEDS[0]
    runs.loc[runs["run"] == "dfa", "max_growth"] = np.inf
    runs.loc[(runs["run"] == "fa") & first, "max_growth"] = np.nan
    runs.loc[(runs["run"] == "dfa") & first, "grad_norm_last"] = 0.0
    runs["stability"] = np.nan
    runs["own_frozen_acc"] = np.nan
    figure = overview(runs, history)
    growth, gradient, stability, _ = figure.axes
    assert np.isnan(lines(growth, "dfa")[0][:, 1]).all()
    (arrows,) = lines(growth, "infinite")
    assert len(arrows) == 3 and (arrows[:, 1] > 0.9).all() and (np.abs(arrows[:, 0] - 3) < 0.5).all()
    assert [bar.get_label() for bar in growth.collections].count("mean") == 3
    assert np.isnan(lines(growth, "fa")[0][0, 1]) and np.isfinite(lines(growth, "fa")[0][1:, 1]).all()
    (arrows,) = lines(gradient, "zero")
    assert len(arrows) == 1 and arrows[0, 1] < 0.1
    assert not [bar for bar in stability.collections if bar.get_label() == "mean"]
    assert legend_of(figure)[-2:] == ["infinite", "zero"]
    assert_readable(figure)


def test_trajectories_equal_the_data_of_the_last_layer():
    runs, history = tables(FOUR)
    history = history[~((history["run"] == "fa") & (history["layer"] == 4))]  # a shallower network
    figure = curves(runs, history)
    for ax, column in zip(figure.axes, ("hidden_norm", "grad_norm", "test_accuracy"), strict=True):
        for run, last in {"bp": 4, "fa": 3, "dfa": 4}.items():
            drawn = lines(ax, run)
            assert len(drawn) == len(SEEDS)
            for seed, points in zip(SEEDS, drawn, strict=True):
                of = (history["run"] == run) & (history["seed"] == seed) & (history["layer"] == last)
                assert points.tolist() == history.loc[of, ["epoch", column]].to_numpy().tolist()


def test_trajectories_mark_where_a_run_leaves_the_scale():
    runs, history = tables(FOUR)
    late = (history["run"] == "dfa") & (history["epoch"] > 7) & (history["layer"] == 4)
    history.loc[late, "hidden_norm"] = np.inf
    history.loc[late, "grad_norm"] = 0.0
    history.loc[history["run"] == "fa", "test_accuracy"] = np.nan
    figure = curves(runs, history)
    hidden, gradient, accuracy = figure.axes
    assert [arrow[0, 0] for arrow in lines(hidden, "infinite")] == [8, 8, 8]
    assert [len(arrow) for arrow in lines(gradient, "zero")] == [1, 1, 1]
    assert not lines(accuracy, "infinite") + lines(accuracy, "zero")
    assert_readable(figure)


def test_trajectories_have_one_legend_entry_per_run_best_first():
    figure = curves(*tables(FOUR), labels={"bp": "BP"})
    assert legend_of(figure) == ["BP", "dfa+penalty1e-2", "fa", "dfa", trajectories.FIRST]
    assert not any(ax.get_legend() for ax in figure.axes)


@pytest.mark.parametrize("draw", [overview, curves])
@pytest.mark.parametrize(
    ("kinds", "labels"),
    [
        (FOUR, {}),
        (FOUR, {"bp": "BP", "fa": "FA", "dfa": "DFA", "dfa+penalty1e-2": "DFA + penalty"}),
        (ELEVEN, {}),
        ({"bp": HEALTHY}, {}),
        ({"bp": HEALTHY, "dfa+penalty1e-2": HEALTHY}, {}),
        ({LONG: EXPLODED}, {}),
    ],
    ids=["four", "labelled", "eleven", "one", "healthy", "exploded"],
)
def test_no_text_overlaps_or_is_cut(draw, kinds, labels):
    assert_readable(draw(*tables(kinds), labels=labels))


@pytest.mark.parametrize("draw", [overview, curves])
def test_long_titles_and_short_histories(draw):
    runs, history = tables(FOUR, epochs=1, seeds=SEEDS[:1])
    assert_readable(draw(runs, history, title=" ".join([TITLE] * 4)))


def test_the_check_for_overlaps_finds_one():
    figure = overview(*tables(FOUR))
    figure.text(0.5, 0.99, "on the title", ha="center", va="top")
    with pytest.raises(AssertionError, match="overlap"):
        assert_readable(figure)


@pytest.mark.parametrize("draw", [overview, curves])
@pytest.mark.parametrize("suffix", ["pdf", "png"])
def test_files_are_the_same_bytes(draw, suffix, tmp_path):
    runs, history = tables(FOUR)
    figure, paths = draw(runs, history), [tmp_path / f"{name}.{suffix}" for name in "abc"]
    style.save(figure, paths[0], ORIGIN)
    style.save(figure, paths[1], ORIGIN)
    style.save(draw(runs.iloc[::-1], history.iloc[::-1]), paths[2], ORIGIN)
    first, *others = (path.read_bytes() for path in paths)
    assert others == [first, first]
    assert not [word for word in (b"CreationDate", b"Creator", b"Producer", b"Software", b"atplotlib") if word in first]
    assert sorted(tmp_path.iterdir()) == paths


def test_files_say_where_they_come_from(tmp_path):
    figure = overview(*tables(FOUR))
    for suffix in ("pdf", "png"):
        style.save(figure, tmp_path / f"figure.{suffix}", ORIGIN)
        assert ORIGIN.encode() in (tmp_path / f"figure.{suffix}").read_bytes()


def test_saving_needs_a_known_suffix(tmp_path):
    with pytest.raises(AuditError, match=r"\.pdf or \.png"):
        style.save(Figure(), tmp_path / "figure.jpg", ORIGIN)


def test_drawing_leaves_the_settings_of_matplotlib_alone(monkeypatch):
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)
    before = matplotlib.rcParams.copy()  # dict() would ask for the backend and import pyplot
    overview(*tables(FOUR))
    assert matplotlib.rcParams.copy() == before
    assert "matplotlib.pyplot" not in sys.modules


def test_the_settings_of_the_user_do_not_matter(tmp_path):
    runs, history = tables(FOUR)
    style.save(overview(runs, history), tmp_path / "plain.png", ORIGIN)
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "lines.linewidth": 9}):
        style.save(overview(runs, history), tmp_path / "odd.png", ORIGIN)
    assert (tmp_path / "plain.png").read_bytes() == (tmp_path / "odd.png").read_bytes()
