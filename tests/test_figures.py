"""What every figure promises: nothing overlaps or is cut, limits are drawn, the same tables are the same file."""

from dataclasses import replace

import matplotlib
import numpy as np
import pytest
from drawing import TITLE, assert_readable, drawn, everything, legend_of, lines, words
from made_up_runs import EXPLODED, LONG, SEEDS, backwards, network, several, tidy_of

from fa_audit.core.errors import AuditError
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures import FIGURES, FIGURES_OF_ONE, style

ORIGIN = "commit abc1234; spec 5678"
FOUR = {"bp": {}, "fa": {"accuracy": 0.4, "max_growth": 700.0, "first_scale_flag": 2}, "dfa": EXPLODED,
        "dfa+penalty1e-2": {"accuracy": 0.55}}  # fmt: skip
NAMES = ["bp", "dfa", *(LONG.replace("+", f"_{i}+", 1) for i in range(9))]
ELEVEN = {name: EXPLODED if rank % 2 else {} for rank, name in enumerate(NAMES)}
ODD = {"dfa": r"α–β & 50 % #1 ~^\x{}", "main": "Ünïcödé_setting: 100 % $\\lambda$"}  # noqa: RUF001


def settings_of(kind, runs, count=3, **options):
    """As many settings as a kind shows, of different depth."""
    depths = {f"a_setting_with_a_long_name_{depth}": depth for depth in (2, 4, 12, 6)[:count]}
    if kind in FIGURES_OF_ONE or count == 1:
        return tidy_of(several(runs, **options))
    return tidy_of(*(several(runs, setting=name, depth=depth, **options) for name, depth in depths.items()))


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


def test_the_same_figure_is_the_same_file_that_says_where_it_comes_from(four, tmp_path):
    for suffix in ("pdf", "png"):
        style.save(four["decision_utility"], tmp_path / f"a.{suffix}", ORIGIN)
        with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "lines.linewidth": 9}):  # the user's own
            before = matplotlib.rcParams.copy()
            own = drawn("decision_utility", settings_of("decision_utility", FOUR))
            style.save(own, tmp_path / f"b.{suffix}", ORIGIN)
            assert matplotlib.rcParams.copy() == before
        first, second = ((tmp_path / f"{name}.{suffix}").read_bytes() for name in "ab")
        assert first == second and ORIGIN.encode() in first
        assert not [word for word in (b"CreationDate", b"Creator", b"Producer", b"Software") if word in first]


LIMITS = {  # kind -> panel -> limit; (a) and (c) fire above theirs
    "audit_overview": {0: "growth", 1: "reference", 2: "stability"},
    "credit_layers": {2: "reference"},
    "depth_sweep": {1: "growth", 2: "reference", 3: "depth_margin"},
    "trajectories": {1: "reference", 4: "reference"},
}


@pytest.mark.parametrize("kind", LIMITS)
def test_limits_are_drawn_shaded_and_named(four, kind):
    given = DiagnosticThresholds(growth=20, reference=3e-6, stability=0.2, depth_margin=0.05)
    changed = drawn(kind, settings_of(kind, FOUR), thresholds=given)
    for limits, figure in ((DiagnosticThresholds(), four[kind]), (given, changed)):
        for panel, check in LIMITS[kind].items():
            ax, limit = figure.axes[panel], getattr(limits, check) * (100 if check == "depth_margin" else 1)
            edge, shade = ax.get_ylim()[check in ("growth", "stability")], ax.patches[0]
            assert set(lines(ax, "limit")[0][:, 1]) == {limit}
            ends = sorted([shade.get_y(), shade.get_y() + shade.get_height()])
            assert ends == pytest.approx(sorted([limit, edge]))
            low, high = sorted(map(ax.transData.transform, [(0, limit), (0, edge)]), key=lambda point: point[1])
            assert high[1] - low[1] > 10  # pixels: there is room on the side on which the check fires
        assert len([ax for ax in figure.axes if lines(ax, "limit")]) == len(LIMITS[kind]) + (kind == "trajectories")
    assert "fires\nbelow\n$10^{-7}$" in words(four[kind])
    assert "fires\nbelow\n$3{\\times}10^{-6}$" in words(changed)


def test_a_method_has_one_colour_and_marker_in_every_figure(four):
    look = style.run_styles(["dfa", "bp"])["dfa"]
    assert look == style.run_styles(["a", "dfa+penalty1e-2", "dfa", "fa", "bp"])["dfa"]
    curves = [line for ax in four["trajectories"].axes for line in ax.lines if line.get_label() == "dfa"]
    found = {(line.get_color(), line.get_marker()) for line in curves}
    assert len(curves) == 27 and found == {(look.colour, look.marker)}


def test_odd_characters_are_printed_as_they_are_unless_they_are_no_formula():
    tidy = tidy_of(several({"dfa": EXPLODED}), network("bp", setting="other"))
    assert set(ODD.values()) <= set(words(drawn("trajectories", tidy, labels=ODD)))
    for text in ("$x_$", "US$ 5 and_$ 6_"):
        with pytest.raises(AuditError, match=r"cannot be read .*expected one such as"):
            style.check_texts(["BP", text])
    style.check_texts(["", "$5", r"\$5 and \$6", r"$\alpha$", "50 %_é"])


@pytest.mark.parametrize(
    ("kind", "panel", "column", "table"),
    [("audit_overview", 0, "max_growth", "runs"), ("audit_overview", 1, "grad_norm_last", "runs"),
     ("credit_layers", 2, "grad_norm", "layers"), ("depth_sweep", 1, "max_growth", "runs"),
     ("trajectories", 0, "hidden_norm", "trajectories"), ("penalty_rescue", 0, "hidden_norm", "trajectories")],
)  # fmt: skip
def test_infinite_values_and_zeros_are_arrows_with_a_legend_and_missing_ones_are_absent(kind, panel, column, table):
    tidy = settings_of(kind, FOUR)
    rows = getattr(tidy, table).astype({column: float})
    rows.loc[rows["run"] == "dfa", column] = np.inf
    rows.loc[rows["run"] == "bp", column] = 0.0
    rows.loc[rows["run"] == "fa", column] = np.nan
    figure = drawn(kind, replace(tidy, **{table: rows}))
    ax = figure.axes[panel]
    infinite, zeros = (np.concatenate(lines(ax, label)) for label in ("infinite", "zero"))
    assert len(infinite) == len(zeros) > 2 and (infinite[:, 1] > 0.9).all() and (zeros[:, 1] < 0.1).all()
    for run in ("bp", "fa", "dfa"):
        assert all(np.isnan(points[:, 1]).all() for points in lines(ax, run)), run
    assert legend_of(figure)[-2:] == ["infinite", "zero"]
    assert_readable(figure)
