"""Measure how much of the cross-batch stability is a bias of the predictions towards classes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fa_audit.audit.diagnostics import Batch, mean_gradient
from fa_audit.core.metrics import mean_pairwise_cosine
from fa_audit.networks.network import Network
from fa_audit.networks.trace import forward, reference, untouched
from fa_audit.protocol.evidence import Frequencies


def frequencies(network: Network, batches: list[Batch], layer: int) -> Frequencies:
    """Compare mean predictions with class frequencies, and recompute C at ``h_layer`` without their
    difference.
    """
    passes, half = forward(network, batches), len(batches) // 2
    logits = torch.cat([each.logits for each in passes])
    labels = torch.cat([each.labels for each in passes])
    p, y = logits.softmax(dim=-1), F.one_hot(labels, logits.shape[-1])
    # The bias is refitted on the first half of the batches and judged on the other.
    first = sum(len(each.labels) for each in passes[:half])
    bias = _refitted_bias(logits[:first], labels[:first]) if half else torch.zeros(1)

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits + bias.to(logits), labels)

    with untouched(network):
        means = [mean_gradient(reference(network, *batch, loss), layer) for batch in batches[half:]]
    gaps = tuple((p - y).mean(dim=0).tolist())
    return Frequencies(gaps=gaps, refitted=mean_pairwise_cosine(means))


def _refitted_bias(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the bias ``(C,)`` that minimises the cross-entropy of logits ``(N, C)``, in float64.

    At the minimum mean predictions equal class frequencies. Every class has half a sample more, so
    that no frequency is 0.
    """
    counts = torch.bincount(labels, minlength=logits.shape[-1]).double() + 0.5
    targets, bias = counts / counts.sum(), torch.zeros_like(logits[0], requires_grad=True)
    optimiser = torch.optim.LBFGS([bias], max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        with torch.enable_grad():
            loss = torch.logsumexp(logits + bias, dim=-1).mean() - bias @ targets
        loss.backward()
        return loss

    optimiser.step(closure)
    return bias.detach()
