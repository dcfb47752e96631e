"""The one look of all figures: sizes, colours and markers of runs, limit lines, values off the scale, saving."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath
from matplotlib.ticker import NullFormatter, NullLocator

from fa_audit.core.errors import AuditError
from fa_audit.core.files import write_atomically
from fa_audit.core.thresholds import FIRES_WHEN
from fa_audit.methods import METHODS

TWO_COLUMNS = 6.9  # inches: the width of a text block
TITLE_LINE = 0.15  # inches
SMALL = 7  # points, for everything but titles and axis labels
# Okabe and Ito (2008) without yellow, which a thin line on white paper loses.
COLOURS = ("#000000", "#E69F00", "#0072B2", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
MARKERS = ("o", "s", "D", "P", "X", "p", "*", "h", "<", ">", "d")  # ^ and v mean "off the scale"
LINES = ("-", (0, (4, 1.5)), (0, (1, 1)))
GREY, SHADE = "0.3", "0.92"
BORDERLINE: dict[str, Any] = {"color": "black", "linestyle": "none", "marker": "o", "markerfacecolor": "none",
                              "markersize": 8, "markeredgewidth": 0.7}  # fmt: skip
INFINITE, ZERO = "infinite", "zero"
OFF_SCALE = {INFINITE: ("^", 0.96), ZERO: ("v", 0.04)}  # marker, height as a fraction of the axis
RC = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.ymargin": 0.1,
    "figure.titlesize": 9,
    "figure.constrained_layout.h_pad": 0.06,
    "figure.constrained_layout.w_pad": 0.06,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "lines.markersize": 4,
    "pdf.fonttype": 42,
    "figure.dpi": 300,  # texts are a little wider or narrower at other resolutions: laid out as they are saved
    "savefig.dpi": 300,
}
# Without dates and versions, so that the same figure is the same file.
METADATA: dict[str, dict[str, None]] = {
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".png": {"Software": None},
}
ORIGIN = {".pdf": "Keywords", ".png": "Comment"}  # the fields that say where a figure comes from


def context() -> AbstractContextManager[None]:
    """Return a context with matplotlib's defaults and `RC` on top, whatever the user's own settings are."""
    return matplotlib.style.context(["default", RC])


@dataclass(frozen=True)
class RunStyle:
    """How one run is drawn, everywhere in a figure."""

    colour: str
    marker: str
    line: Any

    @property
    def options(self) -> dict[str, Any]:
        """Return the arguments of `Axes.plot` for a line with markers."""
        return {"color": self.colour, "marker": self.marker, "linestyle": self.line}


def run_styles(runs: Iterable[str]) -> dict[str, RunStyle]:
    """Return a style per run; 77 runs differ in colour or marker.

    A registered method without options looks the same in every figure; the styles of other runs follow, in the order
    of their names.
    """
    return {
        run: RunStyle(COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)], LINES[i // len(COLOURS) % len(LINES)])
        for i, run in enumerate([*METHODS, *sorted(set(runs) - set(METHODS))])
    }


def new_figure(title: str, *, height: float, width: float = TWO_COLUMNS) -> Figure:
    """Return an empty figure, sizes in inches, whose layout keeps texts apart; higher where the title is long."""
    lines = textwrap.wrap(title, int(14 * width))
    figure = Figure(figsize=(width, height + TITLE_LINE * len(lines[1:])), layout="constrained")
    figure.suptitle("\n".join(lines))
    return figure


def check_texts(texts: Iterable[str]) -> None:
    r"""Refuse what matplotlib would take for mathematics and cannot read: two dollar signs enclose a formula.

    Raises:
        AuditError: a text is no such formula; ``\$`` is a dollar sign.
    """
    for text in filter(str.strip, texts):
        try:
            TextPath((0, 0), text)
        except ValueError as error:
            reason = str(error).strip().splitlines()[-1]
            raise AuditError(
                f"figure: found the text {text!r}, a formula between dollar signs that cannot be read ({reason});"
                r" expected one such as $\alpha$, or \$ for a dollar sign."
            ) from error


def log_scale(ax: Axes, axis: str = "y") -> None:
    """Set a logarithmic axis, ``"x"`` or ``"y"``, with labels at powers of ten only."""
    ax.set(**{f"{axis}scale": "log"})
    chosen = {"x": ax.xaxis, "y": ax.yaxis}[axis]
    chosen.set_minor_locator(NullLocator())
    chosen.set_minor_formatter(NullFormatter())


def percent_scale(ax: Axes, axis: str = "y") -> None:
    """Label fractions on an axis, ``"x"`` or ``"y"``, as percentages, with as many digits as the ticks need."""
    {"x": ax.xaxis, "y": ax.yaxis}[axis].set_major_formatter(lambda fraction, _: f"{100 * fraction:.6g}%")


def limit_line(ax: Axes, limit: float, check: str) -> None:
    """Draw a check's limit, name it in the right margin and shade where the check fires; call it after the data.

    Args:
        check: as in `fires`, which decides the side.
    """
    side = FIRES_WHEN[check]
    ax.axhline(limit, color=GREY, linestyle=(0, (5, 2)), linewidth=0.8, label="limit")
    ax.autoscale_view(scalex=False)  # room on both sides of the limit
    low, high = ax.get_ylim()
    ax.axhspan(limit, high if side == "above" else low, color=SHADE, linewidth=0, zorder=0)
    ax.set_ylim(low, high)
    margin_note(ax, f"fires\n{side}\n{number(limit)}", (1, limit), gap=3, fontsize=SMALL)


def margin_note(ax: Axes, text: str, place: tuple[float, float], *, gap: float, **options: Any) -> None:
    """Write beside a panel: `gap` points to the right of a place, whose x is a fraction of the axis."""
    beside = {"xytext": (gap, 0), "textcoords": "offset points", "va": "center", "color": GREY}
    ax.annotate(text, xy=place, xycoords=("axes fraction", "data"), **beside, **options)


def number(value: float, *, digits: int = 3) -> str:
    """Format a few significant digits, with a power of ten below 0.001 and from 1000; infinite and NaN by name."""
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    if not math.isfinite(value) or value == 0 or -3 <= int(exponent) < 3:
        return f"{value:.{digits}g}".replace("-", "\N{MINUS SIGN}")
    shown = f"{float(mantissa):g}"
    power = rf"10^{{{int(exponent)}}}"
    return rf"${power}$" if shown == "1" else rf"${shown}{{\times}}{power}$"


def on_scale(ax: Axes, values: np.ndarray) -> np.ndarray:
    """Return the values, NaN where the axis cannot show them."""
    showable = np.isfinite(values) & ((values > 0) | (ax.get_yscale() != "log"))
    return np.where(showable, values, np.nan)


def mark_off_scale(ax: Axes, x: np.ndarray, values: np.ndarray, *, colour: str) -> None:
    """Draw an arrow at the top for every infinite value, at the bottom of a log axis for zeros; NaN is absent."""
    zero = (values <= 0) & (ax.get_yscale() == "log")
    for label, where in ((INFINITE, values == np.inf), (ZERO, zero)):
        if where.any():
            marker, edge = OFF_SCALE[label]
            y = np.full(where.sum(), edge)
            ax.margins(y=0.2)  # keeps the other points clear of the edge
            ax.plot(x[where], y, marker, color=colour, transform=ax.get_xaxis_transform(), label=label)


def off_scale_handles(figure: Figure) -> list[Line2D]:
    """Return legend entries for the arrows that `mark_off_scale` has drawn in a figure."""
    drawn = {line.get_label() for ax in figure.axes for line in ax.lines}
    return [
        Line2D([], [], color=GREY, linestyle="none", marker=marker, label=label)
        for label, (marker, _) in OFF_SCALE.items()
        if label in drawn
    ]


def freeze_layout(figure: Figure) -> Figure:
    """Compute the layout once and keep it, so that every rendering has the same places for everything."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def save(figure: Figure, path: str | Path, origin: str) -> None:
    """Write a figure as PDF or PNG, whole or not at all; the same figure and origin give the same bytes.

    Args:
        path: a name that ends in .pdf or .png.
        origin: what it was made from, for the file's metadata.
    """
    suffix = Path(path).suffix
    metadata = METADATA[suffix] | {ORIGIN[suffix]: origin}
    with context():
        write_atomically(path, lambda part: figure.savefig(part, format=suffix[1:], metadata=metadata))
