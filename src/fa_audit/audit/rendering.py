"""The report of one audited network: the same words in the same order in every format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fa_audit.audit.record import record_of
from fa_audit.documents.document import NBSP, Document, Entry, Section
from fa_audit.documents.formats import Table
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.limits import fires
from fa_audit.protocol.rules import FOUR, THREE
from fa_audit.protocol.sentences import facts_of, percent, sentences

if TYPE_CHECKING:
    from fa_audit.audit.result import AuditResult

CREDIT_COLUMNS = ("cosine", "rho", "nudging")
FACTS_LEGEND = (
    "The frozen baseline is the accuracy of the same network, trained alike except that its blocks stay as they were"
    " initialised; bp+frozen is that under backpropagation."
)
CHECKS_LEGEND = (
    "Quote the three-check verdict: D3, or D1 with D2, makes it FAIL. One of (a) to (d) makes the four-check verdict"
    " 'needs walk-back' (take back what was claimed); D3-strict decides neither. A"
    f" check is borderline where the 95{NBSP}% interval of its value contains its limit."
)
LAYERS_LEGEND = (
    "Layer 0 is the first state, layer {} the last, and blocks lie between them; h is this state and g the true"
    " gradient of the batch's mean loss with respect to it. ||h||, ||g||: their lengths, medians over {} samples."
    " growth: how many times longer the next block makes h. B ||h|| ||g||: the product, times the batch size; it stays"
    " the same where states are merely inflated. float32 error: relative error of g, against float64."
)
CREDIT_LEGEND = (
    "A credit is what the method uses in place of the true gradient; block 0 is the first. All are of the block's"
    " output. cosine: of both. rho: correlation of the changes of the loss that the credit predicts with the true ones,"
    " best 1. nudging: change of the loss after a small step against the credit; negative where the credit helps."
)
ABSENT, MARK = (
    "-",
    "*",
)  # in place of a number; behind a cosine with a gradient below the limit of D2
SETTLE = "Settle the warnings first: they may make these sentences wrong."
BELOW_FLOOR = f" {MARK}: the gradient that it is compared with is below the limit of D2."


def document(report: AuditResult) -> Document:
    """Return the report of one network, the most important first."""
    return Document(
        f"Audit of {report.method_name}",
        tuple(_sections(report)),
        f"{report.checks.quoted}.{_where(report)}",
    )


def _where(report: AuditResult) -> str:
    """Name the states of a model that is not one of this package's, and what they do not see."""
    about = report.about
    if not (names := about.get("states")):
        return ""
    between = f"with {percent(about['covered'])} of the layers between them"
    found = f" {len(names)} states, {names[0]} to {names[-1]}, {between}."
    if about["partial"]:
        most = max(share or 0 for share in about["past"])
        found += f" Partial: up to {percent(min(most, 1))} of what the outputs know of the inputs goes past them."
    return found


def _sections(report: AuditResult) -> Iterator[Section]:
    if report.warnings:
        yield Section("Warnings", items=report.warnings)
    may, may_not = sentences([facts_of(record_of(report))])
    yield Section("You may write", items=tuple(may), text=SETTLE * bool(report.warnings))
    yield Section("You may not write", items=tuple(may_not))
    yield Section("Result", entries=tuple(_facts(report)), text=FACTS_LEGEND)
    yield Section("Checks", tables={"checks": _checks(report)}, text=_checks_legend(report))
    explained = LAYERS_LEGEND.format(len(report.evidence.layers) - 1, report.evidence.samples)
    yield Section("Evidence at every state", tables={"states": _layers(report)}, text=explained)
    if report.credit:
        credits = _credits(report)
        marked = (
            BELOW_FLOOR if any(MARK in str(cell) for row in credits.rows for cell in row) else ""
        )
        yield Section(
            "Credits at every block", tables={"credits": credits}, text=CREDIT_LEGEND + marked
        )
    if report.notes:
        yield Section("Notes", text=report.notes)


def _facts(report: AuditResult) -> Iterator[Entry]:
    baselines = report.baselines
    yield Entry("accuracy", percent(report.headline_acc))
    name = f" ({baselines.own_name})" if baselines.own is not None else ""
    yield Entry("frozen baseline", percent(baselines.own) + name)
    if baselines.bp is not None:
        yield Entry("bp+frozen", percent(baselines.bp))
    for name, rule in (("three-check verdict", THREE), ("four-check verdict", FOUR)):
        yield Entry(
            name, report.checks.verdict(rule) + " (borderline)" * report.checks.is_borderline(rule)
        )
    yield Entry("flags", ", ".join(report.flags) or "none")
    if report.first_flags:
        epochs = [
            "never" if epoch is None else f"epoch {epoch}" for epoch in report.first_flags.values()
        ]
        yield Entry("first fired", "D1 {}, D2 {}".format(*epochs))


def _checks(report: AuditResult) -> Table:
    rows = []
    for name, kind in CHECKS.items():
        found = report.checks[name]
        outcome = {True: "FIRES", False: "ok", None: "not evaluated"}[
            found.fires
        ] + ", borderline" * found.borderline
        ends = found.interval or (None, None)
        numbers = [
            _number(None if number is None else kind.scale * number)
            for number in (found.value, *ends)
        ]
        limit = f"{kind.sign} {kind.scale * found.threshold:g}{' points' * (kind.unit == 'points')}"
        rows.append((kind.label, outcome, *numbers, limit))
    return Table("", ("check", "outcome", "value", "95 % from", "to", "fires"), tuple(rows))


def _checks_legend(report: AuditResult) -> str:
    """Explain the names of the checks, and how the intervals that exist were formed."""
    formed: dict[str, list[str]] = {}
    for name, kind in CHECKS.items():
        formed.setdefault(report.checks[name].interval_note, []).append(kind.label)
    sources = "; ".join(f"{', '.join(labels)}: {note}" for note, labels in formed.items() if note)
    return CHECKS_LEGEND + (f" Intervals: {sources}." if sources else "")


def _layers(report: AuditResult) -> Table:
    rows = [
        (
            str(h.layer),
            *map(
                _number, (h.hidden_norm, h.growth, h.grad_norm, h.scale_free, h.float32_error.value)
            ),
        )
        for h in report.evidence.layers
    ]
    return Table(
        "", ("layer", "||h||", "growth", "||g||", "B ||h|| ||g||", "float32 error"), tuple(rows)
    )


def _credits(report: AuditResult) -> Table:
    floor, rows = report.checks.reference.threshold, []
    for index, block in enumerate(report.credit):
        below = fires("reference", report.evidence.layers[index + 1].grad_norm, floor)
        cosine, *others = (_number(block[name].value) for name in CREDIT_COLUMNS)
        rows.append((str(index), cosine + MARK * (below and cosine != ABSENT), *others))
    return Table("", ("block", *CREDIT_COLUMNS), tuple(rows))


def _number(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3g}"
