"""Advise what to do about the outcome of every check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fa_audit.audit.verdicts import Checks
from fa_audit.core.checks import CHECKS, UNTRUE, Check

NOT_FINITE = (
    "A state, gradient or logit is NaN or infinite: lower the learning rate and train again, since no other number of"
    " this audit can be trusted."
)
OWN_BACKWARD = (
    "The backward pass is the model's own: to have cosines and (c), audit the same weights in a model of torch's own"
    " layers, and give what the backward pass computes as credits (docs/recipes.md)."
)
BORDERLINE = "{} is borderline: its 95 % interval contains its limit, so repeat with more samples or seeds."
NOTHING = "Nothing fired: report the accuracy together with this audit."


def advice(checks: Checks, untrue: Sequence[int] = ()) -> list[str]:
    """Return a sentence for every check that fires, is borderline or could have been evaluated and was not.

    Args:
        untrue: the states whose gradient is not the derivative of the loss.
    """
    return [*([OWN_BACKWARD] if untrue else []), *_sentences(checks)] or [NOTHING]


def advice_on(kind: Check, note: str) -> str:
    """Return what to do where a check fires; its note may be the cause, and causes ask for different things."""
    return kind.advice.get(note) or kind.advice[""]


def _sentences(checks: Checks) -> Iterator[str]:
    if not checks.finite:
        yield NOT_FINITE
        return
    for name, kind in CHECKS.items():
        found = checks[name]
        if found.fires:
            yield advice_on(kind, found.note)
        elif found.fires is None and kind.when_open and found.note != UNTRUE:
            yield kind.when_open
        if found.borderline:
            yield BORDERLINE.format(kind.label)
