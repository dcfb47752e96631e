"""Findings of the checks, and how they are reported."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from fa_audit.core.errors import AuditError, listed
from fa_audit.methods.method import Method


class ConformanceError(AssertionError):
    """A method breaks a promise. The message has one line for each mistake."""


class Finding(Exception):
    """Say what a check found, what it expected, and what to do."""


def expect(holds: bool, found: object, expected: str, advice: str) -> None:
    """Raise a `Finding` unless `holds`."""
    if not holds:
        raise Finding(f"found {found}; expected {expected}; {advice}.")


def expect_none(names: list[str], found: str, expected: str, advice: str) -> None:
    """Raise a `Finding` if there are any names; they replace ``{}`` in `found`."""
    expect(not names, found.format(listed(names, most=3)), expected, advice)


def expect_same(
    one: Mapping[str, Tensor], other: Mapping[str, Tensor], found: str, advice: str
) -> None:
    """Raise a `Finding` unless two sets of tensors have the same names and bits (NaN equals NaN)."""
    expect_none(differing(one, other), found, "the same bits", advice)


def expect_finite(
    tensors: Mapping[str, Tensor], where: str, advice: str = "guard divisions and logs"
) -> None:
    """Raise a `Finding` if a tensor holds NaN or infinities."""
    broken = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    expect_none(broken, f"NaN or Inf in {{}} {where}".rstrip(), "finite numbers", advice)


def differing(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> list[str]:
    """List the names under which the bits differ (NaN equals NaN), or which only one side has."""
    return [
        name
        for name in one | other
        if not (name in one and name in other and _same(one[name], other[name]))
    ]


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(
        ((one == other) | ((one != one) & (other != other))).all()
    )


def in_one_line(error: BaseException, method: Method) -> str:
    """Describe a failure of a check: a finding, or an exception and the line of the method that
    raised it.
    """
    if isinstance(error, Finding | AuditError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    code = getattr(type(method).credits, "__code__", None)
    own = [frame for frame in frames if code and frame.filename == code.co_filename]
    place = (own or frames)[-1]
    what = " ".join(f"{type(error).__name__}: {error}".split())
    where = f"{Path(place.filename).name}, line {place.lineno}"
    return f"found {what} ({where}); expected no exception; mend what raises it."
