"""The common look of all figures, and parts that several of them share."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import wraps
from itertools import cycle, product
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath
from matplotlib.ticker import MaxNLocator

from fa_audit.core.errors import AuditError
from fa_audit.core.files import write_bytes
from fa_audit.protocol.checks import of_limit
from fa_audit.results.statistics import extent

WIDTH = 5.5  # inches: the width of a text block of one column; drawn as large as it is printed
WIDE = 7.0  # inches: of a page of two columns
LINE = 0.125  # inches from one line of small text to the next
SMALL = 7  # points, for everything but titles and axis labels
LABEL = 24  # characters in a line of a row's label

# Method -> colour and marker in every figure; arrows mean "off the scale", grey circles baselines.
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
# User-defined methods have one of these colours with one of these markers.
_OWN_MARKERS = ("8", "H", r"$\clubsuit$", r"$\spadesuit$")
_OWN_COLOURS = ("#661100", "#44AA99", "#AA4499", "#DDAA33")
_FILLS = ("left", "bottom", "right", "top")  # halves of the marker that variants of a method have
_LINES = ((0, (4, 1.5)), (0, (1, 1)), (0, (4, 1.5, 1, 1.5)))  # and their lines

ERROR, FINE = LOOKS["credit_bridge"][0], LOOKS["ep"][0]
GREY, SHADE = "0.3", "0.92"
DOTTED, DASHED = (0, (1, 1)), (0, (5, 2))
# Of legends and of what all runs share.
MARK: dict[str, Any] = {"color": GREY, "linestyle": "none", "marker": "o", "markersize": 3.5}
SEED: dict[str, Any] = MARK | {"markeredgewidth": 0.5, "label": "one seed"}
# The dash shows a mean that has no neighbours.
MEAN: dict[str, Any] = {"marker": "_", "markersize": 7, "linewidth": 0.9, "fillstyle": "full"}
RING: dict[str, Any] = MARK | {"markersize": 8, "markerfacecolor": "none", "markeredgewidth": 0.7}
NOUGHT: dict[str, Any] = {"color": "0.7", "linewidth": 0.6, "zorder": 0}  # the line at 0

INFINITE, ZERO = "infinite", "zero"
# Marker, and its height as a fraction of the axis. 9 and 8 are arrows to the right and to the
# left: < and > are markers of methods.
_ARROWS = {INFINITE: ({"y": "^", "x": 9}, 0.96), ZERO: ({"y": "v", "x": 8}, 0.04)}

_RC = {
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
    "svg.hashsalt": "fa-audit",  # of the ids in a file, which are random without it
    # Texts are a little wider or narrower at other resolutions: laid out as they are saved.
    "figure.dpi": 300,
    "savefig.dpi": 300,
}
# Without dates and versions, so that the same figure is the same file.
_METADATA: dict[str, dict[str, str | None]] = {
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".png": {"Software": None},
    ".svg": {"Creator": None, "Date": None},
}
# The fields that say what a figure is made of.
_ORIGIN = {".pdf": "Keywords", ".png": "Comment", ".svg": "Description"}


# --- figures and files


def context() -> AbstractContextManager[None]:
    """Return a context with matplotlib's defaults and this look, ignoring the user's settings."""
    return matplotlib.style.context(["default", _RC])


def styled(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """Decorate a drawing function: it draws in `context`, with a layout that is the same in all
    formats.
    """

    @wraps(draw)
    def drawn(*arguments: Any, **options: Any) -> Figure:
        with context():
            return freeze_layout(draw(*arguments, **options))

    return drawn


def new_figure(title: str, *, height: float) -> Figure:
    """Return an empty figure with constrained layout; `height` in inches, without title and legend."""
    lines = textwrap.wrap(title, int(15 * WIDTH))
    figure = Figure(figsize=(WIDTH, height + 0.15 * len(lines)), layout="constrained")
    figure.suptitle("\n".join(lines))
    return figure


def legend_below(figure: Figure, handles: Sequence[Artist], **options: Any) -> None:
    """Add one legend under all panels, and its height to the figure.

    Entries for infinite values and zeros are added where the figure has some.
    """
    drawn = {line.get_label() for ax in figure.axes for line in ax.lines}
    entries = list(handles)
    for label, (markers, _) in _ARROWS.items():
        if label in drawn:
            entries.append(Line2D([], [], **MARK | {"marker": markers["y"], "label": label}))
    widest = max(len(str(entry.get_label())) for entry in entries)
    columns = max(1, min(4, len(entries), 96 // (widest + 8)))
    rows = math.ceil(len(entries) / columns)
    figure.set_figheight(figure.get_figheight() + 0.16 * rows + 0.1)
    figure.legend(handles=entries, loc="outside lower center", ncols=columns, **options)


def freeze_layout(figure: Figure) -> Figure:
    """Compute the layout and keep it."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def save(figure: Figure, path: str | Path, origin: str) -> None:
    """Write a figure, whole or not at all; the same figure and origin give the same bytes.

    Args:
        path: ends in .pdf, .png or .svg.
        origin: code and inputs of the figure, for the file's metadata.
    """
    suffix = Path(path).suffix
    metadata = _METADATA[suffix] | {_ORIGIN[suffix]: origin}
    content = io.BytesIO()
    with context():
        figure.savefig(content, format=suffix[1:], metadata=metadata)
    write_bytes(path, content.getvalue())


# --- the looks of runs


@dataclass(frozen=True)
class RunStyle:
    """Colour, marker and line of one run, everywhere in a figure."""

    colour: str
    marker: str
    line: Any = "-"
    fill: str = "full"

    @property
    def mark(self) -> dict[str, Any]:
        """Return the arguments of `Axes.plot` for a marker."""
        # Letters have no halves: a variant's is white.
        hollow = self.fill != "full" and self.marker.startswith("$")
        return {
            "color": self.colour,
            "marker": self.marker,
            "fillstyle": self.fill,
            "markeredgecolor": self.colour,
            "markerfacecolor": "white" if hollow else self.colour,
            "markerfacecoloralt": "white",
        }

    @property
    def options(self) -> dict[str, Any]:
        """Return the arguments of `Axes.plot` for a line with markers."""
        return self.mark | {"linestyle": self.line}


def run_styles(runs: Iterable[str]) -> dict[str, RunStyle]:
    """Return a style per run; a method has the same colour and marker in every figure.

    Variants of a method (penalties, frozen blocks, random targets, snapshots) have half-filled
    markers and broken lines. User-defined methods get the remaining looks in the order of their
    names.
    """
    looks = dict(LOOKS)
    own = cycle(product(_OWN_MARKERS, _OWN_COLOURS))
    variants: dict[str, int] = {}
    styles = {}
    for run in sorted(set(runs)):
        method = run.partition("+")[0]
        if method not in looks:
            marker, colour = next(own)
            looks[method] = colour, marker
        if run == method:
            styles[run] = RunStyle(*looks[method])
            continue
        i = variants.setdefault(method, 0)
        variants[method] += 1
        line, fill = _LINES[i % len(_LINES)], _FILLS[i % len(_FILLS)]
        styles[run] = RunStyle(*looks[method], line, fill)
    return styles


def run_handles(runs: Collection[str], labels: Mapping[str, str]) -> list[Artist]:
    """Return a legend entry for every run, in their order."""
    handles: list[Artist] = []
    looks = run_styles(runs)
    for run in runs:
        look = looks[run].options | {"linewidth": 0.9, "markersize": 4.5}
        handles.append(Line2D([], [], **look, label=labels.get(run, run)))
    return handles


def mark_handles() -> list[Artist]:
    """Return legend entries for the seeds and their mean."""
    mean = Line2D([], [], color=GREY, **MEAN, label="mean over seeds")
    return [Line2D([], [], **SEED), mean]


# --- texts


def check_texts(texts: Iterable[str], where: str = "figure") -> None:
    r"""Check that matplotlib can read the formulas in texts, which dollar signs enclose.

    Raises:
        AuditError: it cannot read one; write ``\$`` for a dollar sign.
    """
    for text in filter(str.strip, texts):
        try:
            TextPath((0, 0), text)
        except ValueError as error:
            reason = str(error).strip().splitlines()[-1]
            raise AuditError(
                f"{where}: found the text {text!r}, a formula between dollar signs that cannot be"
                rf" read ({reason}); expected one such as $\alpha$, or \$ for a dollar sign."
            ) from error


def wrap(label: str, width: int = LABEL) -> str:
    """Break a label into lines of at most `width` characters: at spaces, before +, after _."""
    if "$" in label:  # a formula stays in one piece
        return textwrap.fill(label, width, break_long_words=False, break_on_hyphens=False)
    return _Wrapper(width, break_on_hyphens=False).fill(label)


class _Wrapper(textwrap.TextWrapper):
    wordsep_simple_re = re.compile(r"(\s+|(?<=_)(?=\w)|(?=\+))")


def number(value: float, *, digits: int = 3) -> str:
    """Format a few significant digits, with a power of ten below 0.001 and from 1000."""
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
    """Return the labels; a run without a label is named after its method's label.

    >>> names(["dfa+penalty1e-2", "fa"], {"dfa": "DFA"})
    {'dfa': 'DFA', 'dfa+penalty1e-2': 'DFA, $\\\\lambda=10^{-2}$'}
    """
    called = dict(labels)
    for run in runs:
        method, *variants = run.split("+")
        if variants and run not in labels and method in labels:
            called[run] = ", ".join([labels[method], *map(_variant, variants)])
    return called


def _variant(part: str) -> str:
    if part.startswith("penalty"):
        return rf"$\lambda={power(float(part.removeprefix('penalty'))).strip('$')}$"
    return re.sub(r"(?<=[a-z])(?=\d)", " ", part).replace("_", " ")


def counted(
    groups: Mapping[str, pd.DataFrame], labels: Mapping[str, str], columns: list[str], at: Any
) -> dict[str, str]:
    """Return the names of runs with the number of seeds that each mean averages.

    Args:
        groups: the rows of every run.
        columns: the averaged columns; `at`: columns by which the means are grouped.
    """
    called = {}
    for run, group in groups.items():
        counts = group.groupby(at)[columns].count().to_numpy()
        called[run] = f"{labels.get(run, run)} (n = {extent(counts[counts > 0]) or 0})"
    return called


# --- axes


def log_scale(ax: Axes, axis: str = "y") -> None:
    """Set a logarithmic axis, ``"x"`` or ``"y"``, with labels at powers of ten only."""
    ax.set(**{f"{axis}scale": "log"})
    ax.minorticks_off()


def percent_scale(ax: Axes, axis: str = "y") -> None:
    """Label fractions on an axis, ``"x"`` or ``"y"``, as percentages."""
    # matplotlib's own formatter prints 40.0% beside 40%.
    {"x": ax.xaxis, "y": ax.yaxis}[axis].set_major_formatter(lambda part, _: f"{100 * part:.6g}%")


def whole_numbers(ax: Axes, most: int) -> None:
    """Label at most `most` places of the x axis, at whole numbers."""
    # One epoch or one layer gets its label, too.
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=most, min_n_ticks=1))


def limit_line(ax: Axes, limit: float, check: str, *, axis: str = "y", named: bool = True) -> None:
    """Draw a check's limit, name it beside the panel and shade where the check fires.

    Call it after the data.

    Args:
        check: name of the limit.
        axis: the axis of the values, ``"x"`` or ``"y"``.
        named: False if a neighbouring panel already has the name.
    """
    side, upright = of_limit(check).side, axis == "x"
    line, shade, ends = ax.axhline, ax.axhspan, ax.get_ylim
    if upright:
        line, shade, ends = ax.axvline, ax.axvspan, ax.get_xlim
    line(limit, color=GREY, linestyle=DASHED, linewidth=0.8, label="limit")
    ax.autoscale_view(scalex=upright, scaley=not upright)  # room on both sides of the limit
    low, high = ends()
    edge = high if side == "above" else low
    shade(limit, edge, color=SHADE, linewidth=0, zorder=0)
    ax.set(**{f"{axis}lim": (low, high)})
    if named and upright:
        text, place, offset = f"fires {side} {number(limit)}", (0.5, 1), (0, 2)
        look = {"ha": "center", "xycoords": "axes fraction"}
    elif named:
        text, place, offset = f"fires\n{side}\n{number(limit)}", (1, limit), (3, 0)
        look = {"va": "center", "xycoords": ("axes fraction", "data")}
    else:
        return
    note = {"textcoords": "offset points", "color": GREY, "fontsize": SMALL}
    ax.annotate(text, place, offset, **look | note)


def name_rows(ax: Axes, labels: Sequence[str]) -> None:
    """Name the rows of a panel on the left, row 0 on top."""
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.set_yticks(range(len(labels)), labels, va="center")
    ax.tick_params(axis="y", length=0)


def rows_height(labels: Iterable[str], lines: int = 1) -> float:
    """Return the height in inches of rows that fit the tallest label, or `lines` of text."""
    found = list(labels)
    tallest = max([lines, *(label.count("\n") + 1 for label in found)])
    return len(found) * (tallest * LINE + 0.1)


# --- data


def numbers(table: pd.DataFrame, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
    """Return two columns as arrays."""
    return table[x].to_numpy(float), table[y].to_numpy(float)


def mean(values: np.ndarray) -> float:
    """Return the mean of the measured values; NaN without any, or if one is infinite."""
    found = float(pd.Series(values).mean())
    return found if np.isfinite(found) else np.nan


def on_scale(ax: Axes, values: np.ndarray, axis: str = "y") -> np.ndarray:
    """Return the values, with NaN for those that the axis cannot show."""
    scales = {"x": ax.get_xscale(), "y": ax.get_yscale()}
    showable = np.isfinite(values)
    if scales[axis] == "log":
        showable &= values > 0
    return np.where(showable, values, np.nan)


def mark_off_scale(
    ax: Axes, along: np.ndarray, values: np.ndarray, *, colour: str, axis: str = "y"
) -> None:
    """Draw arrows for infinite values at the end of an axis, and for zeros at the start of a log
    axis.

    Args:
        along: positions of the values on the other axis.
        axis: the axis of the values, ``"x"`` or ``"y"``.
    """
    hidden = np.isnan(on_scale(ax, values, axis)) & ~np.isnan(values)
    for label, where in ((INFINITE, values == np.inf), (ZERO, values <= 0)):
        places = along[where & hidden]
        if not len(places):
            continue
        markers, edge = _ARROWS[label]
        edges = np.full(len(places), edge)
        options = {"linestyle": "none", "marker": markers[axis], "color": colour, "label": label}
        if axis == "y":
            ax.plot(places, edges, transform=ax.get_xaxis_transform(), **options)
        else:
            ax.plot(edges, places, transform=ax.get_yaxis_transform(), **options)


def points(
    ax: Axes,
    x: np.ndarray,
    y: np.ndarray,
    look: RunStyle,
    *,
    label: str,
    axis: str = "y",
    hollow: np.ndarray | None = None,
) -> None:
    """Draw a run's marker for every seed, or an arrow for a value that the axis cannot show.

    Args:
        axis: the axis of the values, ``"x"`` or ``"y"``.
        hollow: which markers are not filled; none by default.
    """
    values, along = (x, y) if axis == "x" else (y, x)
    shown = on_scale(ax, values, axis)
    empty = np.zeros(len(values), bool) if hollow is None else hollow
    for chosen, own in ((~empty, {}), (empty, {"markerfacecolor": "white", "fillstyle": "full"})):
        places = (shown, along) if axis == "x" else (along, shown)
        if chosen.any():
            options = SEED | look.mark | own | {"label": label}
            ax.plot(places[0][chosen], places[1][chosen], **options)
    mark_off_scale(ax, along, values, colour=look.colour, axis=axis)


def seeds_and_means(
    ax: Axes, groups: Mapping[str, pd.DataFrame], x: str, y: str, *, hollow: str = ""
) -> None:
    """Draw one column against another for every run: its seeds over a line through their means.

    The best run is on top. A line is interrupted where a value is infinite or none was measured.

    Args:
        hollow: a boolean column: which markers are not filled.
    """
    looks = run_styles(groups)
    for run in reversed(groups):
        group = groups[run]
        at, values = numbers(group, x, y)
        places = np.unique(at)
        means = np.array([mean(values[at == place]) for place in places])
        look = looks[run].options | MEAN
        ax.plot(places, on_scale(ax, means), **look, label="mean over seeds")
        open_marks = group[hollow].to_numpy() if hollow else None
        points(ax, at, values, looks[run], label=run, hollow=open_marks)
