"""The report of one network, or of a run over its seeds, in the same words for every format.

`document` returns the report, `details` the evidence behind it. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from fa_audit.core.measured import Measured
from fa_audit.documents.document import Document, Entry, Section
from fa_audit.documents.formats import Table
from fa_audit.protocol.audit import Audit
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.evidence import known_mean
from fa_audit.protocol.judge import FOUR, THREE, Judgement
from fa_audit.protocol.sentences import percent, sentences

_MOST_SENTENCES = 5  # in the report; the others are in its details
_ABSENT = "-"  # in place of a number
_MARK = "*"  # printed behind a cosine whose gradient is below the limit of D2
_SETTLE = "Settle the warnings first: they may make these sentences wrong."
_STATES_LEGEND = (
    "Layer 0 is the first state, layer {} the last, with blocks between them. h is a layer's state,"
    " g the true gradient of the batch's mean loss with respect to h. ||h||, ||g||: their lengths,"
    " medians over {} samples. growth: how many times longer the next block makes h. B ||h|| ||g||:"
    " the product, times the batch size; it stays the same if states are merely inflated."
    " float32 error: relative error of g, against float64."
)
_CREDITS_LEGEND = (
    "A credit is what the method uses in place of the true gradient; block 0 is the first. All"
    " numbers are measured at the block's output. cosine: between credit and gradient. rho:"
    " correlation between the changes of the loss that the credit predicts and the true ones, best"
    " 1. nudging: change of the loss after a small step against the credit; negative if the credit"
    " helps."
)
_BELOW_FLOOR = f" {_MARK}: the gradient in this cosine is below the limit of D2."
# Heading of a column in the table of states -> the field of `State` that it shows.
_STATES = {
    "||h||": "hidden_norm",
    "growth": "growth",
    "||g||": "grad_norm",
    "B ||h|| ||g||": "scale_free",
    "float32 error": "float32_error",
}
_CREDITS = ("cosine", "rho", "nudging")


# --- the report -----------------------------------------------------------------------------------


def document(judgement: Judgement) -> Document:
    """Return the report: what was audited, warnings, checks, and what authors may write."""
    first = judgement.networks[0]
    title = f"Audit of {first.run or first.method}"
    if judgement.count > 1:
        title += f", {judgement.count} {judgement.unit}s"
    lead = f"{judgement.text(THREE)}; four checks: {judgement.text(FOUR)}"
    if any(audit.warned("weak baseline") for audit in judgement.networks):
        lead += "; D3 is in doubt (see the warnings)"
    return Document(title, tuple(_sections(judgement)), f"{lead}. {_scope(first)}")


def _sections(judgement: Judgement) -> Iterator[Section]:
    warnings = tuple(grouped(judgement, lambda audit: [str(text) for text in audit.warnings]))
    if warnings:
        yield Section("Warnings", items=warnings)
    settling = judgement.settling
    text = f"{settling}." if settling else ""
    yield Section(tables=(_check_table(judgement),), text=text)
    may, may_not = sentences(judgement)
    if may:
        text = _SETTLE if warnings else ""
        yield Section("You may write", items=tuple(may[:_MOST_SENTENCES]), text=text)
    yield Section("You may not write", items=tuple(may_not))


def _scope(audit: Audit) -> str:
    """Say which states were audited, and how much information bypasses them."""
    names = audit.about.get("states") or ["h_0", f"h_{len(audit.layers) - 1}"]
    # If one HookPoint is called for every state, all states have its name.
    places = f"at {names[0]}"
    if len(set(names)) > 1:
        places = f"{names[0]} to {names[-1]}"
    text = f"{len(audit.layers)} states, {places}"
    share = audit.about.get("share")
    if share is not None:
        text += f", with {100 * share:.3g} % of the parameters between them"
    text += "."
    if audit.about.get("partial"):
        past = percent([max(share or 0 for share in audit.about["past"])])
        text += f" Partial: up to {past} of the outputs' dependence on the inputs bypasses states."
    return text


def grouped(judgement: Judgement, said: Callable[[Audit], Sequence[str]]) -> Iterator[str]:
    """Yield every text once; name the seeds or networks that have it, unless all have it."""
    labels: dict[str, list[str]] = {}
    for label, audit in zip(judgement.labels, judgement.networks):
        # A network that has the same text twice is named once.
        for text in dict.fromkeys(said(audit)):
            labels.setdefault(text, []).append(str(label))
    for text, own in labels.items():
        if len(own) == judgement.count:
            yield text
        else:
            yield f"{judgement.unit} {', '.join(own)}: {text}"


def _check_table(judgement: Judgement) -> Table:
    """Return the table of checks: value, interval, limit and outcome over all networks."""
    columns = ["check", "value", "95 % interval", "limit", "outcome"]
    if judgement.count > 1:
        columns.append("fires in")
    rows = []
    for name, kind in CHECKS.items():
        found = judgement[name]
        label, interval = kind.title if kind.four else kind.label, _ABSENT
        if found.interval is not None:
            low, high = found.interval
            interval = f"{_text(low, kind.scale)} to {_text(high, kind.scale)}"
        # Limits are printed in the unit of the check: margins in points, not fractions.
        limit = f"{kind.sign} {kind.scale * found.threshold:g}"
        row = [label, _text(found.value, kind.scale), interval, limit, found.outcome]
        if judgement.count > 1:
            row.append(f"{found.count} of {found.evaluated}")
        rows.append(tuple(row))
    return Table("", tuple(columns), tuple(rows))


def _text(value: float | None, scale: float = 1) -> str:
    return _ABSENT if value is None else f"{scale * value:.3g}"


# --- its details ----------------------------------------------------------------------------------


def details(judgement: Judgement) -> Document:
    """Return the evidence behind a report."""
    first = judgement.networks[0]
    title = f"Details of {first.run or first.method}"
    return Document(title, tuple(_detail_sections(judgement)))


def _detail_sections(judgement: Judgement) -> Iterator[Section]:
    """Yield the evidence: every network's numbers, how intervals were formed, states, credits."""
    yield Section("Accuracies", entries=tuple(_accuracies(judgement)))
    if judgement.count > 1:
        yield Section(f"Every {judgement.unit}", tables=(_seeds(judgement),))
    rest = tuple(sentences(judgement)[0][_MOST_SENTENCES:])
    if rest:
        yield Section("You may also write", items=rest)
    yield Section("Intervals and limits", entries=tuple(_intervals(judgement)))
    first = judgement.networks[0]
    legend = _STATES_LEGEND.format(len(first.layers) - 1, first.samples)
    if judgement.count > 1:
        legend += f" Means over the {judgement.unit}s; the checks D1 and D2 take geometric means."
    yield Section("Evidence at every state", tables=(_states(judgement),), text=legend)
    if first.credit:
        table, legend = _credits(judgement), _CREDITS_LEGEND
        if any(str(row[1]).endswith(_MARK) for row in table.rows):
            legend += _BELOW_FLOOR
        yield Section("Credits at every block", tables=(table,), text=legend)
    notes = tuple(grouped(judgement, lambda audit: [audit.notes] if audit.notes else []))
    if notes:
        yield Section("Notes", items=notes)


def _accuracies(judgement: Judgement) -> Iterator[Entry]:
    audits = judgement.networks
    first = audits[0].baselines
    own = percent(audit.baselines.own for audit in audits)
    if first.own is not None:
        own += f" ({first.own_name})"
    yield Entry("accuracy", percent(audit.headline_acc for audit in audits))
    yield Entry("frozen baseline", own)
    yield Entry("bp+frozen", percent(audit.baselines.bp for audit in audits))
    flags = "; ".join(grouped(judgement, lambda audit: audit.judgement.flags))
    yield Entry("flags", flags or "none")
    if audits[0].first_flags:
        yield Entry("first fired", "; ".join(grouped(judgement, _first_fired)))


def _first_fired(audit: Audit) -> list[str]:
    found = []
    # NaN fires no check.
    otherwise = "never" if audit.finite else "unknown"
    for label, epoch in zip(("D1", "D2"), audit.first_flags.values()):
        when = otherwise if epoch is None else f"epoch {epoch}"
        found.append(f"{label} {when}")
    return [", ".join(found)]


def _seeds(judgement: Judgement) -> Table:
    """Return a row for every network: accuracies in percent, the value of every check, verdict."""
    checks = [kind.label for kind in CHECKS.values()]
    rows = []
    for label, audit in zip(judgement.labels, judgement.networks):
        row = [str(label), _text(audit.headline_acc, 100), _text(audit.baselines.own, 100)]
        row += [_text(audit.checks[name].value, kind.scale) for name, kind in CHECKS.items()]
        rows.append((*row, audit.judgement.text(THREE)))
    return Table("", (judgement.unit, "accuracy", "frozen", *checks, "verdict"), tuple(rows))


def _intervals(judgement: Judgement) -> Iterator[Entry]:
    """Yield for each check how its interval was formed, for which batch size its limit is meant,
    and its note.
    """
    for name, kind in CHECKS.items():
        found = judgement[name]
        # Limits and the construction of intervals are the same for all seeds.
        first = found.outcomes[0]
        formed = first.interval_note if judgement.count == 1 else ""
        if judgement.count > 1 and found.around is not None:
            many = f"{len(found.distances)} {judgement.unit}s"
            formed = f"t-interval of the mean distance from the limit over {many}"
        notes = dict.fromkeys([formed, first.threshold_note, found.note])
        text = "; ".join(filter(None, notes))
        if text:
            yield Entry(kind.label, text)


def _states(judgement: Judgement) -> Table:
    """Return the table of states: means over the networks."""
    rows = []
    # Networks of one judgement have the same architecture, and so the same number of states.
    for states in zip(*(audit.layers for audit in judgement.networks)):
        cells = []
        for name in _STATES.values():
            cells.append(_mean(getattr(state, name) for state in states))
        rows.append((str(states[0].layer), *cells))
    return Table("", ("layer", *_STATES), tuple(rows))


def _credits(judgement: Judgement) -> Table:
    """Return the table of credits at every block: means over the networks."""
    floor, fires = judgement["reference"].threshold, CHECKS["reference"].fires
    rows = []
    for layer, blocks in enumerate(zip(*(audit.credit for audit in judgement.networks))):
        cells = []
        for name in _CREDITS:
            cells.append(_mean(block.get(name) for block in blocks))
        # A credit stands for the gradient at its block's output.
        after = [audit.layers[layer + 1].grad_norm for audit in judgement.networks]
        if cells[0] != _ABSENT and any(fires(norm, floor) for norm in after):
            cells[0] += _MARK
        rows.append((str(layer), *cells))
    return Table("", ("block", *_CREDITS), tuple(rows))


def _mean(found: Iterable[Measured | float | None]) -> str:
    """Return the mean of the measured numbers as text, or `_ABSENT` if there are none."""
    return _text(known_mean(one.value if isinstance(one, Measured) else one for one in found))
