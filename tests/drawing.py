"""Made-up networks to draw, and what every figure must satisfy."""

import itertools

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from fa_audit.experiments.spec import parse_run
from fa_audit.results.figures import style
from fa_audit.results.tidy import Tidy

SEEDS = (42, 123, 456)
LONG = "credit_bridge+penalty1e-2+random_targets"
#            accuracy  own  growth  ||h_L|| ||g_L|| stability
HEALTHY, EXPLODED = (0.56, 0.39, 1.5, 40.0, 2e-3, 0.05), (0.31, 0.35, 1e4, 1e6, 2e-9, 0.45)
FOUR = {"bp": HEALTHY, "fa": (0.40, 0.35, 700.0, 2e4, 3e-6, 0.1), "dfa": EXPLODED, "dfa+penalty1e-2": HEALTHY}
ELEVEN = dict(
    zip(["bp", "fa", "dfa", "ep", LONG, *(LONG.replace("+", f"_{i}+", 1) for i in range(6))], [HEALTHY, EXPLODED] * 6)
)
TITLE = "Residual MLP (d = 256, L = 4) on CIFAR-10"


def tables(kinds, *, epochs=12, seeds=SEEDS, setting="main", depth=4):
    """Runs and trajectories of made-up networks."""
    rows, history = [], []
    for (rank, (run, kind)), seed in itertools.product(enumerate(kinds.items()), seeds):
        accuracy, own, growth, hidden, gradient, stability = kind
        shift = 1 + 0.01 * rank + seed / 1e4
        key = {"setting": setting, "run": run, "seed": seed}
        rows.append(key | {"depth": depth, "penalty": parse_run(run).penalty,
                           "accuracy": accuracy - 0.01 * rank + seed / 1e5, "own_frozen_acc": own + seed / 1e5,
                           "bp_frozen_acc": 0.39 - seed / 1e5, "max_growth": growth * shift,
                           "grad_norm_last": gradient * shift, "stability": stability * shift,
                           "deep_cosine": accuracy - 0.3 * shift, "deep_rho": accuracy - 0.35 * shift,
                           "first_scale_flag": min(4, epochs) if growth > 50 else None,
                           "first_reference_flag": min(7, epochs) if gradient < 1e-7 else None})  # fmt: skip
        for epoch, layer in itertools.product(range(1, epochs + 1), range(depth + 1)):
            part = layer / depth * epoch / epochs
            history.append(key | {"epoch": epoch, "layer": layer, "hidden_norm": 15 * (hidden / 15) ** part * shift,
                                  "grad_norm": 1e-3 * (gradient / 1e-3) ** part * shift,
                                  "test_accuracy": accuracy * epoch / epochs * shift})  # fmt: skip
    return pd.DataFrame(rows), pd.DataFrame(history)


def layers_of(runs, *, depth=4):
    """Per-layer tables of the same networks: the cosine falls from block to block, the last state has none."""
    rows = []
    for run in runs.itertuples():
        for layer in range(depth + 1):
            cosine = run.deep_cosine + 0.3 - 0.1 * layer if layer < depth else np.nan
            gradient = 1e-3 * (run.grad_norm_last / 1e-3) ** min(1, 2 * layer / depth)
            rows.append({"setting": run.setting, "run": run.run, "seed": run.seed, "layer": layer,
                         "cosine": cosine, "grad_norm": gradient})  # fmt: skip
    return pd.DataFrame(rows)


def tidy_of(runs, history=None, layers=None):
    """The tables as a figure gets them, the settings in the order of their rows."""
    empty = pd.DataFrame(columns=["setting"])
    parts = (empty if layers is None else layers, empty if history is None else history)
    return Tidy(tuple(runs["setting"].unique()), runs, *parts)


def lines(ax, label):
    """Data of the lines with a label, in the order of drawing."""
    return [line.get_xydata() for line in ax.lines if line.get_label() == label]


def texts(figure):
    """Every visible, non-empty text with its box in pixels; the tick labels within the limits only."""
    with style.context():
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw(renderer)
        found = figure.findobj(lambda artist: isinstance(artist, Text) and artist.get_visible() and artist.get_text())
        hidden = {id(label) for ax in figure.axes for label in _outside(ax)}
        return [(t.get_text(), t.get_window_extent(renderer)) for t in found if id(t) not in hidden]


def _outside(ax):
    """Tick labels that matplotlib keeps but does not draw."""
    for axis in (ax.xaxis, ax.yaxis):
        drawn = {id(tick) for tick in axis._update_ticks()}
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
            for label in (tick.label1, tick.label2):
                if id(tick) not in drawn or not label.get_visible():
                    yield label


def assert_readable(figure):
    """No text touches another one, the data of a panel or the edge of the page."""
    found, page = texts(figure), figure.bbox
    assert len(found) > 10
    for text, box in found:
        inside = page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
        assert inside, f"{text!r} is cut"
        for ax in figure.axes:
            data = ax.get_window_extent()
            assert not _overlap(box, data), f"{text!r} lies on the data of {ax.get_title(loc='left')!r}"
    for (text, box), (other, other_box) in itertools.combinations(found, 2):
        assert not _overlap(box, other_box), f"{text!r} and {other!r} overlap"


def _overlap(a, b):
    slack = 0.5  # pixels
    wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
    return wide > slack and high > slack


def everything(figure):
    """The data of every line in the order of drawing, for comparisons of whole figures."""
    return [(line.get_label(), np.array(line.get_xydata()).tolist()) for ax in figure.axes for line in ax.lines]


def legend_of(figure):
    """The entries of the only legend."""
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]
