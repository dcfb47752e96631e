"""The checks of the protocols: the one table that verdicts, reports, pages, figures and tables read. Imports no torch.

`fa_audit.audit.verdicts.EVALUATE` has the function that evaluates each. With an entry here and a function there a new
check is in every report, table and figure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

UNTRUE = "the model's backward pass is not the derivative of its forward pass there"  # why a value is absent


@dataclass(frozen=True)
class Check:
    """A check of the protocols.

    Attributes:
        label: as reports name it.
        letter: in the four-check verdict; empty for a check that decides no verdict.
        paper: in the three-check verdict and among flags; empty if it is not in that protocol.
        limit: its limit's name in a configuration, see `fa_audit.core.thresholds`.
        side: of the limit on which it fires.
        unit: of its value, and so of a distance from the limit: ``"factor"``, ``"cosine"`` or ``"points"``.
        column: of the tidy table of runs, with the number that decides; ``"margin"`` is formed from accuracies.
        title: what it is about; `short` in figures.
        quantity: what its value is, in words; `formula`, as tables have it; `axis`, as figures have it.
        source: where the limit comes from.
        fine, finding: what it means where the check does not fire, and where it does.
        advice: what to do where it fires, by the cause that its note names, or for every cause under ``""``.
        when_open: what to do where it was not evaluated.
        default: its limit, where `DiagnosticThresholds` has none of that name.
    """

    label: str
    letter: str
    paper: str
    limit: str
    side: Literal["above", "below"]
    unit: Literal["factor", "cosine", "points"]
    column: str
    title: str
    short: str
    quantity: str
    formula: str
    axis: str
    source: str
    fine: str
    finding: str
    advice: dict[str, str] = field(default_factory=dict)
    when_open: str = ""
    default: float = 0.0

    @property
    def flag(self) -> str:
        """Return how flags name the check."""
        return self.paper or self.letter or self.label

    @property
    def sign(self) -> str:
        """Return ``>`` or ``<``: how the value compares with the limit where the check fires."""
        return ">" if self.side == "above" else "<"

    @property
    def scale(self) -> int:
        """Return what a value is multiplied with where it is printed: a fraction becomes points."""
        return 100 if self.unit == "points" else 1


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
        quantity="largest growth of ‖h‖ in one block",
        formula="largest median ||h_l+1|| / median ||h_l||",
        axis="growth of median $\\|h_l\\|$ in a block",
        source="paper; there every limit from 12 to 693 decides alike",
        fine="the blocks keep the size of the states",
        finding="a block inflates the states",
        advice={
            "": "The residual stream explodes: report state norms beside the accuracy, and retrain with a residual"
            " penalty (lambda times the mean of ||f_l||^2, what a block adds, in every block's loss; in a configuration"
            " dfa+penalty1e-2) before you claim anything about the blocks."
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
        quantity="true gradient ‖g‖ at the last state",
        formula="median ||g_L||, mean loss of 128 samples",
        axis="median $\\|g_L\\|$",
        source="paper; there every limit from 4.2e-9 to 1.0e-4",
        fine="the true gradient at the last state has not vanished",
        finding="the true gradient has vanished",
        advice={
            "collapsed reference": "The true gradient at the top has vanished with the exploding state: do not quote"
            " cosines with it, for they compare your credit with rounding noise.",
            "saturated loss": "The true gradient is tiny because the loss is almost zero: measure alignment at an"
            " earlier epoch instead.",
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
        quantity="cosine of the batches' mean gradients",
        formula="mean cosine of two batches' mean gradients",
        axis="mean cosine of batch gradients",
        source="paper; there no limit separates",
        fine="the mean gradients of batches differ",
        finding="the mean gradients of all batches point the same way",
        advice={
            "": "The mean gradient points the same way in every batch: report no alignment with it as evidence of"
            " learning. Healthy networks do so, too, where mean predictions differ from class frequencies."
        },
        when_open="The cross-batch stability is not evaluated: audit with 8 or more evaluation batches, none of which"
        " has a mean gradient of 0.",
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
        quantity="points above the own frozen baseline",
        formula="accuracy minus own frozen, points",
        axis="margin, points",
        source="paper, which calls it the least robust",
        fine="trained blocks beat frozen ones",
        finding="trained blocks beat frozen ones by too little or not at all",
        advice={
            "": "Training the blocks adds too little to training the embedding alone: report the frozen baseline beside"
            " your accuracy, and do not call the network a deep learner."
        },
        when_open="Depth utility is not evaluated: train the same network with its blocks frozen at initialisation, and"
        " give its accuracy and your own, on the whole test set.",
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
        quantity="points above bp+frozen",
        formula="accuracy minus bp+frozen, points",
        axis="strict margin, points",
        source="ours, as D3; decides no verdict",
        fine="it beats frozen blocks under backpropagation",
        finding="frozen ones do about as well or better",
        advice={
            "": "Frozen blocks under backpropagation come close to your accuracy, or beat it: claim no advantage over"
            " training just the embedding."
        },
    ),
}


def lettered() -> dict[str, str]:
    """Return the checks of the four-check verdict: their names by their letters."""
    return {check.letter: name for name, check in CHECKS.items() if check.letter}


def of_limit(limit: str) -> Check:
    """Return the first check that has a limit."""
    return next(check for check in CHECKS.values() if check.limit == limit)
