"""`check_method` refuses methods that report, touch or keep what they must not, each by what it does."""

from dataclasses import replace

import pytest
import torch
from test_conformance import after_step, with_credits, with_parts

from fa_audit.methods.bp import BP
from fa_audit.methods.dfa import DFA
from fa_audit.methods.ep import EP
from fa_audit.methods.fa import FA
from fa_audit.testing import CHECKS
from fa_audit.testing.findings import Finding
from fa_audit.testing.subject import Subject

KEPT = []


def told(base, function):
    """A method whose credits are ``function(credits of base, network, trace, labels)``."""

    class Told(base):
        def credits(self, network, trace, labels, state):
            return function(super().credits(network, trace, labels, state), network, trace, labels)

    return Told


def starting(function):
    """FA that calls ``function(network)`` in `init_state`."""
    return type("Starting", (FA,), {"init_state": lambda self, *a: [FA.init_state(self, *a), function(a[0])][0]})


def scaled(c, factor):
    return replace(c, blocks=tuple(factor * a for a in c.blocks), embedding=factor * c.embedding)


HOSTILE = [
    (type("ByBP", (DFA,), {"end_to_end": True}), "trains", r"embed \(96%\), blocks.0 \(.*the reported credits"),
    (with_parts(BP, lambda c: replace(c, blocks=(*c.blocks[1:], c.embedding))), "trains", r"of blocks.0 \("),
    (told(BP, lambda c, n, t, y: scaled(c, 1 / len(y))), "trains", "gradients of embed"),
    (told(DFA, lambda c, n, *_: scaled(c, 1 if n.training else -1)), "trains", "gradients of embed"),
    (with_parts(EP, lambda c: replace(c, blocks=tuple(a.flip(1) for a in c.blocks))), "trains", "of blocks.0 .* and"),
    (told(DFA, lambda c, n, t, y: replace(c, objective=t.states[0].square().mean())), "trains", "objective's gradien"),
    (told(EP, lambda c, n, t, y: replace(c, objective=c.objective * len(y))), "means", "for a batch given twice"),
    (after_step(FA, lambda n, _: [p.grad.mul_(10) for p in n.head.parameters()]), "trains", r"of head \(90%\)"),
    (after_step(FA, lambda n, _: [p.sub_(p.grad) for p in n.head.parameters()]), "trains", "a step changing head"),
    (with_credits(DFA, lambda a: a / a.norm(dim=1, keepdim=True)), "finite", "block 0.* with saturated logits"),
    (told(DFA, lambda c, n, t, y: scaled(c, t.logits.detach().softmax(1).log()[:, 1:2])), "finite", "saturated logits"),
    (told(FA, lambda c, n, t, y: scaled(c, 1 / t.states[0].detach().norm(dim=1)[:, None])), "finite", "of zeros"),
    (with_credits(DFA, torch.Tensor.half), "shapes", "of torch.float16 for the embedding"),
    (with_credits(DFA, lambda a: a.half().float()), "precision", "torch.float16 in the computation"),
    (with_credits(FA, torch.Tensor.float), "precision", "float32.* in a float64 network"),
    (told(DFA, lambda c, n, t, y: [KEPT.append(t.logits), c][1]), "memory", "with a graph kept"),
    (told(DFA, lambda c, n, t, y: [KEPT.append(t.logits.detach()), c][1]), "memory", "more values in memory"),
    (starting(lambda n: n.head.linear.weight.register_hook(lambda g: 10 * g)), "apart", "hooks or attributes"),
    (starting(lambda n: torch.nn.init.zeros_(n.head.linear.weight)), "apart", "changing head.linear.weight"),
    (starting(lambda n: setattr(n, "read", None)), "apart", "left on the network"),
    (type("Shares", (DFA,), {"init_state": lambda self, n, _: n.head}), "apart", "linear.weight .* sharing memory"),
    (type("Fixed", (FA,), {"init_state": lambda _, n, __: FA().init_state(n, torch.Generator())}), "fresh", "the same"),
    (told(DFA, lambda c, n, *_: scaled(c, -1 if n.width > 16 else 1)), "direction", "cosine of -"),
    (told(DFA, lambda c, n, *_: scaled(c, -1 if n.width > 64 else 1)), "sizes", "cosine of -.* at width 150"),
    (with_parts(DFA, lambda c: scaled(c, torch.nan if len(c.blocks) > 4 else 1)), "sizes", "NaN or Inf .* 9 blocks"),
    (told(FA, lambda c, n, t, y: scaled(c, float(len(y) < 64) - c.blocks[0].mean(0))), "sizes", "another direction"),
    (told(DFA, lambda c, n, t, y: replace(c, embedding=t.states[0].detach())), "labels", "ignores the labels"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "check", "words"), HOSTILE)
def test_a_hostile_method_is_refused_by_what_it_does(kind, check, words):
    with pytest.raises(Finding, match=words):
        CHECKS[check](Subject(kind(steps=4) if issubclass(kind, EP) else kind(), "mine"))
