"""Batchwise random-magnitude sign-symmetric feedback: frSF with new magnitudes for every minibatch.

    a_{L-1} = dCE/dh_L,    a_{l-1} = a_l J_l,    J_l: Jacobian of block l;    embedding: a_{-1};
    on the way back every matrix or kernel W of blocks and head is replaced by M_t o sign(W),
    an elementwise product; M_t = |N(0, 1/fan_in)|, drawn for minibatch t

Source: Liao, Leibo, Poggio 2016 (arXiv 1510.05067), brSF. They found BatchNorm or Batch Manhattan
    (updates by gradient signs) indispensable; this rule adds neither. Not in Hao, Wan, Zhai 2026.
Constants: the variance 1/fan_in, ours.
Cost: as `usf`, and one random number per weight and step.
"""

from __future__ import annotations

from typing import Any

import torch

from fa_audit.methods.frsf import FRSF
from fa_audit.methods.method import Network


class BRSF(FRSF):
    def update_state(self, network: Network, state: Any, randomness: torch.Generator) -> None:
        state.redraw(randomness)
