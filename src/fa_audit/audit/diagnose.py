"""The public API of the audit: `diagnose`, and `FAProtocol`, the paper's original API."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from fa_audit.audit.diagnostics import Batch, measure
from fa_audit.audit.guards import as_found, check_model, is_count, listed_batches, look_at, precision_warnings
from fa_audit.audit.report import DiagnosticReport, summary
from fa_audit.audit.verdicts import Baselines
from fa_audit.core.errors import AuditError
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.networks.contract import wrap_contract_model
from fa_audit.networks.description import describe
from fa_audit.networks.network import Network
from fa_audit.networks.trace import Description

BATCHES, BATCH_SIZE = 10, 128  # the paper's evaluation set: its gradient floor depends on the batch size


def diagnose(
    model: nn.Module,
    eval_batches: Iterable[Batch],
    headline_acc: float | None,
    frozen_baseline_acc: float | None = None,
    method_name: str = "method",
    notes: str = "",
    layer_for_stability: int | None = None,
    thresholds: DiagnosticThresholds | None = None,
    *,
    bp_frozen_acc: float | None = None,
    frozen_baseline_name: str = "own frozen baseline",
    description: Description | None = None,
) -> DiagnosticReport:
    """Audit a network.

    Args:
        model: one of this package's networks, any network of the reference contract (see
            `fa_audit.networks.contract`), or any module at all with a `description`.
        eval_batches: disjoint, unshuffled ``(x, labels)`` test batches; the first 10 are used.
        headline_acc: accuracy of the last epoch on the whole test set, as a fraction; None if unknown.
        frozen_baseline_acc: accuracy of the same network with its blocks frozen at initialisation and its embedding
            trained by the method's own credit. Without it depth utility is not evaluated.
        layer_for_stability: state for the cross-batch stability; default ``max(1, (L + 1) // 2)``.
        thresholds: limits of the checks; default the paper's.
        bp_frozen_acc: accuracy of the frozen network whose embedding is trained by backpropagation.
        frozen_baseline_name: how verdicts name the frozen baseline.
        description: where the model's states are; without it the model must follow the contract.

    Raises:
        AuditError: no batches, an accuracy outside 0..1, a layer that does not exist, a network that
            does not follow the contract or that computes something else each time, or a description that does not fit
            the model.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))
    >>> x, labels = torch.eye(16).view(16, 1, 4, 4), torch.arange(16) % 3
    >>> report = diagnose(model, [(x, labels)], 0.41, 0.40, description=Description(("1", "2"), "all features"))
    >>> report.three_check_verdict
    'FAIL(D3)'
    >>> len(report.residual_norms)
    3
    """
    headline_acc = _fraction("headline_acc", headline_acc)
    frozen_baseline_acc = _fraction("frozen_baseline_acc", frozen_baseline_acc)
    bp_frozen_acc = _fraction("bp_frozen_acc", bp_frozen_acc)
    check_model(model, description)
    with as_found(model):
        network, batches, warnings = _prepared(model, eval_batches, description)
        _check_layer(layer_for_stability, len(network.blocks))
        evidence = measure(network, batches, layer_for_stability)
    return DiagnosticReport(
        method_name=method_name,
        evidence=evidence,
        headline_acc=headline_acc,
        baselines=Baselines(frozen_baseline_acc, frozen_baseline_name, bp_frozen_acc),
        thresholds=thresholds or DiagnosticThresholds(),
        notes=notes,
        warnings=(*warnings, *precision_warnings(evidence)),
    )


def _check_layer(layer: Any, depth: int) -> None:
    if layer is not None and not (is_count(layer) and 0 <= layer <= depth):
        raise AuditError(f"layer_for_stability: found {layer!r}; expected an integer 0..{depth}.")


def _fraction(name: str, value: Any) -> float | None:
    """Return an accuracy as a plain float, or None.

    Raises:
        AuditError: it is no number in 0..1.
    """
    try:
        number = None if value is None else math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if number is not None and not 0 <= number <= 1:
        raise AuditError(f"{name}: found {value!r}; expected a fraction between 0 and 1 (divide percentages by 100).")
    return number


def _prepared(
    model: nn.Module, eval_batches: Iterable[Batch], description: Description | None
) -> tuple[Network, list[Batch], list[str]]:
    """Wrap the model as a `Network`, and move its batches to its device; also return warnings about it."""
    if torch.is_inference_mode_enabled():
        raise AuditError("diagnose needs gradients; call it outside torch.inference_mode().")
    device = next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    with torch.random.fork_rng(devices=[]):  # a DataLoader draws from the global stream
        batches = [_checked(batch, device) for batch in islice(listed_batches(eval_batches), BATCHES)]
    if not batches:
        raise AuditError("eval_batches: found no batches; expected at least one (x, labels).")
    x = batches[0][0]
    network = describe(model, description, x) if description else wrap_contract_model(model, x)
    classes, warnings = look_at(network, x)
    highest = max(int(labels.max()) for _, labels in batches)
    if highest >= classes:
        raise AuditError(f"eval_batches: found label {highest}; the network has {classes} classes, 0..{classes - 1}.")
    return network, batches, warnings


def _checked(batch: Any, device: torch.device) -> Batch:
    """Check a pair of inputs and labels ``(B,)`` and move it to the network's device.

    Raises:
        AuditError: it is no such pair.
    """
    pair = batch if isinstance(batch, list | tuple) and len(batch) == 2 else ()
    if not pair or not all(isinstance(part, Tensor) for part in pair):
        raise AuditError(f"eval_batches: found {type(batch).__name__}; expected pairs of tensors (x, labels).")
    x, labels = pair
    integral = not labels.is_floating_point() and labels.dtype != torch.bool
    if x.layout != torch.strided:
        raise AuditError(f"eval_batches: found inputs of layout {x.layout}; expected dense ones (x.to_dense()).")
    if labels.dim() != 1 or not integral or len(x) != len(labels) or not len(x) or labels.min() < 0:
        raise AuditError(
            f"eval_batches: found inputs {tuple(x.shape)} and {labels.dtype} labels {tuple(labels.shape)};"
            " expected as many class indices >= 0, shape (B,), as inputs, and at least one."
        )
    return x.to(device), labels.to(device, torch.int64)


def _tensor(name: str, value: Any) -> Tensor:
    try:
        tensor = torch.as_tensor(value)
        return tensor if tensor.dim() else torch.empty(len(value))  # a single number has no length
    except (TypeError, ValueError, RuntimeError) as error:
        found = type(value).__name__
        raise AuditError(f"{name}: found {found}; expected a tensor with a row for each sample.") from error


class FAProtocol:
    """Audit a network through the paper's original API: construct, `run`, `summary`.

    Args:
        model: as in `diagnose`.
        x_eval: ``(N, ...)`` inputs, unshuffled; the first 10 batches are used.
        y_eval: ``(N,)`` labels.
        method_name, notes, layer_for_stability, thresholds, description: as in `diagnose`.
        batch_size: samples per evaluation batch; the paper's floor of 1e-7 assumes 128.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))
    >>> x, labels = torch.eye(16).view(16, 1, 4, 4), torch.arange(16) % 3
    >>> protocol = FAProtocol(model, x, labels, description=Description(("1", "2"), "all features"))
    >>> protocol.summary(protocol.run(test_acc=0.9))["verdict"]
    'INCOMPLETE(D3 not evaluated)'
    """

    def __init__(
        self,
        model: nn.Module,
        x_eval: Tensor,
        y_eval: Tensor,
        *,
        method_name: str = "method",
        notes: str = "",
        layer_for_stability: int | None = None,
        thresholds: DiagnosticThresholds | None = None,
        batch_size: int = BATCH_SIZE,
        description: Description | None = None,
    ) -> None:
        x_eval, y_eval = _tensor("x_eval", x_eval), _tensor("y_eval", y_eval)
        if len(x_eval) != len(y_eval):
            raise AuditError(f"x_eval and y_eval: found {len(x_eval)} inputs and {len(y_eval)} labels; expected pairs.")
        if not is_count(batch_size) or batch_size < 1:
            raise AuditError(f"batch_size: found {batch_size!r}; expected an integer >= 1.")
        self.model = model
        self.batches = list(zip(x_eval.split(batch_size), y_eval.split(batch_size)))
        self.options = {
            "method_name": method_name,
            "notes": notes,
            "layer_for_stability": layer_for_stability,
            "thresholds": thresholds,
            "description": description,
        }

    def run(self, *, frozen_baseline_acc: float | None = None, test_acc: float | None = None) -> DiagnosticReport:
        """Audit the network.

        Args:
            frozen_baseline_acc: as in `diagnose`.
            test_acc: accuracy on the whole test set. It is never guessed from the evaluation data: without it
                D3 is not evaluated.
        """
        return diagnose(self.model, self.batches, test_acc, frozen_baseline_acc, **self.options)

    def summary(self, report: DiagnosticReport) -> dict[str, Any]:
        """Return the report as the dictionary of the paper's submitted package."""
        return summary(report)
