"""Direct random target projection: every block sees the label through a random matrix.

    a_l = (1/C - y) B_l^T,    embedding: (1/C - y) B_0^T,    B_l in R^{d x C}, entries N(0, 1/C)

The embedding has a matrix of its own if block 0 changes the width.

This is DFA with a uniform prediction in place of p: no block has to wait for the network's output.

Source: Frenkel, Lefebvre, Bol 2021. Not in Hao, Wan, Zhai 2026. The one-hot target replaces the
    error.
Ours: the shift 1/C, with which the target sums to zero. Without it the target pushes all samples
    the same way at every step, and residual blocks have no bounded output that would limit this.
    Embedding and block 0 share a matrix, as in `dfa`; the authors have one for every layer.
Constants: none; the variance 1/C is that of `dfa`, our choice.
Cost: one forward, one backward, as BP.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fa_audit.methods.dfa import DFA
from fa_audit.methods.method import Credits, Network, Trace, one_hot


class DRTP(DFA):
    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Return the projections of ``1/C - y``, ``(B, d)`` each; the output plays no part."""
        target = 1 / network.classes - one_hot(labels, trace.logits)
        return self.projected(network, target, state)
