"""What is drawn in a figure, and whether a person can read it."""

import itertools

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation, Text

from fa_audit.core.registry import load
from fa_audit.protocol.limits import DiagnosticThresholds
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
    return sorted(
        (x, y, line.get_markerfacecolor() == "white")
        for line in ax.lines
        if line.get_label() == label
        for x, y in line.get_xydata()
        if not np.isnan(y)
    )


def everything(figure):
    """The data of every line and every text, for comparisons of whole figures."""
    lines = [
        (line.get_label(), line.get_xydata().tolist()) for ax in figure.axes for line in ax.lines
    ]
    return str(lines), [text.get_text() for text in figure.findobj(Text)]


def legend_of(figure):
    """The entries of the only legend."""
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def texts(figure):
    """Every visible, non-empty text with its box in pixels; the tick labels within the limits only."""
    with style.context():
        renderer = FigureCanvasAgg(figure).get_renderer()
        figure.draw_without_rendering()
        found = figure.findobj(
            lambda artist: isinstance(artist, Text) and artist.get_visible() and artist.get_text()
        )
        hidden = {id(label) for ax in figure.axes for label in _outside(ax)}
        return [(t, t.get_window_extent(renderer)) for t in found if id(t) not in hidden]


def words(figure):
    return [text.get_text() for text, _ in texts(figure)]


def _outside(ax):
    """Tick labels that matplotlib keeps but does not draw."""
    for axis in (ax.xaxis, ax.yaxis):
        drawn = {id(tick) for tick in axis._update_ticks()}
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
            for label in (tick.label1, tick.label2):
                if id(tick) not in drawn or not label.get_visible():
                    yield label


def assert_readable(figure):
    """No text is cut or touches another; one that stands in a panel of squares lies inside, others
    off the data.
    """
    found, page = texts(figure), figure.bbox
    assert len(found) > 7
    inner = {
        id(text): ax for ax in figure.axes for text in ax.texts if not isinstance(text, Annotation)
    }
    for text, box in found:
        assert page.x0 <= box.x0 and box.x1 <= page.x1, f"{text.get_text()!r} is cut"
        assert page.y0 <= box.y0 and box.y1 <= page.y1, f"{text.get_text()!r} is cut"
        for ax in figure.axes:
            data = ax.get_window_extent()
            if inner.get(id(text)) is ax:
                assert data.x0 <= box.x0 and box.x1 <= data.x1, (
                    f"{text.get_text()!r} leaves its panel"
                )
            else:
                assert not _overlap(box, data), (
                    f"{text.get_text()!r} lies on {ax.get_title(loc='left')!r}"
                )
    for (text, box), (other, other_box) in itertools.combinations(found, 2):
        assert not _overlap(box, other_box), f"{text.get_text()!r} and {other.get_text()!r} overlap"


def _overlap(a, b):
    slack = 0.5  # pixels
    wide, high = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
    return wide > slack and high > slack
