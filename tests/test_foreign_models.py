"""Models and credits that know nothing of this package: proposed descriptions, measured credits,
readable reports.
"""

import pytest
import torch
import torch.nn.functional as F
from networks import batch_of, rough_learner
from projects import ROOT
from torch import nn
from torchvision import models as zoo

from fa_audit import Description, diagnose
from fa_audit.audit.run_credits import measure_credits
from fa_audit.core.errors import AuditError
from fa_audit.networks.proposals import propose
from fa_audit.networks.trace import trace


class Skips(nn.Module):
    """The model adds what its blocks return to tokens; the head reads the last token."""

    def __init__(self):
        super().__init__()
        self.parts, self.head = nn.ModuleList(nn.Linear(6, 6) for _ in range(3)), nn.Linear(6, 4)
        self.embed, self.end = nn.Linear(6, 6), nn.Identity()

    def forward(self, x):
        return self.rest(self.embed(x), 0)

    def rest(self, h, layer):
        for part in self.parts[layer:]:
            h = h + part(h)
        return self.head(self.end(h)[:, -1])


MODEL, X, Y = Skips(), torch.randn(8, 5, 6), torch.arange(8) % 4
LAST = Description("parts.*", "last token")
SWIN = {
    "patch_size": [4, 4],
    "embed_dim": 8,
    "depths": [2, 2],
    "num_heads": [2, 2],
    "window_size": [4, 4],
}
FITTING = {
    "tokens": (Skips, "parts.*", "last token"),
    "resnet18": (zoo.resnet18, "layer*.*", "spatial mean"),
    "vit": (lambda: zoo.VisionTransformer(32, 16, 3, 2, 8, 12), "encoder.layers.*", "cls token"),
    "swin": (
        lambda: zoo.SwinTransformer(**SWIN),
        ("input:features.1.*", "input:features.3.*", "input:norm"),
        "spatial mean, channels last",
    ),
}


@pytest.mark.parametrize("name", FITTING)
def test_the_first_proposal_is_what_an_expert_would_write_and_nothing_stays_attached(name):
    make, *expected = FITTING[name]
    best = propose(model := make(), X if name == "tokens" else torch.rand(3, 3, 32, 32))[0]
    assert best.description == Description(*expected)
    for module in model.modules():
        assert module.training and not module._forward_hooks and not module._forward_pre_hooks


def test_the_error_about_a_model_without_the_contract_can_be_pasted():
    with pytest.raises(AuditError, match="found no states") as caught:
        diagnose(MODEL, [(X, Y)], 0.5)
    argument = str(caught.value).partition("bypasses: ")[2].removesuffix(".")
    assert len(eval(f"diagnose(MODEL, [(X, Y)], 0.5, {argument})").residual_norms) == 4


@pytest.mark.parametrize("name", ["resmlp", "vit_mini", "small_resnet"])
def test_our_own_credits_by_a_function_keep_their_numbers_described_or_not(name):
    learner, batch = rough_learner(name, "fa"), batch_of()
    network, own = learner.network, measure_credits(learner, *batch)

    def credits(model, x, y, states):
        run = trace(network, x, local=True)
        return learner.method.credits(network, run, y, learner.state).blocks

    for description in (None, propose(network, batch[0])[0].description):
        report = diagnose(network, [batch], 0.5, description=description, credits=credits)
        assert "drawn again" in report.credit[0]["fresh_b_cosine"].reason
        for name in ("cosine", "clamped_cosine", "cosine_at_input", "nudging", "nudging_at_input"):
            ours = [block[name].value for block in own.blocks]
            assert [block[name].value for block in report.credit] == pytest.approx(ours, abs=1e-9)


def true_gradients(model, x, y, states):
    """Gradients by whole states, by a function that leaves its traces on all that it is given."""
    points = [h.requires_grad_() for h in states]
    loss = 0
    for layer, h in enumerate(points):
        loss = loss + F.cross_entropy(model.rest(h, layer), y)
    loss.backward()
    x.zero_(), y.zero_()
    return [h.grad for h in points[1:]]


def test_true_gradients_are_perfect_credits_and_nothing_else_is_touched():
    x = X.clone()
    report = diagnose(MODEL, [(x, Y)], 0.5, description=LAST, credits=true_gradients)
    for block in report.credit:
        values = [block[name].value for name in ("cosine", "rho", "rho_bp", "scale")]
        assert values == pytest.approx([1] * 4, abs=1e-4) and block["nudging"].value < 0
    assert torch.equal(x, X) and Y.any() and MODEL.training
    assert all(p.grad is None for p in MODEL.parameters())


WRONG = {
    "found list (Tensor); expected credits(model, x, y, states) to return a list of 3": lambda *_: [
        X[:, 0]
    ],
    "a_0: found a tensor (8, 1) of torch.float16; expected (8, 6) or (8, 5, 6) of": lambda *_: (
        [X[:, 0, :1].half()] * 3
    ),
    "a_0: found a tensor (8, 6)": lambda *_: [X[:, 0].to_sparse()] * 3,
    "a_1: found 48 values that are NaN or infinite": lambda *_: [X[:, 0], X[:, 0] / 0, X[:, 0]],
    "the function fails: TypeError": lambda model: [],
}


@pytest.mark.parametrize("words", WRONG)
def test_what_are_no_credits_is_named(words):
    with pytest.raises(AuditError) as caught:
        diagnose(MODEL, [(X, Y)], 0.5, description=LAST, credits=WRONG[words])
    assert str(caught.value).startswith("credits: ") and words in str(caught.value)


def test_the_example_of_the_docs_and_its_report_in_every_format():
    model, (x, y) = rough_learner("resmlp").network.float(), batch_of()
    document = (ROOT / "docs/auditing.md").read_text()
    code = "def credits(" + document.partition("def credits(")[2].partition("```")[0]
    scope = {"torch": torch, "F": F, "diagnose": diagnose, "model": model}
    scope |= {"test_batches": [(x.float(), y)], "feedback": torch.randn(len(model.blocks), 3, 8)}
    exec(code, scope)
    report = scope["report"].replace(method="<b>|" + "x" * 99, notes="mine")
    assert max(map(len, str(report).splitlines())) <= 80
    cells = ["1", *(f"{report.credit[1][name].value:.3g}" for name in ("cosine", "rho", "nudging"))]
    assert cells in [line.split() for line in report.details().splitlines()]
    assert "rho" not in diagnose(model, scope["test_batches"], 0.61).details()
