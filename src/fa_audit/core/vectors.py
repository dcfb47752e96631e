"""Norms, growth and angles of rows ``(B, d)``, in float64, and rows brought to unit length or rms.

A `Measured` quantity that cannot be measured has a reason, not a placeholder such as 0 or NaN.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from fa_audit.core.measured import Measured

RMS_FLOOR = 1e-6  # added to the rms of credits, as published
SMALLEST = 1e-30  # replaces a floor of 0, which could divide zeros by zero
WITHOUT_ANGLE = "no sample where both vectors are finite and non-zero"


def sample_norms(rows: Tensor) -> Tensor:
    """Return the L2 norm of every row of ``(B, d)``, in float64."""
    norms: Tensor = torch.linalg.vector_norm(rows.double(), dim=-1)
    return norms


def median_norm(rows: Tensor) -> float:
    """Return the median over samples of the L2 norm of ``(B, d)``, in float64; NaN and infinities
    pass through.

    >>> median_norm(torch.tensor([[3.0, 4.0], [0.0, 1.0], [0.0, 9.0]]))
    5.0
    """
    return sample_norms(rows).median().item()


def mean_of(values: Tensor, usable: Tensor, reason: str) -> Measured:
    """Return the mean of the usable values ``(B,)``, or the reason if there is none."""
    n, n_valid = len(values), int(usable.sum())
    return (
        Measured(values[usable].mean().item(), n, n_valid)
        if n_valid
        else Measured(None, n, 0, reason)
    )


def growth(hidden_norms: list[float]) -> list[float]:
    """Return every block's growth ``median||h_{l+1}|| / median||h_l||``; infinite if ``h_l`` is 0.

    Args:
        hidden_norms: the median norms of ``h_0..h_L``.

    >>> growth([1.0, 2.0, 0.0, 3.0])
    [2.0, 0.0, inf]
    """
    return [after / before if before else float("inf") for before, after in pairwise(hidden_norms)]


def unit(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Scale rows to unit length in float64; also return a mask ``(B,)`` of the finite, non-zero
    rows.

    Dividing by the largest entry first keeps squares from under- and overflowing.

    >>> unit(torch.tensor([[3e30, 4e30], [0.0, 0.0]]))[1]
    tensor([ True, False])
    """
    rows = rows.double()
    largest = rows.abs().amax(dim=-1, keepdim=True)
    valid = (largest > 0) & largest.isfinite()
    scaled = rows / largest.where(valid, torch.ones_like(largest))
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return scaled / length.where(valid, torch.ones_like(length)), valid.squeeze(-1)


def cosines(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``<a, b> / (||a|| ||b||)`` of every row in float64, ``(B,)``, and a mask of the rows in
    which both vectors are finite and not zero.
    """
    unit_a, valid_a = unit(a)
    unit_b, valid_b = unit(b)
    return (unit_a * unit_b).sum(dim=-1), valid_a & valid_b


def cosine(a: Tensor, b: Tensor) -> Measured:
    """Return the mean over samples of ``<a, b> / (||a|| ||b||)``, without any epsilon, in float64.

    Rows where either vector is zero or not finite have no angle and are left out.

    Args:
        a, b: ``(B, d)``.

    >>> a, b = torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[2.0, 0.0], [1.0, 1.0]])
    >>> cosine(a, b)
    Measured(value=1.0, n=2, n_valid=1, reason='')
    """
    return mean_of(*cosines(a, b), WITHOUT_ANGLE)


def normalised(credit: Tensor, floor: float = RMS_FLOOR) -> Tensor:
    """Divide rows ``(B, d)`` by their root mean square over features: ``r(a) = a / (rms(a) +
    floor)``.
    """
    rms = credit.square().mean(dim=-1, keepdim=True).sqrt()
    return credit / (rms + (floor or SMALLEST))
