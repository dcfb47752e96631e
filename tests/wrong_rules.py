"""Rules that break one promise each, by the check of the conformance suite that names it; and unusual
ones that keep all.
"""

import os
import random
from dataclasses import replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from fa_audit.methods.bp import BP
from fa_audit.methods.dfa import DFA
from fa_audit.methods.dtp import DTP
from fa_audit.methods.ep import EP
from fa_audit.methods.fa import FA
from fa_audit.methods.forward_forward import ForwardForward
from fa_audit.methods.layerwise import Layerwise
from fa_audit.methods.method import Credits, Feedback, Method
from fa_audit.methods.pepita import PEPITA
from fa_audit.methods.state_bridge import StateBridge
from fa_audit.methods.weight_mirror import WeightMirror


def told(base, function):
    """A method whose credits are ``function(credits of base, network, trace, labels)``."""

    class Told(base):
        def credits(self, network, trace, labels, state):
            found = super().credits(network, trace, labels, state)
            return function(found, network, trace, labels)

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
        slopes = torch.autograd.grad(loss, states)
        return Credits.bottom_up(map(network.read_gradient, slopes), normalise=False)


class Attached(DFA):
    def credits(self, network, trace, labels, state):
        error = trace.logits.softmax(dim=-1) - F.one_hot(labels, network.classes)
        return Credits.bottom_up(
            error @ state[layer].T for layer in (0, *range(len(network.blocks)))
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


def one_matrix(keep):
    """FA with one feedback matrix for all blocks, which ``keep(state, name, matrix)`` stores."""

    class OneMatrix(FA):
        def init_state(self, network, generator):
            state = nn.Module()
            matrix = torch.randn(network.width, network.width, generator=generator)
            keep(state, "matrix", matrix)
            return state

        def credits(self, network, trace, labels, state):
            feedback = [state.matrix] * len(network.blocks)
            return super().credits(network, trace, labels, feedback)

    return OneMatrix


def grow(network, state):
    state.steps = getattr(state, "steps", 0) + 1
    state.matrix.mul_(1 + 1 / (10 + state.steps))


Buffered = one_matrix(nn.Module.register_buffer)
KEPT = []


def starting(function):
    """FA that calls ``function(network)`` in `init_state`."""

    class Starting(FA):
        def init_state(self, network, generator):
            state = super().init_state(network, generator)
            function(network)
            return state

    return Starting


def uphill(c):
    return replace(c, objective=-c.objective)


def scaled(c, factor):
    return replace(c, blocks=tuple(factor * a for a in c.blocks), embedding=factor * c.embedding)


class Hashed(DFA):
    def init_state(self, network, generator):
        return super().init_state(network, generator.manual_seed(hash("Hashed") % 1000))


class Leaving(DFA):
    def credits(self, *given):
        os._exit(0)


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
            return Credits.bottom_up(function(kept, *pair) for pair in own.by_name().items())

    return Remembering


def fixed_first(self, network, generator):
    state = DFA.init_state(self, network, generator)
    state.B0.copy_(DFA.init_state(self, network, torch.Generator()).B0)
    return state


def averaged(credits, network, trace, labels):
    if trace.states[0].dim() != 3:
        return credits
    loss = F.cross_entropy(trace.logits, labels, reduction="sum")
    slopes = torch.autograd.grad(loss, trace.states, retain_graph=True)
    return Credits.bottom_up((g.mean(1) for g in slopes), normalise=False)


def in_maps(function):
    return told(DFA, lambda c, n, t, y: function(c) if t.states[0].dim() == 4 else c)


def rolled(c):
    return replace(c, blocks=tuple(a.roll(1, 0) for a in c.blocks))


def declaring(kind, **flags):
    return type(kind.__name__, (kind,), flags)


def opposed(kind, *, objective=1):
    """A rule that reports its credits with the wrong sign, and descends `objective` times its own."""
    turned = with_credits(kind, torch.neg)
    return with_parts(turned, lambda c: replace(c, objective=objective * c.objective))


class Untaught(DTP):
    """Its inverses stay as they were drawn."""

    auxiliary_loss = Method.auxiliary_loss


class Uncorrected(DTP):
    """Its targets are what the inverses make of the targets above."""

    @torch.no_grad()
    def credits(self, network, trace, labels, state):
        own = super().credits(network, trace, labels, state)
        descending = [[*own.by_name().values()][-1]]
        for layer in reversed(range(len(network.blocks))):
            h, above = trace.states[layer : layer + 2]
            target = above - self.eta * descending[-1]
            descending.append((network.read(h) - target - state[layer](target)) / self.eta)
        return Credits.bottom_up(reversed(descending))


class Unmirrored(WeightMirror):
    """Its feedback stays as it was drawn."""

    update_state = Method.update_state


class Unlearning(WeightMirror):
    """Its feedback turns away from the weights."""

    feedback: ClassVar[str] = "learned B"

    def update_state(self, network, state, randomness):
        before = {name: b * (1 - self.decay) for name, b in state.named_buffers()}
        super().update_state(network, state, randomness)
        for name, b in state.named_buffers():
            b.copy_(2 * before[name] - b)


class GoingOn(Layerwise):
    """Blocks whose stage is over go on."""

    def learning(self, state):
        return range(min(state.stage + 2, len(state)))


class Penalised(Layerwise):
    """A penalty moves the blocks outside their stage."""

    update_state = Method.update_state


HOSTILE = {
    "downhill": [with_parts(kind, uphill) for kind in (EP, ForwardForward)],
    "finite": [
        with_credits(DFA, lambda a: a.where(a < a.max(), torch.nan)),
        told(DFA, lambda c, n, t, y: scaled(c, t.logits.detach().softmax(1).log()[:, 1:2])),
        told(FA, lambda c, n, t, y: scaled(c, 1 / t.states[0].detach().norm(dim=1)[:, None])),
    ],
    "learns": [after_step(FA, lambda n, _: n.head.linear.weight.zero_())],
    "trains": [
        with_parts(BP, lambda c: replace(c, blocks=(*c.blocks[1:], c.embedding))),
        told(BP, lambda c, n, t, y: scaled(c, 1 / len(y))),
        with_parts(EP, lambda c: replace(c, blocks=tuple(a.flip(1) for a in c.blocks))),
        after_step(FA, lambda n, _: [p.grad.mul_(10) for p in n.head.parameters()]),
        opposed(ForwardForward),
        declaring(opposed(EP), own_objective=True),
        after_step(FA, lambda n, _: [setattr(p, "grad", p.sign()) for p in n.blocks.parameters()]),
    ],
    "means": [
        told(EP, lambda c, n, t, y: replace(c, objective=c.objective * len(y))),
        told(EP, lambda c, n, t, y: replace(c, objective=c.objective * len(y) ** 0.2)),
        with_parts(DFA, lambda c: replace(c, batch_mean=True)),
        with_parts(FA, lambda c: replace(c, batch_mean=False)),
    ],
    "shapes": [
        with_credits(DFA, torch.Tensor.half),
        Blockwise,
        with_parts(DFA, lambda c: replace(c, blocks=c.blocks[1:])),
        with_parts(ForwardForward, lambda c: replace(c, objective=None)),
    ],
    "precision": [
        with_credits(DFA, lambda a: a.half().float()),
        with_credits(FA, torch.Tensor.float),
        told(DFA, lambda c, n, t, y: [t.logits.bfloat16(), c][1]),
    ],
    "memory": [told(DFA, lambda c, n, t, y: [KEPT.append(t.logits), c][1])],
    "apart": [
        starting(lambda n: n.head.linear.weight.register_hook(lambda g: 10 * g)),
        type("Shares", (DFA,), {"init_state": lambda self, n, _: n.head}),
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
        declaring(ForwardForward, own_objective=False),
    ],
    "labels": [
        told(DFA, lambda c, n, t, y: replace(c, embedding=t.states[0].detach())),
        Uncorrected,
    ],
    "rows": [
        with_credits(DFA, lambda a: a.roll(1, dims=0)),
        with_credits(DFA, lambda a: a * torch.arange(1, len(a) + 1)[:, None]),
        with_credits(DFA, lambda a: a - a.mean(0)),
    ],
    "purity": [
        with_credits(DFA, lambda a: [torch.rand(1), a][1]),
        told(DFA, lambda c, *_: [random.seed(0), c][1]),
    ],
    "determinism": [
        after_step(Buffered, lambda _, s: s.matrix.add_(torch.randn(s.matrix.shape))),
        Peeking,
    ],
    "options": [after_step(FA, lambda net, _: net.requires_grad_(True))],
    "graphs": [Attached, Pushing, Vectorial],
    "moves": [
        with_parts(
            FA, lambda c: replace(c, blocks=(*c.blocks[:-1], *(0 * a for a in c.blocks[-1:])))
        ),
        Unmirrored,
        Untaught,
        Unlearning,
    ],
    "declarations": [
        Forgetful,
        type("Untold", (FA,), {"summary": None}),
        type("Boolean", (FA,), {"memory_mb": True}),
        type("Worded", (FA,), {"across_samples": "no"}),
    ],
    "saved": [one_matrix(setattr), after_step(Buffered, grow)],
    "process": [Hashed, Leaving],
    "stages": [GoingOn, Penalised],
    "traits": [declaring(PEPITA, own_objective=True), declaring(PEPITA, across_samples=True)],
    "architectures": [in_maps(rolled), told(BP, averaged)],
    "calls": [
        remembering(lambda kept, layer, a: kept.setdefault((layer, *a.shape), a.clone()).copy_(a)),
        remembering(lambda kept, layer, a: kept.setdefault(layer, a)),
    ],
    "direction": [
        with_credits(FA, torch.neg),
        with_credits(StateBridge, torch.neg),
        with_credits(DFA, lambda a: a @ torch.eye(a.shape[1]).roll(1, 0).to(a)),
        declaring(opposed(PEPITA, objective=-1), own_objective=True),
        with_parts(
            DFA,
            lambda c: replace(c, blocks=tuple(-a if i == 0 else a for i, a in enumerate(c.blocks))),
        ),
    ],
}


class Scalar(DFA):
    """A scalar error of every sample, through a fixed random vector per block."""

    def init_state(self, network, generator):
        return Feedback([(network.width, 1)] * max(1, len(network.blocks)), 1, generator)

    def credits(self, network, trace, labels, state):
        error = F.cross_entropy(trace.logits.detach(), labels, reduction="none")[:, None]
        return Credits.bottom_up(error @ state[i].T for i in (0, *range(len(network.blocks))))


class Choosy(DFA):
    """Does without BatchNorm."""

    def init_state(self, network, generator):
        if any(isinstance(module, nn.BatchNorm2d) for module in network.modules()):
            raise NotImplementedError
        return super().init_state(network, generator)


class Flat(FA):
    """Takes every state for a vector."""

    def credits(self, network, trace, labels, state):
        loss = F.cross_entropy(trace.logits, labels)
        (top,) = torch.autograd.grad(loss, trace.head_input, retain_graph=True)
        below = [top @ state[0] for _ in network.blocks[:-1]]
        return Credits.bottom_up([top, *below, *[top] * len(network.blocks[-1:])])


CENTRED = with_credits(DFA, lambda a: a - a.mean(0))
UNUSUAL = {
    "exact, block by block": Exact,
    "feedback in another layout": Stacked,
    "a scalar error": Scalar,
    "batch statistics": type("Centred", (CENTRED,), {"across_samples": True}),
    "some networks only": Choosy,
}  # fmt: skip
