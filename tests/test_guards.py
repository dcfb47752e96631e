"""Nothing wrong is believed: what a method, a file or a model says is compared with what it does."""

import random
from collections import deque
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from networks import snapshot
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from wrong_rules import with_credits, with_parts

from fa_audit import Description, FAProtocol, bp_grad_norms, diagnose, residual_norms
from fa_audit.core.errors import AuditError
from fa_audit.methods.dfa import DFA
from fa_audit.methods.ep import EP
from fa_audit.training.loop import train

REFUSED = {
    r"\(16, 1\) of torch.float32 .*for embedding": with_credits(DFA, lambda a: a[:, :1]),
    "2 for 3 blocks": with_parts(DFA, lambda c: replace(c, blocks=c.blocks[1:])),
    "tuple, not Credits": with_parts(DFA, lambda c: c.blocks),
    r"with an objective of shape \(16,\)": with_parts(
        EP, lambda c: replace(c, objective=c.objective.expand(16))
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_the_engine_refuses_credits_that_it_would_misread(make_spec, dataset, words):
    with pytest.raises(
        AuditError, match=f"method 'mine': on a batch of 16 its credits are {words}.*expected 3"
    ):
        train(make_spec("mine"), dataset, method=REFUSED[words]())


class Hostile(nn.Module):
    """A chain of two blocks; `spoil` changes its inputs, `end` its logits."""

    def __init__(self, spoil=None, end=lambda logits: logits, dtype=torch.float32):
        super().__init__()
        widths = (6, 6, 3)
        self.first, self.second, self.head = (nn.Linear(6, width, dtype=dtype) for width in widths)
        self.embed = nn.Linear(6, 6, bias=False, dtype=dtype)
        self.embed.weight.data = 2 * torch.eye(6, dtype=dtype)
        self.spoil, self.end = spoil, end

    def forward(self, x):
        if self.spoil:
            self.spoil(self, x)
        h = self.first(self.embed(x.flatten(1).to(self.head.weight.dtype)))
        return self.end(self.head(h + self.second(h.tanh()).tanh()))


BLOCKS = Description(("input:first", "first", "input:head"), "all features")
X, Y = torch.linspace(-1, 1, 60).view(10, 1, 2, 3), torch.arange(10) % 3
GIVEN = {
    "model": Hostile(),
    "eval_batches": [(X, Y)],
    "headline_acc": 0.9,
    "frozen_baseline_acc": 0.5,
    "description": BLOCKS,
}


def audited(**given):
    return diagnose(**(GIVEN | given))


def softmax(logits):
    return logits.softmax(dim=1)


def certain(logits):
    return logits + 16 * F.one_hot(logits.argmax(dim=1), 3)


MISREAD = {
    "probabilities": Hostile(end=softmax),
    "narrow type": Hostile(dtype=torch.half),
    "rounded gradient": Hostile(end=certain),
}


@pytest.mark.parametrize("code", MISREAD)
def test_what_may_be_misread_is_a_warning(code):
    model = MISREAD[code]
    batch = (X, model(X).argmax(dim=1))
    assert not audited().warnings
    report = audited(model=model, eval_batches=[batch])
    (text,) = (warning.text for warning in report.warnings if warning.code == code)
    protocol = FAProtocol(model, *batch, description=BLOCKS)
    assert text in protocol.summary(protocol.run())


def detached(logits, labels):
    return F.cross_entropy(logits.detach(), labels)


def per_sample(logits, labels):
    return F.cross_entropy(logits, labels, reduction="none")


REFUSALS = {
    "two forward passes": {"model": Hostile(lambda _, x: x.add_(torch.randn(x.shape)))},
    "changes head.bias": {"model": Hostile(lambda model, _: model.head.bias.data.add_(1e-6))},
    "found int; expected a torch.nn.Module": {"model": 3},
    "returns a tensor .10, 0. of": {"model": Hostile(end=lambda logits: logits[:, :0])},
    "iterating over it fails: ZeroDivisionError": {"eval_batches": (1 / 0 for _ in X)},
    r"eval_batches: found a tensor \(10, 1, 2, 3\)": {"eval_batches": [X]},
    "torch.float32 labels": {"eval_batches": [(X, Y.float())]},
    r"labels \(3,\); expected as many": {"eval_batches": [(X, Y[:3])]},
    r"labels \(0,\); expected .* at least one": {"eval_batches": [(X[:0], Y[:0])]},
    r"eval_batches: found inputs \(10, 0\)": {"eval_batches": [(X.flatten(1)[:, :0], Y)]},
    "stability_batches: found label 7": {"stability_batches": [(X, Y + 5)]},
    "headline_acc: found 61.0": {"headline_acc": 61.0},
    "headline_acc: found 1000": {"headline_acc": 10**400},
    "frozen_baseline_acc: found -0.01": {"frozen_baseline_acc": -0.01},
    "method_name: found 0.4": {"method_name": 0.4},
    "thresholds: found {'growth': 5}": {"thresholds": {"growth": 5}},
    "thresholds: found {}": {"thresholds": {}},
    "loss has no gradient at": {"loss_fn": lambda *_: torch.ones((), requires_grad=True)},
    r"loss_fn: it returned a tensor \(10,\)": {"loss_fn": per_sample},
    "number without a gradient": {"loss_fn": detached},
    "loss_fn: .*it failed": {"loss_fn": F.mse_loss},
    "layer_for_stability: found '1'; expected an integer 0..2": {"layer_for_stability": "1"},
    "layer_for_stability: found 3": {"layer_for_stability": 3},
    "notes: found 5; expected a text": {"notes": 5},
    r"blocks: found \[7\]": {"blocks": [7], "credits": len},
    "directions: found 0": {"directions": 0},
    "draw: found without credits=": {"draw": len},
    "found a tuple beside a mapping": {"eval_batches": [{"x": X, "labels": Y}], "sample": (X, Y)},
}


@pytest.mark.parametrize("words", REFUSALS)
def test_a_hostile_call_is_one_line(words):
    with pytest.raises(AuditError, match=words) as caught:
        audited(**REFUSALS[words])
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_compiled_models_and_other_precisions_are_refused():
    with pytest.raises(AuditError, match=r"torch\.jit did not compile"):
        audited(model=torch.jit.trace(Hostile().eval(), X))
    with torch.autocast("cpu"), pytest.raises(AuditError, match=r"outside torch\.inference_mode"):
        audited()


def test_the_paper_s_class_takes_the_accuracy_of_the_described_pass():
    layers = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 3)])

    def forward(model, x, mark):
        return model[1](mark(model[0](mark(x.flatten(1)))))

    found = FAProtocol(layers, X, Y, description=Description(forward=forward)).run()["test_acc"]
    assert found == (forward(layers, X, lambda h: h).argmax(dim=1) == Y).double().mean()


def test_the_functions_of_the_paper_s_packages_name_their_own_arguments():
    model = Hostile()
    for words, call in {
        "^x: found int": lambda: residual_norms(model, 5, description=BLOCKS),
        "^x and y: found label 7": lambda: bp_grad_norms(model, X, Y + 5, description=BLOCKS),
        "found 10 inputs and 3 labels": lambda: FAProtocol(model, X, Y[:3]),
        "batch_size: found 2.5": lambda: FAProtocol(model, X, Y, batch_size=2.5),
        "frozen_acc_margin_pp: found": lambda: FAProtocol(model, X, Y, d3_margin_pp=float("nan")),
        "^description: found '1'": lambda: FAProtocol(model, X, Y, description="1"),
        "fails on inputs": lambda: FAProtocol(model, X[..., 1:], Y, description=BLOCKS).run(),
    }.items():
        with pytest.raises(AuditError, match=words):
            call()


def test_inputs_labels_streams_and_everything_about_a_model_stay_as_they_were():
    def spoil(model, x):
        x.mul_(2 + 0 * random.random())
        model.register_forward_hook(lambda *_, **__: None, with_kwargs=True)
        model.train()
        # A cache that is filled on first use, as of rotary embeddings.
        model.mask = torch.ones(len(x))
        model.given = model.given + torch.rand(2)  # another tensor in its place
        model.calls, model.extra, grad = 1, nn.Linear(1, 1), model.head.weight.grad
        model.head.weight.grad = torch.ones(3, 6) if grad is None else grad.add_(1)
        model.log.append(x)
        model.passes.add_(torch.rand(1, generator=model.stream))
        model.head.weight = nn.Parameter(model.head.weight.detach())

    def loss_fn(logits, labels):
        return F.cross_entropy(logits, labels.clone()) + 0 * labels.zero_()[0]

    model, x, labels, before = Hostile(), X.clone(), Y.clone(), random.getstate()
    model.register_buffer("given", torch.zeros(2))
    model.register_buffer("mask", None, persistent=False)
    model.spoil, model.log, weight = spoil, deque(maxlen=3), model.head.weight
    model.passes, model.stream = torch.zeros(1), torch.Generator().manual_seed(1)
    model.graph, model.gaps = torch.eye(4).to_sparse(), torch.full((1,), torch.nan).expand(3)
    stream = model.stream.get_state()
    model.second.eval()
    weight.grad = torch.zeros(3, 6)
    found, grad = snapshot(model), weight.grad
    report = audited(model=model, eval_batches=[(x, labels)], loss_fn=loss_fn)
    audited(eval_batches=[(x, labels)], loss_fn=loss_fn, credits=lambda *_: [torch.ones(10, 6)] * 2)
    assert torch.equal(x, X) and torch.equal(labels, Y)
    assert random.getstate() == before and snapshot(model) == found
    assert model.head.weight is weight and weight.grad is grad
    assert not model.log and model.mask is None
    assert model.passes == 0 and torch.equal(model.stream.get_state(), stream)
    model.spoil = None
    for generator in (None, torch.Generator()):
        loader = DataLoader(TensorDataset(X, Y), 2, shuffle=True, generator=generator)
        norms = {tuple(audited(model=model, eval_batches=loader).residual_norms) for _ in "ab"}
        assert len(norms) == 1 and snapshot(model) == found
    # What it did to its inputs counts.
    assert audited(model=model, eval_batches=[(2 * X, Y)]).residual_norms == report.residual_norms
