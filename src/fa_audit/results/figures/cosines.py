"""Figures of cosines between credits and gradients: why their mean misleads, and how far an epsilon
shrinks them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fa_audit.core.errors import AuditError
from fa_audit.experiments.paths import AT_INPUT
from fa_audit.experiments.spec import parse_run
from fa_audit.protocol.limits import DiagnosticThresholds, fires
from fa_audit.results.figures import lines, style, text_grid
from fa_audit.results.statistics import by_run, rank_runs, whole
from fa_audit.results.tidy import KEY, Tidy

EPSILON = 1e-8  # lower bound of norms in torch.nn.functional.cosine_similarity
COSINE, CLAMPED = (
    f"cosine{AT_INPUT}",
    f"clamped_cosine{AT_INPUT}",
)  # as published; the gradient at the state is known


# --- the mean over blocks, and every block
# ---------------------------------------------------------------------------

HOLLOW = lines.SEED | {"markerfacecolor": "white", "label": "reference below its limit"}


@style.styled
def credit_layers(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Draw accuracy against the mean cosine over blocks, the cosine of every block, and the norm of
    every gradient.

    Credits are compared at the blocks' outputs. A marker is one seed, hollow where the gradient
    that it shows or is compared with is below the limit of D2; in the first panel that of the last
    state.
    """
    runs, limit = tidy.runs, thresholds.g_norm_floor
    order = rank_runs(runs)
    last = fires("reference", runs["grad_norm_last"], limit)
    runs = runs.assign(mean_cosine=tidy.mean_of_blocks("cosine"), hollow=last)
    blocks = by_run(_hollow(tidy.layers, limit), order, "seed", "layer")
    names = lines.counted(blocks, labels, columns=["cosine", "grad_norm"], at="layer")
    handles = [*lines.run_handles(blocks, names), *lines.mark_handles(), Line2D([], [], **HOLLOW)]
    figure = style.new_figure(title, height=2.9 + lines.legend_height(handles))
    aggregate, cosine, gradient = figure.subplots(1, 3)
    looks = style.run_styles(blocks)
    for run, group in by_run(runs, order, "seed").items():
        seeds = lines.xy(group, "mean_cosine", "accuracy")
        lines.points(aggregate, *seeds, looks[run], label=run, hollow=group["hollow"].to_numpy())
    aggregate.xaxis.set_major_locator(MaxNLocator(nbins=5))
    _by_layer(cosine, blocks, "cosine", "b", thresholds)
    _by_layer(gradient, blocks, "grad_norm", "c", thresholds)
    low, high = gradient.get_ylim()
    if low < EPSILON < high:
        gradient.axhline(
            EPSILON, color=style.ERROR, linewidth=0.8, linestyle=(0, (1, 1)), label="epsilon"
        )
        note = f"$\\varepsilon$ = {style.number(EPSILON)}"
        style.margin_note(gradient, note, (1, EPSILON), gap=3, fontsize=style.SMALL)
    aggregate.set(
        title="(a) The aggregate", xlabel="mean cosine over blocks", ylabel="test accuracy"
    )
    style.percent_scale(aggregate)
    aggregate.axvline(0, **lines.NOUGHT)
    lines.legend_below(figure, handles)
    return figure


def _hollow(layers: pd.DataFrame, limit: float) -> pd.DataFrame:
    """Return the layers with columns of whether the gradient that is shown or compared with is
    below the limit.
    """
    layers = layers.sort_values("layer", kind="stable")  # the next row is the block's output
    below = pd.Series(fires("reference", layers["grad_norm"], limit), layers.index)
    above = below.groupby([layers[key] for key in KEY]).shift(-1, fill_value=False)
    return layers.assign(
        grad_norm_hollow=below, cosine_hollow=above.astype(bool), growth_hollow=False
    )


LAYERS = {  # column -> title and axes of its panel, and its limit
    "growth": ("Growth", "block $l$", "growth of $\\|h\\|$ in block $l$", "growth"),
    "grad_norm": ("Reference", "state $l$", "median $\\|g_l\\|$", "reference"),
    "cosine": ("Every block", "block $l$", "cosine of credit and $g_{l+1}$", ""),
}


@style.styled
def layers(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Draw growth and gradient of every layer, and the cosine of every block where some run has
    credits.

    Markers are as in `credit_layers`.
    """
    groups = by_run(
        _hollow(tidy.layers, thresholds.g_norm_floor), rank_runs(tidy.runs), "seed", "layer"
    )
    shown = [name for name in LAYERS if name in tidy.layers and tidy.layers[name].notna().any()]
    handles = [*lines.run_handles(groups, labels), *lines.mark_handles(), Line2D([], [], **HOLLOW)]
    figure = style.new_figure(title, height=2.6 + lines.legend_height(handles))
    for ax, column, letter in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, "abc"):
        _by_layer(ax, groups, column, letter, thresholds)
    lines.legend_below(figure, handles)
    return figure


def _by_layer(
    ax: Axes,
    groups: Mapping[str, pd.DataFrame],
    column: str,
    letter: str,
    thresholds: DiagnosticThresholds,
) -> None:
    name, x, y, limit = LAYERS[column]
    if limit:
        style.log_scale(ax)
    lines.seeds_and_means(ax, groups, "layer", column, hollow=f"{column}_hollow")
    lines.whole_numbers(ax, 7)
    ax.margins(x=0.08)
    ax.set(title=f"({letter}) {name}", xlabel=x, ylabel=y)
    if limit:
        style.limit_line(ax, thresholds.limits[limit], limit)
    else:
        ax.axhline(0, **lines.NOUGHT)


# --- the first block, and those behind it
# ----------------------------------------------------------------------------

ROW, SURROUNDINGS = 0.2, 1.3  # inches: a run; title, axis and legend
LEAST_ROWS = 4
LABEL_WIDTH = 22  # characters of a row's label in one line
PARTS = {  # part of the blocks -> its marks
    "first": {"markersize": 5, "label": "block 0, which reads the embedding"},
    "all": {
        "marker": "|",
        "markersize": 9,
        "markeredgewidth": 1.3,
        "label": "all blocks: the published mean",
    },
    "deep": {"markerfacecolor": "white", "markersize": 5, "label": "blocks $l \\geq 1$"},
}
DOT = {"marker": ".", "markersize": 3, "markeredgewidth": 0, "alpha": 0.6, "label": "one seed"}


@style.styled
def layer0_dominance(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Draw for every run of a setting the cosine of block 0, of the blocks behind it, and the mean
    over all.

    Marks are means over seeds, dots the seeds. Rows are sorted by the accuracy of the last network,
    the best first; the snapshots of a run by epoch.

    Raises:
        AuditError: no network has a credit in block 0 and in one behind it.
    """
    parts = shares(tidy.layers)
    best = rank_runs(tidy.runs.assign(run=tidy.runs["run"].map(whole)))
    order = sorted(
        set(parts["run"]), key=lambda run: (best.index(whole(run)), parse_run(run).until)
    )
    looks = style.run_styles(order)
    names = [text_grid.wrap(labels.get(run, run), LABEL_WIDTH) for run in order]
    tallest = max(1 + name.count("\n") for name in names)
    height = max(LEAST_ROWS, len(order)) * max(ROW, tallest * text_grid.LINE + 0.05)
    figure = style.new_figure(title, height=height + SURROUNDINGS)
    ax = figure.subplots()
    for row, run in enumerate(order):
        _row(ax, row, parts[parts["run"] == run], looks[run], label=run)
    ax.axvline(0, **lines.NOUGHT)
    ax.set_xlabel("cosine of credit and $g_l$, at the block's input")
    text_grid.name_rows(ax, names)
    marks = {"color": style.GREY, "linestyle": "none", "marker": "o"}
    lines.legend_below(figure, [Line2D([], [], **marks | part) for part in [*PARTS.values(), DOT]])
    return figure


def _row(ax: Axes, row: int, cosines: pd.DataFrame, look: style.RunStyle, *, label: str) -> None:
    plain = style.RunStyle(look.colour, look.marker).mark | {"linestyle": "none"}
    ax.plot(cosines[["first", "deep"]].mean(), [row, row], color="0.8", linewidth=2, zorder=0)
    for part, marks in PARTS.items():
        ax.plot(
            cosines[part],
            [row] * len(cosines),
            **plain | DOT | {"label": f"{label}: {part}, seeds"},
        )
        ax.plot([cosines[part].mean()], [row], **plain | marks | {"label": f"{label}: {part}"})


def shares(layers: pd.DataFrame) -> pd.DataFrame:
    """Return of every run and seed the cosine of block 0, ``first``; of the blocks behind it,
    ``deep``; of ``all``.

    Raises:
        AuditError: no network has the first and one more.
    """
    keys, known = list(KEY), layers.dropna(subset=[COSINE])
    parts = {"first": known["layer"] == 0, "deep": known["layer"] > 0, "all": known["layer"] >= 0}
    means = {part: known[chosen].groupby(keys)[COSINE].mean() for part, chosen in parts.items()}
    found = pd.DataFrame(means).dropna().reset_index()
    if found.empty:
        problem = "found no network with cosines of block 0 and of later ones; expected two blocks or more."
        raise AuditError(f"layer0_dominance: {problem}")
    return found


# --- epsilon -------------------------------------------------------------------------------------------------------

WIDTH, TRUE = 256, (1.0, 0.5, 0.1)  # of the vectors; their cosines
NORMS = 10.0 ** np.arange(-12, -1.99, 0.05)
LEAST = 0.01  # the smallest cosine whose ratio says something: below, both are near 0
CURVE = {"color": style.GREY, "linewidth": 1.1}


@style.styled
def epsilon(
    tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds
) -> Figure:
    """Draw the float32 cosine of vectors with known ones as the gradient gets smaller, and networks
    on the same axis.

    Left: what is reported. Right: the part of the true cosine that is reported, of those vectors
        (line) and of every
    block of every network (marker) whose cosine is at least `LEAST`, at the median norm of its
    gradient.
    """
    blocks = tidy.layers[tidy.layers[COSINE].abs() >= LEAST].dropna(subset=[CLAMPED])
    blocks = blocks[blocks["grad_norm"].between(NORMS[0], NORMS[-1])]
    blocks = blocks.assign(part=blocks[CLAMPED] / blocks[COSINE])
    order = [run for run in rank_runs(tidy.runs) if run in set(blocks["run"])]
    marks = {"computed in float32": CURVE, "one block, one seed": lines.SEED}
    handles = [
        *lines.run_handles(order, labels),
        *(Line2D([], [], **look, label=x) for x, look in marks.items()),
    ]
    figure = style.new_figure(title, height=2.6 + lines.legend_height(handles))
    reported, part = axes = figure.subplots(1, 2, sharex=True)
    style.log_scale(reported, "x")
    for true in TRUE:
        reported.plot(NORMS, clamped_cosine(true, NORMS), **CURVE, label=f"true cosine {true:g}")
        style.margin_note(reported, f"true\n{true:g}", (1, true), gap=3, fontsize=style.SMALL)
    part.plot(NORMS, clamped_cosine(1.0, NORMS), **CURVE, label="computed")
    looks = style.run_styles(order)
    for run, group in by_run(blocks, order, "seed", "layer").items():
        lines.points(part, *lines.xy(group, "grad_norm", "part"), looks[run], label=run)
    reported.set_title("(a) What is reported", pad=15)
    part.set_title("(b) Blocks of networks", pad=15)
    reported.set(
        xlabel="norm of the gradient",
        ylabel="cosine in float32, $\\varepsilon$ = " + style.number(EPSILON),
    )
    part.set(xlabel="median $\\|g_l\\|$", ylabel="reported / true cosine")
    for ax in axes:
        _name_norms(ax, thresholds.g_norm_floor)
    lines.legend_below(figure, handles)
    return figure


def clamped_cosine(true: float, norms: np.ndarray) -> np.ndarray:
    """Return the float32 cosine, each norm bounded below by epsilon, of a unit vector and others of
    these norms.

    Args:
        true: the cosine that they have.
        norms: shape (n,).

    >>> [round(float(value), 3) for value in clamped_cosine(0.5, np.array([1e-3, 1e-9]))]
    [0.5, 0.05]
    """
    credit, across = np.eye(2, WIDTH, dtype=np.float32)
    direction = (true * credit + np.sqrt(1 - true**2) * across).astype(np.float32)
    gradients = norms.astype(np.float32)[:, None] * direction
    lengths = np.maximum(np.linalg.norm(gradients, axis=1), np.float32(EPSILON))
    return (gradients @ credit) / lengths


def _name_norms(ax: Axes, floor: float) -> None:
    """Draw epsilon and the floor of D2, both named on the axis' top."""
    ax.set_xlim(NORMS[0], NORMS[-1])
    ax.axvspan(NORMS[0], floor, color=style.SHADE, linewidth=0, zorder=0, label="D2 fires")
    above = {"xycoords": ("data", "axes fraction"), "va": "bottom", "fontsize": style.SMALL}
    marks = (EPSILON, "$\\varepsilon$", style.ERROR, "right"), (floor, "D2", style.GREY, "left")
    for place, name, colour, side in marks:
        ax.axvline(place, color=colour, linewidth=0.9, linestyle=(0, (4, 2)), label=name)
        ax.annotate(
            f" {name} = {style.number(place)} ", xy=(place, 1), ha=side, color=colour, **above
        )
