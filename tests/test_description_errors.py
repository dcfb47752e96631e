"""A description that does not fit a model is answered with one line that names what was found."""

import pytest
import torch
from test_description import CLASSES, Returns, resnet18
from torch import nn

from fa_audit import diagnose
from fa_audit.core.errors import AuditError
from fa_audit.networks.description import describe
from fa_audit.networks.states import Description


class Tricky(nn.Module):
    """Everything that can go wrong with a block, by name; the honest chain is one, two."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(3, 6), nn.Linear(6, 6), nn.Linear(6, CLASSES)
        self.flat = Returns(lambda h: h.mean())
        self.counted = Returns(lambda h: h.long())
        self.side, self.idle = nn.Linear(6, 6), nn.Linear(6, 6)
        self.stages = nn.ModuleList([self.one])
        self.detached = Returns(lambda h: h.detach())

    def forward(self, x):
        h = self.two(self.one(x.mean((2, 3))))
        self.flat(h), self.counted(h), self.side(h)
        return self.head(h + 0 * self.detached(h))


class Tokens(nn.Module):
    """Tokens through one block; the head reads what `head_reads` returns, with weights that are
    zero.
    """

    def __init__(self, head_reads):
        super().__init__()
        self.block, self.head, self.head_reads = nn.Linear(3, 6), nn.Linear(6, CLASSES), head_reads
        nn.init.zeros_(self.head.weight)

    def forward(self, x):
        return self.head(self.head_reads(self.block(x.flatten(2).transpose(1, 2))))


def answering(answer):
    """A model that returns something else than logits."""
    return lambda: nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 6), Returns(answer))


MISFITS = [  # a model, places, what its head reads, and words of the error
    (resnet18, ["layer1.0", "layer5.0"], "spatial mean", "'layer5.0' is not a module. There are layer"),
    (resnet18, "block*.*", "spatial mean", "'block*.*' is not a module."),
    (resnet18, [], "spatial mean", "no state was found"),
    (resnet18, ["layer1.0.conv2"], "spatial mean", "state 0 (layer1.0.conv2) is not whole"),
    (resnet18, "layer*.*", "cls token", "expected (B, T, d) or (B, d) for reads: cls token"),
    (resnet18, "layer*.*", "spatial max", "unknown vector of a state 'spatial max'"),
    (Tricky, "idle", "all features", "'idle' did not run in a forward pass"),
    (Tricky, ["one", "idle"], "all features", "'idle' did not run in a forward pass"),
    (Tricky, ["one", "flat"], "all features", "'flat': found a tensor () of torch.float32"),
    (Tricky, ["one", "counted"], "all features", "expected one tensor of floating-point numbers"),
    (Tricky, ["one", "side"], "all features", "state 1 (side) is not whole: 100 %"),
    (Tricky, ["one", "detached"], "all features", "no gradient reaches state 1 (detached)"),
    (answering(lambda h: (h, h)), ["1"], "all features", "returns tuple (Tensor, Tensor) for 5 inputs"),
    (answering(lambda h: h.mean(0, keepdim=True)), ["1"], "all features", "returns a tensor (1, 6)"),
    (lambda: Tokens(lambda h: h[:, 1:].sum(1)), ["block"], "cls token", "found cls token"),
    (lambda: Tokens(lambda h: h[:, -1]), ["block"], "cls token", "Expected last token"),
    (lambda: nn.Sequential(nn.Conv2d(3, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, CLASSES)),
     ["0"], "spatial mean, channels last", "a mean over the dimensions 2, 3"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "blocks", "reads", "words"), MISFITS)
def test_a_description_that_does_not_fit_is_one_line_that_says_what_was_found(
    make, blocks, reads, words
):
    x, labels = torch.rand(5, 3, 8, 8), torch.arange(5) % CLASSES
    with pytest.raises(AuditError) as caught:
        diagnose(make(), [(x, labels)], None, description=Description(blocks, reads))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value) and str(caught.value).endswith((".", "?"))


def test_what_the_head_reads_is_not_asked_where_logits_are_not_finite():
    """Their cause must be reported as such, not blamed on the description."""
    model = Tokens(lambda h: h[:, 0])
    nn.init.constant_(model.head.bias, torch.inf)
    report = diagnose(
        model, [(torch.rand(5, 3, 2, 2), torch.zeros(5, dtype=torch.int64))], None,
        description=Description(["block"], "cls token"),
    )  # fmt: skip
    assert not report.finite


def test_a_pattern_takes_a_shared_module_once_and_whole_names_between_dots():
    model, x = Tricky(), torch.rand(2, 3, 4, 4)
    assert describe(model, Description(("stages.*", "one")), x).names == ("stages.0",)
    assert describe(model, Description(("o*e", "t*o")), x).names == ("one", "two")
