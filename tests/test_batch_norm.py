"""Running statistics see every batch once, those of frozen blocks never; audits keep them."""

from dataclasses import replace

import pytest
import torch
from networks import assert_same_bits, batch_of, rough_learner, spec_of

from fa_audit import diagnose
from fa_audit.audit.run_audit import audit
from fa_audit.core.randomness import generator
from fa_audit.data.dataset import evaluation_batches, pad, training_batches
from fa_audit.methods import METHODS
from fa_audit.training.learner import build, learn
from fa_audit.training.loop import train

TOO_SMALL = 1e-60  # of a learning rate: float32 weights stay as they are

normalised_by_batch = pytest.mark.parametrize("name", ["small_resnet", "bn_cnn"])


@torch.no_grad()
def after_passes(spec, dataset, count=1):
    """A network that was run in training mode `count` times on every batch of a run."""
    network = build(spec, dataset.image_shape, dataset.classes).network.train()
    padded = pad(dataset.train_images, 1)
    network.blocks[: spec.frozen_blocks].eval()
    for epoch in range(spec.epochs):
        for x, _ in training_batches(dataset, padded, 16, generator(spec.seed, "epoch", epoch)):
            for _ in range(count):
                network(x)
    return network


@normalised_by_batch
def test_an_audit_says_what_two_updates_a_step_would_change(dataset, name):
    spec = spec_of(name, depth=3, epochs=20, lr=TOO_SMALL, validation=0.2)
    images, labels = dataset.train_images[:40], dataset.train_labels[:40]
    seen = replace(dataset, train_images=images, train_labels=labels)
    norms = []
    for count in (1, 2):
        report = diagnose(after_passes(spec, seen, count), evaluation_batches(dataset), None)
        growth = report.checks["scale"].value
        norms.append((growth, report.residual_norms[-1], report.bp_grad_norms[-1]))
    found = list(audit(train(spec, dataset).learner, dataset, None).batch_norm_twice.values())
    assert found == pytest.approx(norms[1], rel=1e-4) != pytest.approx(norms[0], rel=1e-4)


@pytest.mark.parametrize("method", METHODS)
@normalised_by_batch
def test_running_statistics_are_those_of_one_pass_a_step_and_frozen_ones_stay(
    dataset, name, method
):
    spec = spec_of(name, method, depth=3, frozen_blocks=1, epochs=1, lr=TOO_SMALL)
    expected, found = after_passes(spec, dataset), train(spec, dataset).learner.network
    assert_same_bits(found.state_dict(), expected.state_dict())  # with the number of passes


@torch.no_grad()
def dead_learner(name, method):
    """A learner whose blocks return zeros, as a ReLU can."""
    learner = rough_learner(name, method, penalty=0.01)
    for parameter_name, parameter in learner.network.blocks.named_parameters():
        if parameter.dim() == 1:  # the scale and shift of a BatchNorm
            parameter.fill_(-30.0 if parameter_name.endswith("bias") else 0.0)
    return learner


@pytest.mark.parametrize("method", METHODS)
@normalised_by_batch
def test_a_step_on_dead_states_keeps_every_parameter_finite(name, method):
    learner = dead_learner(name, method)
    x, labels = batch_of(count=6)
    learner.train_mode()
    states = learner.network(x, return_hidden=True)[1]
    assert not states[-1].any()
    optimiser = learner.optimiser()
    for step in range(2):
        optimiser.zero_grad()
        learn(learner, x, labels, generator(step, "dead"))
        optimiser.step()
    tensors = {**learner.network.state_dict(), **learner.state.state_dict()}
    assert all(tensor.isfinite().all() for tensor in tensors.values())
