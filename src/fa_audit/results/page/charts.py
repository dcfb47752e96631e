"""The plots of the page: Vega-Lite specifications made with altair, the numbers of every run,
colours and markers.

A specification is made once and gets its rows in the browser, from one run or from two that are
compared. Colours are CSS variables, so that light, dark and print need no second drawing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd
from matplotlib.colors import to_hex, to_rgb
from matplotlib.markers import MarkerStyle

from fa_audit.protocol.checks import CHECKS, of_limit
from fa_audit.results.figures.style import run_styles
from fa_audit.results.page.content import RunPage

DIGITS = 5  # significant ones of plotted numbers
MOST_EPOCHS = 120  # plotted of a trajectory, spread evenly from the first to the last
DARK = "#14181f"  # the page's background in its dark scheme
CONTRAST = 4.5  # of a line and the background, at least
GREYISH = 0.05  # difference of red, green and blue
COMMANDS = {1: "M", 2: "L", 3: "Q", 4: "C", 79: "Z"}  # matplotlib's codes of a path -> SVG's
HEIGHT = 150  # pixels
BEYOND = 4  # factor by which an axis goes beyond a limit, so that the side shows on which the check fires
# On logarithmic axes powers of ten alone have labels and lines; they are written as such where they
# are long.
EXPONENT = "round(log(datum.value) / LN10)"
POWER = f"abs(log(datum.value) / LN10 - {EXPONENT}) < 1e-6"
DIGIT = "slice('⁰¹²³⁴⁵⁶⁷⁸⁹', {0}, {0} + 1)"
LOG_LABEL = (
    f"!({POWER}) ? '' : abs({EXPONENT}) < 3 ? format(datum.value, '~f') : '10' + ({EXPONENT} < 0 ? '⁻' : '')"
    f" + (abs({EXPONENT}) > 9 ? {DIGIT.format(f'floor(abs({EXPONENT}) / 10)')} : '')"
    f" + {DIGIT.format(f'abs({EXPONENT}) % 10')}"
)
ON_POWERS = {"condition": {"test": POWER, "value": 1}, "value": 0}
LOG_AXIS = {
    "labelExpr": LOG_LABEL,
    "gridOpacity": ON_POWERS,
    "tickOpacity": ON_POWERS,
    "tickCount": 5,
}
# Axes take the colours of the text around the plot.
CONFIG: dict[str, Any] = {
    "aria": False, "mark": {"aria": False},  # the figure around a plot says what it shows
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {"labelColor": "currentColor", "titleColor": "currentColor", "titleFontWeight": "normal",
             "tickColor": "var(--line)", "domainColor": "var(--line)", "gridColor": "var(--line)",
             "labelFontSize": 11, "titleFontSize": 11},
}  # fmt: skip


@dataclass(frozen=True)
class Panel:
    """One plot."""

    key: str  # its column in the tables and in the data
    axis: str  # layer or epoch
    title: str
    log: bool = True  # its y axis
    limit: str = ""  # the line drawn: a name of `DiagnosticThresholds.limits`, or frozen, the baseline's accuracy
    percent: bool = False  # whether fractions are written in percent


PANELS = (
    Panel("hidden_norm", "layer", "State norm ‖h‖"),
    Panel("growth", "layer", "Growth of ‖h‖ in the block", limit="growth"),
    Panel("grad_norm", "layer", "True gradient ‖g‖", limit="reference"),
    Panel("cosine", "layer", "Cosine of credit and gradient", log=False),
    Panel("rho", "layer", "Perturbation correlation rho", log=False),
    Panel("rho_at_input", "layer", "rho at the block's input, as published", log=False),
    Panel("test_accuracy", "epoch", "Test accuracy (dotted: frozen)", log=False, limit="frozen", percent=True),
    Panel("hidden_norm", "epoch", "‖h‖ at the last state"),
    Panel("growth", "epoch", "Largest growth in one block", limit="growth"),
    Panel("grad_norm", "epoch", "‖g‖ at the last state", limit="reference"),
)  # fmt: skip


def specification(panel: Panel) -> dict[str, Any]:
    """Return the Vega-Lite specification of a plot of a data set ``rows``, which is given to it in
    the browser.

    A row has x, y and limit; run, seed, colour and shape; slot, 1 for the second of two runs that
    are compared.
    """
    plain = {"format": "~%" if panel.percent else "~g", "tickCount": 5}
    number = alt.Axis(**(LOG_AXIS if panel.log else plain))
    scale = (
        alt.Scale(type="log", nice=True)
        if panel.log
        else alt.Scale(zero=not panel.percent, nice=True)
    )
    y = alt.Y("y:Q", title=None, scale=scale, axis=number)
    whole = alt.Axis(format="d", tickMinStep=1, tickCount=5, grid=False)
    x = alt.X(
        "x:Q", title=panel.axis, scale=alt.Scale(nice=False, zero=False, padding=10), axis=whole
    )
    about = [
        alt.Tooltip("run:N"),
        alt.Tooltip("seed:N", title="network"),
        alt.Tooltip("x:Q", title=panel.axis),
    ]
    about.append(alt.Tooltip("y:Q", title=panel.title, format=".3~%" if panel.percent else ".4~g"))
    colour, group = alt.Color("colour:N", scale=None), alt.Detail(["slot:N", "seed:N"])
    rows = alt.Chart(alt.NamedData("rows")).encode(x=x, y=y, color=colour)
    dash = alt.condition("datum.slot == 1", alt.value([5, 3]), alt.value([1, 0]))
    line = rows.mark_line(strokeWidth=1.6).encode(detail=group, strokeDash=dash)
    point = rows.mark_point(filled=True, size=60, opacity=1 if panel.axis == "layer" else 0)
    point = point.encode(shape=alt.Shape("shape:N", scale=None), tooltip=about)
    chart = alt.layer(*_limit(panel), line, point, width="container", height=HEIGHT).configure(
        **CONFIG
    )
    return dict(chart.to_dict(validate=False))


def _limit(panel: Panel) -> list[alt.Chart]:
    """Return a line at the limit, with the side shaded on which the check fires; a run's own line
    for a baseline.
    """
    rows = alt.Chart(alt.NamedData("rows")).transform_filter("isValid(datum.limit)")
    if not panel.limit:
        return []
    if panel.limit == "frozen":
        own = rows.transform_aggregate(limit="mean(limit)", groupby=["slot", "colour"])
        return [
            own.mark_rule(strokeDash=[2, 3]).encode(
                y=alt.Y("limit:Q"), color=alt.Color("colour:N", scale=None)
            )
        ]
    above = of_limit(panel.limit).side == "above"
    one = rows.transform_aggregate(limit=f"{'min' if above else 'max'}(limit)")
    line = one.mark_rule(color="var(--limit)", strokeDash=[5, 2]).encode(y=alt.Y("limit:Q"))
    beyond = one.transform_calculate(beyond=f"datum.limit * {BEYOND if above else 1 / BEYOND}")
    room = beyond.mark_point(opacity=0).encode(y=alt.Y("beyond:Q"))
    area = one.mark_rect(color="var(--fires-area)").encode(
        y=alt.Y("limit:Q"), y2=alt.value(0 if above else HEIGHT)
    )
    return [area, line, room]


def data_of(run: RunPage) -> dict[str, Any]:
    """Return the numbers of a run that its plots show, by seed and column, and its limits, as JSON
    types.
    """
    layers, epochs = (dict(list(table.groupby("seed"))) for table in (run.layers, run.trajectories))
    seeds = []
    for seed in run.seeds:
        number = seed.row["seed"]
        # Where two checks share a limit it is that of the first.
        known = {kind.limit: seed.checks[name].threshold for name, kind in reversed(CHECKS.items())}
        known["frozen"] = seed.row["own_frozen_acc"]
        limits = {panel.limit: _plain(known[panel.limit]) for panel in PANELS if panel.limit}
        own = {"seed": seed.label, "limits": limits, "layer": {}, "epoch": {}}
        if number in layers:
            own["layer"] = _columns(layers[number].sort_values("layer"), "layer")
        if number in epochs:
            own["epoch"] = _columns(_over_training(epochs[number]), "epoch")
        seeds.append(own)
    return {"seeds": seeds}


def _over_training(table: pd.DataFrame) -> pd.DataFrame:
    """Return a row per epoch: the last state's norms, the accuracy, and the largest growth of all
    blocks.
    """
    last = table[table["layer"] == table["layer"].max()].set_index("epoch")
    found = (
        last.drop(columns="growth")
        .assign(growth=table.groupby("epoch")["growth"].max())
        .sort_index()
    )
    step = max(1, math.ceil(len(found) / MOST_EPOCHS))
    kept = [*range(0, len(found) - 1, step), len(found) - 1]
    return found.iloc[kept].reset_index()


def _columns(table: pd.DataFrame, axis: str) -> dict[str, list[float | None]]:
    names = [axis, *(panel.key for panel in PANELS if panel.axis == axis and panel.key in table)]
    columns = {name: [_plain(value) for value in table[name]] for name in names}
    return {
        name: values
        for name, values in columns.items()
        if any(value is not None for value in values)
    }


def _plain(value: Any) -> float | None:
    """Return a number with few digits, for JSON; None where it is absent or cannot be drawn."""
    if value is None or not math.isfinite(value):
        return None
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e9 else rounded


@dataclass(frozen=True)
class Look:
    """How a run is drawn: the CSS variable of its colour; its marker, and this one's outline, as
    SVG paths in -1..1.
    """

    colour: str
    shape: str
    outline: str


def looks(runs: Iterable[str]) -> tuple[dict[str, Look], dict[str, tuple[str, str]]]:
    """Return the look of every run, as in the figures, and the value of every colour in light and
    dark.
    """
    styles = run_styles(dict.fromkeys(runs))
    colours = {to_hex(style.colour): f"--c-{to_hex(style.colour)[1:]}" for style in styles.values()}
    shapes = {run: [svg_path(style.marker, style.fill), svg_path(style.marker, "full")]
              for run, style in styles.items()}  # fmt: skip
    found = {
        run: Look(colours[to_hex(style.colour)], *shapes[run]) for run, style in styles.items()
    }
    return found, {name: (colour, on_dark(colour)) for colour, name in colours.items()}


def svg_path(marker: str, fill: str) -> str:
    """Return a marker of matplotlib, or the half of it that is filled, as an SVG path within -1..1."""
    style = MarkerStyle(marker, fillstyle=fill)
    path = style.get_path().transformed(style.get_transform())
    parts = []
    for points, code in path.iter_segments():
        numbers = (
            f"{round(2 * x, 3) + 0:g} {0 - round(2 * y, 3):g}" for x, y in points.reshape(-1, 2)
        )
        parts.append("Z" if code == 79 else COMMANDS[int(code)] + " ".join(numbers))
    return "".join(parts)


def on_dark(colour: str) -> str:
    """Return a colour, lighter where it would be hard to see on the dark background; greys are
    turned round.

    >>> on_dark("#000000"), on_dark("#0072b2"), on_dark("#e69f00")
    ('#ffffff', '#338ec1', '#e69f00')
    """
    if max(rgb := to_rgb(colour)) - min(rgb) < GREYISH:
        return to_hex([1 - part for part in rgb])
    shares = (share / 20 for share in range(21))
    mixed = (tuple(part + share * (1 - part) for part in to_rgb(colour)) for share in shares)
    floor = CONTRAST * (luminance(to_rgb(DARK)) + 0.05) - 0.05
    return next(to_hex(rgb) for rgb in mixed if luminance(rgb) >= floor)


def luminance(rgb: tuple[float, ...]) -> float:
    """Return the relative luminance of a colour, by WCAG 2."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in rgb]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear))
