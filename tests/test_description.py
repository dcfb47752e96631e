"""Models that know nothing of this package, audited from a description; hand-written passes are the
truth.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torchvision import models as zoo

from fa_audit.networks.description import describe
from fa_audit.networks.states import Description
from fa_audit.networks.trace import reference, untouched

CLASSES, BATCH, SIDE = 4, 5, 32
READ = {  # a state's vector and the gradient by it, from their definitions
    "all features": (lambda h: h.flatten(1), lambda g: g.flatten(1)),
    "spatial mean": (
        lambda h: h.mean((2, 3)) if h.dim() == 4 else h,
        lambda g: g.sum((2, 3)) if g.dim() == 4 else g,
    ),
    "token mean": (lambda h: h.mean(1), lambda g: g.sum(1)),
    "spatial mean, channels last": (lambda h: h.mean((1, 2)), lambda g: g.sum((1, 2))),
}


def built(make, *arguments, **options):
    """A model whose parameters are all random, in training mode, the statistics of its BatchNorm
    not the initial.
    """
    with torch.random.fork_rng():
        torch.manual_seed(21)
        model = make(*arguments, **options)
        for parameter in model.parameters():
            if not parameter.any():
                nn.init.normal_(parameter, std=0.1)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(std=0.05)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
    return model


def samples(count=BATCH, side=SIDE, channels=3, dtype=torch.float32):
    randomness = torch.Generator().manual_seed(22)
    x = torch.randn(count, channels, side, side, generator=randomness, dtype=torch.float64).to(
        dtype
    )
    return x, torch.randint(CLASSES, (count,), generator=randomness)


def plain_cnn():
    """A plain chain without a name to go by, which works in place wherever it can."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.ReLU(inplace=True), nn.Conv2d(6, 5, 3, stride=2), nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 7), nn.ReLU(inplace=True), nn.Linear(7, CLASSES),
    )  # fmt: skip


def plain_cnn_by_hand(model, x):
    """Blocks 0, 2, 3 and 6: images, two maps before and one after a ReLU, a vector."""
    first = F.conv2d(x, model[0].weight, model[0].bias)
    second = F.conv2d(first.relu(), model[2].weight, model[2].bias, stride=2)
    third = second.relu()
    fourth = F.linear(third.mean((2, 3)), model[6].weight, model[6].bias)
    return [x, first, second, third, fourth], F.linear(
        fourth.relu(), model[8].weight, model[8].bias
    )


def resnet18():
    return zoo.resnet18(num_classes=CLASSES)


def resnet18_by_hand(model, x):
    states = [F.max_pool2d(model.bn1(model.conv1(x)).relu(), 3, 2, 1)]
    for layer in (model.layer1, model.layer2, model.layer3, model.layer4):
        for block in layer:
            h = states[-1]
            inner = block.bn2(block.conv2(block.bn1(block.conv1(h)).relu()))
            states.append((inner + (block.downsample(h) if block.downsample else h)).relu())
    return states, F.linear(states[-1].mean((2, 3)), model.fc.weight, model.fc.bias)


class OuterSkip(nn.Module):
    """Blocks return what the model adds to their input, in place."""

    def __init__(self):
        super().__init__()
        self.start, self.end = nn.Linear(3, 6), nn.Linear(6, CLASSES)
        self.parts = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))

    def forward(self, x):
        h = self.start(x.mean((2, 3)))
        for part in self.parts:
            h = h.add_(part(h))
        return self.end(h)


def outer_skip_by_hand(model, x):
    states = [model.start(x.mean((2, 3)))]
    for part in model.parts:
        states.append(states[-1] + part(states[-1]))
    return states, model.end(states[-1])


class Linears(nn.Module):
    """Two blocks on the images as (B, H, W, d), as in a Swin transformer, or as tokens without a
    cls token.
    """

    def __init__(self, arrange, positions):
        super().__init__()
        self.body = nn.ModuleDict(
            {"first": nn.Linear(3, 6), "second": nn.Sequential(nn.Tanh(), nn.Linear(6, 6))}
        )
        self.head, self.arrange, self.positions = nn.Linear(6, CLASSES), arrange, positions

    def forward(self, x):
        return linears_by_hand(self, x)[1]


def linears_by_hand(model, x):
    states = [model.arrange(x)]
    for block in model.body.values():
        states.append(block(states[-1]))
    return states, model.head(states[-1].mean(model.positions))


class Returns(nn.Module):
    """A layer of one function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, h):
        return self.function(h)


STARTS = {  # ways to h_0 (B, d) from images; torch cannot write in place to all of them
    "a view": lambda x: x[:, 0, 0, :6],
    "one of several": lambda x: x[:, 0, :, :6].unbind(1)[0],
    "an expansion": lambda x: x[:1, 0, 0, :6].expand(len(x), -1),
    "inference": torch.inference_mode()(lambda x: x[:, 0, 0, :6] * 1.0),
}


def starting(way):
    """A chain of three layers after a first state that is made in such a way."""

    def by_hand(model, x):
        states = [way(x).detach().clone().requires_grad_()]
        for layer in model[1:]:
            states.append(layer(states[-1]))
        return states[:-1], states[-1]

    def make():
        return nn.Sequential(Returns(way), nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, CLASSES))

    return make, by_hand, ("input:1", "1", "2"), "all features"


PLAIN = (plain_cnn, plain_cnn_by_hand, ("input:0", "0", "2", "3", "6"))
CASES = {
    **{f"starts with {name}": starting(way) for name, way in STARTS.items()},
    "plain CNN, maps": (*PLAIN, "spatial mean"),
    "plain CNN, everything": (*PLAIN, "all features"),
    "resnet18": (resnet18, resnet18_by_hand, "layer*.*", "spatial mean"),
    "skip outside, in place": (OuterSkip, outer_skip_by_hand, "parts.*", "all features"),
    "channels last": (
        lambda: Linears(lambda x: x.permute(0, 2, 3, 1), (1, 2)),
        linears_by_hand,
        "body.*",
        "spatial mean, channels last",
    ),
    "token mean": (
        lambda: Linears(lambda x: x.flatten(2).transpose(1, 2), 1),
        linears_by_hand,
        "body.*",
        "spatial mean",
    ),
}


def truth(by_hand, model, x, labels, how):
    """Vectors of states, gradients by them and logits, from a hand-written pass in evaluation mode."""
    twin = copy.deepcopy(model).eval()
    states, logits = by_hand(twin, x.clone().requires_grad_())
    gradients = torch.autograd.grad(F.cross_entropy(logits, labels), states)
    vector, by_vector = READ[how]
    return tuple(map(vector, states)), tuple(map(by_vector, gradients)), logits


@pytest.mark.parametrize("case", CASES)
def test_states_and_gradients_are_those_of_the_hand_written_pass(case):
    make, by_hand, blocks, reads = CASES[case]
    model, (x, labels) = built(make).double(), samples(dtype=torch.float64)
    before, images = copy.deepcopy(model.state_dict()), x.clone()
    network = describe(model, Description(blocks, reads), x)
    with untouched(model), torch.no_grad():
        found = reference(network, x, labels)
        logits, states = network(x, return_hidden=True)
    expected = truth(by_hand, model, x, labels, "token mean" if case == "token mean" else reads)
    for ours, theirs in zip((found.states, found.gradients, found.logits), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)
    measured = (*found.states, *found.gradients)
    assert all(row.any() for rows in measured for row in rows)
    assert len(states) == len(found.states) == network.depth + 1
    torch.testing.assert_close(tuple(map(network.read, states)), found.states, rtol=0, atol=0)
    torch.testing.assert_close(logits, found.logits, rtol=0, atol=0)
    # No whole states are kept.
    assert all(t.untyped_storage().nbytes() == t.nbytes for t in measured)
    assert torch.equal(x, images)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
