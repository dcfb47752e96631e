"""Write the report of a network, or of a run over its seeds, in the same words for every format.

`document` is the report; `details` is the evidence behind it. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fa_audit.core.measured import Measured
from fa_audit.documents.document import Document, Entry, Section
from fa_audit.documents.formats import Table
from fa_audit.protocol.audit import Audit
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.evidence import Metrics, State
from fa_audit.protocol.judge import FOUR, THREE, Finding, Judgement
from fa_audit.protocol.sentences import percent, sentences

MOST_SENTENCES = 5
ABSENT, MARK = "-", "*"  # in place of a number; behind a cosine with a gradient below D2's limit
SETTLE = "Settle the warnings first: they may make these sentences wrong."
LAYERS_LEGEND = (
    "Layer 0 is the first state, layer {} the last, and blocks lie between them; h is this "
    "state and"
    " g the true gradient of the batch's mean loss with respect to it. ||h||, ||g||: their lengths,"
    " medians over {} samples. growth: how many times longer the next block makes h. B ||h|| ||g||:"
    " the product, times the batch size; it stays the same where states are merely inflated."
    " float32 error: relative error of g, against float64."
)
CREDIT_LEGEND = (
    "A credit is what the method uses in place of the true gradient; block 0 is the first. All are"
    " of the block's output. cosine: of both. rho: correlation of the changes of the loss that the"
    " credit predicts with the true ones, best 1. nudging: change of the loss after a small step"
    " against the credit; negative where the credit helps."
)
BELOW_FLOOR = f" {MARK}: the gradient that it is compared with is below the limit of D2."
# Columns of the tables of states and of blocks: heading -> the number.
STATES: dict[str, Callable[[State], float | None]] = {
    "||h||": lambda state: state.hidden_norm,
    "growth": lambda state: state.growth,
    "||g||": lambda state: state.grad_norm,
    "B ||h|| ||g||": lambda state: state.scale_free,
    "float32 error": lambda state: _value(state.float32_error),
}
CREDITS = ("cosine", "rho", "nudging")


def document(judgement: Judgement) -> Document:
    """Return the report: what was audited, warnings, checks, and the sentences that follow."""
    first = judgement.networks[0]
    title = f"Audit of {first.run or first.method}"
    if judgement.count > 1:
        title += f", {judgement.count} {judgement.unit}s"
    lead = f"{judgement.text(THREE)}; four checks: {judgement.text(FOUR)}"
    if any(audit.warned("weak baseline") for audit in judgement.networks):
        lead += ", in doubt (see the warnings)"
    return Document(title, tuple(_sections(judgement)), f"{lead}. {_scope(first)}")


def _sections(judgement: Judgement) -> Iterator[Section]:
    warnings = tuple(grouped(judgement, lambda audit: [str(text) for text in audit.warnings]))
    if warnings:
        yield Section("Warnings", items=warnings)
    settling = judgement.settling
    table = {"checks": check_table(judgement)}
    yield Section(tables=table, text=f"{settling}." if settling else "")
    may, may_not = sentences(judgement)
    yield Section("You may write", items=tuple(may[:MOST_SENTENCES]), text=SETTLE * bool(warnings))
    yield Section("You may not write", items=tuple(may_not))


def _scope(audit: Audit) -> str:
    """Say which states were audited, which share of the layers they cover, and what goes past them."""
    names = audit.about.get("states") or ["h_0", f"h_{len(audit.layers) - 1}"]
    covered = f"{100 * audit.about.get('covered', 1.0):.0f} %"
    # One HookPoint that is called for every state has one name.
    places = f"at {names[0]}" if len(set(names)) == 1 else f"{names[0]} to {names[-1]}"
    text = f"{len(audit.layers)} states, {places}, with {covered} of the layers between them."
    if audit.about.get("partial"):
        shares = [share or 0 for share in audit.about["past"]]
        past = percent(max(shares))
        text += f" Partial: up to {past} of what the outputs know of the inputs goes past them."
    return text


def grouped(judgement: Judgement, said: Callable[[Audit], Sequence[str]]) -> Iterator[str]:
    """Yield every text once, preceded by its seeds unless all networks share it."""
    labels: dict[str, list[str]] = {}
    for label, audit in zip(judgement.labels, judgement.networks):
        for text in dict.fromkeys(said(audit)):
            labels.setdefault(text, []).append(str(label))
    for text, own in labels.items():
        of_all = len(own) == judgement.count
        yield text if of_all else f"{judgement.unit} {', '.join(own)}: {text}"


# --- checks ---------------------------------------------------------------------------------------


def check_table(judgement: Judgement) -> Table:
    """Return every check: value with its interval, limit and outcome, over all networks."""
    columns = ["check", "value", "95 % interval", "limit", "outcome"]
    rows = []
    for name, kind in CHECKS.items():
        found = judgement[name]
        limit = f"{kind.sign} {kind.scale * found.threshold:g}"
        row = [kind.label, *_numbers(found), limit, found.outcome]
        if kind.four:
            row[0] += f" {kind.short.split()[0].lower()}"
        if judgement.count > 1:
            row.append(f"{found.count} of {found.evaluated}")
        rows.append(tuple(row))
    if judgement.count > 1:
        columns.append("fires in")
    return Table("", tuple(columns), tuple(rows))


def _numbers(found: Finding) -> list[str]:
    scale = found.kind.scale
    value = _text(None if found.value is None else scale * found.value)
    if found.interval is None:
        return [value, ABSENT]
    low, high = (_text(scale * end) for end in found.interval)
    return [value, f"{low} to {high}"]


def _text(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.3g}"


# --- details --------------------------------------------------------------------------------------


def details(judgement: Judgement) -> Document:
    """Return the evidence: every network's numbers, how intervals were formed, states, credits."""
    first = judgement.networks[0]
    return Document(f"Details of {first.run or first.method}", tuple(detail_sections(judgement)))


def detail_sections(judgement: Judgement) -> Iterator[Section]:
    """Yield the sections of the details."""
    yield Section("Accuracies", entries=tuple(_accuracies(judgement)))
    if judgement.count > 1:
        yield Section(f"Every {judgement.unit}", tables={"seeds": _seed_table(judgement)})
    rest = sentences(judgement)[0][MOST_SENTENCES:]
    if rest:
        yield Section("You may also write", items=tuple(rest))
    formed = tuple(_intervals(judgement))
    yield Section("Intervals and limits", entries=formed)
    first = judgement.networks[0]
    explained = LAYERS_LEGEND.format(len(first.layers) - 1, first.samples)
    yield Section("Evidence at every state", tables={"states": _states(judgement)}, text=explained)
    if first.credit:
        table = _credits(judgement)
        marked = any(MARK in str(cell) for row in table.rows for cell in row)
        legend = CREDIT_LEGEND + BELOW_FLOOR * marked
        yield Section("Credits at every block", tables={"credits": table}, text=legend)
    notes = tuple(grouped(judgement, lambda audit: [audit.notes] if audit.notes else []))
    if notes:
        yield Section("Notes", items=notes)


def _accuracies(judgement: Judgement) -> Iterator[Entry]:
    audits = judgement.networks
    first = audits[0].baselines
    yield Entry("accuracy", percent(*(audit.headline_acc for audit in audits)))
    own = percent(*(audit.baselines.own for audit in audits))
    yield Entry("frozen baseline", own + f" ({first.own_name})" * (first.own is not None))
    yield Entry("bp+frozen", percent(*(audit.baselines.bp for audit in audits)))
    yield Entry("flags", "; ".join(grouped(judgement, _flags)) or "none")
    if audits[0].first_flags:
        yield Entry("first fired", "; ".join(grouped(judgement, _first_fired)))


def _flags(audit: Audit) -> list[str]:
    return audit.judgement.flags


def _first_fired(audit: Audit) -> list[str]:
    found = []
    for label, epoch in zip(("D1", "D2"), audit.first_flags.values()):
        found.append(f"{label} {'never' if epoch is None else f'epoch {epoch}'}")
    return [", ".join(found)]


def _seed_table(judgement: Judgement) -> Table:
    """Return a row for every network: accuracies in percent, the number of every check, verdict."""
    columns = [judgement.unit, "accuracy", "frozen"]
    columns += [kind.label for kind in CHECKS.values()]
    rows = []
    for label, audit in zip(judgement.labels, judgement.networks):
        row = [str(label)]
        for accuracy in (audit.headline_acc, audit.baselines.own):
            row.append(_text(None if accuracy is None else 100 * accuracy))
        for name, kind in CHECKS.items():
            value = audit.checks[name].value
            row.append(_text(None if value is None else kind.scale * value))
        rows.append((*row, audit.judgement.text(THREE)))
    return Table("", (*columns, "verdict"), tuple(rows))


def _intervals(judgement: Judgement) -> Iterator[Entry]:
    """Yield how every check's interval was formed, and for which batch size its limit is meant."""
    over = (
        f"t-interval of the mean distance from the limit over {judgement.count} {judgement.unit}s"
    )
    for name, kind in CHECKS.items():
        found = judgement[name]
        first = found.outcomes[0]
        formed = first.interval_note if judgement.count == 1 else over
        notes = [formed, first.threshold_note, found.note]
        text = "; ".join(dict.fromkeys(filter(None, notes)))
        if text:
            yield Entry(kind.label, text)


def _states(judgement: Judgement) -> Table:
    """Return the means over the networks at every state."""
    rows = []
    for place in range(len(judgement.networks[0].layers)):
        states = [audit.layers[place] for audit in judgement.networks]
        cells = [_text(_mean(list(map(number, states)))) for number in STATES.values()]
        rows.append((str(place), *cells))
    return Table("", ("layer", *STATES), tuple(rows))


def _credits(judgement: Judgement) -> Table:
    """Return the means over the networks at every block."""
    floor, fires = judgement["reference"].threshold, CHECKS["reference"].fires
    rows = []
    for place in range(len(judgement.networks[0].credit)):
        blocks: list[Metrics] = [audit.credit[place] for audit in judgement.networks]
        cells = [_text(_mean([_value(block.get(name)) for block in blocks])) for name in CREDITS]
        behind = [audit.layers[place + 1].grad_norm for audit in judgement.networks]
        if cells[0] != ABSENT and any(fires(norm, floor) for norm in behind):
            cells[0] += MARK
        rows.append((str(place), *cells))
    return Table("", ("block", *CREDITS), tuple(rows))


def _value(measured: Measured | None) -> float | None:
    return None if measured is None else measured.value


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
