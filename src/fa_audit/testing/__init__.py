"""Checks that a training method keeps the promises that every audit of it relies on.

In a test file of your own, beside the module of your method:

    import pytest
    from fa_audit.testing import check_method
    from my_method import SignDFA

    @pytest.mark.parametrize("method", ["my_method:SignDFA", SignDFA, SignDFA(), "dfa"])
    def test_the_method_conforms(method):
        check_method(method)  # some seconds on a CPU; raises ConformanceError, one line for each
        mistake

`CHECKS` lists the checks, from the modules beside this one; the docstring of each describes it.
They train networks of a few hundred weights on clouds of points, so they judge the wiring of a
method and not its quality: a method that conforms has credits of the right shape and sign that
depend on their arguments alone, survives checkpoints and interruptions bit by bit, and works with
every option and architecture. The audit measures the rest.

Two conventions matter. Everything that a credit depends on lives in the parameters and buffers of
the state. Feedback that leads directly from the output error to a state has shape ``(d, C)`` or
``(C, d)``, or is a stack of those, so that the checks of sign can replace it by the head's own
weight; one that leads to the input, added there, ``(inputs, C)``.

Shapes: B batch, d width, L blocks, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from fa_audit.core.errors import AuditError
from fa_audit.core.progress import following
from fa_audit.core.randomness import seeded, stream_seed
from fa_audit.methods import METHODS
from fa_audit.methods.method import Method, load_method
from fa_audit.testing import credits, steps, training
from fa_audit.testing.findings import ConformanceError, in_one_line
from fa_audit.testing.subject import Subject, kept_settings

CHECKS: dict[str, Callable[[Subject], None]] = {
    check.__name__: check
    for check in (
        training.process, steps.apart, credits.shapes, credits.calls, credits.purity, credits.finite,
        credits.determinism, training.declarations, credits.detached, steps.labels, credits.rows, credits.direction,
        credits.downhill, steps.fresh, steps.trains, steps.stages, steps.sizes, steps.means, steps.precision,
        steps.memory, training.learns, training.moves, training.frozen, training.options, training.penalty,
        training.auxiliary, training.saved, training.resume, training.traits, training.architectures,
    )
}  # fmt: skip

# Which failures explain which: FIRST explains all that come later, FORM none, STATE those of
# trainings, and any other all after it.
FIRST = {"process", "apart", "shapes", "calls", "purity", "finite", "determinism"}
FORM = {"declarations", "detached", "traits"}
STATE = {"auxiliary", "saved", "resume"}
SINGLE = {
    "labels",
    "rows",
    "direction",
    "downhill",
}  # of single credits, which STATE does not explain


@dataclass(frozen=True)
class Conformance:
    """Result of the conformance suite for a method, one finding for each mistake.

    Attributes:
        name: the method's.
        passed: the checks that it passes.
        findings: what the others found, by check.
        follows: checks that were not run, since they would fail for a reason that `findings` names.
    """

    name: str
    passed: tuple[str, ...]
    findings: dict[str, str]
    follows: tuple[str, ...]


def check_method(method: str | type[Method] | Method) -> None:
    """Run the conformance suite on a method; errors as for `conformance`.

    Raises:
        ConformanceError: a check fails, or the method raises an exception in it.
    """
    found = conformance(method)
    if found.findings:
        lines = [f"  {name}: {finding}" for name, finding in found.findings.items()]
        rest = f"; {len(found.follows)} that rest on them were not run" if found.follows else ""
        title = f"{found.name} fails {len(lines)} of {len(CHECKS)} conformance checks{rest}:"
        raise ConformanceError("\n".join([title, *lines]))


def conformance(method: str | type[Method] | Method) -> Conformance:
    """Run the checks of `CHECKS` on a method, without those whose failure another one would
    explain.

    The process's random state, threads, default type and gradient mode stay as they are.

    Args:
        method: a registered name, ``package.module:ClassName``, a class whose constants all have
            defaults, or an instance.

    Raises:
        AuditError: the method is unknown.
    """
    subject = Subject(*_instance_and_name(method))
    passed: list[str] = []
    findings: dict[str, str] = {}
    for name in following(
        sorted(CHECKS, key=lambda name: (name not in FIRST, name not in FORM | STATE)), "check"
    ):
        if _follows(name, set(findings)):
            continue
        if error := _failure(CHECKS[name], subject):
            findings[name] = in_one_line(error, subject.method)
        else:
            passed.append(name)
    follows = tuple(name for name in CHECKS if name not in findings and name not in passed)
    return Conformance(subject.name, tuple(filter(passed.__contains__, CHECKS)), findings, follows)


def _follows(name: str, failed: set[str]) -> bool:
    """Return whether the failures so far would explain that this check fails, too."""
    if name in FIRST | FORM | STATE:
        return bool(failed & FIRST)
    return bool(failed - FORM - STATE if name in SINGLE else failed - FORM)


def _instance_and_name(method: str | type[Method] | Method) -> tuple[Method, str]:
    try:
        found = (
            load_method(method)
            if isinstance(method, str)
            else method()
            if isinstance(method, type)
            else method
        )
    except TypeError as error:
        raise AuditError(
            f"{method}: {error}. Give its constants defaults, or pass an instance."
        ) from error
    if not isinstance(found, Method):
        raise AuditError(
            f"method: found {method!r}; expected a name, a Method class or an instance of one."
        )
    name = f"{type(found).__module__}:{type(found).__qualname__}"
    return found, next((registered for registered, other in METHODS.items() if other == name), name)


def _failure(check: Callable[[Subject], None], subject: Subject) -> BaseException | None:
    try:
        with (
            kept_settings(),
            seeded(stream_seed(subject.seed, "checks")),
        ):  # a seed that no method sets
            torch.set_num_threads(1)  # tensors this small are slower on several
            check(subject)
    except (
        Exception,
        SystemExit,
    ) as error:  # whatever a method does wrong is a finding of this check
        return error
    return None
