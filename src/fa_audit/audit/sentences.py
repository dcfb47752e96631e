"""Sentences that an audit supports, with its own numbers, and those that it does not: of a network or its seeds.

The claims are those of `fa_audit.core.checks`. A check that is borderline, was not evaluated, or differs between seeds
supports neither of its two. Over seeds a margin is a mean with its t-interval; every other claim has to hold for each.
Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fa_audit.audit.record import number
from fa_audit.audit.verdicts import Checks, Outcome
from fa_audit.core.checks import CHECKS, CREDITS, DOUBTED, UNTRUE, Check, Criterion
from fa_audit.core.intervals import t_interval
from fa_audit.core.thresholds import fires
from fa_audit.documents.document import NBSP, capital

NOT_FINITE = "A state, gradient or logit of the network is NaN or infinite."
NOTHING = "anything else: no other number of this audit can be trusted. Lower the learning rate and train again."
UNTRUE_AT = (
    "The backward pass of the model is not the derivative of its forward pass (states {}): norms of gradients there are"
    " estimated from changes of the loss."
)
NO_CREDIT = "that the credits align with the gradient or predict changes of the loss: {}"
OWN_BACKWARD = (
    "the backward pass is the model's own. Audit the same weights in a model of torch's own layers, and give what the"
    " backward pass computes as credits (docs/recipes.md)."
)
NOT_GIVEN = "no credits were audited. Give them (credits=), with fresh feedback (draw=)."
DEEP = (
    "that a deep block learns, or every block: D3 / (d) compares all blocks with none. Freeze some of them to find out."
)
ONE = "any of this about the method: it is one network. Audit other seeds."
MORE = "Repeat with more samples or seeds."


@dataclass(frozen=True)
class Facts:
    """What sentences need of one network.

    Attributes:
        checks: their outcomes.
        accuracy: on the whole test set, a fraction.
        frozen: accuracies of the frozen baselines, by the checks that compare with them.
        credits: outcomes of `CREDITS`, which fire where a metric is not beyond chance.
        no_credit: why nothing may be written of the credits; empty where the reference decides.
        untrue: the states whose gradient is not the derivative of the loss.
        doubted: whether a warning puts the accuracies in doubt.
    """

    checks: Checks
    accuracy: float | None
    frozen: Mapping[str, float | None]
    credits: Mapping[str, Outcome]
    no_credit: str = ""
    untrue: Sequence[int] = ()
    doubted: bool = False


def facts_of(audit: Mapping[str, Any]) -> Facts:
    """Return the facts in an audit's record."""
    checks = Checks({name: _outcome(audit["checks"][name]) for name in CHECKS}, audit["finite"])
    floor, untrue = checks.reference.threshold, audit.get("untrue", ())
    norms = [number(state["grad_norm"]) for state in audit["layers"]]
    low = [str(layer) for layer, norm in enumerate(norms) if layer > 1 and fires("reference", norm, floor)]
    below = low and not checks.reference.fires and f"the gradient is below the limit of D2 at state {', '.join(low)}."
    return Facts(
        checks,
        audit["headline_acc"],
        {"depth": audit["baselines"]["own"], "depth_strict": audit["baselines"]["bp"]},
        _of_credits(audit),
        OWN_BACKWARD if untrue else NOT_GIVEN if not audit["credit"] else below or "",
        untrue,
        any(text.startswith(DOUBTED) for text in audit.get("warnings", ())),
    )


def _outcome(found: Mapping[str, Any]) -> Outcome:
    interval = found.get("interval") and tuple(map(float, found["interval"]))
    kept = {key: entry for key, entry in found.items() if key != "borderline"}
    return Outcome(**kept | {"value": number(found["value"]), "interval": interval})


def _of_credits(audit: Mapping[str, Any]) -> dict[str, Outcome]:
    """Return whether the credits of the blocks after the first are beyond chance; chance ends where its interval does.

    That of rho is the widest of the blocks; nudging has none of its own, and counts where rho is beyond chance.
    """
    deep, later = audit["deep"], audit["credit"][1:]
    null = deep.get("fresh_b_null", {}).get("interval")
    ends = [block["rho_random"]["interval"] for block in later if block["rho_random"].get("interval")]
    chance = max((number(high) or 0 for _, high in ends), default=None)
    rho = _beyond("rho", deep, chance, "no null: rho_random is absent")
    ceiling = number(deep.get("rho_bp", {}).get("value"))
    if rho.fires is not None and not (ceiling and ceiling > rho.threshold):
        rho = replace(rho, fires=None, note="the true gradient itself does not predict how the loss changes")
    step = _beyond("nudging", deep, 0.0, "")
    if rho.fires is not False:
        step = replace(step, fires=None, note="rho is not beyond chance")
    return {
        "cosine": _beyond("cosine", deep, null and number(null[1]), "no null: fresh feedback was not drawn"),
        "rho": rho,
        "nudging": step,
    }


def _beyond(name: str, deep: Mapping[str, Any], chance: float | None, why: str) -> Outcome:
    found = deep.get(name, {})
    value = number(found.get("value"))
    if value is None or chance is None:
        return Outcome(name, None, 0.0, None, why if value is not None else found.get("reason") or "not measured")
    return Outcome(name, value, chance, not (value < chance if CREDITS[name].side == "above" else value > chance))


# --- sentences -----------------------------------------------------------------------------------------------------


def sentences(seeds: Sequence[Facts], unit: str = "seed") -> tuple[list[str], list[str]]:
    """Return the sentences that may be written of a network or its seeds, and those that may not, with the reason.

    Args:
        unit: what the facts are of, where there are several.
    """
    if not all(facts.checks.finite for facts in seeds):
        return [NOT_FINITE], [NOTHING]
    ruled = {name: _rule(name, kind, seeds, unit) for name, kind in CHECKS.items()}
    reference, first = ruled["reference"], next(filter(None, (facts.no_credit for facts in seeds)), "")
    closed = first or ("" if reference.fires is False else f"{reference.reason}.")
    if not closed:
        ruled |= {name: _rule(name, kind, seeds, unit) for name, kind in CREDITS.items()}
    ranked = sorted(ruled.values(), key=lambda rule: rule.kind.unit != "points")
    untrue = sorted({state for facts in seeds for state in facts.untrue})
    may = [text for rule in ranked if (text := rule.may)]
    may_not = [text for rule in ranked if (text := rule.may_not)]
    return (
        [*may, *([UNTRUE_AT.format(", ".join(map(str, untrue)))] if untrue else [])],
        [*may_not, *([NO_CREDIT.format(closed)] if closed else []), DEEP, *([ONE] if len(seeds) == 1 else [])],
    )


@dataclass(frozen=True)
class Ruling:
    """What a criterion supports: whether it fires, None where it supports neither claim, why, and with which numbers.

    `cause` is that of a check that fires, `remedy` what to do where something may not be written.
    """

    kind: Criterion
    fires: bool | None
    reason: str
    numbers: str
    cause: str = ""
    remedy: str = ""

    @property
    def may(self) -> str:
        """Return the sentence that is supported: the numbers alone where neither claim is."""
        finding = self.kind.causes.get(self.cause, self.kind.finding)
        claim = {True: f"{finding}: ", False: f"{self.kind.fine}: ", None: ""}[self.fires]
        return f"{capital(claim + self.numbers)}." if self.numbers else ""

    @property
    def may_not(self) -> str:
        """Return what is not supported and why; empty where the opposite is plainly so."""
        if self.fires is False:
            return ""
        if self.cause in self.kind.causes:
            return f"that {self.kind.finding}: {self.reason} because of the {self.cause}. {self.remedy}".rstrip()
        other = ", or the opposite" if self.fires is None else ""
        return f"that {self.kind.fine}{other}: {self.reason}. {self.remedy}".rstrip()


def _rule(name: str, kind: Criterion, seeds: Sequence[Facts], unit: str) -> Ruling:
    outcomes = [facts.checks[name] if isinstance(kind, Check) else facts.credits[name] for facts in seeds]
    points = kind.unit == "points"
    found = _mean(outcomes) if points else outcomes
    decided, reason, remedy = _decided(kind, found, points and any(facts.doubted for facts in seeds))
    known = all(each.value is not None for each in found) and (decided is not None or isinstance(kind, Check))
    shown = _numbers(name, kind, found, seeds, unit) if known else ""
    return Ruling(kind, decided, reason, shown, found[0].note if decided else "", remedy)


def _mean(found: list[Outcome]) -> list[Outcome]:
    """Return the outcome of the mean margin over several seeds, which is not evaluated unless all are."""
    values = [each.value for each in found if each.value is not None and each.fires is not None]
    if len(found) == 1 or len(values) < len(found):
        return found
    mean = sum(values) / len(values)
    return [replace(found[0], value=mean, fires=mean < found[0].threshold, interval=t_interval(values))]


def _decided(kind: Criterion, found: Sequence[Outcome], doubted: bool) -> tuple[bool | None, str, str]:
    """Return whether a criterion fires, None where that decides nothing; the reason; what to do."""
    open_ = [each.note for each in found if each.fires is None]
    fired = [each.note for each in found if each.fires]
    if open_:
        return None, f"{kind.label} is not evaluated ({open_[0]})", "" if UNTRUE in open_ else kind.when_open
    if doubted:
        return None, f"{kind.label} is in doubt (see the warnings)", ""
    if any(each.borderline for each in found):
        return None, f"{kind.label} is borderline", MORE
    if 0 < len(fired) < len(found):
        return None, f"{kind.label} {kind.verb} in {len(fired)} of {len(found)} networks", ""
    if len({kind.causes.get(note) for note in fired}) > 1:
        return None, f"{kind.label} {kind.verb} for different causes", ""
    remedy = kind.advice.get(fired[0], kind.advice.get("", "")) if fired else ""
    return bool(fired), f"{kind.label} {kind.verb}", remedy


# --- numbers ---------------------------------------------------------------------------------------------------------


def _numbers(name: str, kind: Criterion, found: Sequence[Outcome], seeds: Sequence[Facts], unit: str) -> str:
    """Return the numbers of a sentence in words, with what they are of, their interval and their limit."""
    several, points = len(seeds) > 1, kind.unit == "points"
    values, scale = [each.value for each in found if each.value is not None], kind.scale
    limit = f"{scale * max(each.threshold for each in found):.3g}{' points' * points}"
    slots = {"scope": f"{'means of ' * points}{len(seeds)} {unit}s" if several else "one network", "limit": limit}
    if len(found) == 1 and isinstance(kind, Check):
        ends = [f"{scale * end:.3g}" for end in found[0].interval or ()]
        slots["interval"] = f"95{NBSP}% interval {ends[0]} to {ends[1]}" if ends else "no interval"
    slots["note"] = found[0].threshold_note
    if not points:
        return phrase(kind, slots | {"value": " to ".join(dict.fromkeys(f"{end:.3g}" for end in _ends(values)))})
    accuracy, frozen = ([share for share in shares if share is not None] for shares in (
        [facts.accuracy for facts in seeds], [facts.frozen.get(name) for facts in seeds]))  # fmt: skip
    value = f"{abs(scale * values[0]):.1f} points {'below' if values[0] < 0 else 'above'}"
    return phrase(kind, slots | {"value": value, "accuracy": _percent(accuracy), "frozen": _percent(frozen)})


def phrase(kind: Criterion, slots: Mapping[str, str]) -> str:
    """Put texts into the sentence of a criterion: scope, value, interval, limit, note; of margins, both accuracies."""
    inside = (slots["scope"], slots.get("interval"), f"{kind.bound} {slots['limit']}", slots.get("note"))
    subject = f"the {kind.quantity} is {slots['value']}"
    if kind.unit == "points":
        subject = f"the accuracy of {slots['accuracy']} is {slots['value']} the {slots['frozen']} of {kind.quantity}"
    return f"{subject} ({'; '.join(filter(None, inside))})"


def _ends(values: Sequence[float]) -> Iterator[float]:
    yield from (min(values), max(values))


def _percent(fractions: Sequence[float]) -> str:
    return f"{100 * sum(fractions) / len(fractions):.1f}{NBSP}%" if fractions else "unknown"
