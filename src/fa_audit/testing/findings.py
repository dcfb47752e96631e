"""Raise and report the findings of the checks."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fa_audit.core.errors import AuditError, listed
from fa_audit.methods.method import Method
from fa_audit.networks.trace import equal


class ConformanceError(AssertionError):
    """A method fails the conformance suite. The message has a line for each failed check."""


class Finding(Exception):
    """The failure of a check, in words; the check's docstring says what it expects."""


def expect(holds: object, found: str) -> None:
    """Raise a `Finding` with the text `found` unless `holds` is true."""
    if not holds:
        raise Finding(f"found {found}")


def expect_none(names: Iterable[str], found: str) -> None:
    """Raise a `Finding` if there are names; they replace ``{}`` in the text `found`."""
    names = list(names)
    expect(not names, found.replace("{}", listed(names, most=3)))


def expect_each(
    tensors: Mapping[str, Tensor], holds: Callable[[Tensor], object], found: str
) -> None:
    """Raise a `Finding` that names the tensors for which `holds` returns false."""
    expect_none([name for name, tensor in tensors.items() if not holds(tensor)], found)


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """List the names whose values differ, or that only one side has."""
    names = []
    for name in one | other:
        a, b = one.get(name), other.get(name)
        # NaN equals NaN in tensors, since the same computation gives the same NaN again.
        same = equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a is b or a == b
        if not same:
            names.append(name)
    return names


def in_one_line(error: BaseException, method: Method) -> str:
    """Describe a finding, or an exception and the line of the method that raised it."""
    if isinstance(error, Finding | AuditError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    code = getattr(type(method).credits, "__code__", None)
    # Torch's own frames come last; the method's last line says more.
    own = [frame for frame in frames if code and frame.filename == code.co_filename]
    place = (own or frames)[-1]
    message = " ".join(f"{type(error).__name__}: {error}".split())
    return f"found {message} ({Path(place.filename).name}, line {place.lineno})"
