"""Backward passes that may not be the derivative: found by structure, compared only then, and never
guessed.
"""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from test_description import Returns
from test_own_networks import BLOCKS, F64, Chain, FALinear, Feedback, linear, made, narrowing
from torch import nn
from torch.utils.checkpoint import checkpoint
from torchvision import models

from fa_audit import Description, diagnose
from fa_audit.audit import diagnostics
from fa_audit.networks.trace import owned_by

ALL = Description(BLOCKS, "all features")
COMPARE = diagnostics.check_backward


@pytest.fixture
def comparisons(monkeypatch):
    """The comparisons that audits make."""
    made_so_far = []

    def counted(*given):
        made_so_far.append(COMPARE(*given))
        return made_so_far[-1]

    monkeypatch.setattr(diagnostics, "check_backward", counted)
    return made_so_far


def square(*functions, kind=torch.float32):
    """A tanh network with one function after every layer."""
    torch.manual_seed(1)
    blocks = [nn.Sequential(linear(16, 16), Returns(function)) for function in functions]
    return Chain(nn.Linear(20, 16), blocks, nn.Linear(16, 5)).to(kind)


def audited(model, kind=torch.float32, description=ALL, credits=True, **given):
    torch.manual_seed(2)
    batches = [(torch.randn(32, 20).to(kind), torch.arange(32) % 5) for _ in range(2)]
    given |= {"credits": model.credits()} if credits else {}
    return diagnose(model, batches, None, description=description, **given)


def in_graph_only(function):
    """A function without any value of its own in the loss."""

    def run(h):
        h = h * 1
        if h.requires_grad:
            function(h)
        return h.clone()

    return run


def saved(h):
    with torch.autograd.graph.saved_tensors_hooks(torch.round, lambda t: t):
        return h * h


def changed(h):
    h = h.clone()
    with torch.no_grad():
        h[:, 0] = 2.0
    return h


class OwnLinear(FALinear):
    """Feedback alignment by an instance, which cannot be copied, and with a plain tensor."""

    def __init__(self, a, b):
        super().__init__(a, b)
        with warnings.catch_warnings(action="ignore"):
            self.function = Feedback()
        self.plain = self._buffers.pop("feedback")

    def forward(self, x):
        return self.function.apply(x, self.weight, self.bias, self.plain)


def test_feedback_alignment_as_an_autograd_function_is_not_taken_for_the_gradient():
    torch.manual_seed(0)
    model, own = narrowing(FALinear).double(), narrowing().double()
    weights = model.state_dict()
    own.load_state_dict({name: weights[name] for name in own.state_dict()})
    _, batches, description = made("narrowing")
    given = {"description": description, "credits": model.credits()}
    report, truth = (diagnose(each, batches, 0.2, 0.1, **given) for each in (model, own))
    assert report.untrue == (0, 1, 2) and truth.missing == {} and report.warnings == truth.warnings
    # Estimates from 32 directions.
    assert report.bp_grad_norms == pytest.approx(truth.bp_grad_norms, rel=0.35)
    assert [block["cosine"].value is None for block in report.credit] == [True, True, False]
    for name in ("cosine", "rho_bp", "scale"):
        assert "not the derivative" in report.credit[0][name].reason
    # A model in torch's own layers shows what the same credits are.
    assert abs(truth.credit[0]["cosine"].value) < 0.3
    rhos = [[block["rho"].value for block in each.credit] for each in (report, truth)]
    assert rhos[0] == pytest.approx(rhos[1], abs=1e-9)
    assert report.cross_batch_stability is None


class Hooked(nn.Tanh):
    """Doubles the gradient in a hook of the module."""

    def __init__(self):
        super().__init__()
        self.register_full_backward_hook(lambda module, given, _: (2 * given[0],))


def doubled(h):
    with torch.no_grad():
        return h * 2


UNTRUE = {
    "straight-through": lambda h: h + (h.sign() - h).detach(),
    "through data": lambda h: h + (h.sign() - h).data,
    "data that is set": in_graph_only(lambda h: setattr(h, "data", 2 * h.data)),
    "detached addend": lambda h: h + 0.5 * doubled(h),
    "detached norm": lambda h: h / h.norm().item(),
    "hook on a node": in_graph_only(
        lambda h: h.grad_fn.register_hook(lambda g, _: (2 * g[0], *g[1:]))
    ),
    "one percent too long": in_graph_only(lambda h: h.register_hook(lambda g: 1.01 * g)),
    "hook on a module": Hooked(),
    "hooks on saved tensors": saved,
    "an entry in place": changed,
}


@pytest.mark.parametrize("kind", [F64, torch.float32])
@pytest.mark.parametrize("name", UNTRUE)
def test_only_states_before_a_wrong_backward_pass_are_untrue(name, kind):
    report = audited(square(torch.tanh, UNTRUE[name], torch.tanh, kind=kind), kind)
    assert report.untrue == (0, 1) and list(report.missing) == [0, 1]
    if name == "straight-through":
        # The derivative of a sign.
        assert report.bp_grad_norms[:2] == pytest.approx([0, 0], abs=1e-9)
    assert [block["cosine"].value is None for block in report.credit] == [True, False, False]


LOG = []
TRUE = {
    "a log": in_graph_only(lambda h: LOG.append(h.detach().norm().item())),
    "checkpoint": in_graph_only(lambda h: checkpoint(torch.tanh, h, use_reentrant=True)),
}


@pytest.mark.parametrize("name", TRUE)
def test_what_only_looks_custom_is_compared_and_cleared(name, comparisons):
    report = audited(square(torch.tanh, TRUE[name]))
    assert comparisons == [{}] and report.missing == {} and report.warnings == ()
    assert [block["cosine"].value for block in report.credit] == pytest.approx([1, 1])


def test_a_loss_whose_gradient_is_not_its_derivative_is_found():
    def confident(logits, y):
        losses = F.cross_entropy(logits, y, reduction="none")
        return (losses * logits.detach().square().sum(1)).mean()

    assert audited(square(torch.tanh), loss_fn=confident).untrue == (0, 1)


class LSTM(nn.LSTM):
    def forward(self, h):
        return super().forward(h)[0]


def of_sequences(*blocks):
    return Chain(nn.Linear(8, 8), blocks, nn.Sequential(nn.Flatten(), nn.Linear(24, 5)))


IMAGES, SEQUENCES = torch.rand(4, 3, 32, 32), torch.rand(4, 3, 8)
OWN = {  # a model of torch's own operations, its inputs and where its states are
    "mobilenet_v2": lambda: (
        models.mobilenet_v2(num_classes=5), IMAGES, Description("features.*", "spatial mean"),
    ),
    "transformer": lambda: (
        of_sequences(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)), SEQUENCES, ALL,
    ),
    "lstm": lambda: (of_sequences(LSTM(8, 8, batch_first=True)), SEQUENCES, ALL),
    "hooks on states": lambda: (square(torch.tanh), torch.rand(4, 20), ALL),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_networks_of_torch_alone_are_never_compared(name, comparisons):
    torch.manual_seed(0)
    model, x, description = OWN[name]()
    report = diagnose(model, [(x, torch.arange(4))], None, description=description)
    assert comparisons == [] and report.missing == {} and not report.unchecked


class Single(nn.Module):
    """Computes in float32, or less, whatever it is given, and keeps a log."""

    def __init__(self, kind=torch.float32):
        super().__init__()
        self.kind = kind

    def forward(self, h):
        h.detach()
        return torch.tanh(h.to(self.kind)).to(h.dtype)


TIES = {
    "pooled rectifiers": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3),
                                                nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(144, 10)),
                          ("input:1", "1", "2", "3", "4", "5")),
    "float32 inside": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(3072, 16), nn.Linear(16, 16), Single(),
                                             nn.Linear(16, 10)), ("input:2", "2", "3")),
}  # fmt: skip


@pytest.mark.parametrize("name", TIES)
def test_kinks_ties_and_float32_inside_are_no_mistakes_of_the_backward_pass(name, comparisons):
    make, blocks = TIES[name]
    torch.manual_seed(0)
    model = make()
    model[-1].register_forward_hook(lambda module, given, _: given[0].detach().norm() and None)
    report = diagnose(model, [(torch.randn(16, 3, 32, 32), torch.arange(16) % 10)], None,
                      description=Description(blocks, "all features"))  # fmt: skip
    assert len(comparisons) == 1 and report.missing == {} and not report.unchecked


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_stairs_of_rounding_never_accuse(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.Linear(64, 64), Single(kind), nn.Linear(64, 5))
    block = Description("1", "all features")
    assert audited(model, description=block, credits=False).untrue == ()


class Insists(nn.Module):
    def forward(self, h):
        assert h.dtype == torch.float32
        return h + h.detach()


def test_what_cannot_be_compared_has_no_gradient_and_the_reason_is_named():
    model = square(torch.tanh, torch.tanh)
    model.layers[1] = nn.Sequential(linear(16, 16), Insists())

    def draw(model, x, y, states, number):
        return model.credits()(model, x, y, states)

    report = audited(model, draw=draw)
    [warning] = [each for each in report.warnings if each.code == "gradient not compared"]
    assert "detach of a tensor" in warning.text and "float64 recomputation failed" in warning.text
    assert all(block["cosine"].value is None for block in report.credit) and report.untrue == ()
    assert all(math.isnan(norm) for norm in report.bp_grad_norms) and report.finite
    reference = report.checks["reference"]
    assert reference.fires is None and "could not be compared" in reference.note
    assert report.cross_batch_stability is None


def test_a_gradient_too_small_for_float64_keeps_its_norm_and_has_no_cosine():
    model = square(torch.tanh, lambda h: 1e-14 * h, lambda h: h + 1 + h.detach() * 0)
    report = audited(model.double(), F64)
    assert report.untrue == () and list(report.missing) == [0, 1, 2]
    assert 0 < report.layers[1].grad_norm < 1e-13
    assert "float64 does not resolve" in report.credit[0]["cosine"].reason
    assert report.credit[2]["cosine"].value


@pytest.mark.parametrize("fails", [False, True])
def test_a_network_that_cannot_be_copied_is_put_back_bit_for_bit(fails):
    torch.manual_seed(3)
    model = narrowing(OwnLinear)
    first = model.layers[1][0]
    first.listed = [torch.tensor([torch.nan, -0.0, torch.inf])]
    first.product = first.weight * 3  # with a graph
    model.layers[2][0].tied = model.layers[0][0].weight
    if fails:
        model.layers[2].append(Insists())
    F.cross_entropy(model(torch.randn(8, 20)), torch.arange(8) % 5).backward()

    def bits():
        found = []
        for t in (*owned_by(model), *(p.grad for p in model.parameters())):
            found.append((id(t), t.data_ptr(), t.stride(), t.detach().view(torch.int32).tolist()))
        return found

    before = bits()
    assert audited(model).untrue == (() if fails else (0, 1, 2))
    assert bits() == before
    F.cross_entropy(model(torch.randn(8, 20)), torch.arange(8) % 5).backward()
