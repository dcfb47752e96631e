"""The checks of the protocols: the one table that verdicts, sentences, reports, figures and tables
read. No torch.

`fa_audit.protocol.verdicts.EVALUATE` has the function that evaluates each. With an entry here and a
function there a new check is in every report, table and figure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from fa_audit.protocol.check_texts import OF_CHECKS, OF_CREDITS

UNTRUE = "the model's backward pass is not the derivative of its forward pass there"  # why a value is absent
NOT_COMPARED = "The backward pass was not compared with the forward pass"  # begins a warning
UNRESOLVED = "float64 does not resolve the gradient of a custom backward pass"  # likewise, and at some states only
UNVERIFIED = "the model's backward pass is custom and could not be compared with its forward pass"  # likewise
CONTRADICTED = "the batches contradict the accuracy that was given"  # why no margin is evaluated
DOUBTED = "The frozen baseline's accuracy is"  # begins a warning that puts every margin in doubt


@dataclass(frozen=True)
class Criterion:
    """A number, the side of its limit on which it fires, and the sentences that either outcome
    supports.

    Attributes:
        label: as reports name it.
        side: of the limit on which it fires.
        unit: of its value, and so of a distance from the limit: ``"factor"``, ``"cosine"``,
            ``"nats"`` or ``"points"``.
        quantity: what its value is, in words; of a margin, what it is taken over.
        fine, finding: the sentence that an author may write where it does not fire, and where it
            does.
        causes: another sentence where it fires, by the cause that its note names; `finding` is then
            not supported.
        advice: what to do where it fires, by the cause that its note names; under ``""`` for every
            cause.
        when_open: what to do where it was not evaluated.
        bound: what its limit is; `verb`, how to say that it fires.
    """

    label: str
    side: Literal["above", "below"]
    unit: Literal["factor", "cosine", "nats", "points"]
    quantity: str
    fine: str
    finding: str
    causes: dict[str, str] = field(default_factory=dict)
    advice: dict[str, str] = field(default_factory=dict)
    when_open: str = ""
    bound: str = "limit"
    verb: str = "fires"

    @property
    def sign(self) -> str:
        """Return ``>`` or ``<``: how the value compares with the limit where the check fires."""
        return ">" if self.side == "above" else "<"

    @property
    def scale(self) -> int:
        """Return what a printed value is multiplied by: a fraction becomes points."""
        return 100 if self.unit == "points" else 1

    def remedy(self, note: str) -> str:
        """Return what to do where it fires; its note may be the cause, and each cause may ask for
        something else.
        """
        return self.advice.get(note, self.advice.get("", ""))


@dataclass(frozen=True, kw_only=True)
class Check(Criterion):
    """A check of the protocols.

    Attributes:
        letter: in the four-check verdict; empty for a check that decides no verdict.
        paper: in the three-check verdict and among flags; empty if it is not in that protocol.
        limit: its limit's name in a configuration, see `fa_audit.protocol.limits`.
        column: of the tidy table of runs, with the number that decides; ``"margin"`` is formed from
            accuracies.
        title: what it is about; `short` in figures.
        formula: its quantity as tables have it; `axis`, as figures have it.
        source: where the limit comes from.
        default: its limit, where `DiagnosticThresholds` has none of that name.
    """

    letter: str
    paper: str
    limit: str
    column: str
    title: str
    short: str
    formula: str
    axis: str
    source: str
    default: float = 0.0

    @property
    def flag(self) -> str:
        """Return how flags name the check."""
        return self.paper or self.letter or self.label


CHECKS: dict[str, Check] = {  # by their names in an audit's JSON
    "scale": Check(
        letter="a",
        paper="D1",
        limit="growth",
        side="above",
        unit="factor",
        column="max_growth",
        **OF_CHECKS["scale"],
    ),
    "reference": Check(
        letter="b",
        paper="D2",
        limit="reference",
        side="below",
        unit="factor",
        column="grad_norm_last",
        **OF_CHECKS["reference"],
    ),
    "stability": Check(
        letter="c",
        paper="",
        limit="stability",
        side="above",
        unit="cosine",
        column="stability",
        **OF_CHECKS["stability"],
    ),
    "depth": Check(
        letter="d",
        paper="D3",
        limit="depth_margin",
        side="below",
        unit="points",
        column="margin",
        **OF_CHECKS["depth"],
    ),
    "depth_strict": Check(
        letter="",
        paper="",
        limit="depth_margin",
        side="below",
        unit="points",
        column="margin_strict",
        **OF_CHECKS["depth_strict"],
    ),
}
CREDITS: dict[str, Criterion] = {  # by their names among the credit metrics of an audit
    "cosine": Criterion(side="below", unit="cosine", **OF_CREDITS["cosine"]),
    "rho": Criterion(side="below", unit="cosine", **OF_CREDITS["rho"]),
    "nudging": Criterion(side="above", unit="nats", **OF_CREDITS["nudging"]),
}


def lettered() -> dict[str, str]:
    """Return the checks of the four-check verdict: their names by their letters."""
    return {check.letter: name for name, check in CHECKS.items() if check.letter}


def of_limit(limit: str) -> Check:
    """Return the first check that has a limit."""
    return next(check for check in CHECKS.values() if check.limit == limit)
