"""Local losses: every block has a loss of its own, computed by a small net from the block's output.

    a_l = d/dv_i sum_i loss_i,    v_i: vector of h_{l+1} of sample i;
    embedding: the same credit with h_0 and its net
    pred:    CE(A v_i + b, y_i)
    sim:     mean_j (S(M v)_ij - S(y)_ij)^2,
    S(u)_ij: cosine of u_i and u_j, each less its mean over features
    predsim: (1 - beta) pred + beta sim
    block l and its A, b, M descend the loss at h_{l+1}; the embedding and its net descend the loss
    at h_0; the head descends its CE

Credits are not normalised: each is the gradient of the loss that its block descends. In a ViT
h_0's cls token is the same for all images, so that sim's gradient there is rounding error only.

Source: Nokland, Eidnes 2019 (arXiv 1901.06656).
Constants: beta 0.99 is the paper's.
Ours: nets read states as they are, which blocks with skips do not rectify (the authors' follow a
    ReLU), and vectors even if states are maps (the authors' sim then convolves, and takes
    standard deviations over positions); torch's initialisation (their A begins at 0); no BatchNorm
    or dropout is added, which their layers have; h_0 has a net even if the embedding is linear.
Cost: as BP, and the passes of the small nets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.methods.method import Credits, Method, Network, Trace, added, layer_seed, state_widths


class LocalPred(Method):
    """Train by the loss `pred`; the base class of the other local losses.

    `kinds` names the small nets that `losses` uses.
    """

    kinds: ClassVar[tuple[str, ...]] = ("pred",)

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return for every state, from the embedding up, a dictionary of its nets by kind."""
        state = nn.ModuleList()
        with layer_seed(generator):
            for d in state_widths(network):
                # Create both, even if one is unused: every loss then starts from the same weights.
                nets = {"pred": nn.Linear(d, network.classes), "sim": nn.Linear(d, d, bias=False)}
                state.append(nn.ModuleDict({kind: nets[kind] for kind in self.kinds}))
        return state

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Return the gradients of each sample's local losses, ``(B, d)``. The objective is the
        batch mean of these losses, summed over the parts that `learning` returns.
        """
        vectors, losses = [], []
        with torch.enable_grad():
            for nets, h in zip(state, trace.states):
                v = network.read(h)
                # A state above frozen blocks has no graph, but its credit needs a gradient.
                if not v.requires_grad:
                    v = v.detach().requires_grad_()
                vectors.append(v)
                losses.append(self.losses(network, nets, v, labels).sum())
        slopes = torch.autograd.grad(losses, vectors, retain_graph=True)
        objective = added(losses[i] for i in self.learning(state)) / len(labels)
        return Credits.bottom_up(slopes, normalise=False, objective=objective)

    def learning(self, state: Any) -> range:
        """Return which parts learn in this epoch: 0 for the embedding, l + 1 for block l."""
        return range(len(state))

    def losses(self, network: Network, nets: Any, v: Tensor, labels: Tensor) -> Tensor:
        """Return the local loss of every sample, ``(B,)``, at one state's vectors ``(B, d)``."""
        return F.cross_entropy(nets["pred"](v), labels, reduction="none")


class LocalSim(LocalPred):
    across_samples: ClassVar[bool] = True
    own_objective: ClassVar[bool] = True
    kinds: ClassVar[tuple[str, ...]] = ("sim",)

    def losses(self, network: Network, nets: Any, v: Tensor, labels: Tensor) -> Tensor:
        u = nets["sim"](v)
        # The eps of F.cosine_similarity; the default of F.normalize is 1e-12.
        u = F.normalize(u - u.mean(dim=1, keepdim=True), dim=1, eps=1e-8)
        same = (labels[:, None] == labels).to(v.dtype)
        # Cosines of centred one-hot labels: 1 within a class, else -1 / (C - 1).
        return (u @ u.T - (network.classes * same - 1) / (network.classes - 1)).square().mean(dim=1)


@dataclass(frozen=True)
class LocalPredSim(LocalSim):
    own_objective: ClassVar[bool] = False
    kinds: ClassVar[tuple[str, ...]] = ("pred", "sim")

    beta: float = 0.99

    def losses(self, network: Network, nets: Any, v: Tensor, labels: Tensor) -> Tensor:
        pred = LocalPred.losses(self, network, nets, v, labels)
        sim = super().losses(network, nets, v, labels)
        return (1 - self.beta) * pred + self.beta * sim
