"""Credit bridge: a shared net predicts the loss from every state; its gradient is the credit.

    a_l = d/dh_l V(LN(h_l), t_l, s),    t_l = l / L,    s = softmax(logits) - y,    embedding: a_0

V descends E_1 + E_2:
    E_1: mean over l = 0..L of (V(h_l) - target_l)^2,    target_L = CE of the sample,
        target_l = -tau log mean_k exp(-V'(h_{l+1} + sigma rms(h_{l+1}) xi_k) / tau),
        xi_k ~ N(0, I),    k = 1..K,    V': exponential moving average of V
    E_2: mean of (||h_L|| (dV/dh_L - g_L))^2,    g_L: gradient of target_L at h_L

During the first 20 % of the epochs the credits are those of DFA.

Source: Hao, Wan, Zhai 2026.
Constants from the paper: tau 0.1, K 8, moving average 0.995, sigma 0.1, warm-up 0.2, and the
    weight 1 of the gradient term. Ours: noise relative to the rms of the state, 3 hidden layers of
    256 units, and one mean over the targets of all states. V learns at the network's learning
    rate without weight decay.
Cost: as BP, plus forward passes of V or V' on K L + 2 (L + 1) states per sample, two backward
    passes of V, and second derivatives at the top.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.methods.bridge import BridgeNet, rms, stacked_states
from fa_audit.methods.dfa import DFA
from fa_audit.methods.method import Credits, Method, Network, Trace, loss_gradients, output_error


class CreditBridgeState(nn.Module):
    """Hold the value net, its moving average, and DFA's feedback matrices for the warm-up.

    The buffer ``warm`` stores in checkpoints whether the warm-up is over. Steps read its copy
    ``is_warm`` on the host, so that they do not wait for the device.
    """

    warm: Tensor

    def __init__(self, value: BridgeNet, feedback: nn.Module) -> None:
        super().__init__()
        self.value = value
        self.average = deepcopy(value).requires_grad_(False)
        self.feedback = feedback
        self.register_buffer("warm", torch.zeros((), dtype=torch.bool))
        self.is_warm = False
        # A checkpoint restores the buffer alone, not the copy on the host.
        self.register_load_state_dict_post_hook(  # type: ignore[no-untyped-call]
            lambda state, _: state.set_warm(bool(state.warm))
        )

    def set_warm(self, warm: bool) -> None:
        """Record whether the warm-up is over."""
        self.warm.fill_(warm)
        self.is_warm = warm


@dataclass(frozen=True)
class CreditBridge(Method):
    """Credit bridge.

    Attributes:
        tau: temperature of the soft minimum.
        draws: K, noise draws of the soft minimum.
        sigma: noise, relative to the rms of the state.
        memory: share of the moving average that one step keeps.
        warm_up: fraction of the epochs that use the credits of DFA.
        hidden: units of each of the three hidden layers of V.
    """

    equal_widths: ClassVar[bool] = True

    tau: float = 0.1
    draws: int = 8
    sigma: float = 0.1
    memory: float = 0.995
    warm_up: float = 0.2
    hidden: int = 256

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return ``V``, its moving average, and DFA's matrices for the warm-up."""
        feedback = DFA().init_state(network, generator)
        return CreditBridgeState(
            BridgeNet(network.width, network.classes, 1, self.hidden, generator), feedback
        )

    def begin_epoch(self, state: Any, progress: float) -> None:
        state.set_warm(progress >= self.warm_up)

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Return ``dV(h_l, t_l, s) / dh_l``, ``(B, d)`` each; DFA's credits until the warm-up is
        over.
        """
        if not state.is_warm:
            return DFA().credits(network, trace, labels, state.feedback)
        h, t = stacked_states(network, trace)
        with torch.enable_grad():
            value = state.value(h.requires_grad_(), t, output_error(trace, labels))
            (slopes,) = torch.autograd.grad(value.sum(), h)
        return Credits(tuple(slopes[: network.depth]), slopes[0])

    def auxiliary_loss(
        self,
        network: Network,
        trace: Trace,
        labels: Tensor,
        state: Any,
        randomness: torch.Generator,
    ) -> Tensor:
        """Return the loss of ``V``: ``E_1 + E_2`` as defined at the top of this file."""
        h, t = stacked_states(network, trace)
        top = h[-1].clone().requires_grad_()
        error = output_error(trace, labels)
        # The top state is a separate leaf, at which V is differentiated.
        value: Tensor = state.value(torch.cat([h[:-1], top[None]]), t, error).squeeze(-1)
        below = self._soft_minima(h[1:], t[1:], error, state, randomness)
        losses = F.cross_entropy(trace.logits.detach(), labels, reduction="none")
        targets = torch.cat([below, losses[None]])
        # The slope of V is part of its loss, hence the second derivatives.
        (slope,) = torch.autograd.grad(value[-1].sum(), top, create_graph=True)
        truth = network.read_gradient(*loss_gradients(trace, labels, (trace.head_input,)))
        misses = h[-1].norm(dim=-1, keepdim=True) * (slope - truth)
        loss: Tensor = F.mse_loss(value, targets) + misses.square().mean()
        return loss

    def update_state(self, network: Network, state: Any, randomness: torch.Generator) -> None:
        with torch.no_grad():
            pairs = zip(state.average.parameters(), state.value.parameters(), strict=True)
            for average, present in pairs:
                average.lerp_(present, 1 - self.memory)

    def bridge_residual(
        self,
        network: Network,
        trace: Trace,
        labels: Tensor,
        state: Any,
        randomness: torch.Generator,
    ) -> tuple[Tensor, ...]:
        """Return ``|V(h_l) - soft minimum of V(h_{l+1})|`` of every block: ``(B,)`` each."""
        h, t = stacked_states(network, trace)
        error = output_error(trace, labels)
        with torch.no_grad():
            value = state.value(h[:-1], t[:-1], error).squeeze(-1)
            return tuple((value - self._soft_minima(h[1:], t[1:], error, state, randomness)).abs())

    @torch.no_grad()
    def _soft_minima(
        self, following: Tensor, t: Tensor, error: Tensor, state: Any, randomness: torch.Generator
    ) -> Tensor:
        """Compute targets of ``V(h_l)`` from the states ``h_{l+1}``, ``(L, B, d) -> (L, B)``."""
        shape = (self.draws, *following.shape)
        drawn = torch.randn(shape, generator=randomness, device=randomness.device)
        # Drawn in float32, so that a float64 copy of the network gets the same numbers.
        noise = drawn.to(following)
        values = state.average(following + self.sigma * rms(following) * noise, t, error)
        return soft_minimum(values.squeeze(-1), self.tau)


def soft_minimum(values: Tensor, tau: float) -> Tensor:
    """Return ``-tau log mean_k exp(-v_k / tau)`` over the first dimension, without over- or
    underflow.
    """
    return -tau * (torch.logsumexp(-values / tau, dim=0) - math.log(len(values)))
