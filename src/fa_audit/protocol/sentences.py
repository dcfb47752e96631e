"""Sentences that an audit supports, with its own numbers, and those that it does not: of a network
or its seeds.

The claims are those of `fa_audit.protocol.checks`. A check that is borderline, was not evaluated, or
differs between seeds supports neither of its two claims. Over seeds a margin is a mean with its
t-interval; every other claim has to hold for each. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fa_audit.core.files import number
from fa_audit.documents.document import NBSP, capital
from fa_audit.protocol.checks import (
    CHECKS,
    CONTRADICTED,
    CREDITS,
    DOUBTED,
    NOT_COMPARED,
    UNRESOLVED,
    UNTRUE,
    Check,
    Criterion,
)
from fa_audit.protocol.intervals import t_interval
from fa_audit.protocol.limits import fires
from fa_audit.protocol.verdicts import Checks, Outcome

NOT_FINITE = "A state, gradient or logit of the network is NaN or infinite."
RETRAIN = "Lower the learning rate and train again."
NOTHING = f"anything else: no other number of this audit can be trusted. {RETRAIN}"
UNTRUE_AT = (
    "The backward pass of the model is not the derivative of its forward pass (states {}): norms of gradients there are"
    " estimated from changes of the loss."
)
OWN_BACKWARD = (
    "the backward pass is the model's own. Audit the same weights in a model of torch's own layers, and give what the"
    " backward pass computes as credits (docs/recipes.md)"
)
UNKNOWN = "the backward pass was not compared with the forward pass (see the warnings), and may not be its derivative"
NOT_GIVEN = "no credits were audited. Give them (credits=), with fresh feedback (draw=)"
DEEP = (
    "that a deep block learns, or every block: D3 / (d) compares all blocks with none. Freeze some"
    " of them to find out."
)
ONE = "any of this about the method: it is one network. Audit other seeds."
MORE = "Repeat with more samples or seeds."
INSTEAD = {  # what to do where a check is not evaluated for these reasons, in place of what its entry says
    UNTRUE: "",
    CONTRADICTED: "Give the accuracy of this very model on these data.",
}


class Facts(NamedTuple):
    """Facts of one network for sentences: outcomes; accuracies as fractions, those of `frozen`
    baselines by check.

    `credits`: outcomes of `CREDITS`, which fire where a metric is not beyond chance. `closed`: why
        nothing may be
    written of them, where D2 does not decide that. `untrue`: states whose gradient is not that of
    the loss. `doubted`: whether a warning puts the accuracies in doubt.
    """

    checks: Checks
    accuracy: float | None
    frozen: Mapping[str, float | None]
    credits: Mapping[str, Outcome]
    closed: str = ""
    untrue: Sequence[int] = ()
    doubted: bool = False


def facts_of(audit: Mapping[str, Any]) -> Facts:
    """Return the facts in an audit's record."""
    checks = Checks({name: _outcome(audit["checks"][name]) for name in CHECKS}, audit["finite"])
    floor, untrue = checks.reference.threshold, audit.get("untrue", ())
    norms = [number(state["grad_norm"]) for state in audit["layers"][:-1]]
    low = [
        str(layer)
        for layer, norm in enumerate(norms)
        if layer > 1 and fires("reference", norm, floor)
    ]
    below = f"the gradient is below the limit of D2 at state {', '.join(low)}" if low else ""
    frozen = {"depth": audit["baselines"]["own"], "depth_strict": audit["baselines"]["bp"]}
    warnings = audit.get("warnings", ())
    unknown = any(text.startswith(NOT_COMPARED) and UNRESOLVED not in text for text in warnings)
    closed = (
        OWN_BACKWARD if untrue else (below or UNKNOWN * unknown) if audit["credit"] else NOT_GIVEN
    )
    doubted = any(text.startswith(DOUBTED) for text in warnings)
    return Facts(checks, audit["headline_acc"], frozen, _of_credits(audit), closed, untrue, doubted)


def _outcome(found: Mapping[str, Any]) -> Outcome:
    interval = found.get("interval") and tuple(map(float, found["interval"]))
    kept = {key: entry for key, entry in found.items() if key != "borderline"}
    return Outcome(**kept | {"value": number(found["value"]), "interval": interval})


def _of_credits(audit: Mapping[str, Any]) -> dict[str, Outcome]:
    """Return whether the credits of the blocks after the first are beyond chance; chance ends where
    its interval does.

    That of rho is the widest of the blocks; nudging has none of its own, and counts where rho is
    beyond chance.
    """
    deep, blocks = audit["deep"], audit["credit"][1:]
    null = deep.get("fresh_b_null", {}).get("interval")
    ends = [
        number(ends[1]) or 0 for block in blocks if (ends := block["rho_random"].get("interval"))
    ]
    rho = _beyond("rho", deep, max(ends, default=None), "random credits were not drawn")
    if rho.fires is not None and (number(deep["rho_bp"]["value"]) or 0) <= rho.threshold:
        rho = replace(
            rho, fires=None, note="not even the true gradient predicts how the loss changes"
        )
    step = _beyond("nudging", deep, 0.0)
    step = (
        step if rho.fires is False else replace(step, fires=None, note="rho is not beyond chance")
    )
    return {
        "cosine": _beyond(
            "cosine", deep, null and number(null[1]), "no two draws of fresh feedback differ"
        ),
        "rho": rho,
        "nudging": step,
    }


def _beyond(
    name: str, deep: Mapping[str, Any], chance: float | None, no_chance: str = ""
) -> Outcome:
    found = deep.get(name, {})
    value = number(found.get("value"))
    if value is None or chance is None:
        return Outcome(name, value, 0.0, None, found.get("reason") or no_chance)
    return Outcome(
        name,
        value,
        chance,
        not (value < chance if CREDITS[name].side == "above" else value > chance),
    )


# --- sentences -----------------------------------------------------------------------------------------------------


class Ruling(NamedTuple):
    """The ruling of a criterion: its numbers in words, why a claim is not supported, what to do,
    the cause if it fires.

    `fires` is None where the criterion supports neither of its claims.
    """

    kind: Criterion
    fires: bool | None
    reason: str
    numbers: str = ""
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
        """Return the claim that is not supported and why; empty where it is supported."""
        if self.fires is False:
            return ""
        if self.cause in self.kind.causes:
            return f"that {self.kind.finding}: {self.reason} because of the {self.cause}. {self.remedy}".rstrip()
        other = ", or the opposite" if self.fires is None else ""
        return f"that {self.kind.fine}{other}: {self.reason}. {self.remedy}".rstrip()


def sentences(seeds: Sequence[Facts], unit: str = "seed") -> tuple[list[str], list[str]]:
    """Return the sentences that may be written of a network or its seeds, and those that may not,
    with the reason.

    Args:
        unit: what distinguishes them, ``seed`` or ``file``.
    """
    if not all(facts.checks.finite for facts in seeds):
        return [NOT_FINITE], [NOTHING]
    ranked = sorted(rulings(seeds, unit).values(), key=lambda rule: rule.kind.unit != "points")
    untrue = sorted({str(state) for facts in seeds for state in facts.untrue})
    may_not: dict[str, str] = {}
    for rule in ranked:
        may_not.setdefault(
            rule.reason, rule.may_not
        )  # one of the credits where all are closed for one reason
    may = [*(rule.may for rule in ranked), UNTRUE_AT.format(", ".join(untrue)) if untrue else ""]
    return list(filter(None, may)), [
        *filter(None, may_not.values()),
        DEEP,
        *([ONE] if len(seeds) == 1 else []),
    ]


def rulings(seeds: Sequence[Facts], unit: str = "seed") -> dict[str, Ruling]:
    """Return the ruling of every check and credit metric; arguments as for `sentences`."""
    ruled = {name: _rule(name, kind, seeds, unit) for name, kind in CHECKS.items()}
    reference = ruled["reference"]
    closed = next(
        (facts.closed for facts in seeds if facts.closed),
        "" if reference.fires is False else reference.reason,
    )
    shut = {name: Ruling(kind, None, closed) for name, kind in CREDITS.items()}
    return ruled | (
        shut if closed else {name: _rule(name, kind, seeds, unit) for name, kind in CREDITS.items()}
    )


def _rule(name: str, kind: Criterion, seeds: Sequence[Facts], unit: str) -> Ruling:
    points = kind.unit == "points"
    found = [
        facts.checks[name] if isinstance(kind, Check) else facts.credits[name] for facts in seeds
    ]
    found = _mean(found) if points else found
    decided, reason, remedy = _decided(
        kind, found, points and any(facts.doubted for facts in seeds)
    )
    known = all(each.value is not None for each in found) and (
        decided is not None or isinstance(kind, Check)
    )
    shown = _numbers(name, kind, found, seeds, unit) if known else ""
    return Ruling(kind, decided, reason, shown, found[0].note if decided else "", remedy)


def _mean(found: list[Outcome]) -> list[Outcome]:
    """Return the outcome of the mean margin over several seeds, where all have one."""
    values = [each.value for each in found if each.value is not None]
    if len(found) == 1 or len(values) < len(found):
        return found
    mean = sum(values) / len(values)
    return [
        replace(found[0], value=mean, fires=mean < found[0].threshold, interval=t_interval(values))
    ]


def _decided(
    kind: Criterion, found: Sequence[Outcome], doubted: bool
) -> tuple[bool | None, str, str]:
    """Return whether a criterion fires, None where that decides nothing; the reason; what to do."""
    open_ = [each.note for each in found if each.fires is None]
    fired = [each.note for each in found if each.fires]
    if open_:
        known = next((INSTEAD[note] for note in open_ if note in INSTEAD), kind.when_open)
        return None, f"{kind.label} is not evaluated ({open_[0]})", known
    if doubted:
        return None, f"{kind.label} is in doubt (see the warnings)", ""
    if any(each.borderline for each in found):
        return None, f"{kind.label} is borderline", MORE
    if 0 < len(fired) < len(found):
        return None, f"{kind.label} {kind.verb} in {len(fired)} of {len(found)} networks", ""
    if len({kind.causes.get(note) for note in fired}) > 1:
        return None, f"{kind.label} {kind.verb} for different causes", ""
    remedy = kind.remedy(fired[0]) if fired else ""
    return bool(fired), f"{kind.label} {kind.verb}" if fired else "", remedy


# --- numbers ---------------------------------------------------------------------------------------------------------


def _numbers(
    name: str, kind: Criterion, found: Sequence[Outcome], seeds: Sequence[Facts], unit: str
) -> str:
    """Return the numbers of a sentence in words, with their scope, interval and limit."""
    points, values = kind.unit == "points", [each.value for each in found if each.value is not None]
    of = "networks" if unit == "file" else f"{unit}s"
    scope = f"{'means of ' * points}{len(seeds)} {of}" if len(seeds) > 1 else "one network"
    limit = f"{kind.scale * max(each.threshold for each in found):.3g}{' points' * points}"
    slots = {"scope": scope, "limit": limit, "note": found[0].threshold_note}
    if len(seeds) == 1 and found[0].note not in kind.causes:
        slots["note"] = "; ".join(filter(None, (found[0].threshold_note, found[0].note)))
    if len(found) == 1 and isinstance(kind, Check):
        ends = [f"{kind.scale * end:.3g}" for end in found[0].interval or ()]
        slots["interval"] = f"95{NBSP}% interval {ends[0]} to {ends[1]}" if ends else "no interval"
    if not points:
        ends = [f"{end:.3g}" for end in (min(values), max(values))]
        return phrase(kind, slots | {"value": " to ".join(dict.fromkeys(ends))})
    slots["value"] = f"{abs(100 * values[0]):.1f} points {'below' if values[0] < 0 else 'above'}"
    slots["accuracy"] = percent(*(facts.accuracy for facts in seeds))
    return phrase(kind, slots | {"frozen": percent(*(facts.frozen.get(name) for facts in seeds))})


def phrase(kind: Criterion, slots: Mapping[str, str]) -> str:
    """Put texts into the sentence of a criterion: scope, value, interval, limit, note; of margins,
    both accuracies.
    """
    inside = (
        slots["scope"],
        slots.get("interval"),
        f"{kind.bound} {slots['limit']}",
        slots.get("note"),
    )
    subject = f"the {kind.quantity} is {slots['value']}"
    if kind.unit == "points":
        subject = f"the accuracy of {slots['accuracy']} is {slots['value']} the {slots['frozen']} of {kind.quantity}"
    return f"{subject} ({'; '.join(filter(None, inside))})"


def percent(*fractions: float | None) -> str:
    """Return the mean of the fractions that are known."""
    known = [fraction for fraction in fractions if fraction is not None]
    return f"{100 * sum(known) / len(known):.1f}{NBSP}%" if known else "unknown"
