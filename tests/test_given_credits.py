"""Credits of an implementation that this package does not know get the numbers that our own get."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from networks import batch_of, rough_learner
from torch import nn

from fa_audit import Description, diagnose
from fa_audit.audit.credit_metrics import measure_credits
from fa_audit.core.errors import AuditError
from fa_audit.networks.trace import trace

README = Path(__file__).parents[1] / "README.md"
READS = {"resmlp": "all features", "vit_mini": "cls token", "small_resnet": "spatial mean"}


@pytest.mark.parametrize("name", READS)
def test_our_own_credits_by_a_function_keep_their_numbers_described_or_not(name):
    learner, batch = rough_learner(name, "fa"), batch_of()
    network, method = learner.network, learner.method
    own = measure_credits(learner, *batch)
    for description in (None, Description("blocks.*", READS[name])):
        report = diagnose(network, [batch], 0.5, description=description, credits=lambda model, x, y, states: (
            method.credits(network, trace(network, x, local=True), y, learner.state).blocks))  # fmt: skip
        for ours, given in zip(own.blocks, report.credit, strict=True):
            same = ("cosine", "clamped_cosine", "cosine_at_output", "nudging")
            assert [given[k].value for k in same] == pytest.approx([ours[k].value for k in same], abs=1e-9)
            assert given["rho_bp"].value > 0.99 and given["rho"].value == pytest.approx(ours["rho"].value, abs=0.4)
            assert given["fresh_b_cosine"].value is None and "drawn again" in given["fresh_b_cosine"].reason


class Skips(nn.Module):
    """The model adds what its blocks return to tokens; the head reads the last token."""

    def __init__(self):
        super().__init__()
        self.parts, self.head = (
            nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(3)),
            nn.Linear(6, 4),
        )

    def rest(self, h, layer=0):
        for part in self.parts[layer:]:
            h = h + part(h)
        return self.head(h[:, -1])

    def forward(self, x):
        return self.rest(2 * x)


def true_gradients(model, x, y, states):
    """Gradients by whole states, by an implementation that leaves its traces on everything that it is given."""
    points = [h.requires_grad_() for h in states]
    losses = [F.cross_entropy(model.rest(h, layer), y) for layer, h in enumerate(points)]
    sum(losses).backward()
    x.zero_(), y.zero_()
    return [h.grad for h in points[:-1]]


MODEL, X, Y = Skips(), torch.randn(8, 5, 6), torch.arange(8) % 4
DESCRIBED = Description("parts.*", "last token")


def test_true_gradients_are_perfect_credits_and_nothing_else_is_touched():
    x, kept = X.clone(), {p: p.grad for p in MODEL.parameters()}
    report = diagnose(MODEL, [(x, Y)], 0.5, description=DESCRIBED, credits=true_gradients)
    for block in report.credit:
        perfect = [block[name].value for name in ("cosine", "rho", "rho_bp", "scale")]
        assert perfect == pytest.approx([1, 1, 1, 1], abs=1e-4) and block["nudging"].value < 0
    assert torch.equal(x, X) and Y.any() and MODEL.training and kept == {p: p.grad for p in MODEL.parameters()}
    assert "Credits at every block" in str(report)


def fails(*arguments):
    raise KeyError("B")


WRONG = {
    "found list (Tensor); expected credits(model, x, y, states) to return a list of 3": lambda *_: [X[:, 0]],
    "a_0: found a tensor (8, 1) of torch.float32; expected (8, 6) or (8, 5, 6) of": lambda *_: [X[:, 0, :1]] * 3,
    "a_0: found a tensor (8, 6) of torch.float16": lambda *_: [X[:, 0].half()] * 3,
    "a_1: found 48 values that are NaN or infinite": lambda *_: [X[:, 0], X[:, 0] / 0, X[:, 0]],
    "the function fails: KeyError 'B'; expected": fails,
}


@pytest.mark.parametrize("words", WRONG)
def test_what_are_no_credits_is_named(words):
    with pytest.raises(AuditError) as caught:
        diagnose(MODEL, [(X, Y)], 0.5, description=DESCRIBED, credits=WRONG[words])
    assert str(caught.value).startswith("credits: ") and words in str(caught.value)


def test_the_example_of_the_readme():
    model, test_batches = rough_learner("resmlp").network.float(), [batch_of()]
    test_batches = [(x.float(), y) for x, y in test_batches]
    model.classes, feedback = 3, [torch.randn(3, 8) for _ in model.blocks]
    code = README.read_text().partition("def credits(")[2].partition("```")[0]
    exec("import torch\nimport torch.nn.functional as F\ndef credits(" + code, scope := {**globals(), **locals()})
    assert scope["report"].credit[1]["rho"].value is not None
