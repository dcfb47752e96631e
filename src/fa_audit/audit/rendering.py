"""Write an audit for its readers, as plain text, markdown or HTML: the same words in the same order."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fa_audit.audit.advice import advice
from fa_audit.audit.verdicts import Outcome
from fa_audit.core.checks import CHECKS, Check, lettered
from fa_audit.core.rules import FOUR, THREE
from fa_audit.core.thresholds import fires

if TYPE_CHECKING:
    from fa_audit.audit.report import DiagnosticReport

WIDTH = 80  # columns of plain text
NBSP = "\N{NO-BREAK SPACE}"
CREDIT_COLUMNS = ("cosine", "rho", "nudging")
FACTS_LEGEND = (
    "The frozen baseline is the accuracy of the same network, trained alike except that its blocks stay as they were"
    " initialised; bp+frozen is that under backpropagation."
)
CHECKS_LEGEND = (
    "A check that fires counts against the network: one of (a) to (d) makes the four-check verdict 'needs walk-back'"
    " (take back what was claimed); D3, or D1 with D2, makes the three-check verdict FAIL; D3-strict decides neither. A"
    f" check is borderline where the 95{NBSP}% interval of its value contains its limit."
)
LAYERS_LEGEND = (
    "Layer 0 is the input of the first block, layer {} the output of the last; h is this state and g the true gradient,"
    " by backpropagation, of the batch's mean loss with respect to it. ||h||, ||g||: their lengths, medians over {}"
    " samples. growth: how many times longer the next block makes h. B ||h|| ||g||: the product, times the batch size;"
    " it stays the same where states are merely inflated. float32 error: relative error of g, against float64."
)
CREDIT_LEGEND = (
    "A credit is what the method uses in place of the true gradient; block 0 is the first. All are of the block's"
    " output. cosine: of both. rho: correlation of the changes of the loss that the credit predicts with the true ones,"
    " best 1. nudging: change of the loss after a small step against the credit; negative where the credit helps."
)
ABSENT, MARK = "-", "*"  # in place of a number; behind a cosine with a gradient below the limit of D2
OWN_BACKWARD = (
    "the backward pass of this model is not the derivative of its forward pass (states {}): its gradients there are not"
    " those of the loss, no cosine is taken with them, and their norms are estimated from changes of the loss, or nan; "
)
BELOW_FLOOR = f" {MARK}: the gradient that it is compared with is below the limit of D2."


@dataclass(frozen=True)
class Part:
    """A part of a report: a heading, and entries of a term and a text, sentences or a table with what explains it."""

    heading: str = ""
    entries: tuple[tuple[str, str], ...] = ()
    items: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()
    text: str = ""


def parts(report: DiagnosticReport) -> Iterator[Part]:
    """Yield the parts of a report after its first sentence, the most important first."""
    if report.warnings:
        yield Part("Warnings", items=report.warnings)
    yield Part(entries=tuple(_facts(report)), text=FACTS_LEGEND)
    yield Part("Checks", entries=tuple(_checks(report)), text=_checks_legend(report))
    yield Part("What to do", items=tuple(advice(report.checks, report.untrue)))
    explained = LAYERS_LEGEND.format(len(report.evidence.layers) - 1, report.evidence.samples)
    yield Part("Evidence at every state", table=tuple(_layers(report)), text=explained)
    if report.credit:
        rows = tuple(_credits(report))
        marked = BELOW_FLOOR if any(MARK in cell for row in rows for cell in row) else ""
        yield Part("Credits at every block", table=rows, text=CREDIT_LEGEND + marked)
    if report.notes:
        yield Part("Notes", text=report.notes)


def worth(report: DiagnosticReport) -> str:
    """Say in one sentence, without its capital, what the accuracy of the audited network is worth.

    The first that applies: nothing can be trusted, trained blocks add too little, another check fires, something was
    not evaluated, all is well.
    """
    checks, depth = {name: report.checks[name] for name in lettered().values()}, report.checks.depth
    accuracy = "" if report.headline_acc is None else f" of {_percent(report.headline_acc)}"
    against = f"the {_percent(report.baselines.own)} of frozen blocks ({report.baselines.own_name})"
    margin = "" if depth.value is None else f"{_points(depth.value)} {against}"
    aside = margin and f", {margin},"
    fired = [CHECKS[name].finding for name, check in checks.items() if check.fires]
    open_ = [f"{check.name} ({check.note})" for check in checks.values() if check.fires is None]
    if not report.checks.finite:
        end = " is worth nothing yet: a state, gradient or logit is NaN or infinite"
    elif depth.fires:
        end = f" is no evidence that training the blocks helped: it is {'only ' * ((depth.value or 0) > 0)}{margin}"
    elif fired == [CHECKS["stability"].finding]:
        end = f"{aside} goes with a (c) that fires, as it does on many healthy networks (its card: docs/protocol.md)"
    elif fired:
        end = f"{aside} does not show what the blocks learned: {_and(fired)}"
    elif open_:
        end = f"{aside} has no verdict yet; not evaluated: {_and(open_)}"
    else:
        end = f" comes from trained blocks: it is {margin}, and no check fires"
    narrow = [check.name for check in checks.values() if check.borderline]
    strict = report.checks.depth_strict
    if strict.fires and not depth.fires and strict.value is not None:
        end += f"; but it is only {_points(strict.value)} frozen blocks under backpropagation (D3-strict fires)"
    before = OWN_BACKWARD.format(", ".join(map(str, report.untrue))) if report.untrue else ""
    return f"{before}the accuracy{accuracy}{end}{f'; borderline: {_and(narrow)}' if narrow else ''}."


def _points(margin: float) -> str:
    return f"{100 * abs(margin):.1f} points {'below' if margin < 0 else 'above'}"


def _and(labels: list[str]) -> str:
    return " and ".join([", ".join(labels[:-1]), labels[-1]] if labels[1:] else labels)


def _facts(report: DiagnosticReport) -> Iterator[tuple[str, str]]:
    baselines = report.baselines
    yield "accuracy", _percent(report.headline_acc)
    yield "frozen baseline", _percent(baselines.own) + (f" ({baselines.own_name})" if baselines.own is not None else "")
    if baselines.bp is not None:
        yield "bp+frozen", _percent(baselines.bp)
    for name, rule in (("four-check verdict", FOUR), ("three-check verdict", THREE)):
        yield name, report.checks.verdict(rule) + " (borderline)" * report.checks.is_borderline(rule)
    yield "flags", ", ".join(report.flags) or "none"
    if report.first_flags:
        epochs = ["never" if epoch is None else f"epoch {epoch}" for epoch in report.first_flags.values()]
        yield "first fired", "D1 {}, D2 {}".format(*epochs)


def _checks(report: DiagnosticReport) -> Iterator[tuple[str, str]]:
    for name, kind in CHECKS.items():
        if kind.letter or report.checks[name].fires is not None:
            yield kind.label, _outcome(kind, report.checks[name])


def _outcome(kind: Check, check: Outcome) -> str:
    """Format a check: its name, outcome and meaning; value, interval and limit; and its notes."""
    unit, of_unit = " points" if kind.unit == "points" else "", kind.scale
    fires = f"fires {kind.sign} {of_unit * check.threshold:g}{unit}".replace(" ", NBSP)
    if check.value is None or check.fires is None:
        return f"{check.name} not evaluated: {check.note} ({fires})"
    outcome = ("FIRES" if check.fires else "ok") + (", borderline" if check.borderline else "")
    ends = [_number(of_unit * end) for end in check.interval or ()]
    interval = f", 95{NBSP}% interval {ends[0]} to {ends[1]}" if ends else ""
    value = f"{_number(of_unit * check.value)}{unit}{interval}, {_gap(kind, check)}"
    notes = "".join(f"; {note}" for note in (check.threshold_note, check.note) if note)
    return f"{check.name} {outcome}: {kind.finding if check.fires else kind.fine} ({value}; {fires}{notes})"


def _gap(kind: Check, check: Outcome) -> str:
    """Say how far a value lies from its limit: a factor or a difference."""
    if not check.distance or check.value is None:
        return "at its limit"
    side, far = "above" if check.value > check.threshold else "below", abs(check.distance)
    by = f"a factor of {_number(10**far)}" if kind.unit == "factor" else _number(kind.scale * far)
    return f"{by} {side} its limit"


def _checks_legend(report: DiagnosticReport) -> str:
    """Explain the names of the checks, and how the intervals that exist were formed."""
    formed: dict[str, list[str]] = {}
    for name, kind in CHECKS.items():
        formed.setdefault(report.checks[name].interval_note, []).append(kind.label)
    sources = "; ".join(f"{', '.join(labels)}: {note}" for note, labels in formed.items() if note)
    return CHECKS_LEGEND + (f" Intervals: {sources}." if sources else "")


def _layers(report: DiagnosticReport) -> Iterator[tuple[str, ...]]:
    yield "layer", "||h||", "growth", "||g||", "B ||h|| ||g||", "float32 error"
    for layer in report.evidence.layers:
        values = (layer.hidden_norm, layer.growth, layer.grad_norm, layer.scale_free, layer.float32_error.value)
        yield str(layer.layer), *map(_number, values)


def _credits(report: DiagnosticReport) -> Iterator[tuple[str, ...]]:
    yield "block", *CREDIT_COLUMNS
    floor = report.checks.reference.threshold
    for index, block in enumerate(report.credit):
        below = fires("reference", report.evidence.layers[index + 1].grad_norm, floor)
        cosine, *others = (_number(block[name].value) for name in CREDIT_COLUMNS)
        yield str(index), cosine + MARK * (below and cosine != ABSENT), *others


def _number(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3g}"


def _percent(fraction: float | None) -> str:
    return "unknown" if fraction is None else f"{100 * fraction:.1f}{NBSP}%"


# --- formats ---------------------------------------------------------------------------------------------------------


def to_text(report: DiagnosticReport) -> str:
    """Format a report as plain text of at most 80 columns."""
    sections = [_wrapped(f"Audit of {report.method_name}: {worth(report)}"), *map(_part_text, parts(report))]
    return "\n\n".join(sections)


def _part_text(part: Part) -> str:
    lines = [part.heading] if part.heading else []
    width = max((len(term) for term, _ in part.entries), default=0)
    lines += [_wrapped(text, f"  {term:<{width}}  ") for term, text in part.entries]
    lines += [_wrapped(item, "  - ") for item in part.items]
    widths = [max(map(len, column)) for column in zip(*part.table)]
    lines += [("  " + "  ".join(map(str.rjust, row, widths))).rstrip() for row in part.table]
    return "\n".join(lines + ([_wrapped(part.text, "  ")] if part.text else []))


def _wrapped(text: str, start: str = "") -> str:
    rest = " " * len(start)
    filled = textwrap.fill(text, WIDTH, initial_indent=start, subsequent_indent=rest, break_on_hyphens=False)
    return filled.replace(NBSP, " ")


def to_markdown(report: DiagnosticReport) -> str:
    """Format a report as a section in markdown."""
    sections = [f"## {_plain(f'Audit of {report.method_name}')}", _plain(_sentence(report))]
    for part in parts(report):
        lines = [f"- **{term}:** {_plain(text)}" for term, text in part.entries]
        lines += [f"- {_plain(item)}" for item in part.items]
        blocks = [f"### {part.heading}"] if part.heading else []
        blocks += ["\n".join(lines)] if lines else []
        blocks += [_markdown_table(part.table)] if part.table else []
        sections += [*blocks, *([_plain(part.text)] if part.text else [])]
    return "\n\n".join(sections) + "\n"


def _markdown_table(table: tuple[tuple[str, ...], ...]) -> str:
    header, *rows = table
    lines = [tuple(map(_plain, header)), ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """Put a text on one line, without characters that markdown takes for tables or HTML."""
    return " ".join(text.replace("||", "‖").replace("|", r"\|").replace("<", r"\<").split())


def to_html(report: DiagnosticReport) -> str:
    """Format a report as HTML for notebooks, without colours of its own, so that it is readable on any background."""
    title, first = _escaped(f"Audit of {report.method_name}"), _escaped(_sentence(report))
    body = "".join(map(_part_html, parts(report)))
    return f'<div style="max-width: 50em"><h3>{title}</h3><p><b>{first}</b></p>{body}</div>'


def _sentence(report: DiagnosticReport) -> str:
    text = worth(report)
    return text[0].upper() + text[1:]


def _part_html(part: Part) -> str:
    heading = f"<h4>{_escaped(part.heading)}</h4>" if part.heading else ""
    entries = "".join(_html_row(entry, "th", "td") for entry in part.entries)
    rows = "".join(_html_row(row, *(("td", "td") if index else ("th", "th"))) for index, row in enumerate(part.table))
    items = "".join(f"<li>{_escaped(item)}</li>" for item in part.items)
    table = f"<table>{entries}{rows}</table>" if entries or rows else ""
    return heading + table + (items and f"<ul>{items}</ul>") + (part.text and f"<p>{_escaped(part.text)}</p>")


def _html_row(cells: tuple[str, ...], first: str, other: str) -> str:
    """Format a row, its border half transparent, which shows on light and dark backgrounds."""
    tags = (first, *[other] * len(cells))
    style = 'style="text-align: left; border-bottom: 1px solid #8888"'
    return f"<tr>{''.join(f'<{tag} {style}>{_escaped(cell)}</{tag}>' for tag, cell in zip(tags, cells))}</tr>"


def _escaped(text: str) -> str:
    return html.escape(text).replace(NBSP, " ")
