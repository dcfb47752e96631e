"""Pure functions of states, gradients and credits; vectors are rows ``(B, d)``.

A quantity that cannot be measured has a reason in place of a value; it is never 0, 1 or NaN.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from fa_audit.core.measured import Measured
from fa_audit.core.vectors import sample_norms, unit


def median_ratio(rows: Tensor, others: Tensor) -> Measured:
    """Return the median over samples of ``||row|| / ||other||``, in float64, leaving out zero
    others.

    >>> rows, others = torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.tensor([[0.0, 2.0], [0.0, 0.0]])
    >>> median_ratio(rows, others)
    Measured(value=2.5, n=2, n_valid=1, reason='')
    """
    ratios = sample_norms(rows) / sample_norms(others)
    return median_of(
        ratios,
        ratios.isfinite(),
        "no sample where both norms are finite and the second is not zero",
    )


def median_of(values: Tensor, usable: Tensor, reason: str) -> Measured:
    """Return the median of the usable values ``(B,)``, or the reason if there is none."""
    n, n_valid = len(values), int(usable.sum())
    return (
        Measured(values[usable].median().item(), n, n_valid)
        if n_valid
        else Measured(None, n, 0, reason)
    )


def clamped_cosine(a: Tensor, b: Tensor) -> Measured:
    """Return the mean of torch's ``F.cosine_similarity`` (float32, norms clamped at 1e-8), as
    published cosines are.

    >>> clamped_cosine(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[2.0, 0.0], [1.0, 1.0]])).value
    0.5
    """
    value = F.cosine_similarity(a.float(), b.float(), dim=-1).mean()
    if not value.isfinite():
        return Measured(None, len(a), 0, "torch's cosine is not finite")
    return Measured(value.item(), len(a), len(a))


def mean_pairwise_cosine(directions: list[Tensor]) -> Measured:
    """Return the mean cosine over all pairs of vectors ``(d,)``, in float64.

    It is 1 if all point the same way, and near 0 if they are unrelated.

    >>> mean_pairwise_cosine([torch.tensor([1.0, 0.0]), torch.tensor([2.0, 0.0]), torch.tensor([-1.0, 0.0])]).value
    -0.3333333333333333
    """
    cosines = pairwise_cosines(directions)
    count, total = len(cosines), len(directions)
    if count < 2:
        return Measured(
            None,
            total,
            count,
            f"needs two batches with a finite, non-zero mean gradient; found {count}",
        )
    return Measured(
        ((cosines.sum() - cosines.trace()) / (count * (count - 1))).item(), total, count
    )


def pairwise_cosines(directions: list[Tensor]) -> Tensor:
    """Return the cosines ``(K, K)`` of vectors ``(d,)``, leaving out those that are zero or not
    finite.
    """
    rows, valid = (
        unit(torch.stack(directions))
        if directions
        else (torch.empty(0, 1), torch.empty(0, dtype=torch.bool))
    )
    return rows[valid] @ rows[valid].T
