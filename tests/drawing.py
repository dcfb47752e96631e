"""What is drawn in a figure, and whether a person can read it."""

import itertools

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation, Text

from fa_audit.core.registry import load
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.results.figures import FIGURES, style

TITLE = "Residual MLP (d = 256, L = 4) on CIFAR-10"
DEFAULTS = {"title": TITLE, "labels": {}, "thresholds": DiagnosticThresholds()}


def drawn(kind, tidy, **options):
    return load("figure", FIGURES, kind)(tidy, **DEFAULTS | options)


def lines(ax, label):
    """Data of the lines with a label, in the order of drawing."""
    return [line.get_xydata() for line in ax.lines if line.get_label() == label]


def markers(ax, label):
    """x, y and whether it is hollow, of every marker with a label."""
    found = []
    for line in ax.lines:
        if line.get_label() == label:
            hollow = line.get_markerfacecolor() == "white"
            found += [(x, y, hollow) for x, y in line.get_xydata() if np.isfinite([x, y]).all()]
    return sorted(found)


def everything(figure):
    """The data of every line and every text, for comparisons of whole figures."""
    lines = [
        str([(line.get_label(), line.get_xydata()) for line in ax.lines]) for ax in figure.axes
    ]
    return lines, [text.get_text() for text in figure.findobj(Text)]


def legend_of(figure):
    """The entries of the only legend."""
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def texts(figure):
    """Every visible, non-empty text with its box in pixels; the tick labels within the limits only."""
    with style.context():
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw_without_rendering()
        hidden = set()
        for ax in figure.axes:
            for axis in (ax.xaxis, ax.yaxis):
                # matplotlib keeps labels outside the limits, but does not draw them.
                outside = {*axis.get_major_ticks(), *axis.get_minor_ticks()} - {
                    *axis._update_ticks()
                }
                hidden |= {label for tick in outside for label in (tick.label1, tick.label2)}
        found = []
        for text in figure.findobj(Text):
            if text.get_visible() and text.get_text() and text not in hidden:
                found.append((text, text.get_window_extent(renderer)))
        return found


def assert_readable(figure):
    """No text is cut or touches another; one that stands in a panel of squares lies inside, others
    off the data.
    """
    found, page = texts(figure), figure.bbox
    assert len(found) > 7
    for text, box in found:
        assert page.x0 <= box.x0 and box.x1 <= page.x1, f"{text} is cut"
        assert page.y0 <= box.y0 and box.y1 <= page.y1, f"{text} is cut"
        for ax in figure.axes:
            data = ax.get_window_extent()
            if text in ax.texts and not isinstance(text, Annotation):
                assert data.x0 <= box.x0 and box.x1 <= data.x1, f"{text} leaves its panel"
            else:
                assert not _overlap(box, data), f"{text} lies on {ax.get_title(loc='left')!r}"
    for (text, box), (other, other_box) in itertools.combinations(found, 2):
        assert not _overlap(box, other_box), f"{text} and {other} overlap"


def _overlap(a, b):
    slack = 0.5  # pixels
    wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
    return wide > slack and high > slack
