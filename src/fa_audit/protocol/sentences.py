"""Write the sentences that a judgement supports, and those that it does not support.

A check that is borderline or was not evaluated supports neither of its two claims. Imports no
torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fa_audit.documents.document import NBSP, capital
from fa_audit.protocol.checks import CHECKS, CREDITS
from fa_audit.protocol.evidence import known_mean
from fa_audit.protocol.judge import Finding, Judgement

NOT_FINITE = "A state, gradient or logit of the network is NaN or infinite."
RETRAIN = "Lower the learning rate and train again."
_NOTHING = f"Any other claim: the numbers of this audit cannot be trusted. {RETRAIN}"
_UNTRUE_AT = (
    "The backward pass of the model is not the derivative of its forward pass (states {}): norms of"
    " gradients there are estimated from changes of the loss."
)
_OWN_BACKWARD = (
    "the model's backward pass is not the derivative of its forward pass. Audit the same weights in"
    " a model of torch's own layers, and take the credits from your backward pass (docs/recipes.md)"
)
UNKNOWN = (
    "the backward pass was not verified against the forward pass (see the warnings), and may not be"
    " its derivative"
)
_NOT_GIVEN = "no credits were audited (credits=, draw=)"
DEEP = "That a deep block learns: no check shows this. Freeze blocks and compare."
_ONE = "Claims about the method: only one network was audited. Audit other seeds."
MORE = "Repeat with more samples or seeds."
# Advice for checks that were not evaluated, by cause. It replaces the `when_open` of the check.
_INSTEAD = {
    "untrue gradient": "",
    "contradicted accuracy": "Give the accuracy of this very model on these data.",
}


class Ruling(NamedTuple):
    """The sentence that one criterion supports, and the one that it does not support.

    Attributes:
        claim: True for the finding (the criterion fires), False for the opposite (it does not),
            None if neither is supported.
        may: the supported sentence, or only numbers if no claim is supported; may be empty.
        may_not: the unsupported sentence with the reason; empty if `claim` is False, or if the
            check was not evaluated and decides no verdict.
        reason: the reason by itself.
    """

    claim: bool | None
    may: str
    may_not: str
    reason: str


def sentences(judgement: Judgement) -> tuple[list[str], list[str]]:
    """Return the sentences that may be written, and those that may not with their reasons."""
    if not judgement.finite:
        return [NOT_FINITE], [_NOTHING]
    ruled = _rulings(judgement)
    kinds = CHECKS | CREDITS
    ranked = sorted(ruled, key=lambda name: kinds[name].rank)
    may = [ruled[name].may for name in ranked if ruled[name].may]
    untrue: set[int] = set()
    for audit in judgement.networks:
        untrue |= set(audit.untrue)
    if untrue:
        may.insert(0, _UNTRUE_AT.format(", ".join(map(str, sorted(untrue)))))
    may_not: dict[str, str] = {}
    for ruling in ruled.values():
        if ruling.may_not:  # credits that share a reason share one sentence
            may_not.setdefault(ruling.reason, ruling.may_not)
    rest = [DEEP, _ONE] if judgement.count == 1 else [DEEP]
    return may, [*may_not.values(), *rest]


def _rulings(judgement: Judgement) -> dict[str, Ruling]:
    """Return the ruling on every check and credit metric."""
    ruled = {name: _ruling(name, found, judgement) for name, found in judgement.findings.items()}
    closed = _closed(judgement)
    if not closed and ruled["reference"].claim is not False:
        closed = ruled["reference"].reason
    for name, kind in CREDITS.items():
        if closed:
            ruled[name] = Ruling(None, "", f"Claims about the credits: {closed}.", closed)
        else:
            outcomes = tuple(audit.credits[name] for audit in judgement.networks)
            ruled[name] = _ruling(name, Finding(kind, outcomes), judgement)
    return ruled


def _closed(judgement: Judgement) -> str:
    """Return a reason, besides D2, to make no claim about the credits; empty if there is none."""
    for audit in judgement.networks:
        if audit.untrue:
            return _OWN_BACKWARD
        if not audit.credit:
            return _NOT_GIVEN
        # Claims concern the blocks after the first, whose outputs are h_2 to h_L; D2 checks h_L.
        floor, fires = audit.checks["reference"].threshold, CHECKS["reference"].fires
        low = [str(state.layer) for state in audit.layers[2:-1] if fires(state.grad_norm, floor)]
        if low:
            return f"the gradient is below the limit of D2 at state {', '.join(low)}"
        if audit.warned("gradient not compared"):
            return UNKNOWN
    return ""


def _ruling(name: str, found: Finding, judgement: Judgement) -> Ruling:
    kind = found.kind
    claim, reason, remedy = _decided(found, judgement)
    finding = kind.causes.get(found.cause, kind.finding)
    # `below_zero` holds if the whole interval is below 0; without an interval, if the value is.
    highest = found.interval[1] if found.interval else found.value
    if kind.below_zero and highest is not None and highest < 0:
        finding = kind.below_zero
    finding = finding.format(limit=_limit(found))
    may = ""
    # Leave out a credit metric without a claim: its value alone says nothing.
    if found.value is not None and (claim is not None or name in CHECKS):
        told = {True: finding, False: kind.fine, None: kind.label}[claim]
        may = f"{capital(told)}: {_numbers(found, judgement)}."
    decides = name in CREDITS or CHECKS[name].four
    if claim is False or (found.fires is None and not decides):
        return Ruling(claim, may, "", reason)
    denied = f"Whether {kind.fine}" if claim is None else f"That {kind.fine}"
    why = reason
    if claim and found.cause in kind.causes:
        denied = f"That {kind.finding}"
        why = f"{reason} because of the {found.cause}"
    return Ruling(claim, may, f"{denied}: {why}. {remedy}".rstrip(), reason)


def _decided(found: Finding, judgement: Judgement) -> tuple[bool | None, str, str]:
    """Return a criterion's `claim` (see `Ruling`), why it fires or has no claim, and what to do."""
    kind = found.kind
    if found.fires is None:
        open_ = next(outcome for outcome in found.outcomes if outcome.fires is None)
        remedy = _INSTEAD.get(open_.cause, kind.when_open)
        return None, f"{kind.label} is not evaluated ({open_.note})", remedy
    doubted = any(audit.warned("weak baseline") for audit in judgement.networks)
    if kind.unit == "points" and doubted:
        return None, f"{kind.label} is in doubt (see the warnings)", ""
    if found.borderline:
        return None, f"{kind.label} is borderline", MORE
    if not found.fires:
        return False, "", ""
    fired = {kind.causes.get(outcome.cause) for outcome in found.outcomes if outcome.fires}
    if len(fired) > 1:
        return None, f"{kind.label} {kind.verb} for different causes", ""
    return True, f"{kind.label} {kind.verb}", kind.remedy(found.cause)


# --- numbers --------------------------------------------------------------------------------------


def _limit(found: Finding) -> str:
    points = " points" * (found.kind.unit == "points")
    return f"{found.kind.scale * found.threshold:.3g}{points}"


def _numbers(found: Finding, judgement: Judgement) -> str:
    """Return a sentence's value, interval, limit and number of networks as text."""
    kind, value, count = found.kind, found.value or 0.0, len(found.outcomes)
    of = ""
    if count > 1:
        of = f", mean of {found.evaluated}"
        if found.evaluated < count:
            of += f" of {count}"
        if 0 < found.count < found.evaluated:
            of += f"; fires in {found.count}"
    if kind.unit != "points":
        around = ""
        if found.borderline and found.interval:
            low, high = found.interval
            around = f", 95{NBSP}% interval {low:.3g} to {high:.3g}"
        return f"{kind.quantity} {value:.3g}{around}, {kind.bound} {_limit(found)}{of}"
    pairs = zip(judgement.networks, found.outcomes, strict=True)
    counted = [audit for audit, outcome in pairs if outcome.fires is not None]
    accuracy = percent(audit.headline_acc for audit in counted)
    frozen = percent(getattr(audit.baselines, kind.baseline) for audit in counted)
    around = "no interval"
    if found.interval is not None:
        low, high = (f"{100 * end:.1f}" for end in found.interval)
        around = f"95{NBSP}% interval {low} to {high}"
    return (
        f"{accuracy} against {frozen} with {kind.quantity}, {100 * value:+.1f} points"
        f" ({around}; limit {_limit(found)}){of}"
    )


def percent(fractions: Iterable[float | None]) -> str:
    """Return the mean of the known fractions in percent."""
    mean = known_mean(fractions)
    return "unknown" if mean is None else f"{100 * mean:.1f}{NBSP}%"
