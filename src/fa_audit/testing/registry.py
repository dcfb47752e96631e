"""Checks of a method against the registries: it trains every architecture, and declares what it is and costs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from fa_audit.core.errors import AuditError
from fa_audit.core.registry import class_literals
from fa_audit.data.dataset import Dataset, evaluation_batches
from fa_audit.methods.method import Method
from fa_audit.networks import ARCHITECTURE_OPTIONS, ARCHITECTURES
from fa_audit.testing.credits import changed_by_credits
from fa_audit.testing.findings import Finding, expect, expect_finite, expect_none, in_one_line
from fa_audit.testing.subject import Subject, clouds, credits_of, named
from fa_audit.training.checkpoint import learner_tensors
from fa_audit.training.loop import train

SMALL = {"width": 16, "depth": 2}  # registered architectures are made no larger


def architectures(subject: Subject) -> None:
    """Check that small versions of all architectures train, and that credits fit their states and change nothing."""
    data = clouds(subject.seed, (3, 8, 8), 24, 12)
    for name in ARCHITECTURES:
        try:
            _check_architecture(subject, name, data)
        except Exception as error:
            raise Finding(f"with {name}, {in_one_line(error, subject.method)}") from error


def _check_architecture(subject: Subject, name: str, data: Dataset) -> None:
    defaults = ARCHITECTURE_OPTIONS[name]
    small = defaults | {option: min(most, defaults[option]) for option, most in SMALL.items() if option in defaults}
    spec = subject.spec(batch_size=12, architecture=name, architecture_options=tuple(small.items()))
    learner, batch = train(spec, data, method=subject.fresh()).learner, evaluation_batches(data)[0]
    credits = named(credits_of(learner, *batch))
    found = [tuple(a.shape) for a in credits.values()]
    expected = [(len(batch[1]), learner.network.width)] * (len(learner.network.blocks) + 1)
    expect(found == expected, f"credits {found}", f"{expected}", "read vectors with network.read and read_gradient")
    expect_finite(learner_tensors(learner) | credits, "")
    learner.train_mode()
    changed = [place for place in changed_by_credits(learner, *batch) if place.startswith("network.")]
    expect_none(changed, "credits changing {}", "nothing changed", "move it to update_state, or copy first")


def declarations(subject: Subject) -> None:
    """Check that the class declares in literals what the method is and costs, as tables and plans need it."""
    kind = type(subject.method)
    declared = {name: getattr(kind, name) for name in DECLARED}
    for name, (fits, text) in DECLARED.items():
        found = f"{name}={declared[name]!r}"
        expect(fits(declared[name]), found, text, "assign it in the class body, as ClassVar")
    try:
        read = class_literals("fa_audit.methods.method:Method") | class_literals(entry(kind))
    except AuditError:  # a class inside a function: no workflow can name it
        read = declared
    for name in COSTS:
        found = f"{name}={read[name]!r} in the source, {declared[name]!r} in the class"
        expect(read[name] == declared[name], found, "the same", "assign costs as literals in a class body")
    constants = {constant.name for constant in fields(kind)}
    lost = [n for n, kind_of in inspect.get_annotations(kind).items() if "ClassVar" not in str(kind_of)]
    lost = [name for name in lost if name not in constants]
    expect_none(lost, "{} that no checkpoint keeps", "constants", "decorate with @dataclass(frozen=True)")


def entry(kind: type[Method]) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _is_line(value: object) -> bool:
    return isinstance(value, str) and len(value.splitlines()) <= 1


COSTS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "relative_time": (lambda value: type(value) in (int, float) and 0 < value < math.inf, "a number > 0"),
    "memory_mb": (lambda value: type(value) is int and value >= 0, "an integer >= 0"),
}
DECLARED = (
    dict.fromkeys(("summary", "equation", "feedback", "source", "passes"), (_is_line, "at most one line of text"))
    | COSTS
    | dict.fromkeys(("end_to_end", "random_feedback", "decays_state"), (lambda v: isinstance(v, bool), "a bool"))
)
