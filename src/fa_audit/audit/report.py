"""The report that `diagnose` returns: an audit that prints itself."""

from __future__ import annotations

from fa_audit.audit.rendering import details, document
from fa_audit.documents.document import to_markdown, to_text
from fa_audit.protocol.audit import Audit
from fa_audit.protocol.judge import FOUR, THREE


class DiagnosticReport(Audit):
    """The audit of one network, under the names of the paper's package.

    `print` shows it as text, a notebook as markdown. `write` saves it as JSON; `read` loads it.
    """

    @property
    def method_name(self) -> str:
        """Return the name of the audited method or network."""
        return self.method

    @property
    def residual_norms(self) -> list[float]:
        """Return median ``||h_l||`` for l = 0..L."""
        return [state.hidden_norm for state in self.layers]

    @property
    def bp_grad_norms(self) -> list[float]:
        """Return median ``||g_l||`` of the batch-mean loss for l = 0..L."""
        return [state.grad_norm for state in self.layers]

    @property
    def cross_batch_stability(self) -> float | None:
        """Return the mean pairwise cosine of the batches' mean gradients, or None."""
        return self.stability.value

    @property
    def frozen_baseline_acc(self) -> float | None:
        """Return the accuracy of the frozen baseline that D3 uses."""
        return self.baselines.own

    @property
    def verdict(self) -> str:
        """Return the four-check verdict."""
        return self.judgement.verdict(FOUR)

    @property
    def three_check_verdict(self) -> str:
        """Return the three-check verdict."""
        return self.judgement.verdict(THREE)

    @property
    def flags(self) -> list[str]:
        """List every check that fired, with its cause."""
        return self.judgement.flags

    @property
    def borderline(self) -> list[str]:
        """List every check whose 95 % interval contains its limit."""
        return self.judgement.borderline

    def __str__(self) -> str:
        return to_text(document(self.judgement))

    def details(self) -> str:
        """Return the evidence at every state and the credits at every block, as text."""
        return to_text(details(self.judgement))

    def to_markdown(self) -> str:
        """Return the report as a section in markdown."""
        return to_markdown(document(self.judgement))

    def _repr_markdown_(self) -> str:
        return self.to_markdown()
