"""Mono-Forward: a matrix per layer makes one goodness per class of the layer's activity, which
learns to classify.

    G_l = relu(v) M_l^T,    v: vector of h_{l+1},    M_l in R^{C x d}, learned
    a_l = d/dv CE(G_l, y) = ((softmax(G_l) - y) M_l) [v > 0];
    embedding: the same on h_0, with its own matrix
    the sum over states teaches embedding, blocks and matrices, each loss its own layer only

Source: Gong, Li, Abdulla 2025 (arXiv 2501.09238), a layer of theirs: a_i = relu(a_{i-1} W_i), G_i =
    a_i M_i^T, read in summaries and in Przemyslaw11/BeyondBackpropagation, not the authors'. They
    classify by the goodness of the last layer, or by its sum over layers. Here the head classifies,
    which the engine trains by cross-entropy: as M of the last layer, but behind the network's own
    last normalisation, with a bias and without relu of its own.

Beside `local_pred`, which is otherwise the same: M has no bias, so that a silent layer has goodness
0 for every class and no gradient; and M reads activity behind a nonlinearity, as Nokland's nets do,
too, while `local_pred` reads the state as it is. In bn_cnn and small_resnet states are rectified:
what trains there differs in the bias alone. In a ViT h_0's cls token is the same for all images.
Ours: relu before M alone, where the next block reads the state itself; vectors also where states
    are maps; torch's initialisation, as that code's; all layers learn in every step, where that
    code trains one after the other, and it has a matrix on the image, too.
Constants: none.
Cost: BP's, and the matrices'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.methods.local_losses import LocalPred
from fa_audit.methods.method import layer_seed, state_widths
from fa_audit.networks.network import Network


@dataclass(frozen=True)
class MonoForward(LocalPred):
    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return ``M`` of the embedding and of every block, ``(C, d)``."""
        with layer_seed(generator):
            return nn.ModuleList(
                nn.Linear(d, network.classes, bias=False) for d in state_widths(network)
            )

    def losses(self, network: Network, nets: Any, v: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(nets(v.relu()), labels, reduction="none")
