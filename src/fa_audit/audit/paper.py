"""Offer the interfaces of the paper's two packages.

The first package's functions are here, except its `diagnose`, which is `fa_audit.diagnose`. The
second package's class is `FAProtocol`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.audit.diagnose import diagnose
from fa_audit.audit.diagnostics import Batch, counting, ignored_by, mean_gradient, part_of
from fa_audit.audit.inputs import BATCH_SIZE, as_rows, check_count, check_model, prepared
from fa_audit.audit.statistics import mean_pairwise_cosine
from fa_audit.audit.warnings import are_classes
from fa_audit.core.errors import AuditError
from fa_audit.core.vectors import median_norm
from fa_audit.networks.description import wrap_model
from fa_audit.networks.states import Description, unwrapped
from fa_audit.networks.trace import LossFunction, accuracy_of, outputs_of, reference, untouched
from fa_audit.protocol.audit import DiagnosticReport
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.evidence import DiagnosticThresholds

# Key in report["diagnostics"] -> the check's name in `CHECKS`, and the keys of its value and limit.
_KEYS = {
    "D1_scale_growth": ("scale", "max_growth", "threshold"),
    "D2_ref_validity": ("reference", "g_L", "floor"),
    "D3_depth_utility": ("depth", "margin", "margin_threshold"),
}


def residual_norms(
    model: nn.Module, x: Tensor, *, description: Description | None = None
) -> list[float]:
    """Return the median over the batch of ``||h_l||`` for l = 0..L.

    Args:
        model, description: as in `fa_audit.diagnose`.
        x: a batch of inputs.

    Raises:
        AuditError: as `fa_audit.diagnose`.
    """
    x = as_rows("x", x)
    # A batch needs labels; states do not depend on them.
    given = {"x": [(x, torch.zeros(len(x), dtype=torch.int64))]}
    with prepared(model, given, description) as (network, [[(x, _)]], _), untouched(network):
        return [median_norm(h) for h in outputs_of(network, x)[1]]


def bp_grad_norms(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    loss_fn: LossFunction = F.cross_entropy,
    *,
    description: Description | None = None,
) -> list[float]:
    """Return the median over samples of ``||d loss / d h_l||`` for l = 0..L.

    The loss is that of the whole batch.

    Args:
        model, loss_fn, description: as in `fa_audit.diagnose`.
        x, y: a batch of inputs and their labels.

    Raises:
        AuditError: as `fa_audit.diagnose`.
    """
    given = {"x and y": [(as_rows("x", x), as_rows("y", y))]}
    opened = prepared(model, given, description, loss_fn)
    with opened as (network, [[batch]], _), untouched(network):
        truth = reference(network, *batch, loss_fn)
        truth = part_of(truth, counting(truth, batch[1], loss_fn))
        return [median_norm(g) for g in truth.gradients]


def cross_batch_direction_stability(
    model: nn.Module,
    eval_batches: Iterable[Batch],
    layer_index: int,
    loss_fn: LossFunction = F.cross_entropy,
    *,
    description: Description | None = None,
) -> float:
    """Return the mean pairwise cosine between the batches' mean gradients at ``h_l``.

    The paper's limit of 0.30 is calibrated for 8 or more batches of about 128 samples.

    Args:
        model, loss_fn, description: as in `fa_audit.diagnose`.
        eval_batches: disjoint batches of inputs and labels; all are used.
        layer_index: l, 0..L.

    Raises:
        AuditError: as `fa_audit.diagnose`; or fewer than two batches have a finite, non-zero mean
            gradient.
    """
    given = {"eval_batches": eval_batches}
    opened = prepared(model, given, description, loss_fn, limit=None)
    with opened as (network, [batches], _), untouched(network):
        check_count("layer_index", layer_index, 0, network.depth)
        means = [
            mean_gradient(reference(network, *batch, loss_fn), layer_index) for batch in batches
        ]
    # All batches count here, since the caller chose them; `diagnose` leaves small ones out.
    measured = mean_pairwise_cosine(means)
    if measured.value is None:
        raise AuditError(f"eval_batches: the stability between batches {measured.reason}.")
    return measured.value


class ThreeCheckReport(dict[str, Any]):
    """Result of `FAProtocol.run`: a dictionary with the keys of the paper's package.

    Accuracies are fractions.

    Attributes:
        report: the whole audit, as `diagnose` returns it.
    """

    def __init__(self, report: DiagnosticReport) -> None:
        checks = report.checks
        scale, reference, depth = checks["scale"], checks["reference"], checks["depth"]
        norms = report.bp_grad_norms
        diagnostics = {
            "D1_scale_growth": {
                "max_growth": scale.value,
                "per_block_growth": [layer.growth for layer in report.layers[:-1]],
                "hidden_norms": report.residual_norms,
                "threshold": scale.threshold,
                "fires": scale.fires,
            },
            "D2_ref_validity": {
                "g_L": norms[-1],
                "bp_grad_norms": norms,
                "floor": reference.threshold,
                "floor_note": reference.threshold_note,
                "fires": reference.fires,
            },
            "D3_depth_utility": {
                "test_acc": report.headline_acc,
                "frozen_baseline_acc": report.frozen_baseline_acc,
                "margin": depth.value,
                "margin_threshold": depth.threshold,
                "fires": depth.fires,
            },
        }
        super().__init__(
            verdict=report.three_check_verdict,
            test_acc=report.headline_acc,
            diagnostics=diagnostics,
        )
        self.report = report


class FAProtocol:
    """Audit a network through the interface of the paper's three-check package: construct, `run`,
    `summary`.

    Args:
        model: as in `diagnose`.
        x_eval: ``(N, ...)`` inputs, unshuffled.
        y_eval: ``(N,)`` labels.
        d1_threshold: D1 fires above this growth of the median state norm across one block.
        d2_eps, d2_factor: D2 fires if the median norm of ``g_L`` is below their product. The
            product is the limit for 128 samples, and is scaled to the number in use.
        d3_margin_pp: D3 fires below this accuracy margin over the frozen baseline, in percentage
            points.
        batch_size: by default norms use all N samples, and the cross-batch stability uses the first
            10 batches of 128. With a batch size, all measurements are those of `diagnose` on
            batches of that size.
        options: other arguments of `diagnose`, such as `method_name`, `notes`, `description`,
            `loss_fn`, `layer_for_stability`, or `thresholds` in place of the four limits above.

    Raises:
        AuditError: inputs and labels differ in number, a limit is out of range, or limits are given
            both as numbers and as `thresholds`.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))
    >>> x, labels = torch.eye(16).view(16, 1, 4, 4), torch.arange(16) % 3
    >>> protocol = FAProtocol(model, x, labels, description=Description(("1", "2"), "all features"))
    >>> report = protocol.run(test_acc=0.9)
    >>> report["verdict"], report["diagnostics"]["D1_scale_growth"]["fires"]
    ('INCOMPLETE(D3 not evaluated)', False)
    """

    def __init__(
        self,
        model: nn.Module,
        x_eval: Tensor,
        y_eval: Tensor,
        d1_threshold: float = 50.0,
        d2_eps: float = 1e-8,
        d2_factor: float = 10.0,
        d3_margin_pp: float = 2.0,
        *,
        batch_size: int | None = None,
        **options: Any,
    ) -> None:
        check_model(model, options.get("description"))
        x, labels = as_rows("x_eval", x_eval), as_rows("y_eval", y_eval)
        if len(x) != len(labels):
            raise AuditError(
                f"x_eval and y_eval: found {len(x)} inputs and {len(labels)} labels; expected as"
                " many of each."
            )
        if batch_size is not None:
            batch_size = check_count("batch_size", batch_size, 1)
        limits = DiagnosticThresholds(
            d1_threshold, d2_eps * d2_factor, frozen_acc_margin_pp=d3_margin_pp
        )
        options = {name: value for name, value in options.items() if value is not None}
        if "thresholds" in options and limits != DiagnosticThresholds():
            raise AuditError(
                "thresholds: found limits both here and as numbers (d1_threshold, d2_eps,"
                " d2_factor, d3_margin_pp); give one of the two."
            )
        self.model, self.samples = model, (x, labels)
        # The paper's package takes norms on all samples at once.
        whole = {} if batch_size else {"sample": self.samples}
        self.options = {"thresholds": limits} | whole | options
        size = batch_size or BATCH_SIZE
        self.batches = list(zip(x.split(size), labels.split(size)))

    def run(
        self,
        frozen_baseline_acc: float | None = None,
        test_acc: float | None = None,
        *,
        test_samples: int | None = None,
    ) -> ThreeCheckReport:
        """Audit the network.

        Args:
            frozen_baseline_acc: as in `diagnose`.
            test_acc: accuracy on the whole test set. By default it is computed on the evaluation
                samples, if they have class labels, and the report's notes say so.
            test_samples: as in `diagnose`; by default the number of evaluation samples that the
                loss does not ignore, if they have class labels.
        """
        options = dict(self.options)
        # Samples with the label that the loss ignores do not count in the accuracy.
        x, labels = self.samples
        known = labels != ignored_by(options.get("loss_fn", F.cross_entropy))
        classes = are_classes(labels) and bool(known.any()) and labels[known].min() >= 0
        if test_acc is None and classes:
            device = next((p.device for p in self.model.parameters()), x.device)
            parts = [part[known].to(device).split(BATCH_SIZE) for part in (x, labels)]
            model = unwrapped(self.model)
            with untouched(model):
                network = wrap_model(model, parts[0][0], options.get("description"))
            test_acc = accuracy_of(network, zip(*parts))
            note = f"test accuracy of the {known.sum()} evaluation samples only"
            options["notes"] = "; ".join(filter(None, [options.get("notes"), note]))
        if test_samples is not None:
            options["test_samples"] = test_samples
        elif classes:
            options.setdefault("test_samples", int(known.sum()))
        return ThreeCheckReport(
            diagnose(self.model, self.batches, test_acc, frozen_baseline_acc, **options)
        )

    def summary(self, report: Mapping[str, Any]) -> str:
        """Return a text with the verdict, the accuracy, one line for each check (value, limit,
        outcome), and the warnings.

        Args:
            report: what `run` returned, or its items read back from a file.
        """
        accuracy = "unknown" if report["test_acc"] is None else f"{report['test_acc']:.4f}"
        lines = [f"Verdict: {report['verdict']}", f"Test accuracy: {accuracy}"]
        for key, (check, value, limit) in _KEYS.items():
            entry = report["diagnostics"][key]
            outcome = {True: "FIRE", False: "pass", None: "not evaluated"}[entry["fires"]]
            number = "-" if entry[value] is None else f"{entry[value]:.3g}"
            fires = f"fires {CHECKS[check].sign} {limit} {entry[limit]:g}"
            lines.append(f"{key.replace('_', ' ')}: {value} {number} ({fires}): {outcome}")
        if isinstance(report, ThreeCheckReport):
            lines += [*map(str, report.report.warnings), report.report.notes]
        return "\n".join(filter(None, lines))
