"""However a model makes its first state, the states and gradients are right and the model stays as it was."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fa_audit.core.errors import AuditError
from fa_audit.networks.description import describe
from fa_audit.networks.trace import Description, reference

WIDTH, CLASSES, BATCH = 6, 4, 5
HALVES = {  # ways to the first half of (B, 2, d); torch cannot write in place to all of them
    "plain": lambda self, h: h[:, 0] * 1.0,
    "view": lambda self, h: h[:, 0],
    "unbind": lambda self, h: h.unbind(1)[0],
    "expanded": lambda self, h: h[:1, 0].expand(len(h), -1),
    "parameter": lambda self, h: self.start[: len(h)],
    "inference": lambda self, h: self.inferred(h),
}


COPIES = ("plain", "view")  # what torch can write to


class Starts(nn.Module):
    """Two blocks after a first state made in one of these ways, with skips around them or without."""

    def __init__(self, way, skip):
        super().__init__()
        self.way, self.skip = HALVES[way], skip
        self.one, self.two, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)
        self.start = nn.Parameter(torch.randn(BATCH, WIDTH))

    @torch.inference_mode()
    def inferred(self, h):
        return h[:, 0] * 1.0

    def states_after(self, h):
        middle = self.one(h) + self.skip * h
        return middle, self.two(middle) + self.skip * middle

    def forward(self, x):
        return self.head(self.states_after(self.way(self, x))[1])


def made(way, skip):
    with torch.random.fork_rng():
        torch.manual_seed(8)
        return Starts(way, skip).double(), torch.randn(BATCH, 2, WIDTH, dtype=torch.float64)


@pytest.mark.parametrize(("way", "skip"), [(way, 0) for way in HALVES] + [(way, 1) for way in COPIES])
def test_states_and_gradients_are_right_and_the_model_stays_as_it_was(way, skip):
    model, x = made(way, skip)
    before, given, labels = copy.deepcopy(model.state_dict()), x.clone(), torch.arange(BATCH) % CLASSES
    found = reference(describe(model, Description(("one", "two"), "all features"), x), x, labels)
    start = model.way(model, x).detach().clone().requires_grad_()
    states = (start, *model.states_after(start))
    gradients = torch.autograd.grad(F.cross_entropy(model.head(states[2]), labels), states)
    for mine, right in ((found.states, states), (found.gradients, gradients)):
        for one, other in zip(mine, right):
            torch.testing.assert_close(one, other.detach(), rtol=1e-12, atol=1e-14)
    assert torch.equal(x, given)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.is_leaf and p.requires_grad and p.grad is None for p in model.parameters())


@pytest.mark.parametrize("way", sorted(HALVES.keys() - COPIES))
def test_a_skip_whose_gradient_would_be_lost_is_an_error(way):
    model, x = made(way, 1)
    with pytest.raises(AuditError, match=r"Starts: the input of block 'one' is a parameter, or a part of another"):
        describe(model, Description(("one", "two"), "all features"), x)
