"""The common look of all figures, and parts that several of them share."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from itertools import cycle, product
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.textpath import TextPath
from matplotlib.ticker import MaxNLocator, NullLocator, ScalarFormatter

from fa_audit.core.errors import AuditError
from fa_audit.core.files import write_bytes
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.results.statistics import extent

WIDTH = 5.5  # inches: a text block of one column; figures are printed at this size
WIDE = 7.0  # inches: a page of two columns
SMALL = 7  # points, for everything but titles and axis labels

# Method -> colour and marker in every figure. No method has an arrow, which means "off the scale",
# or a grey circle, which means a baseline. The first colours are those of Okabe and Ito (2008)
# without yellow, which is hard to see as a thin line on white. Some of the others look alike to
# readers with red-green blindness, so no two methods share a marker.
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
# User-defined methods have one of these markers with one of these colours.
_FREE_MARKERS = ("8", "H", r"$\clubsuit$", r"$\spadesuit$")
_FREE_COLOURS = ("#661100", "#44AA99", "#AA4499", "#DDAA33")
# Variants of a method have its marker, half filled, and broken lines.
_FILLS = ("left", "bottom", "right", "top")
_LINES = ("--", ":", "-.")

Look = dict[str, Any]  # arguments of `Axes.plot`
GREY, SHADE = "0.3", "0.92"
# Looks that all runs share; legends show them in grey.
MARK: Look = {"color": GREY, "linestyle": "none", "marker": "o", "markersize": 3.5}
SEED = MARK | {"markeredgewidth": 0.5}
AREA = MARK | {"marker": "s", "markersize": 7, "markeredgewidth": 0}
RING = MARK | {"markersize": 8, "markerfacecolor": "none", "markeredgewidth": 0.7}
# A mean without neighbours has no line, so a dash marks it.
_MEAN: Look = {
    "color": GREY,
    "marker": "_",
    "markersize": 7,
    "linewidth": 0.9,
    "fillstyle": "full",
    "label": "mean over seeds",
}
BORDERLINE = RING | {"color": "black"}
NOUGHT: Look = {"color": "0.7", "linewidth": 0.6, "zorder": 0}  # the line at 0
# Arrows for values that an axis cannot show: label -> marker on a y axis, marker on an x axis, and
# position as a fraction of the axis. 9 and 8 are matplotlib's arrows to the right and to the left;
# < and > already mark methods.
_ARROWS = {"infinite": ("^", 9, 0.96), "zero": ("v", 8, 0.04)}

# Leave out dates and versions, so that the same figure gives the same file.
_METADATA: dict[str, dict[str, str | None]] = {
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".png": {"Software": None},
    ".svg": {"Creator": None, "Date": None},
}
# The metadata field that holds a figure's origin: its code and inputs.
_ORIGIN = {".pdf": "Keywords", ".png": "Comment", ".svg": "Description"}


# --- figures and files


def context() -> AbstractContextManager[None]:
    """Return a context with matplotlib's defaults and paper.mplstyle, not the user's settings."""
    return matplotlib.style.context(["default", Path(__file__).with_name("paper.mplstyle")])


def styled(draw: Callable[..., Figure]) -> Callable[..., Figure]:
    """Decorate a drawing function: it uses `context`, and one layout for all file formats."""

    @wraps(draw)
    def drawn(*arguments: Any, **options: Any) -> Figure:
        with context():
            figure = draw(*arguments, **options)
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
            return figure

    return drawn


def new_figure(title: str, *, height: float) -> Figure:
    """Return an empty figure; `height` is in inches and leaves out title and legend."""
    lines = textwrap.wrap(title, int(15 * WIDTH))
    figure = Figure(figsize=(WIDTH, height + 0.15 * len(lines)), layout="constrained")
    figure.suptitle("\n".join(lines))
    return figure


def legend_below(figure: Figure, entries: Mapping[str, Look], **options: Any) -> None:
    """Add one legend under all panels, and make the figure higher by the legend's height.

    Entries for infinite values and zeros are added where the figure has some.

    Args:
        entries: label -> the look of a line or a marker.
    """
    looks = dict(entries)
    drawn = {line.get_label() for ax in figure.axes for line in ax.lines}
    for label, (marker, *_) in _ARROWS.items():
        if label in drawn:
            looks[label] = MARK | {"marker": marker}
    handles = [Line2D([], [], **look | {"label": label}) for label, look in looks.items()]
    # matplotlib does not say how many columns fit; about 96 characters fit into the width.
    columns = max(1, min(4, 96 // (max(map(len, looks)) + 8)))
    rows = math.ceil(len(looks) / columns)
    figure.set_figheight(figure.get_figheight() + 0.16 * rows + 0.1)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, **options)


def save(figure: Figure, path: str | Path, origin: str) -> None:
    """Write a figure atomically; the same figure and origin give the same bytes.

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


def run_styles(runs: Iterable[str]) -> dict[str, Look]:
    """Return arguments of `Axes.plot` per run; a method of `LOOKS` looks the same in every figure.

    Variants of a method (penalties, frozen blocks, random targets, snapshots) have half-filled
    markers and broken lines. User-defined methods get the remaining looks in the order of the names
    in `runs`, so their looks may differ between figures.
    """
    looks = dict(LOOKS)
    free = cycle(product(_FREE_MARKERS, _FREE_COLOURS))
    variants: Counter[str] = Counter()
    styles: dict[str, Look] = {}
    for run in sorted(set(runs)):
        method = run.partition("+")[0]
        if method not in looks:
            marker, colour = next(free)
            looks[method] = colour, marker
        colour, marker = looks[method]
        styles[run] = {"color": colour, "marker": marker, "markerfacecoloralt": "white"}
        if run == method:
            continue
        number = variants[method]
        variants[method] += 1
        styles[run]["linestyle"] = _LINES[number % len(_LINES)]
        if marker.startswith("$"):  # letters have no halves: a variant's is white
            styles[run]["markerfacecolor"] = "white"
        else:
            styles[run]["fillstyle"] = _FILLS[number % len(_FILLS)]
    return styles


def run_entries(runs: Collection[str], labels: Mapping[str, str]) -> dict[str, Look]:
    """Return a legend entry for every run, in the order of `runs`."""
    looks, entries = run_styles(runs), {}
    for run in runs:
        entries[labels.get(run, run)] = looks[run] | {"linewidth": 0.9, "markersize": 4.5}
    return entries


def mean_entries(
    groups: Mapping[str, pd.DataFrame], labels: Mapping[str, str], columns: list[str], at: Any
) -> dict[str, Look]:
    """Return legend entries: every run with its number of seeds, "one seed", "mean over seeds".

    Args:
        groups: the rows of every run.
        columns: the averaged columns.
        at: columns by which the means are grouped.
    """
    named = {}
    for run, rows in groups.items():
        counts = rows.groupby(at)[columns].count().to_numpy()
        named[run] = f"{labels.get(run, run)} (n = {extent(counts[counts > 0]) or 0})"
    return run_entries(groups, named) | {"one seed": SEED, _MEAN["label"]: _MEAN}


# --- texts


def check_texts(texts: Iterable[str], where: str = "figure") -> None:
    r"""Check that matplotlib can read the formulas between dollar signs in texts.

    Raises:
        AuditError: a formula cannot be read; write ``\$`` for a dollar sign.
    """
    for text in filter(str.strip, texts):
        try:
            TextPath((0, 0), text)
        except ValueError as error:
            reason = str(error).strip().splitlines()[-1]
            raise AuditError(
                f"{where}: found the text {text!r} with a formula between dollar signs that cannot"
                rf" be read ({reason}); expected one such as $\alpha$, or \$ for a dollar sign."
            ) from error


def wrap(label: str, width: int = 24) -> str:
    """Break a label into lines of at most `width` characters: at spaces, before +, after _."""
    if "$" in label:  # a formula stays in one piece
        return textwrap.fill(label, width, break_long_words=False, break_on_hyphens=False)
    return _Wrapper(width, break_on_hyphens=False).fill(label)


class _Wrapper(textwrap.TextWrapper):
    # Without `break_on_hyphens`, textwrap may break a text where this expression matches.
    wordsep_simple_re = re.compile(r"(\s+|(?<=_)(?=\w)|(?=\+))")


def number(value: float, *, digits: int = 3) -> str:
    """Format a number to `digits` significant digits, with a power of ten if it has more digits
    before the point or is below 1e-4.
    """
    text = f"{value:.{digits}g}"
    return power(float(text)) if "e" in text else ScalarFormatter.fix_minus(text)


def power(value: float) -> str:
    """Format a value of a logarithmic sweep as a power of ten; 0 stays 0."""
    return f"${ScalarFormatter(useMathText=True).format_data(value)}$" if value else "0"


def names(runs: Iterable[str], labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels; a run without a label is named after its method's label. A legend has one
    entry a label, so a second run with the same one also gets its own name.

    >>> names(["dfa+frozen", "dfa+lr1e0", "fa"], {"dfa": "DFA"})
    {'dfa': 'DFA', 'dfa+frozen': 'DFA, frozen', 'dfa+lr1e0': 'DFA, lr 1e0'}
    """
    called, given = dict(labels), set()
    for run in dict.fromkeys(runs):
        method, *variants = run.split("+")
        if variants and run not in labels and method in labels:
            called[run] = ", ".join([labels[method], *map(_variant, variants)])
        if "$" in run and run not in called:
            called[run] = run.replace("$", r"\$")
        if called.get(run, run) in given:
            called[run] = f"{called.get(run, run)} ({run})"
        given.add(called.get(run, run))
    return called


def _variant(part: str) -> str:
    if part.startswith("penalty"):
        return rf"$\lambda={power(float(part.removeprefix('penalty'))).strip('$')}$"
    return re.sub(r"(?<=[a-z])(?=\d)", " ", part, count=1).replace("_", " ")


# --- axes


def log_scale(ax: Axes, axis: str = "y") -> None:
    """Set a logarithmic axis, ``"x"`` or ``"y"``, with labels at powers of ten; a y axis of less than
    a decade also has labels between them.
    """
    # By default matplotlib draws 0 as a tiny value, so that a line to it leaves the panel.
    getattr(ax, f"set_{axis}scale")("log", nonpositive="mask")
    ax.xaxis.set_minor_locator(NullLocator())  # labels side by side would overlap
    ax.tick_params("y", which="minor", length=0)


def percent_scale(ax: Axes, axis: str = "y") -> None:
    """Label fractions on an axis, ``"x"`` or ``"y"``, as percentages."""
    # matplotlib's own formatter prints 40.0% beside 40%.
    getattr(ax, f"{axis}axis").set_major_formatter(lambda part, _: f"{100 * part:.6g}%")


def whole_numbers(ax: Axes, most: int) -> None:
    """Label the x axis at whole numbers, at most `most` of them."""
    # Without min_n_ticks=1, a single epoch or layer would get ticks at fractions.
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=most, min_n_ticks=1))


def limit_line(
    ax: Axes, check: str, thresholds: DiagnosticThresholds, *, axis: str = "y", named: bool = True
) -> None:
    """Draw a check's limit, write it at the panel's edge and shade where the check fires.

    Call it after the data are drawn.

    Args:
        axis: the axis of the values, ``"x"`` or ``"y"``.
        named: whether to write the limit, as "fires above 50"; False if a neighbour shows it.
    """
    kind = CHECKS[check]
    limit = kind.scale * thresholds.limits[kind.limit]
    line, shade = ax.axhline, ax.axhspan
    if axis == "x":
        line, shade = ax.axvline, ax.axvspan
    line(limit, color=GREY, linestyle="--", linewidth=0.8, label="limit")
    # Read the axis limits, which include the line now, and keep them: the shade would move them.
    low, high = getattr(ax, f"get_{axis}lim")()
    shade(limit, high if kind.side == "above" else low, color=SHADE, linewidth=0, zorder=0)
    ax.set(**{f"{axis}lim": (low, high)})
    if not named:
        return
    text = f"fires {kind.side} {number(limit)}"
    look: Look = {"textcoords": "offset points", "color": GREY, "fontsize": SMALL}
    if axis == "x":
        look |= {"xytext": (0, 2), "xycoords": ax.transAxes, "ha": "center"}
        ax.annotate(text, (0.5, 1), **look)
    else:
        look |= {"xytext": (3, 0), "xycoords": ax.get_yaxis_transform(), "va": "center"}
        ax.annotate(text.replace(" ", "\n"), (1, limit), **look)


def name_rows(ax: Axes, labels: Sequence[str]) -> None:
    """Write the names of a panel's rows at its left edge, row 0 on top."""
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.set_yticks(range(len(labels)), labels, va="center")
    ax.tick_params(axis="y", length=0)


def rows_height(labels: Collection[str], lines: int = 1) -> float:
    """Return the height of all rows together in inches; each has room for `lines` lines and for
    the tallest label.
    """
    tallest = max([lines, *(label.count("\n") + 1 for label in labels)])
    return len(labels) * (0.125 * tallest + 0.1)


# --- data


def mark_off_scale(
    ax: Axes, along: pd.Series, values: pd.Series, *, colour: str, axis: str = "y"
) -> None:
    """Draw an arrow at the axis's end for each infinite value and, on a log axis, an arrow at its
    start for each value of 0 or below.

    matplotlib draws neither. NaN means that nothing was measured, and gets no arrow.

    Args:
        along: positions of the values on the other axis.
        axis: the axis of the values, ``"x"`` or ``"y"``.
    """
    is_log = getattr(ax, f"get_{axis}scale")() == "log"
    for label, hidden in (("infinite", values == np.inf), ("zero", (values <= 0) & is_log)):
        places = along[hidden]
        if not len(places):
            continue
        upward, rightward, edge = _ARROWS[label]
        edges = np.full(len(places), edge)
        look = {"linestyle": "none", "color": colour, "label": label}
        if axis == "y":
            ax.plot(places, edges, marker=upward, transform=ax.get_xaxis_transform(), **look)
        else:
            ax.plot(edges, places, marker=rightward, transform=ax.get_yaxis_transform(), **look)


def points(
    ax: Axes,
    rows: pd.DataFrame,
    x: str,
    y: str,
    look: Look,
    *,
    label: str,
    axis: str = "y",
    hollow: str = "",
) -> None:
    """Draw a run's marker for every row, or an arrow for a value that the axis cannot show.

    Args:
        x, y: columns.
        look: the run's entry of `run_styles`.
        axis: the axis of the values, ``"x"`` or ``"y"``.
        hollow: name of a boolean column, True for unfilled markers; default: all are filled.
    """
    filled = SEED | look | {"linestyle": "none", "label": label}
    white = filled | {"markerfacecolor": "white", "fillstyle": "full"}
    is_hollow = rows.get(hollow, pd.Series(False, rows.index))
    for chosen, mark in ((rows[~is_hollow], filled), (rows[is_hollow], white)):
        if len(chosen):
            ax.plot(chosen[x], chosen[y], **mark)
    along, values = (y, x) if axis == "x" else (x, y)
    mark_off_scale(ax, rows[along], rows[values], colour=look["color"], axis=axis)


def seeds_and_means(
    ax: Axes, groups: Mapping[str, pd.DataFrame], x: str, y: str, *, hollow: str = ""
) -> None:
    """Draw one column against another for every run: a line of means over seeds, and on top of it a
    marker for each seed.

    The best run is drawn last, on top. A line is interrupted where a value is infinite or none was
    measured.

    Args:
        hollow: name of a boolean column, True for unfilled markers.
    """
    looks = run_styles(groups)
    for run in reversed(groups):
        rows, look = groups[run], looks[run]
        means = rows.groupby(x)[y].mean()
        ax.plot(means.index, means, **look | _MEAN | {"color": look["color"]})
        points(ax, rows, x, y, look, label=run, hollow=hollow)
