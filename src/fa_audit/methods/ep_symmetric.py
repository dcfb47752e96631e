"""Equilibrium propagation with symmetric nudging: phases of +beta and -beta, and their difference.

The rule is that of `fa_audit.methods.ep` with ``symmetric = True``. As T -> infinity its update has
an error of order beta^2 in smooth networks; with one phase the error is of order beta.

Source: Laborieux, Ernoult, Scellier, Bengio, Grollier, Querlioz 2021 (arXiv 2006.03824), who need
    it on CIFAR-10.
Constants: those of `ep`, but alpha 0.1, ours: with 0.2 states diverged in a little SmallResNet
    after two epochs.
Cost: the forward pass, and 2 (T + 1) forward and backward passes through the blocks, 2 T
    through the head.
"""

from __future__ import annotations

from dataclasses import dataclass

from fa_audit.methods.ep import EP


@dataclass(frozen=True)
class SymmetricEP(EP):
    alpha: float = 0.1
    symmetric: bool = True
