"""Layer-wise training: blocks learn by `local_pred`, one after another, for equally many epochs.

    a_l = d/dv_i CE(A_l v_i + b_l, y_i),    v_i: vector of h_{l+1} of sample i;
    embedding: the same on h_0
    in stage s of L: block s, A_s and b_s learn; in the first stage also the embedding and its A, b;
        in every stage the head

A block outside its stage has a credit, which audits see. It has no gradient, not even that of a
penalty, so that neither momentum nor decay moves it. Its BatchNorm layers still update their
running statistics; the authors' code stops them.

Source: Belilovsky, Eickenberg, Oyallon 2019 (arXiv 1812.11446), their linear auxiliary classifier
    (k = 1).
Constants: none.
Ours: one schedule of the learning rate for all stages, each of which has 1/L of the epochs, so that
    a training needs at least L epochs (the authors' code has 50 epochs and a schedule for each
    stage); the head always learns.
Cost: as `local_pred`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from fa_audit.methods.local_losses import LocalPred
from fa_audit.methods.method import Network


class Layerwise(LocalPred):
    own_objective: ClassVar[bool] = True
    greedy: ClassVar[bool] = True

    def begin_epoch(self, state: Any, progress: float) -> None:
        # An int, not a tensor: no step may wait for the device.
        state.stage = int(progress * (len(state) - 1) + 1e-9)

    def learning(self, state: Any) -> range:
        stage = getattr(state, "stage", 0)
        return range(stage + 1 if stage else 0, min(stage + 2, len(state)))

    def update_state(self, network: Network, state: Any, randomness: torch.Generator) -> None:
        for i, part in enumerate([network.embed, *network.blocks]):
            if i not in self.learning(state):
                part.zero_grad(set_to_none=True)
