"""The result of an audit: its evidence, and the outcomes that follow from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fa_audit.audit.diagnostics import Diagnostics
from fa_audit.core.vectors import Measured
from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.protocol.rules import FOUR, THREE
from fa_audit.protocol.verdicts import Baselines, Checks, Given, check


@dataclass(frozen=True)
class AuditResult:
    """The result of an audit.

    Attributes:
        method_name: the name of the audited method or network.
        evidence: everything measured.
        headline_acc: accuracy of the last epoch on the whole test set, as a fraction; None if
            unknown.
        baselines: accuracies of the frozen networks of the same architecture, data, budget and
            seed.
        thresholds: limits of the checks.
        hits: samples of the batches that are classified correctly, and all samples; None if
            unknown.
        notes: the author's remarks.
        credit: per block, the credit metrics; empty where only a network was audited.
        deep: the same over the blocks l >= 1.
        feature_drift: relative change of every parameter since initialisation, by name.
        first_flags: the first epoch at which the scale and the reference check fired, None where
            they never did; empty where the training was not followed.
        batch_norm_twice: norms with statistics that are updated twice a step
            (`fa_audit.audit.batch_norm`).
        warnings: sentences that keep a reader from being misled by the numbers.
        about: how the audit was made: versions, device, precision, model, description, date.
    """

    method_name: str
    evidence: Diagnostics
    headline_acc: float | None
    baselines: Baselines
    thresholds: DiagnosticThresholds
    notes: str = ""
    credit: tuple[dict[str, Measured], ...] = field(default=())
    deep: dict[str, Measured] = field(default_factory=dict)
    feature_drift: dict[str, Measured] = field(default_factory=dict)
    first_flags: dict[str, int | None] = field(default_factory=dict)
    batch_norm_twice: dict[str, float | None] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict, compare=False)
    hits: tuple[int, int] | None = None

    @property
    def residual_norms(self) -> list[float]:
        """Return median ``||h_l||`` for l = 0..L."""
        return [layer.hidden_norm for layer in self.evidence.layers]

    @property
    def bp_grad_norms(self) -> list[float]:
        """Return median ``||g_l||`` of the batch-mean loss for l = 0..L."""
        return [layer.grad_norm for layer in self.evidence.layers]

    @property
    def stability_layer(self) -> int:
        """Return the index of the state at which the cross-batch stability was taken."""
        return self.evidence.stability_layer

    @property
    def cross_batch_stability(self) -> float | None:
        """Return the mean pairwise cosine of the batches' mean gradients, or None."""
        return self.evidence.stability.value

    @property
    def frozen_baseline_acc(self) -> float | None:
        """Return the accuracy of the frozen baseline that D3 / (d) uses."""
        return self.baselines.own

    @cached_property
    def checks(self) -> Checks:
        """Evaluate every check: value, threshold and outcome."""
        return check(
            Given(self.evidence, self.headline_acc, self.baselines, self.thresholds, self.hits)
        )

    @property
    def verdict(self) -> str:
        """Return the four-check verdict."""
        return self.checks.verdict(FOUR)

    @property
    def three_check_verdict(self) -> str:
        """Return the three-check verdict."""
        return self.checks.verdict(THREE)

    @property
    def flags(self) -> list[str]:
        """List every check that fired, with its cause."""
        return self.checks.flags

    @property
    def borderline(self) -> list[str]:
        """List every check whose 95 % interval contains its limit."""
        return self.checks.borderline
