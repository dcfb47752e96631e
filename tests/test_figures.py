"""What every figure promises: nothing overlaps or is cut, limits are drawn, the same tables are the
same file.
"""

from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from drawing import TITLE, assert_readable, drawn, everything, legend_of, lines, texts
from made_up_runs import EXPLODED, LONG, SEEDS, backwards, network, several, tidy_of
from matplotlib.colors import to_hex, to_rgb
from matplotlib.lines import Line2D

from fa_audit.core.errors import AuditError
from fa_audit.methods import METHODS
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.results.figures import FIGURES, FIGURES_OF_ONE, style

ORIGIN = "commit abc1234; spec 5678"
GREY = to_rgb(style.SHADE)
FOUR = {"bp": {}, "fa": {"accuracy": 0.4, "max_growth": 700.0, "first_scale_flag": 2}, "dfa": EXPLODED,
        "dfa+penalty1e-2": {"accuracy": 0.55}}  # fmt: skip
NAMES = ["bp", "dfa", *(LONG.replace("+", f"_{i}+", 1) for i in range(9))]
ELEVEN = {name: EXPLODED if rank % 2 else {} for rank, name in enumerate(NAMES)}
ODD = {"dfa": r"α–β & 50 % #1 ~^\x{}", "main": "Ünïcödé_setting: 100 % $\\lambda$"}  # noqa: RUF001


def settings_of(kind, runs, count=3, **options):
    """As many settings as a kind shows, of different depth."""
    if kind in FIGURES_OF_ONE or count == 1:
        return tidy_of(several(runs, **options))
    settings = []
    for depth in (2, 4, 12, 6)[:count]:
        name = f"a_setting_with_a_long_name_{depth}"
        settings.append(several(runs, setting=name, depth=depth, **options))
    return tidy_of(*settings)


@pytest.fixture(scope="session")
def four():
    """Every kind drawn once."""
    return {kind: drawn(kind, settings_of(kind, FOUR)) for kind in FIGURES}


@pytest.mark.parametrize("kind", FIGURES)
def test_no_text_overlaps_or_is_cut(four, kind):
    assert_readable(four[kind])
    crowd = settings_of(kind, ELEVEN, 4, seeds=SEEDS[:1])
    assert_readable(drawn(kind, crowd, title=" ".join([TITLE] * 4), labels=ODD))
    one = settings_of(kind, {"dfa" if kind == "depth_ladder" else LONG: EXPLODED}, 1, losses=(2.0,))
    assert_readable(drawn(kind, one, labels=ODD))


@pytest.mark.parametrize("kind", FIGURES)
def test_the_same_tables_in_any_order_are_the_same_figure(four, kind):
    again = drawn(kind, backwards(settings_of(kind, FOUR)))
    assert everything(again) == everything(four[kind])


@pytest.mark.parametrize("suffix", ["pdf", "png", "svg"])
def test_the_same_figure_is_the_same_file_that_says_where_it_comes_from(four, tmp_path, suffix):
    one, other = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    style.save(four["decision_utility"], one, ORIGIN)
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red"}):
        before = matplotlib.rcParams.copy()
        again = drawn("decision_utility", settings_of("decision_utility", FOUR))
        style.save(again, other, ORIGIN)
        assert matplotlib.rcParams.copy() == before
    written = one.read_bytes()
    assert written == other.read_bytes() and ORIGIN.encode() in written
    assert not any(word in written for word in (b"CreationDate", b"Producer", b"Software"))


@pytest.mark.parametrize(
    ("kind", "panels", "axis"),
    [
        ("audit_overview", {0: "scale", 1: "reference", 2: "stability"}, 0),
        ("depth_sweep", {1: "scale", 2: "reference", 3: "depth"}, 1),
        ("trajectories", {1: "reference", 4: "reference", 7: "reference"}, 1),
    ],
)
def test_limits_are_drawn_and_the_side_on_which_they_fire_is_shaded(kind, panels, axis):
    limits = DiagnosticThresholds(20, 3e-6, 0.2, 5.0)
    figure = drawn(kind, settings_of(kind, FOUR), thresholds=limits)
    assert [i for i, ax in enumerate(figure.axes) if lines(ax, "limit")] == list(panels)
    for panel, name in panels.items():
        ax, check = figure.axes[panel], CHECKS[name]
        limit = check.scale * limits.limits[check.limit]
        assert set(lines(ax, "limit")[0][:, axis]) == {limit}
        (shade,) = [patch for patch in ax.patches if patch.get_facecolor()[:3] == GREY]
        ends = shade.get_extents().transformed(ax.transData.inverted()).get_points()[:, axis]
        edge = (ax.get_xlim, ax.get_ylim)[axis]()[check.side == "above"]
        assert sorted(ends) == pytest.approx(sorted([limit, edge]))


def test_a_growth_axis_of_less_than_a_decade_has_labels():
    runs = {"bp": {"max_growth": 14.0}, "dfa": {"max_growth": 70.0}}
    figure = drawn("depth_sweep", settings_of("depth_sweep", runs))
    ax, shown = figure.axes[1], [text for text, _ in texts(figure)]
    labels = [label for label in ax.yaxis.get_ticklabels(which="both") if label in shown]
    assert len({label.get_text() for label in labels}) > 2
    assert_readable(figure)


def test_a_method_has_one_colour_and_marker_in_every_figure(four):
    """Marks of runs are labelled with their names; a method and its variants look alike."""
    found = {}
    for kind, figure in four.items():
        for line in figure.findobj(Line2D):
            run = line.get_label().partition(":")[0]
            if run in FOUR and line.get_marker() not in ("None", ".", "|"):
                look = to_hex(line.get_color()).upper(), line.get_marker()
                found.setdefault(run.partition("+")[0], set()).add((kind, look))
    for method in ("bp", "fa", "dfa"):
        kinds, looks = zip(*found[method])
        assert len(set(kinds)) >= 8 and set(looks) == {style.LOOKS[method]}


def test_every_method_and_run_looks_unlike_the_others():
    assert set(style.LOOKS) == set(METHODS)
    # Whoever sees no colours tells methods apart by their markers.
    for looks in zip(*style.LOOKS.values()):
        assert len(set(looks)) == len(METHODS)
    runs = [*(f"own{i}" for i in range(12)), *METHODS, "dfa+penalty1e-2", "dfa+frozen"]
    assert len({str(look) for look in style.run_styles(runs).values()}) == len(runs)
    alone = style.run_styles(["own", "bp"])["own"]
    assert alone == style.run_styles(["ep", "own+frozen", "own"])["own"]


def test_texts_are_printed_as_they_are_unless_they_are_no_formula():
    tidy = tidy_of(several({"dfa": EXPLODED}), network("bp", setting="other"))
    found = [text.get_text() for text, _ in texts(drawn("trajectories", tidy, labels=ODD))]
    assert ODD["dfa"] in found and f"(a) {ODD['main']}" in found
    for text in ("$x_$", "US$ 5 and_$ 6_"):
        with pytest.raises(AuditError, match="cannot be read"):
            style.check_texts(["BP", text])
    style.check_texts(["", "$5", r"\$5 and \$6", r"$\alpha$", "50 %_é"])


def test_runs_with_one_label_have_entries_of_their_own():
    called = style.names(
        ["bp", "dfa", "dfa+lr1e-2", "fa"], {"dfa": "DFA", "dfa+lr1e-2": "DFA", "fa": "bp"}
    )
    shown = [called.get(run, run) for run in ("bp", "dfa", "dfa+lr1e-2", "fa")]
    assert shown[:2] == ["bp", "DFA"] and len({*shown}) == 4 and "dfa+lr1e-2" in shown[2]


def test_a_network_without_a_finite_number_is_drawn():
    nothing = dict.fromkeys(("growth", "grad_norm", "cosine"), np.nan)
    tidy = settings_of("layers", {"dfa": {}})
    assert_readable(drawn("layers", replace(tidy, layers=tidy.layers.assign(**nothing))))


@pytest.mark.parametrize(
    ("kind", "panel", "column", "table"),
    [("audit_overview", 0, "max_growth", "runs"), ("credit_layers", 2, "grad_norm", "layers"),
     ("depth_sweep", 1, "max_growth", "runs"), ("trajectories", 0, "hidden_norm", "trajectories")],
)  # fmt: skip
def test_infinite_values_and_zeros_are_arrows_with_a_legend_and_missing_ones_are_absent(
    kind, panel, column, table
):
    tidy = settings_of(kind, FOUR)
    rows = getattr(tidy, table).astype({column: float})
    for run, value in {"dfa": np.inf, "bp": 0.0, "fa": np.nan}.items():
        rows.loc[rows["run"] == run, column] = value
    figure = drawn(kind, replace(tidy, **{table: rows}))
    ax, axis = figure.axes[panel], int(kind != "audit_overview")
    infinite, zeros = (np.concatenate(lines(ax, label)) for label in ("infinite", "zero"))
    assert len(infinite) == len(zeros) > 2
    assert (infinite[:, axis] > 0.9).all() and (zeros[:, axis] < 0.1).all()
    assert (
        min((ax.get_xlim, ax.get_ylim)[axis]()) > 0
    )  # of a log axis, on which a zero has no place
    assert legend_of(figure)[-2:] == ["infinite", "zero"]
    assert_readable(figure)
