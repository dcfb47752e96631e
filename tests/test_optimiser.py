"""The optimiser takes torch's own steps, and a training needs no compiler."""

import copy
import subprocess
import sys

import torch

from fa_audit.training.optimiser import AdamW

PROGRAM = """
import sys
import torch
from fa_audit.training.optimiser import AdamW
weight = torch.ones(3, requires_grad=True)
optimiser = AdamW([weight], fused=True)
weight.sum().backward()
optimiser.step()
optimiser.load_state_dict(optimiser.state_dict())
optimiser.zero_grad()
sys.exit("torch._dynamo" in sys.modules)
"""


def steps(optimiser_class, count, state=None):
    """Weights and state after some steps on a fixed sequence of gradients."""
    randomness = torch.Generator().manual_seed(5)
    weights = [torch.randn(4, 3, generator=randomness).requires_grad_(), torch.randn(3, generator=randomness)]
    weights[1].requires_grad_()
    groups = [{"params": weights[:1], "weight_decay": 0.1}, {"params": weights[1:], "weight_decay": 0.0}]
    optimiser = optimiser_class(groups, lr=0.01, fused=True)
    if state is not None:
        optimiser.load_state_dict(copy.deepcopy(state))  # whose tensors torch would go on with
    for _ in range(count):
        optimiser.zero_grad()
        for weight in weights:
            weight.grad = torch.randn(weight.shape, generator=randomness)
        optimiser.step()
    return weights, copy.deepcopy(optimiser.state_dict())


def test_steps_and_state_are_torch_s_own_bit_for_bit():
    (ours, state), (theirs, expected) = steps(AdamW, 20), steps(torch.optim.AdamW, 20)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    assert state["param_groups"] == expected["param_groups"] and state["state"].keys() == expected["state"].keys()
    for moments, known in zip(state["state"].values(), expected["state"].values()):
        assert all(torch.equal(moments[name], known[name]) for name in known)


def test_a_loaded_state_goes_on_as_torch_s_own():
    _, state = steps(torch.optim.AdamW, 7)
    (ours, _), (theirs, _) = steps(AdamW, 5, state), steps(torch.optim.AdamW, 5, state)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    assert not torch.equal(ours[0], steps(AdamW, 5)[0][0])  # the moments matter


def test_neither_steps_nor_state_import_the_compiler():
    assert subprocess.run([sys.executable, "-c", PROGRAM], check=False).returncode == 0
