"""Checks that a training method keeps the promises that every audit of it relies on.

In a test file of your own, beside the module of your method:

    import pytest
    from fa_audit.testing import check_method
    from my_method import SignDFA

    @pytest.mark.parametrize("method", ["my_method:SignDFA", SignDFA, SignDFA(), "dfa"])
    def test_the_method_conforms(method):
        check_method(method)

It takes some seconds on a CPU and raises `ConformanceError` with a line for each check that fails.

`CHECKS` lists the checks, and the docstring of each describes it. The checks train networks of a
few hundred weights on clouds of points, so they judge the wiring of a method and not its quality.
If a method passes, its credits have the right shape and sign, `credits` depends on its arguments
alone, and training works with every option and architecture. Checkpoints and interruptions change
no bit of a training. The audit measures the rest.

Two conventions matter. Credits use no part of the method's state except parameters and buffers.
The checks recognise feedback by its shape. Feedback that carries the output error directly to a
hidden state has shape ``(d, C)`` or ``(C, d)``, or is a stack of such matrices. Feedback that
carries the error to the input has shape ``(inputs, C)``. To test the sign of credits, the checks
replace feedback to hidden states by the head's weight.

Shapes: B batch, d width, L blocks, C classes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from tqdm import tqdm

from fa_audit.core.errors import AuditError
from fa_audit.core.randomness import seeded, stream_seed
from fa_audit.methods.method import Method, load_method
from fa_audit.testing.checks import CHECKS
from fa_audit.testing.findings import ConformanceError, in_one_line
from fa_audit.testing.subject import SEED, Subject


@dataclass(frozen=True)
class Conformance:
    """Result of the conformance suite for a method.

    Attributes:
        name: the method's name.
        passed: the names of the checks that it passes. If ``process`` fails, no other check runs.
        findings: the finding of every failed check, in the order of the checks; the first one may
            explain the others.
    """

    name: str
    passed: list[str]
    findings: dict[str, str]


def check_method(method: str | type[Method] | Method) -> None:
    """Run the conformance suite on a method, and raise an error if it fails.

    Raises:
        ConformanceError: a check fails, or the method raises an exception in one.
        AuditError: as `conformance`.
    """
    found = conformance(method)
    if found.findings:
        title = f"{found.name} fails {len(found.findings)} of {len(CHECKS)} conformance checks:"
        lines = [f"  {name}: {finding}" for name, finding in found.findings.items()]
        raise ConformanceError("\n".join([title, *lines]))


def conformance(method: str | type[Method] | Method) -> Conformance:
    """Run the checks of `CHECKS` on a method.

    The process's random state, threads, default type and gradient mode stay as they are.

    Args:
        method: a registered name, ``package.module:ClassName``, a class whose constants all have
            defaults, or an instance.

    Raises:
        AuditError: the method is unknown.
    """
    subject = _subject(method)
    passed: list[str] = []
    findings: dict[str, str] = {}
    for name, check in tqdm(CHECKS.items(), "checks", disable=None, leave=False):
        error = _failure(check, subject)
        if not error:
            passed.append(name)
            continue
        findings[name] = f"{in_one_line(error, subject.method)}. {promise_of(check)}"
        if name == "process":
            break  # code that ends the process of that check would end this one, too
    return Conformance(subject.name, passed, findings)


def promise_of(check: Callable[[Subject], None]) -> str:
    """Return the first paragraph of a check's docstring: what the check expects of a method, and
    what to do if the check fails.
    """
    paragraph = (check.__doc__ or "").partition("\n\n")[0]
    return " ".join(paragraph.split())


def _subject(method: str | type[Method] | Method) -> Subject:
    if isinstance(method, str):
        return Subject(load_method(method), method)
    if isinstance(method, type):
        try:
            method = method()
        except TypeError as error:
            advice = "Give every constant a default, or pass an instance."
            raise AuditError(f"{method}: {error}. {advice}") from error
    if not isinstance(method, Method):
        raise AuditError(
            f"method: found {method!r}; expected a name, a Method class or an instance of one."
        )
    return Subject(method, f"{type(method).__module__}:{type(method).__qualname__}")


def _failure(check: Callable[[Subject], None], subject: Subject) -> BaseException | None:
    """Run a check and return what it raises, if anything: every exception is a finding."""
    drawn, threads = random.getstate(), torch.get_num_threads()
    default = torch.get_default_dtype()
    try:
        # No method uses this seed. So a method that seeds torch changes the random state, and
        # `purity` notices.
        with torch.enable_grad(), seeded(stream_seed(SEED, "checks")):
            # One thread is fastest for tensors this small.
            torch.set_num_threads(1)
            check(subject)
    except (Exception, SystemExit) as error:
        return error
    finally:
        random.setstate(drawn)
        torch.set_num_threads(threads)
        torch.set_default_dtype(default)
    return None
