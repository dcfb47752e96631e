"""State bridge: a shared net predicts the last state from any state; the credit is the gradient of
the loss that this prediction has.

    a_l = d/dh_l CE(head(G(LN(h_l), t_l, s)), y),    t_l = l / L,    s = softmax(logits) - y,
    embedding: a_0
    G descends mean_l MSE(G(LN(h_l), t_l, s), h_L / rms(h_L)),    l = 0..L-1

Source: Hao, Wan, Zhai 2026.
Constants: AdamW at the network's learning rate without weight decay.
Ours: 3 hidden layers of 256 units, as in the paper's toy experiment; CE of single samples, since
    the floor of normalised credits would damp the batch mean's. The same checks fire with either.
Cost: as BP, and two forward and backward passes of the small net, one to its inputs and one to
    its weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.methods.bridge import BridgeNet, rms, stacked_states
from fa_audit.methods.method import Credits, Method, Network, Trace, output_error

SMALLEST_RMS = 1e-6


@dataclass(frozen=True)
class StateBridge(Method):
    """State bridge.

    Attributes:
        hidden: units of each of the three hidden layers of G.
    """

    equal_widths: ClassVar[bool] = True

    hidden: int = 256

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return ``G``, which all blocks share."""
        return BridgeNet(network.width, network.classes, network.width, self.hidden, generator)

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Return the gradient at ``h_l`` of the predicted last state's loss, ``(B, d)`` each."""
        h, t = _block_inputs(network, trace)
        with torch.enable_grad():
            predicted = state(h.requires_grad_(), t, output_error(trace, labels)).flatten(0, 1)
            logits = network.head(network.lift(predicted, trace.head_input))
            # flatten(0, 1) puts all samples of a block together: the labels repeat for each block.
            loss = F.cross_entropy(logits, labels.repeat(len(h)), reduction="sum")
            (slopes,) = torch.autograd.grad(loss, h)
        return Credits(tuple(slopes[: network.depth]), slopes[0])

    def auxiliary_loss(
        self,
        network: Network,
        trace: Trace,
        labels: Tensor,
        state: Any,
        randomness: torch.Generator,
    ) -> Tensor:
        """Return the mean squared error of G over all blocks; its target is ``h_L / rms(h_L)``."""
        return _misses(network, trace, labels, state).square().mean()

    def bridge_residual(
        self,
        network: Network,
        trace: Trace,
        labels: Tensor,
        state: Any,
        randomness: torch.Generator,
    ) -> tuple[Tensor, ...]:
        """Return the mean absolute error of G at every block's input, ``(B,)`` each."""
        return tuple(_misses(network, trace, labels, state).detach().abs().mean(dim=-1))


def _block_inputs(network: Network, trace: Trace) -> tuple[Tensor, Tensor]:
    """Return the states that G reads (``h_0..h_{L-1}``, or ``h_0`` if there are no blocks), and
    their depths.
    """
    vectors, t = stacked_states(network, trace)
    inputs = max(network.depth, 1)
    return vectors[:inputs], t[:inputs]


def _misses(network: Network, trace: Trace, labels: Tensor, state: Any) -> Tensor:
    """Return G's prediction minus its target at every block's input, ``(L, B, d)``."""
    h, t = _block_inputs(network, trace)
    last = network.read(trace.states[-1].detach())
    # A state after a ReLU can be all zeros; its target is then zero, not NaN.
    target = last / rms(last).clamp_min(SMALLEST_RMS)
    predicted: Tensor = state(h, t, output_error(trace, labels))
    return predicted - target
