"""External networks of the reference contract: the audit must see their own gradients, and name
violations.
"""

import copy
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from networks import snapshot, states_and_gradients
from torch import nn

from fa_audit import diagnose
from fa_audit.core.errors import AuditError

CLASSES, WIDTH, DEPTH, BATCH = 3, 8, 3, 11
NAN, INF = float("nan"), float("inf")


def dense():
    layers = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(0.3)
    return nn.Sequential(*layers)


def conv():
    return nn.Sequential(nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.BatchNorm2d(WIDTH), nn.ReLU())


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln, self.mix = nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, h):
        z = self.ln(h)
        return self.mix(z, z, z, need_weights=False)[0]


class Skipping(nn.Module):
    """A block that adds its own input."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, h):
        return h + self.inner(h)


class Kind(NamedTuple):
    """A network of the contract: its block, the shape of an image, h_0 and logits, what its head
    reads, modules.
    """

    block: Callable
    shape: tuple
    start: Callable
    finish: Callable
    reads: str
    modules: dict


class External(nn.Module):
    """The contract's forward pass; a kind says how it starts and ends."""

    def __init__(self, kind, own_skip):
        super().__init__()
        self.kind, self.own_skip = kind, own_skip
        inner = [kind.block() for _ in range(DEPTH)]
        self.blocks = nn.ModuleList(map(Skipping, inner) if own_skip else inner)
        for name, make in kind.modules.items():
            setattr(self, name, make())

    def forward(self, x, return_hidden=False):
        hidden = [self.kind.start(self, x)]
        for block in self.blocks:
            out = block(hidden[-1])
            hidden.append(out if self.own_skip else hidden[-1] + out)
        return self.answer(self.kind.finish(self, hidden[-1]), hidden, return_hidden)

    @staticmethod
    def answer(logits, hidden, return_hidden):
        return (logits, hidden) if return_hidden else logits


def embedded(model, x):
    return model.embed(x)


def tokens(model, x):
    return model.embed(x).flatten(2).transpose(1, 2) + model.pos


def cls_and_tokens(model, x):
    patches = model.embed(x).flatten(2).transpose(1, 2)
    return torch.cat([model.pos.expand(len(x), -1, -1)[:, :1], patches], dim=1) + model.pos


def head(read):
    return lambda model, h: model.head(read(model.norm(h)))


def modules(embed, *, positions=0, features=WIDTH, norm=True):
    made = {"embed": embed, "head": lambda: nn.Linear(features, CLASSES)}
    made["norm"] = (lambda: nn.LayerNorm(WIDTH)) if norm else nn.Identity
    if positions:
        made["pos"] = lambda: nn.Parameter(torch.randn(1, positions, WIDTH))
    return made


FLAT, PATCHES, MAPS = (6,), (2, 4, 4), (2, 3, 4)


def linear():
    return nn.Linear(6, WIDTH)


def patch():
    return nn.Conv2d(2, WIDTH, 2, stride=2)


def filters():
    return nn.Conv2d(2, WIDTH, 3, padding=1)


KINDS = {
    "normalised": Kind(dense, FLAT, embedded, head(lambda h: h), "", modules(linear)),
    "no norm": Kind(dense, FLAT, embedded, head(lambda h: h), "", modules(linear, norm=False)),
    "cls": Kind(
        Attention, PATCHES, cls_and_tokens, head(lambda h: h[:, 0]), "", modules(patch, positions=5)
    ),
    "last": Kind(
        Attention,
        PATCHES,
        cls_and_tokens,
        head(lambda h: h[:, -1]),
        "last",
        modules(patch, positions=5),
    ),
    "token mean": Kind(
        Attention,
        PATCHES,
        tokens,
        head(lambda h: h.mean(dim=1)),
        "tokens",
        modules(patch, positions=4),
    ),
    "maps": Kind(
        conv, MAPS, embedded, head(lambda h: h.mean(dim=(2, 3))), "", modules(filters, norm=False)
    ),
    "flattened maps": Kind(
        conv,
        MAPS,
        embedded,
        head(lambda h: h.flatten(1)),
        "maps",
        modules(filters, features=12 * WIDTH, norm=False),
    ),
}


def external(name, own_skip=False):
    with torch.random.fork_rng():
        torch.manual_seed(31)
        model = External(KINDS[name], own_skip)
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.uniform_(0.5, 1.5)
    return model


def samples(name, batches=1):
    randomness = torch.Generator().manual_seed(32)
    found = []
    for _ in range(batches):
        x = torch.randn(BATCH, *KINDS[name].shape, generator=randomness)
        found.append((x, torch.randint(CLASSES, (BATCH,), generator=randomness)))
    return found


def vector(kind, h, mean):
    """The vector of a state, or with a sum in place of the mean the gradient by it."""
    if h.dim() == 4:
        return h.flatten(1) if kind.reads == "maps" else mean(h, (2, 3))
    if h.dim() == 2:
        return h
    return mean(h, 1) if kind.reads == "tokens" else h[:, -1 if kind.reads else 0]


def truth(model, x, labels):
    hidden, gradients = states_and_gradients(copy.deepcopy(model).eval(), x, labels)
    norms = [vector(model.kind, h, torch.mean).norm(dim=1).median().item() for h in hidden]
    return norms, [vector(model.kind, g, torch.sum).norm(dim=1).median().item() for g in gradients]


@pytest.mark.parametrize("own_skip", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_the_audit_sees_the_models_own_gradients_and_leaves_it_alone(name, own_skip):
    model, batches = external(name, own_skip), samples(name, 3)
    with torch.random.fork_rng():
        model(batches[0][0]).sum().backward()
    model.train()
    model.blocks[0].eval()
    norms, gradients = truth(model, *batches[0])
    before = snapshot(model)
    report = diagnose(model, batches, headline_acc=None)
    assert report.residual_norms == pytest.approx(norms, rel=1e-5)
    assert report.bp_grad_norms == pytest.approx(gradients, rel=1e-4)
    assert snapshot(model) == before
    model.requires_grad_(False)
    with torch.no_grad():
        assert diagnose(model, batches, headline_acc=None).bp_grad_norms == report.bp_grad_norms


VIOLATIONS = {  # attributes of the model, and words of the error
    "no blocks": (
        {"blocks": None},
        "'blocks.*' is not a module",
    ),
    "a state short": (
        {"answer": lambda y, h, r: (y, h[1:]) if r else y},
        "list (Tensor, Tensor, Tensor)",
    ),
    "logits alone": ({"answer": lambda y, h, r: y}, "must return the logits"),
    "other states": (
        {"answer": lambda y, h, r: (y, [*h[:2], 0.5 * h[2], h[3]]) if r else y},
        "h_l is what block l reads",
    ),
    "another answer": (
        {"answer": lambda y, h, r: (2 * y, h) if r else y},
        "must return the logits of model(x)",
    ),
}


@pytest.mark.parametrize("case", VIOLATIONS)
def test_violations_of_the_contract_are_named(case):
    model, (changes, found) = external("normalised"), VIOLATIONS[case]
    for name, value in changes.items():
        setattr(model, name, value)
    with pytest.raises(AuditError) as caught:
        diagnose(model, samples("normalised"), None)
    assert found in str(caught.value) and "External" in str(caught.value)


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("where", ["start", "last block", "third batch"])
@pytest.mark.parametrize("name", ["no norm", "cls", "flattened maps"])
def test_what_is_not_finite_fails_and_does_not_crash(name, where, value):
    model, batches = external(name), samples(name, 3)
    if where == "third batch":
        batches[2][0][4].fill_(value)
    else:
        part = "embed" if where == "start" else f"blocks.{DEPTH - 1}"
        for parameter in model.get_submodule(part).parameters():
            parameter.data.view(-1)[0] = value
    report = diagnose(model, batches, 0.9, 0.1)
    assert not report.finite and "non-finite" in report.flags
    verdicts = {report.three_check_verdict: "FAIL(", report.verdict: "needs walk-back ("}
    for verdict, begins in verdicts.items():
        assert verdict.startswith(begins) and "non-finite" in verdict


def test_states_that_overflow_and_nan_in_a_token_that_nothing_reads_are_flags():
    overflowing, unread = external("no norm"), external("cls")
    overflowing.embed.weight.data.mul_(1e38)
    # Tokens do not mix.
    unread.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))
    assert diagnose(unread, samples("cls"), 0.9, 0.1).finite
    unread.pos.data[0, -1] = NAN
    for model, name in ((overflowing, "no norm"), (unread, "cls")):
        assert "non-finite" in diagnose(model, samples(name), 0.9, 0.1).flags
