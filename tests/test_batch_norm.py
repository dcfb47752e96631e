"""Running statistics see every batch once, those of frozen blocks never; files and audits keep them."""

import json

import pytest
import torch
from networks import batch_of, rough_learner, spec_of

from fa_audit.audit.run_audit import audit
from fa_audit.core.randomness import generator
from fa_audit.data.dataset import pad, training_batches
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES
from fa_audit.networks.trace import keeping_statistics, reference
from fa_audit.training.checkpoint import learner_tensors, load_checkpoint, save_checkpoint
from fa_audit.training.learner import build, learn
from fa_audit.training.loop import train

normalised_by_batch = pytest.mark.parametrize("name", ["small_resnet", "bn_cnn"])


def assert_same_bits(found, expected):
    assert found.keys() == expected.keys()
    assert [n for n in found if not torch.equal(found[n], expected[n])] == []


# --- training --------------------------------------------------------------------------------------------------------


@torch.no_grad()
def after_single_passes(spec, dataset):
    """A network that was run in training mode once on every batch of a run."""
    network, padded = build(spec, dataset.image_shape, dataset.classes).network, pad(dataset.train_images, 1)
    network.train()
    network.blocks[: spec.frozen_blocks].eval()
    for epoch in range(spec.epochs):
        for x, _ in training_batches(dataset, padded, 16, generator(spec.seed, "epoch", epoch)):
            network(x)
    return network


@pytest.mark.parametrize("method", METHODS)
@normalised_by_batch
def test_running_statistics_are_those_of_one_pass_a_step_and_frozen_ones_stay(dataset, name, method):
    spec = spec_of(name, method, depth=3, frozen_blocks=1, epochs=1, lr=0.0)
    expected, found = after_single_passes(spec, dataset), train(spec, dataset).learner.network
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
    assert [n for n, tensor in tensors.items() if tensor.is_floating_point() and not tensor.isfinite().all()] == []


# --- running blocks again ------------------------------------------------------------------------------------------


def test_running_a_part_again_changes_neither_its_output_nor_any_statistics():
    learner, (x, _) = rough_learner("bn_cnn", depth=3, frozen_blocks=1), batch_of()
    learner.train_mode()
    before = {name: buffer.clone() for name, buffer in learner.network.named_buffers()}
    modes = [module.training for module in learner.network.modules()]
    with keeping_statistics(learner.network):
        kept = learner.network(x)
    assert_same_bits(dict(learner.network.named_buffers()), before)
    assert [module.training for module in learner.network.modules()] == modes
    assert torch.equal(learner.network(x), kept)
    counts = [int(learner.network.get_buffer(name) - before[name]) for name in before if name.endswith("tracked")]
    assert sorted(counts) == [0, 1, 1]


# --- files and audits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_trained_network_is_read_back_bit_by_bit_and_audited(dataset, tmp_path, name):
    for method in ("dfa", "state_bridge"):
        trained = train(spec_of(name, method, frozen_blocks=1), dataset)
        learner, last = trained.learner, trained.history[-3:]
        save_checkpoint(learner, tmp_path / method)
        again = load_checkpoint(tmp_path / method)
        before = {n: tensor.clone() for n, tensor in learner_tensors(learner).items()}
        assert_same_bits(learner_tensors(again), before)
        x, labels = dataset.normalise(dataset.test_images), dataset.test_labels
        ours, theirs = (reference(twin.network.eval(), x, labels) for twin in (learner, again))
        assert torch.equal(ours.logits, theirs.logits)
        assert trained.accuracy == (ours.logits.argmax(dim=1) == labels).double().mean().item()
        norms = [h.norm(dim=1).median().item() for h in ours.states]
        assert [row["hidden_norm"] for row in last] == pytest.approx(norms, rel=1e-4)  # in evaluation mode
        report = audit(again, dataset, 0.5, own_frozen=("frozen", 0.4), bp_frozen_acc=0.4)
        assert_same_bits(learner_tensors(again), before)
        assert report.evidence.finite and len(report.residual_norms) == len(report.bp_grad_norms) == 3
        assert all(0 < norm < torch.inf for norm in report.residual_norms + report.bp_grad_norms)
        assert [block["cosine_at_output"].value is None for block in report.credit] == [False, False]
        described = json.loads(json.dumps(report.to_dict(), allow_nan=False))
        assert len(described["credit"]) == 2 and "'nan'" not in str(described) and "'inf'" not in str(described)
