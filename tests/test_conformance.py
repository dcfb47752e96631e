"""The conformance suite passes every registered method, and finds by name what is wrong with a
broken one.
"""

from dataclasses import dataclass, replace

import pytest
import torch
from networks import MY_METHOD
from projects import slow
from wrong_rules import HOSTILE, UNUSUAL, Blockwise, Flat, Leaving, after_step

from fa_audit.core.errors import AuditError
from fa_audit.methods import METHODS
from fa_audit.methods.ep import EP
from fa_audit.methods.fa import FA
from fa_audit.methods.method import load_method
from fa_audit.methods.state_bridge import StateBridge
from fa_audit.testing import CHECKS, ConformanceError, _failure, check_method, conformance
from fa_audit.testing.subject import Subject

SHORT = set(CHECKS) - {"process", "architectures", "learns"}
FIRST = ("bp", "fa", "dfa", "weight_mirror", "dtp_drl", "ep_symmetric", "pepita", "forward_forward")


def failures(method, checks):
    """Run some checks on a method: name of a failed check -> its line."""
    try:
        with pytest.MonkeyPatch.context() as patch:
            chosen = {name: CHECKS[name] for name in CHECKS if name in checks}
            patch.setattr("fa_audit.testing.CHECKS", chosen)
            check_method(method)
    except ConformanceError as error:
        return dict(line.strip().split(": ", 1) for line in str(error).splitlines()[1:])
    return {}


REGISTERED = [
    *((name, SHORT) for name in FIRST),
    *slow(*((name, SHORT) for name in METHODS if name not in FIRST)),
    *slow(*((name, {"learns"}) for name in METHODS)),
    *slow(("ep_symmetric", {"architectures"})),
    *(pytest.param(name, set(CHECKS), marks=pytest.mark.matrix) for name in METHODS),
]


@pytest.mark.parametrize(("name", "checks"), REGISTERED)
def test_every_registered_method_conforms(name, checks):
    method = load_method(name)
    # States that relax do it in three steps; on all architectures they must not diverge.
    brief = replace(method, steps=3) if hasattr(method, "steps") else name
    assert failures(name if "architectures" in checks else brief, checks) == {}


@pytest.mark.slow
def test_symmetric_ep_diverges_with_the_steps_of_ep():
    method = replace(load_method("ep_symmetric"), alpha=load_method("ep").alpha)
    assert "small_resnet" in failures(method, {"architectures"})["architectures"]


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_method_conforms(name):
    checks = CHECKS if name == "some networks only" else SHORT
    assert failures(UNUSUAL[name], checks) == {}


@pytest.mark.parametrize("function", [lambda p: p.mul_(1.01), lambda p: p.requires_grad_()])
def test_a_training_that_touches_what_is_frozen_has_no_result(function):
    """Late in a training, behind its first steps."""

    def touch(network, state):
        state.steps = getattr(state, "steps", 0) + 1
        if state.steps > 20:
            function(next(network.blocks.parameters()))

    subject = Subject(after_step(FA, touch)(), "mine")
    with pytest.raises(AuditError, match=r"frozen blocks.0\S+ changed or thawed"):
        subject.trained(frozen_blocks=1, epochs=4)


@pytest.mark.parametrize(
    ("check", "kind"), [(check, kind) for check, kinds in HOSTILE.items() for kind in kinds]
)
def test_a_broken_promise_is_found_by_the_check_that_names_it(check, kind):
    subject = Subject(kind(steps=4) if issubclass(kind, EP) else kind(), "mine")
    assert _failure(CHECKS[check], subject)


def test_a_method_that_does_not_fit_an_architecture_names_it():
    found = failures(Flat, {"shapes", "purity", "trains", "architectures"})
    assert set(found) == {"architectures"} and "vit_mini" in found["architectures"]


def test_a_method_in_a_file_of_its_own_is_checked_by_name(tmp_path, monkeypatch):
    costly = "\n\nclass Costly(Mine):\n    relative_time = 2.0 * -3\n"
    (tmp_path / "costly_method.py").write_text(MY_METHOD + costly)
    monkeypatch.syspath_prepend(tmp_path)
    found = failures("costly_method:Costly", {"shapes", "saved", "declarations"})
    assert set(found) == {"declarations"} and "relative_time=-6.0" in found["declarations"]
    with_its_own_constants = replace(load_method("costly_method:Mine"), scale=-2.0)
    assert set(failures(with_its_own_constants, {"direction"})) == {"direction"}


@dataclass(frozen=True, kw_only=True)
class Demanding(StateBridge):
    strength: float


@pytest.mark.parametrize(("method", "words"), [(Demanding, "pass an instance"), (3, "a name")])
def test_what_is_no_method_is_refused(method, words):
    with pytest.raises(AuditError, match=words):
        check_method(method)


def test_the_message_lists_failures_in_order_and_the_random_state_stays():
    before = torch.get_rng_state()
    found = failures(Blockwise, SHORT)
    assert list(found) == [name for name in CHECKS if name in found]
    assert {"shapes", "options"} <= set(found)
    assert "IndexError: tuple index out of range (wrong_rules.py, line" in found["shapes"]
    assert torch.equal(torch.get_rng_state(), before)


def test_nothing_runs_after_a_method_that_ends_the_process():
    found = conformance(Leaving)
    assert list(found.findings) == ["process"] and not found.passed
