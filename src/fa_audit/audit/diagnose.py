"""The public API of the audit: `diagnose`, and `FAProtocol`, the paper's original API."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from fa_audit.audit.diagnostics import Batch, measure
from fa_audit.audit.report import DiagnosticReport, summary
from fa_audit.audit.verdicts import Baselines
from fa_audit.core.errors import AuditError, first_line
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.networks.contract import wrap_contract_model
from fa_audit.networks.description import describe
from fa_audit.networks.network import Network
from fa_audit.networks.trace import Description, untouched

BATCHES, BATCH_SIZE = 10, 128  # the paper's evaluation set: its gradient floor depends on the batch size
ROUNDED = 1e-3  # by how much an accuracy that is given may differ from that of the hits


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
    test_samples: int | None = None,
    paired_hits: tuple[Sequence[bool], Sequence[bool]] | None = None,
    stability_batches: Iterable[Batch] | None = None,
) -> DiagnosticReport:
    """Audit a network.

    Args:
        model: one of this package's networks, any network of the reference contract (see
            `fa_audit.networks.contract`), or any module at all with a `description`.
        eval_batches: disjoint, unshuffled ``(x, labels)`` test batches; the first 10 are used. With fewer than 8 the
            cross-batch stability is not evaluated.
        headline_acc: accuracy of the last epoch on the whole test set, as a fraction; None if unknown.
        frozen_baseline_acc: accuracy of the same network with its blocks frozen at initialisation and its embedding
            trained by the method's own credit. Without it depth utility is not evaluated.
        layer_for_stability: state for the cross-batch stability; default ``max(1, (L + 1) // 2)``.
        thresholds: limits of the checks; default the paper's.
        bp_frozen_acc: accuracy of the frozen network whose embedding is trained by backpropagation.
        frozen_baseline_name: how verdicts name the frozen baseline.
        description: where the model's states are; without it the model must follow the contract.
        test_samples: size of the test set on which the accuracies were taken: the margin's interval follows from it.
        paired_hits: for every test sample, whether this network, and whether its own frozen baseline, classifies it
            correctly: the interval is then that of the pairs, which is narrower.
        stability_batches: 8 to 10 smaller batches for the cross-batch stability, of a test set that has not enough
            samples for as many of 128; everything else comes from the first of `eval_batches`.

    Raises:
        AuditError: no batches, an accuracy outside 0..1, hits that do not make the accuracies, a layer that does not
            exist, a network that does not follow the contract, or a description that does not fit the model.

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
    samples, paired = _paired(paired_hits, (headline_acc, frozen_baseline_acc), test_samples)
    network, batches, others = _prepared(model, eval_batches, stability_batches, description)
    if layer_for_stability is not None and not 0 <= layer_for_stability <= len(network.blocks):
        raise AuditError(f"layer_for_stability: found {layer_for_stability}; expected 0..{len(network.blocks)}.")
    return DiagnosticReport(
        method_name=method_name,
        evidence=measure(network, batches, layer_for_stability, others),
        headline_acc=headline_acc,
        baselines=Baselines(frozen_baseline_acc, frozen_baseline_name, bp_frozen_acc, samples, paired),
        thresholds=thresholds or DiagnosticThresholds(),
        notes=notes,
    )


def _fraction(name: str, value: Any) -> float | None:
    """Return an accuracy as a plain float, or None.

    Raises:
        AuditError: it is no number in 0..1.
    """
    try:
        number = None if value is None else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if number is not None and not 0 <= number <= 1:
        raise AuditError(f"{name}: found {value!r}; expected a fraction between 0 and 1 (divide percentages by 100).")
    return number


def _paired(
    hits: tuple[Sequence[bool], Sequence[bool]] | None, accuracies: tuple[float | None, ...], samples: int | None
) -> tuple[int | None, tuple[int, int] | None]:
    """Return how many test samples there are, and how many only the network, and only its baseline, gets right.

    Raises:
        AuditError: the number is no integer >= 1, or the hits are not those of the accuracies.
    """
    if samples is not None and (not isinstance(samples, Integral) or samples < 1):
        raise AuditError(f"test_samples: found {samples!r}; expected an integer >= 1.")
    if hits is None:
        return samples, None
    try:
        own, frozen = (torch.as_tensor(part).bool().flatten().cpu() for part in hits)
    except (TypeError, ValueError, RuntimeError) as error:
        raise AuditError(f"paired_hits: {first_line(error)}; expected two sequences of true or false.") from error
    found = [int(part.sum()) / max(1, len(part)) for part in (own, frozen)]
    same = all(a is not None and abs(a - hit) <= ROUNDED for a, hit in zip(accuracies, found))
    if not same or not len(own) == len(frozen) == (samples or len(own)):
        raise AuditError(
            f"paired_hits: found {len(own)} and {len(frozen)} samples with accuracies {found[0]:.4f} and"
            f" {found[1]:.4f}; expected those of headline_acc and frozen_baseline_acc, on the same test set."
        )
    return len(own), (int((own & ~frozen).sum()), int((frozen & ~own).sum()))


def _prepared(
    model: nn.Module,
    eval_batches: Iterable[Batch],
    stability_batches: Iterable[Batch] | None,
    description: Description | None,
) -> tuple[Network, list[Batch], list[Batch]]:
    """Wrap the model as a `Network`, and move its batches, and those for the stability alone, to its device."""
    if torch.is_inference_mode_enabled():
        raise AuditError("diagnose needs gradients; call it outside torch.inference_mode().")
    device = next((t.device for t in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    with torch.random.fork_rng(devices=[]):  # a DataLoader draws from the global stream
        given = (eval_batches, stability_batches or ())
        batches, others = ([_checked(batch, device) for batch in islice(part, BATCHES)] for part in given)
    if not batches:
        raise AuditError("eval_batches: found no batches; expected at least one (x, labels).")
    x = batches[0][0]
    network = describe(model, description, x) if description else wrap_contract_model(model, x)
    with untouched(network), torch.no_grad():
        classes = network(x[:1]).shape[-1]
    highest = max(int(labels.max()) for _, labels in (*batches, *others))
    if highest >= classes:
        raise AuditError(f"eval_batches: found label {highest}; the network has {classes} classes, 0..{classes - 1}.")
    return network, batches, others


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
    if labels.dim() != 1 or not integral or len(x) != len(labels) or not len(x) or labels.min() < 0:
        raise AuditError(
            f"eval_batches: found inputs {tuple(x.shape)} and {labels.dtype} labels {tuple(labels.shape)};"
            " expected as many class indices >= 0, shape (B,), as inputs, and at least one."
        )
    return x.to(device), labels.to(device, torch.int64)


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
        if len(x_eval) != len(y_eval):
            raise AuditError(f"x_eval and y_eval: found {len(x_eval)} inputs and {len(y_eval)} labels; expected pairs.")
        if batch_size < 1:
            raise AuditError(f"batch_size: found {batch_size}; expected an integer >= 1.")
        x_eval, y_eval = torch.as_tensor(x_eval), torch.as_tensor(y_eval)
        self.model = model
        self.batches = list(zip(x_eval.split(batch_size), y_eval.split(batch_size)))
        self.options = {
            "method_name": method_name,
            "notes": notes,
            "layer_for_stability": layer_for_stability,
            "thresholds": thresholds,
            "description": description,
        }

    def run(
        self,
        *,
        frozen_baseline_acc: float | None = None,
        test_acc: float | None = None,
        test_samples: int | None = None,
    ) -> DiagnosticReport:
        """Audit the network.

        Args:
            frozen_baseline_acc: as in `diagnose`.
            test_acc: accuracy on the whole test set. It is never guessed from the evaluation data: without it
                D3 is not evaluated.
            test_samples: as in `diagnose`.
        """
        options = self.options | {"test_samples": test_samples}
        return diagnose(self.model, self.batches, test_acc, frozen_baseline_acc, **options)

    def summary(self, report: DiagnosticReport) -> dict[str, Any]:
        """Return the report as the dictionary of the paper's submitted package."""
        return summary(report)
