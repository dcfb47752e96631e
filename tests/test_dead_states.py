"""A state of which every feature is zero, as a ReLU can leave it, gives no method a NaN to train with."""

import pytest
import torch
from networks import SHAPE, batch_of, rough_learner

from fa_audit.core.randomness import generator
from fa_audit.methods import METHODS
from fa_audit.training.learner import learn


@torch.no_grad()
def dead_learner(name, method):
    """A learner whose blocks return zeros from the first to the last, whatever the image."""
    learner = rough_learner(name, method, penalty=0.01)
    for parameter_name, parameter in learner.network.blocks.named_parameters():
        if parameter.dim() == 1:  # the scale and shift of a BatchNorm
            parameter.fill_(-30.0 if parameter_name.endswith("bias") else 0.0)
    return learner


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["small_resnet", "bn_cnn"])
def test_a_step_on_dead_states_keeps_every_parameter_finite(name, method):
    learner = dead_learner(name, method)
    x, labels = batch_of(SHAPE, count=6)
    learner.train_mode()
    states = learner.network(x, return_hidden=True)[1]
    assert not states[-1].any()
    optimiser = learner.optimiser()
    for step in range(2):
        optimiser.zero_grad()
        learn(learner, x, labels, generator(step, "dead"))
        optimiser.step()
    tensors = {**learner.network.state_dict(), **learner.state.state_dict()}
    assert [n for n, tensor in tensors.items() if tensor.is_floating_point() and not tensor.isfinite().all()] == []
