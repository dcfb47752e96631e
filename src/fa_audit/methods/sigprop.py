"""Signal Propagation: labels run through the network like images; layers match images to labels.

    t_0 = relu(LN(S c)),    c: the C one-hot labels,    S in R^{n x C}, learned, no bias,
    n: number of values of h_0
    h_{l+1} = F_l(h_l),  t_{l+1} = F_l(t_l),    inputs detached;    F_l: block l with its skip
    loss_l = CE(z, y),    z_c = h_l . t_l^c, for maps and tokens the mean over positions
    a_l = d loss_{l+1} / dh_{l+1},    embedding: d loss_0 / dh_0
    embedding, S, LN and blocks descend the sum of all loss_l; the gradient of loss_l reaches only
        the layer that computes h_l and t_l; for l = 0, embedding, S and LN

If states are vectors, a_l = (softmax(z) - y) t_{l+1}: the labels' states replace feedback weights.

Source: Kohan, Rietman, Siegelmann 2022 (arXiv 2204.01723). Their code
    (amassivek/signalpropagation) has S, LayerNorm and ReLU parallel to the first layer
    (ProjectionContextInput, learned), products in place of distances in all its losses, a loss with
    one target per class (v1_input_label_direct), and a last layer, here the head, that learns from
    its detached input by cross-entropy. Their examples compare images with the labels of the batch,
    not of all classes (v9, v14, v15). In training, BatchNorm normalises labels apart from images,
    as in their code.
Ours: in audits BatchNorm normalises both by running statistics, which are those of images (their
    examples keep none, and use the batch's); blocks with skips; tokens; states that, unlike t_0,
    need not be rectified.
Constants: none.
Cost: as BP, and passes of C labels.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.methods.method import Credits, Method, Network, Trace, added, layer_seed
from fa_audit.networks.trace import untouched


class SigProp(Method):
    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return the layers that map one-hot labels ``(C, C)`` to ``t_0``, shaped like ``h_0``."""
        with untouched(network), torch.no_grad():
            shape = network.embed(torch.zeros(1, *network.image_shape)).shape[1:]
        with layer_seed(generator):
            project = nn.Linear(network.classes, prod(shape), bias=False)
        return nn.Sequential(project, nn.LayerNorm(prod(shape)), nn.ReLU(), nn.Unflatten(1, shape))

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Return the gradient of every layer's loss at its state, ``(B, d)``, and the sum of the
        losses as the objective.
        """
        eye = torch.eye(network.classes, dtype=trace.logits.dtype, device=labels.device)
        t, states, losses = state(eye), [], []
        for layer, h in enumerate(trace.states):
            # Labels pass through the same layers as images; each layer has its own graph.
            if layer:
                t = network.split(layer - 1, t.detach())[1]
            # A state above frozen blocks has no graph, but its credit needs a gradient.
            if not h.requires_grad:
                h = h.detach().requires_grad_()
            # ``<h_i, t_c>``, averaged over positions or tokens.
            scores = h.flatten(1) @ t.flatten(1).T * (network.width_of(layer) / h[0].numel())
            states.append(h)
            losses.append(F.cross_entropy(scores, labels, reduction="sum"))
        slopes = torch.autograd.grad(losses, states, retain_graph=True)
        objective = added(losses) / len(labels)
        vectors = map(network.read_gradient, slopes)
        return Credits.bottom_up(vectors, normalise=False, objective=objective)
