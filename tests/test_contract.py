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


def norm():
    return nn.LayerNorm(WIDTH)


class Skipping(nn.Module):
    """A block that adds its own input."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, h):
        return h + self.inner(h)


class Kind(NamedTuple):
    """A network of the contract: its embedding, block and head, the shape of an image, and what the
    head reads.
    """

    embed: Callable
    block: Callable
    shape: tuple
    read: Callable
    norm: Callable = nn.Identity


class External(nn.Module):
    """The contract's forward pass; a kind says how it starts and ends."""

    def __init__(self, kind, own_skip):
        super().__init__()
        self.kind, self.own_skip = kind, own_skip
        inner = [kind.block() for _ in range(DEPTH)]
        self.blocks = nn.ModuleList(map(Skipping, inner) if own_skip else inner)
        self.embed, self.norm = kind.embed(), kind.norm()
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x, return_hidden=False):
        hidden = [self.embed(x)]
        for block in self.blocks:
            out = block(hidden[-1])
            hidden.append(out if self.own_skip else hidden[-1] + out)
        logits = self.head(self.kind.read(self.norm(hidden[-1])))
        return self.answer(logits, hidden, return_hidden)

    @staticmethod
    def answer(logits, hidden, return_hidden):
        return (logits, hidden) if return_hidden else logits


class Tokens(nn.Module):
    """Patches as tokens, behind a cls token if asked for."""

    def __init__(self, cls):
        super().__init__()
        self.cls, self.patches = cls, nn.Conv2d(2, WIDTH, 2, stride=2)
        self.position = nn.Parameter(torch.randn(1, 4 + cls, WIDTH))

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        if self.cls:
            tokens = torch.cat([torch.ones_like(tokens[:, :1]), tokens], dim=1)
        return tokens + self.position


KINDS = {
    "vectors": Kind(lambda: nn.Linear(6, WIDTH), dense, (6,), lambda h: h, norm),
    "cls": Kind(lambda: Tokens(True), Attention, (2, 4, 4), lambda h: h[:, 0], norm),
    "last": Kind(lambda: Tokens(True), Attention, (2, 4, 4), lambda h: h[:, -1], norm),
    "token mean": Kind(lambda: Tokens(False), Attention, (2, 4, 4), lambda h: h.mean(1), norm),
    "maps": Kind(
        lambda: nn.Conv2d(2, WIDTH, 3, padding=1), conv, (2, 3, 4), lambda h: h.mean((2, 3))
    ),
}
MEANS = (KINDS["token mean"], KINDS["maps"])


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


def truth(model, x, labels):
    """Median norms of the vectors that the head reads of all states, and of the gradients by them:
    positions move together, so theirs are sums.
    """
    hidden, gradients = states_and_gradients(copy.deepcopy(model).eval(), x, labels)
    read, found = model.kind.read, []
    for h, g in zip(hidden, gradients, strict=True):
        places = g.numel() / read(g).numel() if model.kind in MEANS else 1
        norms = read(h).norm(dim=1), places * read(g).norm(dim=1)
        found.append([values.median().item() for values in norms])
    return zip(*found)


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


VIOLATIONS = {  # words of the error, and what the model answers
    "list (Tensor, Tensor, Tensor)": lambda y, h, r: (y, h[1:]) if r else y,
    "must return the logits of model(x), and [h_0..h_L]": lambda y, h, r: y,
    "h_l is what block l reads": lambda y, h, r: (y, [*h[:2], 0.5 * h[2], h[3]]) if r else y,
    "must return the logits of model(x)": lambda y, h, r: (2 * y, h) if r else y,
}


@pytest.mark.parametrize("words", VIOLATIONS)
def test_violations_of_the_contract_are_named(words):
    model = external("vectors")
    model.answer = VIOLATIONS[words]
    with pytest.raises(AuditError) as caught:
        diagnose(model, samples("vectors"), None)
    assert words in str(caught.value) and "External" in str(caught.value)


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("where", ["start", "last block", "third batch"])
@pytest.mark.parametrize("name", ["vectors", "cls", "maps"])
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
    overflowing, unread = external("vectors"), external("cls")
    overflowing.embed.weight.data.mul_(1e38)
    # Tokens do not mix.
    unread.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))
    assert diagnose(unread, samples("cls"), 0.9, 0.1).finite
    unread.embed.position.data[0, -1] = NAN
    for model, name in ((overflowing, "vectors"), (unread, "cls")):
        assert "non-finite" in diagnose(model, samples(name), 0.9, 0.1).flags
