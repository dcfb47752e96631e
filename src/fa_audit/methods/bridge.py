"""The net of both bridge methods: an MLP of a state, its depth l / L and the output error."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.methods.method import Network, Trace, layer_seed


class BridgeNet(nn.Module):
    """Predict a vector from a state: ``[LN(h), t, s] -> 3 hidden layers, GELU -> out``.

    Args:
        width: ``d``, the length of a state's vector.
        classes: ``C``.
        out: length of the output vector.
        hidden: units of each hidden layer.
        generator: seeds torch's default initialisation.
    """

    def __init__(
        self, width: int, classes: int, out: int, hidden: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        sizes = [width + 1 + classes, hidden, hidden, hidden]
        with layer_seed(generator):
            layers = [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), nn.GELU())]
            self.layers = nn.Sequential(*layers, nn.Linear(hidden, out))

    def forward(self, h: Tensor, t: Tensor, error: Tensor) -> Tensor:
        """Return outputs ``(..., B, out)``.

        Args:
            h: vectors of states, ``(..., B, d)``.
            t: depth of each state, 0 for the embedding's output and 1 for the last state;
                its shape must expand to ``(..., B, 1)``.
            error: the output error ``s``, ``(B, C)``, the same for all leading dimensions.
        """
        rows = h.shape[:-1]
        parts = [
            F.layer_norm(h, h.shape[-1:]),
            t.expand(*rows, 1),
            error.expand(*rows, error.shape[-1]),
        ]
        outputs: Tensor = self.layers(torch.cat(parts, dim=-1))
        return outputs


def stacked_states(network: Network, trace: Trace) -> tuple[Tensor, Tensor]:
    """Return detached vectors of ``h_0..h_L``, ``(L + 1, B, d)``, and ``t_l = l / L``, ``(L + 1,
    1, 1)``.
    """
    vectors = torch.stack([network.read(h.detach()) for h in trace.states])
    layers = torch.arange(len(vectors), device=vectors.device, dtype=vectors.dtype)
    t = layers / max(len(vectors) - 1, 1)
    return vectors, t[:, None, None]


def rms(vectors: Tensor) -> Tensor:
    """Return the root mean square over features, ``(..., d) -> (..., 1)``."""
    return vectors.square().mean(dim=-1, keepdim=True).sqrt()
