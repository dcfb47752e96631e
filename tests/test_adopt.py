"""Networks written elsewhere, and nothing of them in terms of this package: the audit must see their own gradients."""

import copy
import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fa_audit import FAProtocol, diagnose
from fa_audit.core.errors import AuditError

CLASSES, WIDTH, DEPTH, BATCH = 3, 8, 3, 11


# --- foreign networks ----------------------------------------------------------------------------------------------


class Dense(nn.Module):
    """A residual branch for vectors and tokens; `own_skip` adds the input itself."""

    def __init__(self, own_skip):
        super().__init__()
        self.own_skip = own_skip
        self.ln, self.fc, self.drop = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Dropout(0.3)

    def forward(self, h):
        f = self.drop(torch.tanh(self.fc(self.ln(h))))
        return h + f if self.own_skip else f


class Attention(nn.Module):
    """The same with a mixture of tokens."""

    def __init__(self, own_skip):
        super().__init__()
        self.own_skip = own_skip
        self.ln, self.mix = nn.LayerNorm(WIDTH), nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, h):
        z = self.ln(h)
        f = self.mix(z, z, z, need_weights=False)[0]
        return h + f if self.own_skip else f


class Conv(nn.Module):
    """A branch for feature maps, with batch normalisation."""

    def __init__(self, own_skip):
        super().__init__()
        self.own_skip = own_skip
        self.conv, self.bn = nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.BatchNorm2d(WIDTH)

    def forward(self, h):
        f = torch.relu(self.bn(self.conv(h)))
        return h + f if self.own_skip else f


class Foreign(nn.Module):
    """The contract's forward pass; subclasses say how to start and how to finish."""

    part = Dense

    def __init__(self, own_skip):
        super().__init__()
        self.blocks = nn.ModuleList(self.part(own_skip) for _ in range(DEPTH))
        self.own_skip = own_skip

    def forward(self, x, return_hidden=False):
        hidden = [self.start(x)]
        for block in self.blocks:
            out = block(hidden[-1])
            hidden.append(out if self.own_skip else hidden[-1] + out)
        logits = self.finish(hidden[-1])
        return (logits, hidden) if return_hidden else logits


class FlatMlp(Foreign):
    shape = (6,)

    def __init__(self, own_skip):
        super().__init__(own_skip)
        self.embed, self.out_ln, self.out_head = nn.Linear(6, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def start(self, x):
        return self.embed(x)

    def finish(self, h):
        return self.out_head(self.out_ln(h))


class NormHeadMlp(FlatMlp):
    def __init__(self, own_skip):
        super().__init__(own_skip)
        del self.out_ln, self.out_head
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def finish(self, h):
        return self.head(self.norm(h))


class BareMlp(FlatMlp):
    def __init__(self, own_skip):
        super().__init__(own_skip)
        del self.out_ln

    def finish(self, h):
        return self.out_head(h)


class ImageMlp(FlatMlp):
    """Flattens its images itself, before an embedding that wants vectors."""

    shape = (1, 2, 3)

    def start(self, x):
        return self.embed(x.flatten(1))


class Vit(Foreign):
    part, shape = Attention, (2, 4, 4)

    def __init__(self, own_skip):
        super().__init__(own_skip)
        self.patch_embed = nn.Conv2d(2, WIDTH, 2, stride=2)
        self.cls, self.pos = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Parameter(torch.randn(1, 5, WIDTH))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def start(self, x):
        tokens = self.patch_embed(x).flatten(2).transpose(1, 2)
        return torch.cat([self.cls.expand(len(x), -1, -1), tokens], dim=1) + self.pos

    def finish(self, h):
        return self.head(self.norm(h)[:, 0])


class TokenMean(Vit):
    def start(self, x):
        return self.patch_embed(x).flatten(2).transpose(1, 2) + self.pos[:, 1:]

    def finish(self, h):
        return self.head(self.norm(h).mean(dim=1))


class NormOfTokenMean(TokenMean):
    def finish(self, h):
        return self.head(self.norm(h.mean(dim=1)))


class ConvNet(Foreign):
    part, shape = Conv, (2, 3, 4)

    def __init__(self, own_skip):
        super().__init__(own_skip)
        self.embed, self.head = nn.Conv2d(2, WIDTH, 3, padding=1), nn.Linear(WIDTH, CLASSES)

    def start(self, x):
        return self.embed(x)

    def finish(self, h):
        return self.head(h.mean(dim=(2, 3)))


class FlattenedConvNet(ConvNet):
    def __init__(self, own_skip):
        super().__init__(own_skip)
        self.head = nn.Linear(12 * WIDTH, CLASSES)

    def finish(self, h):
        return self.head(h.flatten(1))


KINDS = [
    FlatMlp,
    NormHeadMlp,
    BareMlp,
    ImageMlp,
    Vit,
    TokenMean,
    NormOfTokenMean,
    ConvNet,
    FlattenedConvNet,
]


def foreign(kind, own_skip=False, *arguments):
    with torch.random.fork_rng():
        torch.manual_seed(31)
        model = kind(own_skip, *arguments)
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.uniform_(0.5, 1.5)
    return model


def samples(kind, batches=1):
    randomness = torch.Generator().manual_seed(32)
    return [
        (torch.randn(BATCH, *kind.shape, generator=randomness), torch.randint(CLASSES, (BATCH,), generator=randomness))
        for _ in range(batches)
    ]


# --- truth: autograd on the model's own forward pass -----------------------------------------------------------------


def vector_of(h, kind):
    """What the protocol calls the vector of a state."""
    if h.dim() == 4:
        return h.mean(dim=(2, 3))
    if h.dim() == 3:
        return h.mean(dim=1) if issubclass(kind, TokenMean) else h[:, 0]
    return h


def vector_of_gradient(g, kind):
    if g.dim() == 4:
        return g.sum(dim=(2, 3))
    if g.dim() == 3:
        return g.sum(dim=1) if issubclass(kind, TokenMean) else g[:, 0]
    return g


def truth(model, x, labels):
    twin = copy.deepcopy(model).eval()
    logits, hidden = twin(x, return_hidden=True)
    gradients = torch.autograd.grad(F.cross_entropy(logits, labels), hidden)
    norms = [vector_of(h, type(model)).norm(dim=1).median().item() for h in hidden]
    return norms, [vector_of_gradient(g, type(model)).norm(dim=1).median().item() for g in gradients]


def snapshot(model):
    tensors = {name: value.clone() for name, value in model.state_dict().items()}
    tensors |= {f"grad of {name}": p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return tensors, {name: module.training for name, module in model.named_modules()}


@pytest.mark.parametrize("door", ["diagnose", "FAProtocol"])
@pytest.mark.parametrize("own_skip", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_audit_sees_the_models_own_gradients_and_leaves_it_alone(kind, own_skip, door):
    model = foreign(kind, own_skip)
    (x, labels), *_ = batches = samples(kind, 3)
    with torch.random.fork_rng():
        model(x).sum().backward()
    model.train()
    model.blocks[0].eval()
    norms, gradients = truth(model, x, labels)
    (before, modes), rng = snapshot(model), torch.get_rng_state()
    if door == "diagnose":
        report = diagnose(model, batches, headline_acc=None)
    else:
        inputs, targets = (torch.cat(parts) for parts in zip(*batches))
        report = FAProtocol(model, inputs, targets, batch_size=BATCH).run()
    assert report.residual_norms == pytest.approx(norms, rel=1e-5)
    assert report.bp_grad_norms == pytest.approx(gradients, rel=1e-4)
    after, modes_after = snapshot(model)
    assert modes_after == modes and after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert torch.equal(torch.get_rng_state(), rng)


def test_the_gradient_of_a_spatial_mean_is_the_sum_over_positions():
    """Moving the mean by delta moves the loss by <sum of gradients, delta>: a finite difference says so."""
    model = foreign(ConvNet).double().eval()
    x, labels = samples(ConvNet)[0]
    x = x.double()
    _, hidden = model(x, return_hidden=True)
    direction = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    (g,) = torch.autograd.grad(F.cross_entropy(model.finish(hidden[-1]), labels), hidden[-1])
    moved = [F.cross_entropy(model.finish(hidden[-1] + s * direction[:, :, None, None]), labels) for s in (1e-5, -1e-5)]
    slope = ((moved[0] - moved[1]) / 2e-5).item()
    assert slope == pytest.approx((vector_of_gradient(g, ConvNet) * direction).sum().item(), rel=1e-6)
    report = diagnose(model, [(x, labels)], None)
    assert report.bp_grad_norms[-1] == pytest.approx(g.sum(dim=(2, 3)).norm(dim=1).median().item(), rel=1e-10)


def test_gradients_work_under_no_grad_and_with_frozen_parameters():
    model, batches = foreign(FlatMlp), samples(FlatMlp)
    expected = diagnose(model, batches, None).bp_grad_norms
    model.requires_grad_(False)
    with torch.no_grad():
        assert diagnose(model, batches, None).bp_grad_norms == expected


def test_terminal_attributes_that_the_head_does_not_use_are_not_used():
    """A 'norm' that belongs to the start must not be mistaken for the terminal one."""

    class InputNorm(FlatMlp):
        def __init__(self, own_skip):
            super().__init__(own_skip)
            del self.out_ln, self.out_head
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)
            nn.init.normal_(self.norm.weight)

        def start(self, x):
            return self.norm(self.embed(x))

        def finish(self, h):
            return self.head(h)

    model, batches = foreign(InputNorm), samples(InputNorm)
    assert diagnose(model, batches, None).bp_grad_norms == pytest.approx(truth(model, *batches[0])[1], rel=1e-4)


# --- violations ----------------------------------------------------------------------------------------------------


class NoBlocks(FlatMlp):
    def __init__(self, own_skip):
        super().__init__(own_skip)
        del self.blocks


class WrongStates(FlatMlp):
    def forward(self, x, return_hidden=False):
        logits, hidden = super().forward(x, return_hidden=True)
        return (logits, hidden[1:]) if return_hidden else logits


class NoHiddenArgument(FlatMlp):
    def forward(self, x):
        return super().forward(x)


class LogitsOnly(FlatMlp):
    def forward(self, x, return_hidden=False):
        return super().forward(x)


class NoStates(FlatMlp):
    def forward(self, x, return_hidden=False):
        return super().forward(x), None


class HalvedResidual(FlatMlp):
    def forward(self, x, return_hidden=False):
        hidden = [self.start(x)]
        for block in self.blocks:
            hidden.append(hidden[-1] + 0.5 * block(hidden[-1]))
        logits = self.finish(hidden[-1])
        return (logits, hidden) if return_hidden else logits


class HiddenTemperature(FlatMlp):
    def finish(self, h):
        return 2 * super().finish(h)


class NoHead(FlatMlp):
    def __init__(self, own_skip):
        super().__init__(own_skip)
        self.classifier = self.out_head
        del self.out_head

    def finish(self, h):
        return self.classifier(self.out_ln(h))


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (NoBlocks, "expected an nn.ModuleList 'blocks'; found children: embed, out_ln, out_head"),
        (WrongStates, "found 3 hidden states for 3 blocks; expected 4"),
        (NoHiddenArgument, "must return (logits, [h_0..h_L])"),
        (LogitsOnly, "must return (logits, [h_0..h_L])"),
        (NoStates, "must return (logits, [h_0..h_L])"),
        (HalvedResidual, "reproduces the model's logits"),
        (HiddenTemperature, "reproduces the model's logits"),
        (NoHead, "no head found"),
    ],
)
def test_violations_of_the_contract_are_named(kind, found):
    model = foreign(kind)
    modes = {name: module.training for name, module in model.named_modules()}
    with pytest.raises(AuditError) as caught:
        diagnose(model, samples(kind), None)
    assert found in str(caught.value) and kind.__name__ in str(caught.value)
    assert {name: module.training for name, module in model.named_modules()} == modes


# --- NaN and infinities --------------------------------------------------------------------------------------------


def assert_fails_as_non_finite(report):
    assert not report.evidence.finite and "non-finite" in report.flags
    assert report.three_check_verdict.startswith("FAIL(") and "non-finite" in report.three_check_verdict
    assert report.verdict.startswith("needs walk-back (") and "non-finite" in report.verdict


@pytest.mark.parametrize("kind", [FlatMlp, Vit, TokenMean, ConvNet, FlattenedConvNet])
@pytest.mark.parametrize("where", ["embed", "last block", "head"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_parameters_that_are_not_finite_fail_and_do_not_crash(kind, where, value):
    model = foreign(kind)
    head = getattr(model, "out_head", None) or model.head
    start = getattr(model, "embed", None) or model.patch_embed
    module = {"embed": start, "last block": model.blocks[-1], "head": head}[where]
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.view(-1)[0] = value
    assert_fails_as_non_finite(diagnose(model, samples(kind, 2), 0.9, 0.1))


@pytest.mark.parametrize("kind", [FlatMlp, Vit, ConvNet])
@pytest.mark.parametrize("bad_batch", [0, 2])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_inputs_that_are_not_finite_fail_in_any_batch(kind, bad_batch, value):
    batches = samples(kind, 3)
    batches[bad_batch][0][4].fill_(value)
    assert_fails_as_non_finite(diagnose(foreign(kind), batches, 0.9, 0.1))


def test_states_that_overflow_fail():
    model = foreign(BareMlp)
    with torch.no_grad():
        model.embed.weight.mul_(1e38)
    assert_fails_as_non_finite(diagnose(model, samples(BareMlp), 0.9, 0.1))


# --- what else foreign networks and their data do -------------------------------------------------------------------


class Tokens(nn.Module):
    """Six tokens, cls first; `spoil` puts NaN into a token that the head does not read."""

    def __init__(self, spoil: bool = False) -> None:
        super().__init__()
        self.embed, self.spoil = nn.Linear(4, 8), spoil
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.head = nn.Linear(8, 3)

    def forward(self, x, return_hidden=False):
        h = self.embed(x)
        if self.spoil:
            h = torch.cat([h[:, :-1], h[:, -1:] * float("nan")], dim=1)
        states = [h]
        for block in self.blocks:
            states.append(states[-1] + block(states[-1]))
        logits = self.head(states[-1][:, 0])
        return (logits, states) if return_hidden else logits


def test_nan_in_a_token_that_nothing_reads_is_still_a_flag():
    batches = [(torch.randn(8, 6, 4), torch.randint(3, (8,))) for _ in range(2)]
    assert diagnose(Tokens(), batches, 0.9, 0.5).evidence.finite
    report = diagnose(Tokens(spoil=True), batches, 0.9, 0.5)
    assert "non-finite" in report.flags and report.three_check_verdict.startswith("FAIL")


class Widening(nn.Module):
    """Blocks that follow each other without a skip and change the width; the first works in place."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 5)
        self.blocks = nn.ModuleList([nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 7)), nn.Linear(7, 9)])
        self.head = nn.Linear(9, 3)

    def forward(self, x, return_hidden=False):
        states = [self.embed(x)]
        for block in self.blocks:
            states.append(block(states[-1].clone()))
        return (self.head(states[-1]), states) if return_hidden else self.head(states[-1])


def test_blocks_that_change_the_width_and_work_in_place_are_audited():
    model, x, y = Widening(), torch.randn(8, 4), torch.randint(3, (8,))
    logits, states = model(x, return_hidden=True)
    gradients = torch.autograd.grad(F.cross_entropy(logits, y), states)
    report = diagnose(model, [(x, y)], 0.5)
    expected = [torch.linalg.vector_norm(g.double(), dim=-1).median().item() for g in gradients]
    assert report.bp_grad_norms == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    "batch",
    [
        (torch.randn(4, 6, 4), torch.rand(4)),
        (torch.randn(4, 6, 4), torch.tensor([0, 1, 2, 3])),
        (torch.randn(4, 6, 4), torch.tensor([0, 1, 2, -1])),
        (torch.randn(4, 6, 4), torch.zeros(4, 1, dtype=torch.int64)),
        (torch.randn(4, 6, 4), torch.zeros(3, dtype=torch.int64)),
        (torch.randn(4, 6, 4), torch.zeros(4, dtype=torch.int64), 1),
        torch.randn(4, 6, 4),
        None,
    ],
    ids=["float labels", "label too large", "negative label", "column", "count", "triple", "tensor", "None"],
)
def test_batches_that_are_no_labelled_inputs_are_refused(batch):
    with pytest.raises(AuditError, match="eval_batches: found"):
        diagnose(Tokens(), [batch], 0.5)


def test_accuracies_of_any_numeric_type_become_plain_numbers():
    batches = [(torch.randn(8, 6, 4), torch.randint(3, (8,)))]
    report = diagnose(Tokens(), batches, torch.tensor(0.75), np.float32(0.5))
    assert json.loads(json.dumps(report.to_dict()))["checks"]["depth"]["value"] == 0.25
    with pytest.raises(AuditError, match="fraction between 0 and 1"):
        diagnose(Tokens(), batches, "high")


def test_a_data_loader_does_not_move_the_global_random_stream():
    data = torch.utils.data.TensorDataset(torch.randn(8, 6, 4), torch.randint(3, (8,)))
    model, before = Tokens(), torch.get_rng_state()
    diagnose(model, torch.utils.data.DataLoader(data, batch_size=4, shuffle=True), 0.5)
    assert torch.equal(torch.get_rng_state(), before)
