"""The checks of the protocols: the one table that verdicts, sentences, reports, figures and tables read. No torch.

`fa_audit.audit.verdicts.EVALUATE` has the function that evaluates each. With an entry here and a function there a new
check is in every report, table and figure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

UNTRUE = "the model's backward pass is not the derivative of its forward pass there"  # why a value is absent
NOT_COMPARED = "The backward pass was not compared with the forward pass"  # begins a warning
UNRESOLVED = "too small to resolve"  # why it was not, at some states only
DOUBTED = ("headline_acc is", "The frozen baseline's accuracy is")  # begin warnings that put every margin in doubt


@dataclass(frozen=True)
class Criterion:
    """A number, the side of its limit on which it fires, and the sentences that either outcome supports.

    Attributes:
        label: as reports name it.
        side: of the limit on which it fires.
        unit: of its value, and so of a distance from the limit: ``"factor"``, ``"cosine"``, ``"nats"`` or ``"points"``.
        quantity: what its value is, in words; of a margin, what it is taken over.
        fine, finding: the sentence that an author may write where it does not fire, and where it does.
        causes: another sentence where it fires, by the cause that its note names; `finding` is then not supported.
        advice: what to do where it fires, by the cause that its note names; under ``""`` for every cause.
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
        """Return what to do where it fires; its note may be the cause, and each cause may ask for something else."""
        return self.advice.get(note, self.advice.get("", ""))


@dataclass(frozen=True, kw_only=True)
class Check(Criterion):
    """A check of the protocols.

    Attributes:
        letter: in the four-check verdict; empty for a check that decides no verdict.
        paper: in the three-check verdict and among flags; empty if it is not in that protocol.
        limit: its limit's name in a configuration, see `fa_audit.core.thresholds`.
        column: of the tidy table of runs, with the number that decides; ``"margin"`` is formed from accuracies.
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
        label="D1 / (a)",
        letter="a",
        paper="D1",
        limit="growth",
        side="above",
        unit="factor",
        column="max_growth",
        title="scale stability",
        short="Growth",
        quantity="largest growth of the states in one block",
        formula="largest median ||h_l+1|| / median ||h_l||",
        axis="growth of median $\\|h_l\\|$ in a block",
        source="paper; there every limit from 12 to 693 decides alike",
        fine="the blocks keep the size of the states",
        finding="a block inflates the states",
        causes={"vanished state": "a state has length 0, and every growth from there is infinite"},
        advice={
            "vanished state": "Look for dead units, or blocks of zeros, before that state.",
            "": "Retrain with a residual penalty (lambda times the mean of ||f_l||^2, what a block adds, in the loss of"
            " every block; in a configuration dfa+penalty1e-2).",
        },
    ),
    "reference": Check(
        label="D2 / (b)",
        letter="b",
        paper="D2",
        limit="reference",
        side="below",
        unit="factor",
        column="grad_norm_last",
        title="reference validity",
        short="Reference",
        quantity="median norm of the last gradient",
        formula="median ||g_L||, mean loss of 128 samples",
        axis="median $\\|g_L\\|$",
        source="paper; there every limit from 4.2e-9 to 1.0e-4",
        fine="the true gradient at the last state has not vanished",
        finding="the true gradient at the last state has vanished",
        causes={"saturated loss": "the loss is almost zero, and so is the true gradient, which is not a collapse"},
        advice={
            "collapsed reference": "Quote no cosine with it: that compares your credit with rounding noise.",
            "saturated loss": "Audit an earlier epoch.",
        },
    ),
    "stability": Check(
        label="(c)",
        letter="c",
        paper="",
        limit="stability",
        side="above",
        unit="cosine",
        column="stability",
        title="cross-batch stability",
        short="Stability",
        quantity="mean cosine between batches",
        formula="mean cosine of two batches' mean gradients",
        axis="mean cosine of batch gradients",
        source="paper; there no limit separates",
        fine="the mean gradients of batches differ",
        finding="the mean gradients of all batches share a direction",
        advice={
            "": "Report no alignment with the gradient as evidence of learning. Healthy networks do so, too, where mean"
            " predictions differ from class frequencies."
        },
        when_open="Audit with 8 or more batches, none of which has a mean gradient of 0.",
    ),
    "depth": Check(
        label="D3 / (d)",
        letter="d",
        paper="D3",
        limit="depth_margin",
        side="below",
        unit="points",
        column="margin",
        title="depth utility",
        short="Depth utility",
        quantity="the same network with frozen blocks",
        formula="accuracy minus own frozen, points",
        axis="margin, points",
        source="paper, which calls it the least robust",
        fine="trained blocks help",
        finding="training the blocks adds too little or nothing",
        when_open="Train the same network with its blocks frozen at initialisation, and give its accuracy and your own,"
        " on the whole test set.",
    ),
    "depth_strict": Check(
        label="D3-strict",
        letter="",
        paper="",
        limit="depth_margin",
        side="below",
        unit="points",
        column="margin_strict",
        title="margin over bp+frozen",
        short="Strict margin",
        quantity="bp+frozen",
        formula="accuracy minus bp+frozen, points",
        axis="strict margin, points",
        source="ours, as D3; decides no verdict",
        fine="the network beats frozen blocks under backpropagation",
        finding="frozen blocks under backpropagation do about as well or better",
    ),
}
CREDITS: dict[str, Criterion] = {  # by their names among the credit metrics of an audit
    "cosine": Criterion(
        label="the cosine",
        side="below",
        unit="cosine",
        quantity="mean cosine of credit and gradient in the blocks after the first",
        fine="the credits align with the gradient more than fresh feedback does",
        finding="the credits align with the gradient no more than fresh feedback does",
        bound="fresh feedback: up to",
        verb="is not above what fresh feedback reaches",
    ),
    "rho": Criterion(
        label="rho",
        side="below",
        unit="cosine",
        quantity="mean rho, the correlation of predicted and true changes of the loss, in the blocks after the first",
        fine="the credits predict how the loss changes, better than random ones",
        finding="the credits predict how the loss changes no better than random ones",
        bound="random credits: up to",
        verb="is not above what random credits reach",
    ),
    "nudging": Criterion(
        label="nudging",
        side="above",
        unit="nats",
        quantity="mean change of the loss, in nats, after a step in the blocks after the first",
        fine="a small step against the credits lowers the loss",
        finding="a small step against the credits does not lower the loss",
        verb="is not negative",
    ),
}


def lettered() -> dict[str, str]:
    """Return the checks of the four-check verdict: their names by their letters."""
    return {check.letter: name for name, check in CHECKS.items() if check.letter}


def of_limit(limit: str) -> Check:
    """Return the first check that has a limit."""
    return next(check for check in CHECKS.values() if check.limit == limit)
