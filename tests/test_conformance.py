"""The conformance suite passes every registered method, and finds by name what is wrong with a
broken one.
"""

import os
import random
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from networks import MY_METHOD
from projects import slow
from torch import nn

from fa_audit.cli import main
from fa_audit.core.errors import AuditError
from fa_audit.methods import METHODS
from fa_audit.methods.bp import BP
from fa_audit.methods.dfa import DFA
from fa_audit.methods.ep import EP
from fa_audit.methods.fa import FA
from fa_audit.methods.method import Credits, Feedback, Method, load_method
from fa_audit.methods.state_bridge import StateBridge
from fa_audit.testing import CHECKS, ConformanceError, _failure, check_method
from fa_audit.testing.subject import Subject

LONG = {"process", "architectures", "learns"}
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


def briefly_relaxed(name):
    """A registered method; its states relax in three steps, where they relax."""
    method = load_method(name)
    return replace(method, steps=3) if hasattr(method, "steps") else name


@pytest.mark.parametrize(
    "name", [*FIRST, *slow(*([name] for name in METHODS if name not in FIRST))]
)
def test_every_registered_method_conforms_in_short_checks(name):
    assert failures(briefly_relaxed(name), set(CHECKS) - LONG) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_registered_method_learns(name):
    assert failures(briefly_relaxed(name), {"learns"}) == {}


@pytest.mark.matrix
@pytest.mark.parametrize("name", METHODS)
def test_every_registered_method_conforms(name):
    assert failures(name, CHECKS) == {}


def told(base, function):
    """A method whose credits are ``function(credits of base, network, trace, labels)``."""

    class Told(base):
        def credits(self, network, trace, labels, state):
            return function(super().credits(network, trace, labels, state), network, trace, labels)

    return Told


def with_parts(base, function):
    """A method whose credits are ``function(credits of base)``."""
    return told(base, lambda credits, *_: function(credits))


def with_credits(base, function):
    """A method whose credits are those of `base` with `function` applied to each."""
    return with_parts(
        base,
        lambda c: replace(c, blocks=(*map(function, c.blocks),), embedding=function(c.embedding)),
    )


def after_step(base, function):
    """A method that calls ``function(network, state)`` after every minibatch."""

    class Updating(base):
        @torch.no_grad()
        def update_state(self, network, state, randomness):
            function(network, state)

    return Updating


class Exact(BP):
    """Backpropagation's credits, learned from block by block."""

    end_to_end: ClassVar[bool] = False

    def credits(self, network, trace, labels, state):
        states = [trace.states[0].detach().requires_grad_()]
        for layer in range(len(network.blocks)):
            states.append(network.split(layer, states[-1])[1])
        loss = F.cross_entropy(network.head(states[-1]), labels, reduction="sum")
        embedding, *blocks = map(network.read_gradient, torch.autograd.grad(loss, states))
        return Credits(tuple(blocks), embedding, normalise=False)


class Attached(DFA):
    def credits(self, network, trace, labels, state):
        error = trace.logits.softmax(dim=-1) - F.one_hot(labels, network.classes)
        return Credits(
            tuple(error @ state[layer].T for layer in range(len(network.blocks))),
            error @ state[0].T,
        )


class Blockwise(FA):
    """Cannot do without blocks."""

    def credits(self, network, trace, labels, state):
        trace.residuals[0].sum()
        return super().credits(network, trace, labels, state)


class Pushing(FA):
    """An auxiliary loss that does its own backward pass."""

    def auxiliary_loss(self, network, trace, labels, state, randomness):
        F.cross_entropy(trace.logits, labels).backward(retain_graph=True)


class Vectorial(StateBridge):
    def auxiliary_loss(self, network, trace, labels, state, randomness):
        return super().auxiliary_loss(network, trace, labels, state, randomness)[None]


class Stacked(DFA):
    """Keeps the feedback of all blocks in one buffer, transposed."""

    def init_state(self, network, generator):
        state = nn.Module()
        shape = max(len(network.blocks), 1), network.classes, network.width
        state.register_buffer(
            "stack", torch.randn(shape, generator=generator) / network.classes**0.5
        )
        return state

    def credits(self, network, trace, labels, state):
        return super().credits(network, trace, labels, state.stack.mT)


class Forgetful(FA):  # without the decorator
    strength: float = 1.0


def one_matrix(keep, matrix):
    """FA with one feedback matrix for all blocks: ``keep(method, state, matrix)`` stores it,
    `matrix` finds it.
    """

    class OneMatrix(FA):
        store: ClassVar[dict] = {}

        def init_state(self, network, generator):
            state = nn.Module()
            keep(self, state, torch.randn(network.width, network.width, generator=generator))
            return state

        def begin_epoch(self, state, progress):
            state.progress = progress

        def credits(self, network, trace, labels, state):
            return super().credits(
                network, trace, labels, [matrix(self, state)] * len(network.blocks)
            )

    return OneMatrix


def in_a_buffer(method, state, matrix):
    state.register_buffer("matrix", matrix)


def grow(network, state):
    state.steps = getattr(state, "steps", 0) + 1
    state.matrix.mul_(1 + 1 / (10 + state.steps))


Buffered = one_matrix(in_a_buffer, lambda _, state: state.matrix)
KEPT = []


def starting(function):
    """FA that calls ``function(network)`` in `init_state`."""

    class Starting(FA):
        def init_state(self, network, generator):
            state = super().init_state(network, generator)
            function(network)
            return state

    return Starting


def scaled(c, factor):
    return replace(c, blocks=tuple(factor * a for a in c.blocks), embedding=factor * c.embedding)


class Hashed(DFA):
    def init_state(self, network, generator):
        return super().init_state(network, generator.manual_seed(hash("Hashed") % 1000))


class Leaving(DFA):
    def credits(self, *given):
        os._exit(0)


class Exiting(DFA):
    def credits(self, *given):
        raise SystemExit(0)


class Peeking(DFA):
    """Learns from the test set's labels, which it sees in evaluations."""

    def credits(self, network, trace, labels, state):
        if not network.training:
            state.seen = labels.double().mean()
        return super().credits(network, trace, labels, state)

    @torch.no_grad()
    def update_state(self, network, state, randomness):
        state.B0.add_(getattr(state, "seen", 0))


def remembering(function):
    """DFA whose credits are ``function(what it keeps, own credits)``; `what it keeps` is an
    attribute of the state.
    """

    class Remembering(DFA):
        def credits(self, network, trace, labels, state):
            kept = state.__dict__.setdefault("kept", {})
            own = super().credits(network, trace, labels, state)
            blocks = tuple(function(kept, layer, a) for layer, a in enumerate(own.blocks))
            return replace(own, blocks=blocks, embedding=function(kept, -1, own.embedding))

    return Remembering


def fixed_first(self, network, generator):
    state = DFA.init_state(self, network, generator)
    state.B0.copy_(DFA.init_state(self, network, torch.Generator()).B0)
    return state


def averaged(credits, network, trace, labels):
    if trace.states[0].dim() != 3:
        return credits
    loss = F.cross_entropy(trace.logits, labels, reduction="sum")
    embedding, *blocks = (
        g.mean(1) for g in torch.autograd.grad(loss, trace.states, retain_graph=True)
    )
    return replace(credits, blocks=tuple(blocks), embedding=embedding)


def in_maps(function):
    return told(DFA, lambda c, n, t, y: function(c) if t.states[0].dim() == 4 else c)


def summed(self, network, trace, labels, *rest):
    return len(labels) * StateBridge.auxiliary_loss(self, network, trace, labels, *rest)


def rolled(c):
    return replace(c, blocks=tuple(a.roll(1, 0) for a in c.blocks))


HOSTILE = {
    "downhill": [with_parts(EP, lambda c: replace(c, objective=-c.objective))],
    "finite": [
        with_credits(DFA, lambda a: a.where(a < a.max(), torch.nan)),
        told(DFA, lambda c, n, t, y: scaled(c, t.logits.detach().softmax(1).log()[:, 1:2])),
        told(FA, lambda c, n, t, y: scaled(c, 1 / t.states[0].detach().norm(dim=1)[:, None])),
    ],
    "penalty": [
        after_step(FA, lambda n, _: [setattr(p, "grad", p.sign()) for p in n.blocks.parameters()])
    ],
    "learns": [after_step(FA, lambda n, _: n.head.linear.weight.zero_())],
    "trains": [
        type("ByBP", (DFA,), {"end_to_end": True}),
        with_parts(BP, lambda c: replace(c, blocks=(*c.blocks[1:], c.embedding))),
        told(BP, lambda c, n, t, y: scaled(c, 1 / len(y))),
        with_parts(EP, lambda c: replace(c, blocks=tuple(a.flip(1) for a in c.blocks))),
        told(DFA, lambda c, n, t, y: replace(c, objective=t.states[0].square().mean())),
        after_step(FA, lambda n, _: [p.grad.mul_(10) for p in n.head.parameters()]),
    ],
    "means": [
        told(EP, lambda c, n, t, y: replace(c, objective=c.objective * len(y))),
        with_parts(DFA, lambda c: replace(c, batch_mean=True)),
        with_parts(FA, lambda c: replace(c, batch_mean=False)),
        type("Summed", (StateBridge,), {"auxiliary_loss": summed}),
    ],
    "shapes": [
        with_credits(DFA, torch.Tensor.half),
        Blockwise,
        with_parts(DFA, lambda c: replace(c, blocks=c.blocks[1:])),
        type("Silent", (DFA,), {"credits": Method.credits}),
    ],
    "precision": [
        with_credits(DFA, lambda a: a.half().float()),
        with_credits(FA, torch.Tensor.float),
        with_credits(DFA, lambda a: a.new(a.numpy().astype("half"))),
    ],
    "memory": [told(DFA, lambda c, n, t, y: [KEPT.append(t.logits), c][1])],
    "apart": [
        starting(lambda n: n.head.linear.weight.register_hook(lambda g: 10 * g)),
        starting(lambda n: setattr(n, "read", None)),
        type("Shares", (DFA,), {"init_state": lambda self, n, _: n.head}),
        type("List", (FA,), {"init_state": lambda *_: []}),
        starting(lambda n: n.embed.requires_grad_(False)),
    ],
    "fresh": [
        type(
            "Fixed", (FA,), {"init_state": lambda _, n, __: FA().init_state(n, torch.Generator())}
        ),
        type("FixedB0", (DFA,), {"init_state": fixed_first}),
    ],
    "sizes": [
        told(DFA, lambda c, n, *_: scaled(c, -1 if n.width > 64 else 1)),
        with_parts(DFA, lambda c: scaled(c, torch.nan if len(c.blocks) > 4 else 1)),
        with_credits(DFA, lambda a: F.pad(a[:, :16], (0, a.shape[1] - 16))),
    ],
    "labels": [told(DFA, lambda c, n, t, y: replace(c, embedding=t.states[0].detach()))],
    "rows": [
        with_credits(DFA, lambda a: a.roll(1, dims=0)),
        with_credits(DFA, lambda a: a * torch.arange(1, len(a) + 1)[:, None]),
        with_credits(DFA, lambda a: a - a.mean(0)),
    ],
    "purity": [
        with_credits(DFA, lambda a: [torch.rand(1), a][1]),
        with_credits(DFA, lambda a: [torch.set_grad_enabled(False), a][1]),
        told(DFA, lambda c, *_: [random.seed(0), c][1]),
    ],
    "determinism": [
        after_step(Buffered, lambda _, s: s.matrix.add_(torch.randn(s.matrix.shape))),
        Peeking,
    ],
    "frozen": [after_step(FA, lambda net, _: net.requires_grad_(True))],
    "detached": [Attached],
    "moves": [
        with_parts(
            FA, lambda c: replace(c, blocks=(*c.blocks[:-1], *(0 * a for a in c.blocks[-1:])))
        )
    ],
    "declarations": [
        Forgetful,
        type("Untold", (FA,), {"summary": None}),
        type("Negative", (FA,), {"relative_time": -1.0}),
    ],
    "saved": [
        one_matrix(lambda _, s, m: setattr(s, "kept", m), lambda _, s: s.kept),
        one_matrix(lambda f, _, m: f.store.update(kept=m), lambda f, _: f.store["kept"]),
        one_matrix(in_a_buffer, lambda _, s: s.matrix * (1 - getattr(s, "progress", 0))),
    ],
    "resume": [after_step(Buffered, grow)],
    "auxiliary": [Pushing, Vectorial],
    "process": [Hashed, Leaving],
    "architectures": [in_maps(rolled), told(BP, averaged)],
    "calls": [
        remembering(lambda kept, layer, a: kept.setdefault((layer, *a.shape), a.clone()).copy_(a)),
        remembering(lambda kept, layer, a: kept.setdefault(layer, a)),
    ],
    "direction": [
        *(with_credits(kind, torch.neg) for kind in (FA, StateBridge, EP, BP)),
        with_credits(DFA, lambda a: a @ torch.eye(a.shape[1]).roll(1, 0).to(a)),
    ],
}


def scalar_error(shared):
    """A global scalar error, of each sample or of the batch, through a fixed random vector per
    block.
    """

    class Scalar(DFA):
        across_samples: ClassVar[bool] = shared

        def init_state(self, network, generator):
            return Feedback([(network.width, 1)] * max(1, len(network.blocks)), 1, generator)

        def credits(self, network, trace, labels, state):
            error = F.cross_entropy(trace.logits.detach(), labels, reduction="none")[:, None]
            error = error.mean().expand_as(error) if shared else error
            return Credits(
                tuple(error @ state[i].T for i in range(len(network.blocks))), error @ state[0].T
            )

    return Scalar


class Scheduled(DFA):
    """One layer after the other learns."""

    def init_state(self, network, generator):
        state = super().init_state(network, generator)
        state.register_buffer("stage", torch.tensor(0))
        return state

    def begin_epoch(self, state, progress):
        state.stage.fill_(int(progress * 4))

    def credits(self, network, trace, labels, state):
        own = super().credits(network, trace, labels, state)
        blocks = tuple(a * (state.stage == layer + 1) for layer, a in enumerate(own.blocks))
        return replace(own, blocks=blocks, embedding=own.embedding * (state.stage == 0))


class Choosy(DFA):
    """Does without BatchNorm."""

    def init_state(self, network, generator):
        if any(isinstance(module, nn.BatchNorm2d) for module in network.modules()):
            raise NotImplementedError
        return super().init_state(network, generator)


CENTRED = with_credits(DFA, lambda a: a - a.mean(0))
UNUSUAL = {
    "exact, block by block": Exact,
    "feedback in another layout": Stacked,
    "first block idle": with_parts(FA, lambda c: replace(c, blocks=(*(0 * a for a in c.blocks[:1]), *c.blocks[1:]))),
    "layer by layer": Scheduled,
    "a scalar error of a sample": scalar_error(False),
    "a scalar error of the batch": scalar_error(True),
    "batch statistics": type("Centred", (CENTRED,), {"across_samples": True}),
    "sparse": with_credits(DFA, lambda a: a.where(a.abs() >= a.abs().amax(1, keepdim=True), 0)),
    "some networks only": Choosy,
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_method_conforms(name):
    checks = CHECKS if name == "some networks only" else set(CHECKS) - LONG
    assert failures(UNUSUAL[name], checks) == {}


def test_a_method_that_exits_is_reported_and_the_status_says_so(capsys):
    assert main(["check", f"{__name__}:Exiting"]) == 1
    assert "SystemExit: 0 (test_conformance.py, line" in capsys.readouterr().out


@pytest.mark.parametrize("function", [lambda p: p.mul_(1.01), lambda p: p.requires_grad_()])
def test_a_training_that_touches_what_is_frozen_has_no_result(function):
    late = after_step(
        FA,
        lambda n, s: [
            setattr(s, "n", getattr(s, "n", 0) + 1),
            s.n > 20 and function(next(n.blocks.parameters())),
        ],
    )
    subject = Subject(late(), "mine")
    with pytest.raises(AuditError, match=r"frozen blocks.0\S+ changed or thawed"):
        subject.trained(frozen_blocks=1, epochs=4)


@pytest.mark.parametrize(
    ("check", "kind"), [(check, kind) for check, kinds in HOSTILE.items() for kind in kinds]
)
def test_a_broken_promise_is_found_by_the_check_that_names_it(check, kind):
    subject = Subject(kind(steps=4) if issubclass(kind, EP) else kind(), "mine")
    assert _failure(CHECKS[check], subject)


class Flat(FA):
    """Takes every state for a vector."""

    def credits(self, network, trace, labels, state):
        (top,) = torch.autograd.grad(
            F.cross_entropy(trace.logits, labels), trace.head_input, retain_graph=True
        )
        return Credits(
            tuple(top @ state[0] for _ in network.blocks[:-1]) + (top,) * len(network.blocks[-1:]),
            top,
        )


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
    found = failures(Blockwise, set(CHECKS) - LONG)
    assert list(found) == [name for name in CHECKS if name in found]
    assert {"shapes", "options"} <= set(found)
    assert "IndexError: tuple index out of range (test_conformance.py, line" in found["shapes"]
    assert torch.equal(torch.get_rng_state(), before)


def test_nothing_runs_after_a_method_that_ends_the_process():
    assert list(failures(Leaving, CHECKS)) == ["process"]
