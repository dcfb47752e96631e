"""The one place that runs a network and yields its states, residuals and reference gradients.

Shapes: B batch, d width, L blocks, C classes. A state is ``(B, d)``, ``(B, T, d)`` or ``(B, d, H, W)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.architectures.network import Network


@dataclass(frozen=True)
class Trace:
    """One forward pass.

    Attributes:
        states: ``h_0..h_L``, as the network makes them.
        residuals: ``f_0..f_{L-1}``; ``f_l`` reaches only block l's parameters if the trace is local.
        top: what the head read: ``h_L`` itself, or a leaf equal to it if the trace is local.
        logits: ``(B, C)``.
    """

    states: tuple[Tensor, ...]
    residuals: tuple[Tensor, ...]
    top: Tensor
    logits: Tensor


def trace(network: Network, x: Tensor, *, local: bool) -> Trace:
    """Run `network` once on `x`.

    Args:
        local: cut the graph before every block and before the head, so that one backward pass of a sum
            of local losses gives each part its own gradient only. Otherwise the graph is the network's own.
    """
    states, residuals = [network.embed(x)], []
    for layer in range(len(network.blocks)):
        h = states[-1].detach() if local else states[-1]
        residual, following = network.split(layer, h)
        residuals.append(residual)
        states.append(following)
    top = states[-1].detach().requires_grad_() if local else states[-1]
    return Trace(tuple(states), tuple(residuals), top, network.head(top))


@dataclass(frozen=True)
class Reference:
    """Backpropagation's view of a batch: what credits are compared with.

    Attributes:
        states: vectors of ``h_0..h_L``, each ``(B, d)``.
        gradients: ``g_l = dCE/dh_l`` of the batch-mean cross-entropy, each ``(B, d)``.
        logits: ``(B, C)``.
        finite: whether every entry of every whole state and gradient and every logit is finite.
    """

    states: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]
    logits: Tensor
    finite: bool


def reference(network: Network, x: Tensor, labels: Tensor) -> Reference:
    """States and true gradients at every state boundary, from the network's own forward pass.

    Touches no ``.grad``. Works with frozen parameters and inside ``torch.no_grad()``.
    """
    with torch.enable_grad():
        states, logits = network.chain(x)
        gradients = torch.autograd.grad(F.cross_entropy(logits, labels), states)
    return Reference(
        tuple(network.read(h.detach()) for h in states),
        tuple(network.read_gradient(g) for g in gradients),
        logits.detach(),
        all(bool(tensor.isfinite().all()) for tensor in (*states, *gradients, logits)),
    )


@contextmanager
def keeping_statistics(model: nn.Module) -> Iterator[None]:
    """Within it, forward passes of `model` leave the running statistics of its normalisation layers alone.

    Layers in training mode go on normalising by the statistics of the batch.
    """
    recording = [m for m in model.modules() if m.training and getattr(m, "track_running_stats", False)]
    for module in recording:
        module.track_running_stats = False
    try:
        yield
    finally:
        for module in recording:
            module.track_running_stats = True


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Evaluate `model` (eval mode) and leave it exactly as it was found.

    Restores every module's train/eval flag, its buffers, whether a forward pass changed, replaced or created
    them, and the global random streams.
    """
    modes = {module: module.training for module in model.modules()}
    buffers = {module: dict(module._buffers) for module in model.modules()}
    contents = {buffer: buffer.detach().clone() for buffer in model.buffers()}
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices=devices):
            model.eval()
            yield
    finally:
        for module, training in modes.items():
            module.training = training
        for module, found in buffers.items():
            module._buffers.clear()
            module._buffers.update(found)
        with torch.no_grad():
            for buffer, content in contents.items():
                if not torch.equal(buffer, content):
                    buffer.resize_(content.shape).copy_(content)
