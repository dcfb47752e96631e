"""Nothing wrong is believed: what a method, a file or a model says is compared with what it does."""

import random
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from networks import snapshot
from test_conformance import with_credits, with_parts
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fa_audit import Description, FAProtocol, bp_grad_norms, diagnose, residual_norms
from fa_audit.core.errors import AuditError
from fa_audit.methods.bp import BP
from fa_audit.methods.dfa import DFA
from fa_audit.methods.ep import EP
from fa_audit.training.loop import train

REFUSED = {
    r"\(16, 1\) of torch.float32 for embedding": with_credits(DFA, lambda a: a[:, :1]),
    "2 for 3 blocks": with_parts(DFA, lambda c: replace(c, blocks=c.blocks[1:])),
    r"\(16, 8\) of torch.float16 for embedding": with_credits(DFA, torch.Tensor.half),
    "NaN or infinite for block 0": with_parts(
        BP, lambda c: replace(c, blocks=(c.blocks[0] / 0, *c.blocks[1:]))
    ),
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
        self.first, self.second, self.head = (
            nn.Linear(6, width, dtype=dtype) for width in (6, 6, 3)
        )
        self.spoil, self.end = spoil, end

    def forward(self, x):
        if self.spoil:
            self.spoil(self, x)
        h = self.first(2 * x.flatten(1).to(self.head.weight.dtype))
        return self.end(self.head(h + self.second(h.tanh()).tanh()))


def with_buffer(tensor):
    model = Hostile()
    model.register_buffer("given", tensor)
    return model


BLOCKS = Description(("input:first", "first", "input:head"), "all features")
X, Y = torch.linspace(-1, 1, 60).view(10, 1, 2, 3), torch.arange(10) % 3


def audited(model, batches=((X, Y),), **options):
    return diagnose(model, batches, 0.9, 0.5, description=BLOCKS, **options)


def test_what_may_be_misread_is_a_warning():
    assert not audited(Hostile()).warnings
    certain = lambda logits: logits + 16 * F.one_hot(logits.argmax(dim=1), 3)  # noqa: E731
    cases = {
        "probabilities": Hostile(end=lambda logits: logits.softmax(dim=1)),
        "float16": Hostile(dtype=torch.half),
    }
    cases["away from the one computed in float64"] = Hostile(end=certain)
    for words, model in cases.items():
        labels = model(X).argmax(dim=1)
        assert any(words in str(warning) for warning in audited(model, [(X, labels)]).warnings), (
            words
        )
        protocol = FAProtocol(model, X, labels, description=BLOCKS)
        assert words in protocol.summary(protocol.run()), words
    refusing = audited(
        Hostile(end=lambda logits: 1 / 0 if logits.dtype == torch.double else logits)
    )
    assert all("ZeroDivisionError" in layer.float32_error.reason for layer in refusing.layers)


def per_sample(logits, y):
    return F.cross_entropy(logits, y, reduction="none")


REFUSALS = {
    "two forward passes": lambda: audited(Hostile(lambda _, x: x.add_(torch.randn(x.shape)))),
    "changes head.bias": lambda: audited(Hostile(lambda model, _: model.head.bias.data.add_(1e-6))),
    "on the meta device": lambda: audited(Hostile().to("meta")),
    "found int; expected a torch.nn.Module": lambda: audited(3),
    "eval_batches: found 5": lambda: audited(Hostile(), 5),
    "found '1'; expected an integer 0..2": lambda: audited(Hostile(), layer_for_stability="1"),
    "batch_size: found 2.5": lambda: FAProtocol(Hostile(), X, Y, batch_size=2.5),
    "eval_batches: iterating over it fails: ZeroDivisionError": lambda: audited(
        Hostile(), (1 / 0 for _ in X)
    ),
    "eval_batches: found no batches": lambda: audited(Hostile(), []),
    r"eval_batches: found a tensor \(10, 1, 2, 3\)": lambda: audited(Hostile(), [X]),
    "torch.float32 labels": lambda: audited(Hostile(), [(X, Y.float())]),
    r"labels \(10, 1\); expected as many": lambda: audited(Hostile(), [(X, Y[:, None])]),
    r"labels \(3,\); expected as many": lambda: audited(Hostile(), [(X, Y[:3])]),
    r"labels \(0,\); expected .* at least one": lambda: audited(Hostile(), [(X[:0], Y[:0])]),
    "eval_batches: found tuple": lambda: audited(Hostile(), [(X.to("meta"), Y)]),
    r"eval_batches: found inputs \(\)": lambda: audited(Hostile(), [(torch.tensor(1.0), Y)]),
    r"eval_batches: found inputs \(10, 0\)": lambda: audited(Hostile(), [(X.flatten(1)[:, :0], Y)]),
    "stability_batches: found label 7": lambda: audited(Hostile(), stability_batches=[(X, Y + 5)]),
    "sample: found label 7": lambda: FAProtocol(Hostile(), X, Y + 5, description=BLOCKS).run(
        0.3, 0.4
    ),
    "found 10 inputs and 3 labels": lambda: FAProtocol(Hostile(), X, Y[:3]),
    "headline_acc: found 61.0": lambda: diagnose(Hostile(), [(X, Y)], 61.0, description=BLOCKS),
    "frozen_baseline_acc: found -0.01": lambda: diagnose(
        Hostile(), [(X, Y)], 0.9, -0.01, description=BLOCKS
    ),
    "bp_frozen_acc: found nan": lambda: audited(Hostile(), bp_frozen_acc=float("nan")),
    "headline_acc: found 61": lambda: FAProtocol(Hostile(), X, Y, description=BLOCKS).run(
        0.3, 61.0
    ),
    "frozen_acc_margin_pp: found nan": lambda: FAProtocol(
        Hostile(), X, Y, d3_margin_pp=float("nan")
    ),
    "thresholds: found {'growth': 5}": lambda: audited(Hostile(), thresholds={"growth": 5}),
    "^x: found int": lambda: residual_norms(Hostile(), 5, description=BLOCKS),
    "^x and y: found label 7": lambda: bp_grad_norms(Hostile(), X, Y + 5, description=BLOCKS),
    "outside torch.inference_mode": lambda: torch.autocast("cpu")(audited)(Hostile()),
    "returns a tensor .10, 0. of": lambda: audited(Hostile(end=lambda logits: logits[:, :0])),
    "loss has no gradient at every": lambda: audited(
        Hostile(), loss_fn=lambda *_: torch.ones((), requires_grad=True)
    ),
    r"loss_fn: it returned a tensor \(10,\)": lambda: audited(Hostile(), loss_fn=per_sample),
    "loss_fn: it returned float": lambda: bp_grad_norms(
        Hostile(), X, Y, lambda *_: 0.5, description=BLOCKS
    ),
    "number without a gradient": lambda: audited(
        Hostile(), loss_fn=lambda a, b: F.cross_entropy(a.detach(), b)
    ),
    "loss_fn: .*it failed": lambda: FAProtocol(
        Hostile(), X, Y, loss_fn=F.mse_loss, description=BLOCKS
    ).run(),
    "torch.jit did not compile": lambda: audited(torch.jit.trace(Hostile().eval(), X)),
    "layer_for_stability: found -1": lambda: audited(Hostile(), layer_for_stability=-1),
    "layer_for_stability: found 3": lambda: audited(Hostile(), layer_for_stability=3),
    r"layer_for_stability: found tensor\(": lambda: audited(
        Hostile(), layer_for_stability=torch.rand(99, 99)
    ),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("words", REFUSALS)
def test_a_hostile_call_is_one_line(words):
    with pytest.raises(AuditError, match=words) as caught:
        REFUSALS[words]()
    assert len(str(caught.value).splitlines()) == 1


def test_inputs_labels_streams_and_everything_about_a_model_stay_as_they_were():
    def spoil(model, x):
        x.mul_(2 + 0 * random.random())
        model.register_forward_hook(lambda *_, **__: None, with_kwargs=True)
        model.train()
        model.mask = torch.ones(
            len(x)
        )  # a cache that is filled on first use, as of rotary embeddings
        model.given = model.given + torch.rand(2)  # another tensor in its place
        model.calls, model.extra, grad = 1, nn.Linear(1, 1), model.head.weight.grad
        model.head.weight.grad = torch.ones(3, 6) if grad is None else grad.add_(1)
        model.log.append(x)
        model.head.weight = nn.Parameter(model.head.weight.detach())

    model, x, labels, before = with_buffer(torch.zeros(2)), X.clone(), Y.clone(), random.getstate()
    model.spoil, model.log, weight = spoil, [], model.head.weight
    model.register_buffer("mask", None, persistent=False)
    model.second.eval()
    weight.grad = torch.zeros(3, 6)
    found, grad = snapshot(model), weight.grad
    report = audited(
        model,
        [(x, labels)],
        loss_fn=lambda logits, y: F.cross_entropy(logits, y.clone()) + 0 * y.zero_()[0],
    )
    assert (
        torch.equal(x, X)
        and torch.equal(labels, Y)
        and random.getstate() == before
        and snapshot(model) == found
    )
    assert (
        model.head.weight is weight and weight.grad is grad and not model.log and model.mask is None
    )
    model.spoil = lambda model, x: setattr(model, "mask", torch.ones(len(x)))
    model(X[:2])
    for generator in (None, torch.Generator()):
        loader = DataLoader(TensorDataset(X, Y), 2, shuffle=True, generator=generator)
        assert (
            len({tuple(audited(model, loader).residual_norms) for _ in range(3)}) == 1
            and snapshot(model) == found
        )
    assert audited(model, [(2 * X, Y)]).residual_norms == report.residual_norms
    assert torch.equal(model.mask, torch.ones(2))
