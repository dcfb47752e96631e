"""Running statistics see every batch once, those of frozen blocks never; files and audits keep them."""

import json

import pytest
import torch
from networks import assert_same, batch_of, by_hand, rough_learner, spec_of, vector
from torch import nn

from fa_audit import diagnose
from fa_audit.audit.run_audit import audit
from fa_audit.core.randomness import generator
from fa_audit.data.dataset import evaluation_batches, pad, training_batches
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES
from fa_audit.networks.trace import keeping_statistics, reference, trace
from fa_audit.training.checkpoint import Resume, learner_tensors, load_checkpoint, save_checkpoint
from fa_audit.training.learner import build, learn
from fa_audit.training.loop import train

STEPS = 4  # 50 samples in batches of 16
normalised_by_batch = pytest.mark.parametrize("name", ["small_resnet", "bn_cnn"])


def assert_same_bits(found, expected):
    assert found.keys() == expected.keys()
    assert [n for n in found if not torch.equal(found[n], expected[n])] == []


def statistics(network):
    return {name: buffer.clone() for name, buffer in network.named_buffers()}


# --- training --------------------------------------------------------------------------------------------------------


@torch.no_grad()
def after_passes(spec, dataset, count=1):
    """A network that was run in training mode `count` times on every batch of a run."""
    network, padded = build(spec, dataset.image_shape, dataset.classes).network, pad(dataset.train_images, 1)
    network.train()
    network.blocks[: spec.frozen_blocks].eval()
    for epoch in range(spec.epochs):
        for x, _ in training_batches(dataset, padded, 16, generator(spec.seed, "epoch", epoch)):
            for _ in range(count):
                network(x)
    return network


@normalised_by_batch
def test_an_audit_says_what_two_updates_a_step_would_change(dataset, name):
    spec = spec_of(name, depth=3, epochs=15, lr=0.0)
    once, twice = (diagnose(after_passes(spec, dataset, n), evaluation_batches(dataset), None) for n in (1, 2))
    found = audit(train(spec, dataset).learner, dataset, None).batch_norm_twice
    norms = [(r.checks.scale.value, r.residual_norms[-1], r.bp_grad_norms[-1]) for r in (once, twice)]
    assert list(found.values()) == pytest.approx(norms[1], rel=1e-4) != pytest.approx(norms[0], rel=1e-4)


@pytest.mark.parametrize("method", METHODS)
@normalised_by_batch
def test_running_statistics_are_those_of_one_pass_a_step_and_frozen_ones_stay(dataset, name, method, frozen=1):
    spec = spec_of(name, method, depth=3, frozen_blocks=frozen, epochs=1, lr=0.0)
    expected, found = after_passes(spec, dataset), train(spec, dataset).learner.network
    assert_same_bits(found.state_dict(), expected.state_dict())
    counts = {n: int(b) for n, b in found.named_buffers() if n.endswith("num_batches_tracked")}
    assert len(counts) > 2
    assert all(count == (0 if frozen and n.startswith("blocks.0.") else STEPS) for n, count in counts.items())


@normalised_by_batch
def test_frozen_blocks_normalise_by_their_initial_statistics(name):
    learner, (x, _) = rough_learner(name, "dfa", depth=3, frozen_blocks=2), batch_of()
    learner.train_mode()
    run = trace(learner.network, x, local=True)
    logits, states = by_hand(name, learner.network, x, training=True, frozen=2)
    for found, expected in zip((run.logits, *run.states), (logits, *states), strict=True):
        assert_same(found, expected)
    assert [block.training for block in learner.network.blocks] == [False, False, True]


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


def layers():
    """A normalisation layer in training mode, one in evaluation mode, one without statistics."""
    with torch.random.fork_rng(devices=[]):
        model = nn.Sequential(*(nn.BatchNorm2d(3, track_running_stats=index < 2) for index in range(3))).double()
    for layer in model[:2]:
        layer.running_mean.fill_(0.7)
        layer.running_var.fill_(2.0)
    model[1].eval()
    return model


def test_keeping_statistics_changes_no_output_and_no_statistics():
    model, (x, _) = layers(), batch_of()
    before = statistics(model)
    with keeping_statistics(model):
        kept = [layer(x) for layer in model]
        assert not model[1].training and model[0].training
    assert_same_bits(statistics(model), before)
    assert all(torch.equal(layer(x), output) for layer, output in zip(model, kept, strict=True))
    assert int(model[0].num_batches_tracked) == 1 and not torch.equal(model[0].running_mean, before["0.running_mean"])
    after = statistics(model)
    assert all(torch.equal(after[n], tensor) for n, tensor in before.items() if n.startswith("1."))
    assert model[2].running_mean is None


def test_keeping_statistics_restores_every_layer_after_an_exception():
    model = layers()
    with pytest.raises(ZeroDivisionError), keeping_statistics(model):
        _ = 1 / 0
    assert [layer.track_running_stats for layer in model] == [True, True, False]
    assert [layer.training for layer in model] == [True, False, True]


# --- files and audits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_trained_network_is_read_back_bit_by_bit_and_audited(dataset, tmp_path, name):
    for method in ("dfa", "state_bridge"):
        learner = train(spec_of(name, method, frozen_blocks=1), dataset).learner
        save_checkpoint(learner, tmp_path / method)
        again = load_checkpoint(tmp_path / method)
        before = {n: tensor.clone() for n, tensor in learner_tensors(learner).items()}
        assert_same_bits(learner_tensors(again), before)
        x, labels = dataset.normalise(dataset.test_images), dataset.test_labels
        ours, theirs = (reference(twin.network.eval(), x, labels) for twin in (learner, again))
        assert torch.equal(ours.logits, theirs.logits)
        report = audit(again, dataset, 0.5, own_frozen=("frozen", 0.4), bp_frozen_acc=0.4)
        assert_same_bits(learner_tensors(again), before)
        assert report.evidence.finite and len(report.residual_norms) == len(report.bp_grad_norms) == 3
        assert all(0 < norm < torch.inf for norm in report.residual_norms + report.bp_grad_norms)
        assert [block["cosine_at_output"].value is None for block in report.credit] == [False, False]
        described = json.loads(json.dumps(report.to_dict(), allow_nan=False))
        assert len(described["credit"]) == 2 and "'nan'" not in str(described) and "'inf'" not in str(described)


@normalised_by_batch
def test_an_interrupted_training_continues_with_its_statistics(dataset, tmp_path, name, method="dfa"):
    class Interrupting(Resume):
        def save(self, *args):
            super().save(*args)
            raise InterruptedError

    spec = spec_of(name, method, epochs=2)
    with pytest.raises(InterruptedError):
        train(spec, dataset, resume=Interrupting(tmp_path / "resume", "same"))
    again = train(spec, dataset, resume=Resume(tmp_path / "resume", "same"))
    assert_same_bits(learner_tensors(again.learner), learner_tensors(train(spec, dataset).learner))


@normalised_by_batch
def test_the_history_observes_the_network_in_evaluation_mode(dataset, name):
    trained = train(spec_of(name, "dfa"), dataset)
    x = dataset.normalise(dataset.test_images)
    with torch.no_grad():
        logits, states = by_hand(name, trained.learner.network, x, training=False)
        _, by_batch = by_hand(name, trained.learner.network, x, training=True)
    norms, others = ([vector(h).norm(dim=1).median().item() for h in chain] for chain in (states, by_batch))
    assert [row["hidden_norm"] for row in trained.history] == pytest.approx(norms, rel=1e-4)
    assert norms != pytest.approx(others, rel=0.01)
    assert trained.accuracy == (logits.argmax(dim=1) == dataset.test_labels).double().mean().item()
