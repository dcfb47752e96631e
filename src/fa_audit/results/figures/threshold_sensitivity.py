"""How much each verdict depends on a threshold: the fractions of runs that a check, and the verdict, would fault.

The verdict is the four-check one with the other three thresholds at their limits: where it stays while the check
changes its mind, other checks walk the run back anyway.

The calibration of a check compares two groups of networks, over all settings and seeds that are shown:

    trusted   methods bp and ep, trained on true targets: what a check must not find fault with
    failing   every other network that the three-check protocol fails (``FAIL``) for what the panel is about: D3 in
              (d), the regime (D1 and D2) in the others

A check that fires above its threshold separates them if the highest trusted value lies below the lowest failing one; a
check that fires below, if the lowest trusted value lies above the highest failing one. Any threshold in that gap fires
on every failing network and on no trusted one. Whether there is a gap is a finding: nothing here makes one; but the
failing group is chosen at the protocol's own thresholds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from fa_audit.core.thresholds import FIRES_WHEN, LIMITS, DiagnosticThresholds, fires
from fa_audit.results.calibration import Calibration, calibrate, deciding_values
from fa_audit.results.figures import style, text_grid
from fa_audit.results.outcomes import CHECKS, is_borderline, reasons
from fa_audit.results.statistics import rank_runs
from fa_audit.results.tidy import Tidy

ROW, PANEL, SURROUNDINGS = 0.22, 0.85, 0.75  # inches: one run; what a panel needs beside; title and legend
FULL = 0.8  # height of a row's curve where all of its runs fire, in rows
BEYOND = 0.08  # of the axis: how far the sweep goes on behind the last value
FILL, EDGE = "#A6D3EE", "#4C93C0"
BAND = {"facecolor": "#FBE9A9", "hatch": "....", "edgecolor": text_grid.HATCH, "linewidth": 0}
LETTERS = {LIMITS[check]: letter for letter, check in CHECKS.items()}
LOGARITHMIC = ("growth", "reference")
PANELS = {
    "growth": ("Growth", "threshold on the largest growth in one block"),
    "reference": ("Reference", "threshold on median $\\|g_L\\|$"),
    "stability": ("Stability", "threshold on the mean cosine of batch gradients"),
    "depth_margin": ("Depth utility", "threshold on the margin over own frozen, points"),
}


def draw(tidy: Tidy, *, title: str, labels: Mapping[str, str], thresholds: DiagnosticThresholds) -> Figure:
    """Draw for each check and run the fractions of its seeds in all settings that fire and are walked back."""
    runs = tidy.runs
    order, values, why = rank_runs(runs), deciding_values(runs), reasons(runs).fillna(False)
    counts = runs["run"].value_counts()
    rows = [text_grid.wrap(f"{labels.get(run, run)} ({counts[run]})", text_grid.LABEL_WIDTH) for run in order]
    row_height = max(ROW, text_grid.LINE * (1 + max(label.count("\n") for label in rows)))
    with style.context():
        figure = style.new_figure(title, height=2 * (row_height * len(rows) + PANEL) + SURROUNDINGS)
        axes = figure.subplots(2, 2, sharey=True).flat
        for ax, check in zip(axes, PANELS, strict=True):
            limit = thresholds.limits[check]
            at = sweep(check, values[check], limit)
            elsewhere = why.drop(columns=LETTERS[check]).any(axis=1)
            for row, run in enumerate(order):
                part = runs["run"] == run
                _curves(ax, row, run, swept(check, values.loc[part, check], elsewhere[part], at), check=check, at=at)
                if is_borderline(runs[part], CHECKS[LETTERS[check]]).any():
                    ax.plot(limit, row, label=f"{run}: borderline", **style.BORDERLINE)
            _frame(ax, check, limit, calibrate(check, runs, values[check]))
        axes[0].set(yticks=range(len(rows)), yticklabels=rows, ylim=(len(rows) - 0.4, -0.6))
        figure.legend(handles=_legend(), loc="outside lower center", ncols=2)
        return style.freeze_layout(figure)


def sweep(check: str, values: pd.Series, limit: float) -> np.ndarray:
    """Return rising thresholds: all at which the check changes its outcome for a value, the limit, both ends."""
    shown = np.array([*values[np.isfinite(values)], limit], dtype=float)
    if check in LOGARITHMIC:
        inner = np.unique(shown[shown > 0])
        factor = (inner[-1] / inner[0]) ** BEYOND if len(inner) > 1 else 10.0
        return np.array([inner[0] / factor, *inner, inner[-1] * factor])
    inner = np.unique(shown)
    beyond = BEYOND * (inner[-1] - inner[0]) or 0.1
    return np.array([inner[0] - beyond, *inner, inner[-1] + beyond])


def swept(check: str, values: pd.Series, elsewhere: pd.Series, thresholds: np.ndarray) -> dict[str, np.ndarray]:
    """Return two fractions of one run's networks at every threshold of a check.

    ``fires``: of those for which the check was evaluated, on how many it fires; left out without any. ``walked back``:
    of all, how many the four-check verdict walks back.

    Args:
        values: of each network the number that the check decides on; NaN where it was not evaluated.
        elsewhere: whether anything but this check walks the network back, at the protocol's thresholds.
        thresholds: shape (T,).
    """
    own = fires(check, values.to_numpy(), thresholds[:, None])
    known = values.notna().to_numpy()
    found = {"fires": own[:, known].mean(axis=1)} if known.any() else {}
    return found | {"walked back": (own | elsewhere.to_numpy(bool)).mean(axis=1)}


def _curves(ax: Axes, row: int, run: str, found: Mapping[str, np.ndarray], *, check: str, at: np.ndarray) -> None:
    """Draw one run's row: an area as high as the fraction that fires, a line at the fraction walked back."""
    # A value is not beyond a threshold that equals it: a step belongs to the side where the check fires no more.
    step = "post" if FIRES_WHEN[check] == "above" else "pre"
    bottom = row + FULL / 2
    heights = {name: bottom - FULL * fraction for name, fraction in found.items()}
    if "fires" in heights:
        ax.fill_between(at, bottom, heights["fires"], step=step, color=FILL, linewidth=0)
        ax.plot(at, heights["fires"], drawstyle=f"steps-{step}", color=EDGE, linewidth=0.8, label=run)
    else:
        ax.text(0.5, row, "n/a", transform=ax.get_yaxis_transform(), ha="center", va="center", fontsize=style.SMALL)
    line = {"drawstyle": f"steps-{step}", "color": "black", "linewidth": 1.1, "label": f"{run}: walked back"}
    ax.plot(at, heights["walked back"], **line)


def _frame(ax: Axes, check: str, limit: float, calibration: Calibration) -> None:
    """Set scale and titles of one panel; draw the protocol's threshold and the calibration gap."""
    if check in LOGARITHMIC:
        style.log_scale(ax, "x")
    if check == "depth_margin":
        ax.xaxis.set_major_formatter(lambda fraction, _: style.number(100 * fraction))
    title, xlabel = PANELS[check]
    unit = " points" if check == "depth_margin" else ""
    ax.set_title(f"({LETTERS[check]}) {title}: fires {FIRES_WHEN[check]} {_number(check, limit)}{unit}")
    ax.set_xlabel(f"{xlabel}\n{_finding(check, calibration)}", fontsize=style.SMALL)
    ax.axvline(limit, color=style.GREY, linestyle=(0, (5, 2)), linewidth=0.9, label="limit")
    low, high = ax.get_xlim()
    if gap := calibration.gap(check):
        ax.axvspan(*np.clip(gap, low, high), alpha=0.6, zorder=1.5, **BAND)
    ax.set_xlim(low, high)
    ax.tick_params(axis="y", length=0)


def _finding(check: str, calibration: Calibration) -> str:
    """Return the edges of the calibration gap in words, or what is missing."""
    signs = ("\N{LESS-THAN OR EQUAL TO}", "\N{GREATER-THAN OR EQUAL TO}")
    edges = {"trusted": calibration.trusted, "failing": calibration.failing}
    ordered = zip(edges.items(), signs if FIRES_WHEN[check] == "above" else reversed(signs))
    parts = [
        f"no {group}" if edge is None else f"{group} {sign} {_number(check, edge)}" for (group, edge), sign in ordered
    ]
    if None in edges.values():
        return ", ".join(parts)
    return f"{', '.join(parts)}: {'gap' if calibration.gap(check) else 'no gap'}"


def _number(check: str, value: float) -> str:
    """Return a value in the unit of its axis: points for a margin."""
    return style.number(100 * value if check == "depth_margin" else value)


def _legend() -> list[Line2D | Patch]:
    return [
        Patch(facecolor=FILL, edgecolor=EDGE, linewidth=0.8, label="fraction that would fire; full height: all"),
        Line2D([], [], color="black", linewidth=1.1, label="fraction that would be walked back"),
        Line2D([], [], color=style.GREY, linestyle=(0, (5, 2)), linewidth=0.9, label="the protocol's threshold"),
        Patch(**BAND, label="calibration gap"),
        Line2D([], [], **style.BORDERLINE, label="borderline: the 95 % interval of a network contains it"),
    ]
