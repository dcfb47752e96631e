"""The one look of all figures: sizes, colours and markers of runs, limit lines, values off the
scale, saving.
"""

from __future__ import annotations

import math
import re
import textwrap
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath

from fa_audit.core.errors import AuditError
from fa_audit.core.files import write_atomically
from fa_audit.protocol.checks import of_limit

WIDTH = 5.5  # inches: the width of a text block of one column; drawn as large as it is printed
WIDE = 7.0  # inches: of a page of two columns
TITLE_LINE = 0.15  # inches
SMALL = 7  # points, for everything but titles and axis labels
# Method -> colour and marker in every figure; ^ and v mean "off the scale", grey circles baselines.
# The first colours are those of Okabe and Ito (2008) without yellow, which a thin line on white
# paper loses; the others are as far apart, also without red or green cones. Markers repeat what
# colours say.
LOOKS = {
    "bp": ("#000000", "o"),
    "fa": ("#E69F00", "s"),
    "dfa": ("#0072B2", "D"),
    "ep": ("#009E73", "P"),
    "state_bridge": ("#CC79A7", "X"),
    "credit_bridge": ("#D55E00", "*"),
    "usf": ("#56B4E9", "p"),
    "brsf": ("#882255", "h"),
    "frsf": ("#A6D96A", "<"),
    "drtp": ("#6B4C1E", ">"),
    "kolen_pollack": ("#332288", "d"),
    "direct_kolen_pollack": ("#4B1E69", r"$\mathbf{K}$"),
    "weight_mirror": ("#8888EE", r"$\mathbf{W}$"),
    "dtp": ("#22AA44", r"$\mathbf{T}$"),
    "dtp_drl": ("#2D0000", r"$\mathbf{R}$"),
    "predictive_coding": ("#1155BB", r"$\mathbf{C}$"),
    "dual_propagation": ("#875A87", r"$\mathbf{D}$"),
    "local_pred": ("#551100", r"$\mathbf{P}$"),
    "local_sim": ("#BB22FF", r"$\mathbf{S}$"),
    "local_predsim": ("#44CC99", r"$\mathbf{B}$"),
    "layerwise": ("#441144", r"$\mathbf{L}$"),
    "forward_gradient": ("#2D001E", r"$\mathbf{G}$"),
    "pepita": ("#66DD88", r"$\mathbf{E}$"),
    "forward_forward": ("#110099", r"$\mathbf{F}$"),
    "fa_layerwise": ("#783C3C", r"$\mathbf{A}$"),
    "ep_symmetric": ("#1EC3D2", r"$\mathbf{Y}$"),
    "mono_forward": ("#00E1D2", r"$\mathbf{M}$"),
    "sigprop": ("#00005A", r"$\mathbf{Z}$"),
}
# Looks of user-defined methods.
OWN = (
    *product(
        ("#661100", "#44AA99", "#AA4499", "#DDAA33"), ("8", "H", r"$\clubsuit$", r"$\spadesuit$")
    ),
)
FILLS = ("left", "bottom", "right", "top")  # halves of the marker that variants of a method have
LINES = ((0, (4, 1.5)), (0, (1, 1)), (0, (4, 1.5, 1, 1.5)))  # and their lines
ERROR, FINE, DOUBT = LOOKS["credit_bridge"][0], LOOKS["ep"][0], LOOKS["fa"][0]  # outcomes
GREY, SHADE = "0.3", "0.92"
BORDERLINE: dict[str, Any] = {"color": "black", "linestyle": "none", "marker": "o", "markerfacecolor": "none",
                              "markersize": 8, "markeredgewidth": 0.7}  # fmt: skip
INFINITE, ZERO = "infinite", "zero"
OFF_SCALE = {INFINITE: ("^", 0.96), ZERO: ("v", 0.04)}  # marker, height as a fraction of the axis
SIDEWAYS = {"^": 9, "v": 8}  # arrows to the right and to the left: < and > are markers of methods
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
    """Return a context with matplotlib's defaults and `RC` on top, whatever the user's own settings
    are.
    """
    return matplotlib.style.context(["default", RC])


def styled(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """Draw in `context`, with a layout that is computed once, so that every rendering has the same
    places.
    """

    @wraps(draw)
    def drawn(*arguments: Any, **options: Any) -> Figure:
        with context():
            return freeze_layout(draw(*arguments, **options))

    return drawn


@dataclass(frozen=True)
class RunStyle:
    """How one run is drawn, everywhere in a figure."""

    colour: str
    marker: str
    line: Any = "-"
    fill: str = "full"

    @property
    def mark(self) -> dict[str, Any]:
        """Return the arguments of `Axes.plot` for a marker."""
        hollow = self.fill != "full" and self.marker.startswith("$")  # letters have no halves
        edge = {
            "color": self.colour,
            "marker": self.marker,
            "fillstyle": self.fill,
            "markeredgecolor": self.colour,
        }
        return edge | {
            "markerfacecolor": "white" if hollow else self.colour,
            "markerfacecoloralt": "white",
        }

    @property
    def options(self) -> dict[str, Any]:
        """Return the arguments of `Axes.plot` for a line with markers."""
        return self.mark | {"linestyle": self.line}


def run_styles(runs: Iterable[str]) -> dict[str, RunStyle]:
    """Return a style per run: colour and marker are its method's, in every figure.

    Variants of a method (penalties, frozen blocks, random targets, snapshots) have half of its
    marker and broken lines. A user-defined method has a look that follows from its name; another
    free one where two in a figure would share it.
    """
    groups: dict[str, list[str]] = {}
    for run in sorted(set(runs)):
        groups.setdefault(run.partition("+")[0], []).append(run)
    own = _own_looks([method for method in groups if method not in LOOKS])
    styles = {}
    for method, members in groups.items():
        colour, marker = (LOOKS | own)[method]
        styles |= {method: RunStyle(colour, marker)} if method in members else {}
        for i, run in enumerate(run for run in members if run != method):
            styles[run] = RunStyle(colour, marker, LINES[i % len(LINES)], FILLS[i % len(FILLS)])
    return styles


def _own_looks(methods: Sequence[str]) -> dict[str, tuple[str, str]]:
    taken: list[tuple[str, str]] = []
    for method in methods:
        first = zlib.crc32(method.encode())
        looks = [OWN[(first + step) % len(OWN)] for step in range(len(OWN))]
        colours = [colour for colour, _ in taken]
        taken.append(min(looks, key=lambda look: (taken.count(look), colours.count(look[0]))))
    return dict(zip(methods, taken))


def new_figure(title: str, *, height: float) -> Figure:
    """Return an empty figure, sizes in inches, whose layout keeps texts apart; higher where the
    title is long.
    """
    lines = textwrap.wrap(title, int(15 * WIDTH))
    figure = Figure(figsize=(WIDTH, height + TITLE_LINE * len(lines[1:])), layout="constrained")
    figure.suptitle("\n".join(lines))
    return figure


def check_texts(texts: Iterable[str], where: str = "figure") -> None:
    r"""Refuse what matplotlib would take for mathematics and cannot read: two dollar signs enclose
    a formula.

    Raises:
        AuditError: a text is not such a formula; ``\$`` is a dollar sign.
    """
    for text in filter(str.strip, texts):
        try:
            TextPath((0, 0), text)
        except ValueError as error:
            reason = str(error).strip().splitlines()[-1]
            raise AuditError(
                f"{where}: found the text {text!r}, a formula between dollar signs that cannot be read ({reason});"
                r" expected one such as $\alpha$, or \$ for a dollar sign."
            ) from error


def log_scale(ax: Axes, axis: str = "y") -> None:
    """Set a logarithmic axis, ``"x"`` or ``"y"``, with labels at powers of ten only."""
    ax.set(**{f"{axis}scale": "log"})
    ax.minorticks_off()


def percent_scale(ax: Axes, axis: str = "y") -> None:
    """Label fractions on an axis, ``"x"`` or ``"y"``, as percentages, with as many digits as the
    ticks need.
    """
    {"x": ax.xaxis, "y": ax.yaxis}[axis].set_major_formatter(
        lambda fraction, _: f"{100 * fraction:.6g}%"
    )


def limit_line(ax: Axes, limit: float, check: str, *, axis: str = "y", named: bool = True) -> None:
    """Draw a check's limit, name it in the margin and shade where the check fires; call it after
    the data.

    Args:
        check: as in `fires`, which decides the side.
        axis: on which the values stand; the name is to the right of a limit on y and above one on
            x.
        named: False beside a panel that has the name already.
    """
    side, upright = of_limit(check).side, axis == "x"
    line, span, limits = (
        (ax.axvline, ax.axvspan, "xlim") if upright else (ax.axhline, ax.axhspan, "ylim")
    )
    line(limit, color=GREY, linestyle=(0, (5, 2)), linewidth=0.8, label="limit")
    ax.autoscale_view(scalex=upright, scaley=not upright)  # room on both sides of the limit
    low, high = getattr(ax, f"get_{limits}")()
    span(limit, high if side == "above" else low, color=SHADE, linewidth=0, zorder=0)
    ax.set(**{limits: (low, high)})
    if not named:
        return
    if upright:
        above = {
            "xytext": (0, 2),
            "textcoords": "offset points",
            "ha": "center",
            "color": GREY,
            "fontsize": SMALL,
        }
        ax.annotate(f"fires {side} {number(limit)}", xy=(0.5, 1), xycoords="axes fraction", **above)
    else:
        margin_note(ax, f"fires\n{side}\n{number(limit)}", (1, limit), gap=3, fontsize=SMALL)


def margin_note(
    ax: Axes, text: str, place: tuple[float, float], *, gap: float, **options: Any
) -> None:
    """Write beside a panel: `gap` points to the right of a place, whose x is a fraction of the
    axis.
    """
    beside = {"xytext": (gap, 0), "textcoords": "offset points", "va": "center", "color": GREY}
    ax.annotate(text, xy=place, **{"xycoords": ("axes fraction", "data"), **beside, **options})


def number(value: float, *, digits: int = 3) -> str:
    """Format a few significant digits, with a power of ten below 0.001 and from 1000; infinite and
    NaN by name.
    """
    exponent = f"{value:.{digits - 1}e}".partition("e")[2]
    if not math.isfinite(value) or value == 0 or -3 <= int(exponent) < 3:
        return f"{value:.{digits}g}".replace("-", "\N{MINUS SIGN}")
    return power(value, digits=digits)


def power(value: float, *, digits: int = 7) -> str:
    """Format a value of a logarithmic sweep, 0 among them: as a power of ten.

    >>> power(0.01), power(0)
    ('$10^{-2}$', '0')
    """
    if value == 0:
        return "0"
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    factor = "" if float(mantissa) == 1 else rf"{float(mantissa):g}{{\times}}"
    return f"${factor}10^{{{int(exponent)}}}$"


def names(runs: Iterable[str], labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels, and of runs without one how they derive from that of their method, if it
    has one.

    >>> names(["dfa+penalty1e-2", "fa"], {"dfa": "DFA"})
    {'dfa': 'DFA', 'dfa+penalty1e-2': 'DFA, $\\\\lambda=10^{-2}$'}
    """
    derived = {}
    for run in runs:
        method, *variants = run.split("+")
        if run not in labels and method in labels and variants:
            derived[run] = ", ".join([labels[method], *map(_variant, variants)])
    return {**labels, **derived}


def _variant(part: str) -> str:
    if part.startswith("penalty"):
        return rf"$\lambda={power(float(part.removeprefix('penalty'))).strip('$')}$"
    return re.sub(r"(?<=[a-z])(?=\d)", " ", part).replace("_", " ")


def on_scale(ax: Axes, values: np.ndarray, axis: str = "y") -> np.ndarray:
    """Return the values, NaN where the axis, ``"x"`` or ``"y"``, cannot show them."""
    showable = np.isfinite(values) & ((values > 0) | (getattr(ax, f"get_{axis}scale")() != "log"))
    return np.where(showable, values, np.nan)


def mark_off_scale(
    ax: Axes, along: np.ndarray, values: np.ndarray, *, colour: str, axis: str = "y"
) -> None:
    """Draw an arrow at the end of an axis for every infinite value, at the start of a log axis for
    zeros.

    NaN is absent.

    Args:
        along: where they stand on the other axis.
        axis: on which the values stand.
    """
    zero = (values <= 0) & (getattr(ax, f"get_{axis}scale")() == "log")
    for label, where in ((INFINITE, values == np.inf), (ZERO, zero)):
        if not where.any():
            continue
        (marker, edge), places = OFF_SCALE[label], along[where]
        ax.margins(**{axis: 0.2})  # keeps the other points clear of the edge
        look = {"linestyle": "none", "color": colour, "label": label}
        if axis == "y":
            ax.plot(
                places,
                [edge] * len(places),
                marker=marker,
                transform=ax.get_xaxis_transform(),
                **look,
            )
        else:
            ax.plot(
                [edge] * len(places),
                places,
                marker=SIDEWAYS[marker],
                transform=ax.get_yaxis_transform(),
                **look,
            )


def off_scale_handles(figure: Figure) -> list[Line2D]:
    """Return legend entries for the arrows that `mark_off_scale` has drawn in a figure."""
    drawn = {line.get_label() for ax in figure.axes for line in ax.lines}
    return [
        Line2D([], [], color=GREY, linestyle="none", marker=marker, label=label)
        for label, (marker, _) in OFF_SCALE.items()
        if label in drawn
    ]


def freeze_layout(figure: Figure) -> Figure:
    """Compute the layout once and keep it, so that every rendering has the same places for
    everything.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def save(figure: Figure, path: str | Path, origin: str) -> None:
    """Write a figure as PDF or PNG, whole or not at all; the same figure and origin give the same
    bytes.

    Args:
        path: a name that ends in .pdf or .png.
        origin: what it was made from, for the file's metadata.
    """
    suffix = Path(path).suffix
    metadata = METADATA[suffix] | {ORIGIN[suffix]: origin}
    with context():
        write_atomically(
            path, lambda part: figure.savefig(part, format=suffix[1:], metadata=metadata)
        )
