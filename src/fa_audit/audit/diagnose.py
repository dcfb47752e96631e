"""The public API of the audit: `diagnose`."""

from __future__ import annotations

import platform
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from fa_audit.audit.credit_metrics import DIRECTIONS, CreditReport
from fa_audit.audit.diagnostics import Batch, frequencies, ignored_by, least_size, measure
from fa_audit.audit.inputs import (
    CreditFunction,
    check_count,
    check_credit_arguments,
    check_texts,
    fraction,
    is_cross_entropy,
    paired,
    prepared,
)
from fa_audit.audit.warnings import (
    accuracy_warnings,
    are_classes,
    gradient_warnings,
    hits_of,
    passes_of,
    sample_warnings,
)
from fa_audit.core.errors import AuditError, shortened
from fa_audit.networks.description import WHOLE
from fa_audit.networks.network import Network
from fa_audit.networks.states import Description
from fa_audit.networks.trace import LossFunction, share_between
from fa_audit.protocol.audit import AuditWarning, DiagnosticReport
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.evidence import Baselines, DiagnosticThresholds, Evidence


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
    credits: CreditFunction | None = None,
    draw: CreditFunction | None = None,
    directions: int = DIRECTIONS,
    blocks: Collection[int] | None = None,
    loss_fn: LossFunction = F.cross_entropy,
    sample: Batch | None = None,
    test_samples: int | None = None,
    paired_hits: tuple[Sequence[bool], Sequence[bool]] | None = None,
    stability_batches: Iterable[Batch] | None = None,
) -> DiagnosticReport:
    """Audit a network.

    Args:
        model: a network of this package, one that follows the reference contract
            (`fa_audit.networks.description`), a module with `HookPoint` modules in its forward
            pass, or any other module, with `description`.
        eval_batches: disjoint, unshuffled ``(x, labels)`` test batches; the first 10 are used. With
            fewer than 8 the cross-batch stability is not evaluated.
        headline_acc: accuracy of the last epoch on the whole test set, as a fraction; None if
            unknown.
        frozen_baseline_acc: accuracy of the same network with its blocks frozen at initialisation
            and its embedding trained by the method's own credit. Without it D3 is not evaluated.
        layer_for_stability: index l of the state for the cross-batch stability; default
            ``(L + 1) // 2``.
        thresholds: limits of the checks; default the paper's.
        bp_frozen_acc: accuracy of the frozen network whose embedding is trained by backpropagation.
        frozen_baseline_name: how verdicts name the frozen baseline.
        description: where the model's states are; without it the model needs `HookPoint` modules or
            must follow the contract.
        credits: ``credits(model, x, y, states) -> [a_0..a_{L-1}]``, a function that returns the
            credits of your own implementation on a batch, in evaluation mode. ``a_l`` takes the
            place of the gradient at ``states[l + 1]``, the output of block l: a step against it
            should lower the loss. Its shape is that of this output or of the vector ``(B, d)`` read
            from it. The report then has credit metrics.
        draw: ``draw(model, x, y, states, number) -> [a_0..a_{L-1}]``, the same credits with fresh
            feedback for every number. The draws give the null distribution of the cosines; equal
            draws count once. The number seeds torch's global stream.
        directions: number of random moves of every state. Credits are compared with the changes
            of the loss that these moves cause; fewer take less time.
        blocks: the blocks whose credits are compared with changes of the loss; default all.
        loss_fn: the loss whose gradients are taken, a function of logits ``(B, C)`` and labels; by
            default the cross-entropy. If it is a module, it is put in evaluation mode. D2's limit
            was calibrated for the cross-entropy. With another loss, labels may be any tensor with
            one row per input.
        sample: ``(x, labels)`` on which the norms of states and gradients are measured; default the
            first of `eval_batches`.
        test_samples: size of the test set on which the accuracies were measured, for the interval
            of the margin; default the number of samples in the batches.
        paired_hits: two sequences of true or false, one entry a test sample: whether this network
            classifies it correctly, and whether its own frozen baseline does. The margin's interval
            is then a paired one, and narrower.
        stability_batches: 8 to 10 smaller batches for the cross-batch stability alone, if the test
            set is too small for that many batches of 128.

    Raises:
        AuditError: no batches, an accuracy outside 0..1, hits that contradict the accuracies, a
            layer that does not exist, a network that does not follow the contract or that computes
            other outputs at every pass, a description that does not fit the model, a non-scalar
            loss, or invalid credits.

    >>> import torch
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))
    >>> x, labels = torch.eye(16).view(16, 1, 4, 4), torch.arange(16) % 3
    >>> report = diagnose(model, [(x, labels)], 0.41, 0.40, description=Description(("1", "2"), "all features"))
    >>> report.three_check_verdict
    'FAIL(D3)'
    >>> len(report.residual_norms)
    2
    """
    limits = DiagnosticThresholds() if thresholds is None else thresholds
    if not isinstance(limits, DiagnosticThresholds):
        raise AuditError(
            f"thresholds: found {shortened(thresholds)}; expected DiagnosticThresholds(...) or None."
        )
    check_texts(method_name=method_name, notes=notes, frozen_baseline_name=frozen_baseline_name)
    headline_acc = fraction("headline_acc", headline_acc)
    own = fraction("frozen_baseline_acc", frozen_baseline_acc)
    bp = fraction("bp_frozen_acc", bp_frozen_acc)
    samples, pairs = paired(paired_hits, (headline_acc, own), test_samples)
    # Keyed by argument name, because error messages begin with this name.
    given = {
        "sample": [] if sample is None else [sample],
        "eval_batches": eval_batches,
        "stability_batches": [] if stability_batches is None else stability_batches,
    }
    inside = prepared(model, given, description, loss_fn)
    with inside as (network, (first, batches, others), warnings):
        # Norms are measured on the batch `sample`, check C (stability) on the batches `over`.
        sample, over = (first or batches or others)[0], others or batches
        measured = _as_function(loss_fn, [*first, *batches, *others])
        if layer_for_stability is not None:
            layer_for_stability = check_count(
                "layer_for_stability", layer_for_stability, 0, network.depth
            )
        check_credit_arguments(credits, draw, directions, blocks, network)
        credit = CreditReport()
        # The user's credit function may fail, so it runs before the long part of the audit.
        if credits is not None:
            # Imported here, since most audits have no credits.
            from fa_audit.audit.given_credits import measure_given_credits

            credit = measure_given_credits(
                credits, model, network, *sample, measured, draw, directions, blocks
            )
        evidence = measure(network, sample, over, layer_for_stability, measured)
        # With a cross-entropy, mean predictions should equal class frequencies.
        if measured is F.cross_entropy:
            evidence = _with_frequencies(evidence, network, over, limits)
        ignored, passes = ignored_by(loss_fn), []
        # If an accuracy was given, the batches may contradict it. Only a cross-entropy tells which
        # class an output means.
        if is_cross_entropy(loss_fn) and not (headline_acc is own is None):
            passes = passes_of(network, batches, ignored)
        warnings += accuracy_warnings(passes, headline_acc, own)
        warnings += sample_warnings(over, ignored, finite=evidence.finite)
        warnings += gradient_warnings(evidence)
        hits = hits_of(passes)
        if samples is None:
            samples = hits[1] if hits else sum(len(labels) for _, labels in batches)
        loss = getattr(measured, "__name__", type(measured).__name__)
        about = _about(model, network, sample[0]) | {"loss": loss}
    if measured is not F.cross_entropy:
        notes = "; ".join(filter(None, [notes, f"gradients of {loss}"]))
    # Drop metrics that need a gradient that is wrong or could not be verified.
    credit = credit.without(evidence.missing)
    facts = {
        "method": method_name,
        "headline_acc": headline_acc,
        "baselines": Baselines(
            own=own, own_name=frozen_baseline_name, bp=bp, test_samples=samples, paired=pairs
        ),
        "thresholds": limits,
        "notes": notes,
        "credit": credit.blocks,
        "deep": credit.deep,
        "warnings": [AuditWarning(code=code, text=text) for code, text in warnings],
        "about": about,
        "hits": hits,
    }
    return DiagnosticReport(**(dict(evidence) | facts))


def _as_function(loss_fn: LossFunction, batches: list[Batch]) -> LossFunction:
    """Replace a default `nn.CrossEntropyLoss` of class labels by `F.cross_entropy`.

    The audit recognises the cross-entropy only as `F.cross_entropy`.
    """
    if type(loss_fn) is not nn.CrossEntropyLoss:
        return loss_fn
    # Modules compare by identity: compare the text of their attributes, such as weight.
    default = nn.CrossEntropyLoss().train(loss_fn.training)
    if str(vars(loss_fn)) != str(vars(default)):
        return loss_fn
    classes = all(are_classes(labels) and bool((labels >= 0).all()) for _, labels in batches)
    return F.cross_entropy if classes else loss_fn


def _with_frequencies(
    evidence: Evidence, network: Network, batches: list[Batch], limits: DiagnosticThresholds
) -> Evidence:
    """Add `frequencies` if C fires: mean predictions far from class frequencies may be the cause."""
    stability = CHECKS["stability"].evaluate(evidence.replace(thresholds=limits))
    if not stability.fires:
        return evidence
    # C leaves small batches out, too.
    large = [batch for batch in batches if len(batch[1]) >= least_size(batches)]
    found = frequencies(network, large, evidence.stability.layer)
    return evidence.replace(frequencies=found)


def _about(model: nn.Module, network: Network, x: torch.Tensor) -> dict[str, Any]:
    """Record how an audit was made, as JSON types."""
    first = next(iter((*network.parameters(), *network.buffers(), x)))
    # Only described models have `past`, the share of the inputs' effect that bypasses a state.
    past = list(getattr(network, "past", ()))
    return {
        "model": f"{type(model).__module__}.{type(model).__qualname__}",
        "versions": {
            "fa_audit": version("fa-audit"),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "device": str(first.device),
        "dtype": str(first.dtype).removeprefix("torch."),
        "states": list(getattr(network, "names", ())),
        "share": share_between(network, x),
        "past": past,
        "partial": any(share is not None and share > WHOLE for share in past),
        "reads": getattr(network, "reads", ""),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
