"""The interfaces of the paper's two packages: the functions of one, `FAProtocol` of the other.

The first package's `diagnose` is `fa_audit.diagnose`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Real
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.audit.diagnose import diagnose
from fa_audit.audit.diagnostics import Batch, counting, mean_gradient, part_of
from fa_audit.audit.guards import are_classes, hits_of, ignored_by, is_count, loss_as_found
from fa_audit.audit.inputs import BATCH_SIZE, as_rows, check_layer, prepared
from fa_audit.audit.report import DiagnosticReport
from fa_audit.core.errors import AuditError, first_line, shortened
from fa_audit.core.metrics import mean_pairwise_cosine
from fa_audit.core.vectors import median_norm
from fa_audit.networks.states import Description
from fa_audit.networks.trace import LossFunction, forward, outputs_of, reference, untouched
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.limits import DiagnosticThresholds

# The checks by the keys of `FAProtocol.run`: in a summary, where value and limit are, and in
# `CHECKS`.
KEYS = {
    "D1_scale_growth": ("D1 scale growth", "max_growth", "threshold", "scale"),
    "D2_ref_validity": ("D2 reference validity", "g_L", "floor", "reference"),
    "D3_depth_utility": ("D3 depth utility", "margin", "margin_threshold", "depth"),
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
    """Return the median over the batch of ``||dL/dh_l||`` for l = 0..L; L is the loss of the batch.

    Args:
        model, loss_fn, description: as in `fa_audit.diagnose`.
        x, y: a batch of inputs and their labels.

    Raises:
        AuditError: as `fa_audit.diagnose`.
    """
    given = {"x and y": [(as_rows("x", x), as_rows("y", y))]}
    opened = prepared(model, given, description, loss_fn)
    with loss_as_found(loss_fn), opened as (network, [[batch]], _), untouched(network):
        truth = reference(network, *batch, loss_fn)
        return [
            median_norm(g) for g in part_of(truth, counting(truth, batch[1], loss_fn)).gradients
        ]


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
        AuditError: as `fa_audit.diagnose`; or fewer than two batches, or fewer with a finite,
            non-zero mean gradient.
    """
    given = {"eval_batches": eval_batches}
    opened = prepared(model, given, description, loss_fn, limit=None)
    with loss_as_found(loss_fn), opened as (network, [batches], _), untouched(network):
        check_layer("layer_index", layer_index, network)
        means = [
            mean_gradient(reference(network, *batch, loss_fn), layer_index) for batch in batches
        ]
    measured = mean_pairwise_cosine(means)
    if measured.value is None:
        raise AuditError(f"eval_batches: the stability between batches {measured.reason}.")
    return measured.value


class ThreeCheckReport(dict[str, Any]):
    """Result of `FAProtocol.run`: the dictionary of the paper's package; accuracies are fractions.

    Attributes:
        report: the whole audit, as `diagnose` returns it.
    """

    def __init__(self, report: DiagnosticReport) -> None:
        checks, limits = report.checks, report.thresholds.limits
        diagnostics = {
            "D1_scale_growth": {
                "max_growth": checks.scale.value,
                "per_block_growth": [
                    layer.growth for layer in report.evidence.layers if layer.growth is not None
                ],
                "hidden_norms": report.residual_norms,
                "threshold": limits["growth"],
                "fires": checks.scale.fires,
            },
            "D2_ref_validity": {
                "g_L": report.bp_grad_norms[-1],
                "bp_grad_norms": report.bp_grad_norms,
                "floor": checks.reference.threshold,
                "floor_note": checks.reference.threshold_note,
                "fires": checks.reference.fires,
            },
            "D3_depth_utility": {
                "test_acc": report.headline_acc,
                "frozen_baseline_acc": report.frozen_baseline_acc,
                "margin": checks.depth.value,
                "margin_threshold": limits["depth_margin"],
                "fires": checks.depth.fires,
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
        d2_eps, d2_factor: D2 fires where the median norm of ``g_L`` is below their product, which
            is meant for 128 samples and scaled to those in use.
        d3_margin_pp: D3 fires below this accuracy margin over the frozen baseline, in percentage
            points.
        method_name, notes, layer_for_stability, description, loss_fn: as in `diagnose`.
        thresholds: the limits of all checks, in place of the four numbers.
        batch_size: by default norms of states and gradients are those of all N samples, and the
            cross-batch stability takes the first 10 batches of 128. With a batch size, everything
            is as `diagnose` has it on such batches.

    Raises:
        AuditError: inputs and labels differ in number, a limit is out of range, or both kinds of
            limits are given.

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
        method_name: str = "method",
        notes: str = "",
        layer_for_stability: int | None = None,
        thresholds: DiagnosticThresholds | None = None,
        batch_size: int | None = None,
        description: Description | None = None,
        loss_fn: LossFunction = F.cross_entropy,
    ) -> None:
        x_eval, y_eval = as_rows("x_eval", x_eval), as_rows("y_eval", y_eval)
        if len(x_eval) != len(y_eval):
            raise AuditError(
                f"x_eval and y_eval: found {len(x_eval)} inputs and {len(y_eval)} labels; expected pairs."
            )
        if batch_size is not None and (not is_count(batch_size) or batch_size < 1):
            raise AuditError(
                f"batch_size: found {shortened(batch_size)}; expected an integer >= 1."
            )
        self.model = model
        self.samples = x_eval, y_eval
        self.batches = list(
            zip(*(part.split(int(batch_size or BATCH_SIZE)) for part in self.samples))
        )
        factors = d2_eps, d2_factor
        floor: Any = (
            d2_eps * d2_factor if all(isinstance(factor, Real) for factor in factors) else factors
        )
        with _named_as_here():
            limits = DiagnosticThresholds(d1_threshold, floor, frozen_acc_margin_pp=d3_margin_pp)
        if thresholds is not None and limits != DiagnosticThresholds():
            raise AuditError(
                "thresholds: found limits there and in d1_threshold to d3_margin_pp; give one of the two."
            )
        self.options: dict[str, Any] = {
            "method_name": method_name,
            "layer_for_stability": layer_for_stability,
            "thresholds": limits if thresholds is None else thresholds,
            "description": description,
            "loss_fn": loss_fn,
            "sample": self.samples if batch_size is None else None,
        }
        self.notes = notes

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
                samples, which the report's notes then record.
            test_samples: as in `diagnose`; default the evaluation samples where the accuracy is
                computed on them.
        """
        notes = self.notes
        if test_acc is None and (hits := self._hits()):
            test_acc, test_samples = sum(hits) / len(hits), test_samples or len(hits)
            notes = "; ".join(
                filter(None, [notes, f"test accuracy of the {len(hits)} evaluation samples only"])
            )
        options = self.options | {"notes": notes, "test_samples": test_samples}
        with _named_as_here():
            return ThreeCheckReport(
                diagnose(self.model, self.batches, test_acc, frozen_baseline_acc, **options)
            )

    def _hits(self) -> list[bool]:
        """Return which evaluation samples are classified correctly; none if their labels are not
        class indices.

        Samples with the label that the loss ignores are left out.
        """
        if not are_classes(self.samples[1]):
            return []
        given, options = (
            {"x_eval and y_eval": self.batches},
            (self.options["description"], self.options["loss_fn"]),
        )
        with prepared(self.model, given, *options, limit=None) as (network, [batches], _):
            passes = forward(network, batches)
        hits = hits_of(passes, ignored_by(self.options["loss_fn"]))
        return [] if hits is None else hits.tolist()

    def summary(self, report: Mapping[str, Any] | DiagnosticReport) -> str:
        """Return a readable text: verdict, accuracy, a line for each check with value, limit and
        outcome, warnings.

        Args:
            report: what `run` or `diagnose` returned, or the items of the former read back from a
                file.

        Raises:
            AuditError: it is something else.
        """
        report = ThreeCheckReport(report) if isinstance(report, DiagnosticReport) else report
        audit = getattr(report, "report", None)
        notes = [*audit.warnings, audit.notes] if audit else []
        try:
            checks = []
            for key, (title, value, limit, check) in KEYS.items():
                entry = report["diagnostics"][key]
                outcome = {True: "FIRE", False: "pass", None: "not evaluated"}[entry["fires"]]
                number = "-" if entry[value] is None else f"{entry[value]:.3g}"
                meant = f"{entry[limit]:g}" + (
                    f"; {entry['floor_note']}" if "floor_note" in entry else ""
                )
                checks.append(
                    f"{title}: {value} {number} (fires {CHECKS[check].sign} {limit} {meant}): {outcome}"
                )
            accuracy = "unknown" if report["test_acc"] is None else f"{report['test_acc']:.4f}"
            lines = [f"Verdict: {report['verdict']}", f"Test accuracy: {accuracy}", *checks]
        except (KeyError, TypeError, ValueError) as error:
            found = shortened(report)
            raise AuditError(
                f"report: found {found} ({first_line(error)}); expected what run() returned."
            ) from error
        return "\n".join([*lines, *filter(None, notes)])


# Names of arguments in errors: those of `diagnose` -> those of `FAProtocol`.
NAMES = {
    "eval_batches": "x_eval and y_eval",
    "sample": "x_eval and y_eval",
    "headline_acc": "test_acc",
    "thresholds: h_norm_explosion_ratio": "d1_threshold",
    "thresholds: g_norm_floor": "d2_eps * d2_factor",
    "thresholds: frozen_acc_margin_pp": "d3_margin_pp",
}


@contextmanager
def _named_as_here() -> Iterator[None]:
    """Let errors inside this context name the arguments of `FAProtocol` in place of those of
    `diagnose`.
    """
    try:
        yield
    except AuditError as error:
        for name, own in NAMES.items():
            if str(error).startswith(f"{name}: "):
                error.args = (own + str(error).removeprefix(name),)
        raise
