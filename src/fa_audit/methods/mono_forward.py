"""Mono-Forward: every layer learns to classify by a matrix that computes one goodness per class.

    G_l = relu(v) M_l^T,    v: vector of h_{l+1},    M_l in R^{C x d}, learned
    a_l = d/dv CE(G_l, y) = ((softmax(G_l) - y) M_l) [v > 0];
    embedding: the same credit with h_0 and its matrix
    block l and M_l descend CE(G_l, y); the embedding and its matrix descend the CE at h_0; the head
    descends its CE

Two things differ from `local_pred`. M has no bias, so that a silent layer has goodness 0 for every
class and no gradient. M reads the state after a ReLU, as the local nets of Nokland and
Eidnes do in their own code. In bn_cnn, small_resnet and mlp with ReLU states are rectified
already, and only the bias differs. In a ViT all images have the same cls token in h_0, so that the
loss there cannot separate them.

Source: Gong, Li, Abdulla 2025 (arXiv 2501.09238). Their layer is a_i = relu(a_{i-1} W_i), G_i = a_i
    M_i^T; the formulas are from summaries and from Przemyslaw11/BeyondBackpropagation, which is not
    the authors' code. The authors classify by the goodness of the last layer, or by its sum over
    layers.
Ours: the network's head classifies. Unlike M, it has a bias, may normalise the last state, and
    reads it without a ReLU. The next block reads the state without the ReLU, too. M reads vectors
    even if states are maps. Unlike in Przemyslaw11's code, all layers learn in every step, and no
    matrix reads the image.
Constants: none.
Cost: as BP, and the passes through the matrices.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.methods.local_losses import LocalPred
from fa_audit.methods.method import Network, layer_seed, state_widths


class MonoForward(LocalPred):
    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return the layers with the matrices ``M``, one for each state, ``(C, d)``."""
        with layer_seed(generator):
            return nn.ModuleList(
                nn.Linear(d, network.classes, bias=False) for d in state_widths(network)
            )

    def losses(self, network: Network, nets: Any, v: Tensor, labels: Tensor) -> Tensor:
        # Only the matrix reads rectified activity; the next block reads the state itself.
        return F.cross_entropy(nets(v.relu()), labels, reduction="none")
