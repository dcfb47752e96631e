"""What the epsilon of a cosine does: the reported value against the norm of the gradient, computed and measured."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.experiments.paths import AT_INPUT
from fa_audit.results.figures import lines, style
from fa_audit.results.statistics import by_run, rank_runs
from fa_audit.results.tidy import Tidy

HEIGHT = 2.6  # inches without the legend
EPSILON = 1e-8  # the default of torch.nn.functional.cosine_similarity
WIDTH, TRUE = 256, (1.0, 0.5, 0.1)  # of the vectors; their cosines
NORMS = 10.0 ** np.arange(-12, -1.99, 0.05)
FREE, CLAMPED = f"cosine{AT_INPUT}", f"clamped_cosine{AT_INPUT}"  # of which the gradient at the state is known
LEAST = 0.01  # the smallest cosine whose ratio says something: below, both are near 0
CURVE = {"color": style.GREY, "linewidth": 1.1}


@style.styled
def draw(tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds) -> Figure:
    """Draw the float32 cosine of vectors with known ones as the gradient gets smaller, and networks on the same axis.

    Left: what is reported. Right: the part of the true cosine that is reported, of those vectors (line) and of every
    block of every network (marker) whose cosine is at least `LEAST`, at the median norm of its gradient.
    """
    blocks = measured(tidy.layers)
    order = [run for run in rank_runs(tidy.runs) if run in set(blocks["run"])]
    groups = by_run(blocks, order, "seed", "layer")
    handles = lines.run_handles(order, labels)
    marks = {"computed in float32": CURVE, "one block, one seed": lines.SEED}
    handles += [Line2D([], [], **look, label=label) for label, look in marks.items()]
    figure = style.new_figure(title, height=HEIGHT + lines.legend_height(handles))
    reported, part = axes = figure.subplots(1, 2, sharex=True)
    style.log_scale(reported, "x")
    for true in TRUE:
        values = clamped_cosine(true, NORMS)
        reported.plot(NORMS, values, **CURVE, label=f"true cosine {true:g}")
        style.margin_note(reported, f"true\n{true:g}", (1, true), gap=3, fontsize=style.SMALL)
    part.plot(NORMS, clamped_cosine(1.0, NORMS), **CURVE, label="computed")
    looks = style.run_styles(groups)
    for run, group in groups.items():
        lines.points(part, *lines.xy(group, "grad_norm", "part"), looks[run], label=run)
    reported.set_title("(a) What is reported", pad=15)
    part.set_title("(b) Blocks of networks", pad=15)
    reported.set(xlabel="norm of the gradient", ylabel="cosine in float32, $\\varepsilon$ = " + style.number(EPSILON))
    part.set(xlabel="median $\\|g_l\\|$", ylabel="reported / true cosine")
    for ax in axes:
        _lines(ax, thresholds.g_norm_floor)
    lines.legend_below(figure, handles)
    return figure


def clamped_cosine(true: float, norms: np.ndarray) -> np.ndarray:
    """Return the float32 cosine, each norm bounded below by epsilon, of a unit vector and others of these norms.

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


def measured(layers: pd.DataFrame) -> pd.DataFrame:
    """Return the blocks with a true cosine of at least `LEAST` and gradient on the axis, and ``part``, as reported."""
    found = layers[layers[FREE].abs() >= LEAST].dropna(subset=[CLAMPED])
    found = found[found["grad_norm"].between(NORMS[0], NORMS[-1])]
    return found.assign(part=found[CLAMPED] / found[FREE])


def _lines(ax: Axes, floor: float) -> None:
    """Draw epsilon and the floor of D2, both named on the axis' top."""
    ax.set_xlim(NORMS[0], NORMS[-1])
    ax.axvspan(NORMS[0], floor, color=style.SHADE, linewidth=0, zorder=0, label="D2 fires")
    for place, name, colour, side in (
        (EPSILON, "$\\varepsilon$", style.ERROR, "right"),
        (floor, "D2", style.GREY, "left"),
    ):
        ax.axvline(place, color=colour, linewidth=0.9, linestyle=(0, (4, 2)), label=name)
        ax.annotate(f" {name} = {style.number(place)} ", xy=(place, 1), xycoords=("data", "axes fraction"), ha=side,
                    va="bottom", color=colour, fontsize=style.SMALL)  # fmt: skip
