"""PEPITA's feedback, forward-forward's wrong labels and its classification. Their credits and steps
are in `plain_rules`.
"""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from networks import CLASSES, batch_of, credits_of, learner_of
from plain_rules import chain, labelled, neutral_outputs, of_unit_size, squares
from projects import ROOT

from fa_audit.core.errors import AuditError
from fa_audit.data.dataset import evaluation_batches, load_dataset, save_dataset
from fa_audit.methods import forward_forward
from fa_audit.training.checkpoint import load_checkpoint, save_checkpoint
from fa_audit.training.learner import build, learn

SHAPE = (1, 4, 4)


def test_pepitas_feedback_is_uniform_with_the_papers_limits(make_spec):
    feedback = build(make_spec("pepita"), (3, 32, 32), CLASSES).state.F
    limit = 0.05 * math.sqrt(6 / 3072)
    assert feedback.shape == (3072, CLASSES) and 0.99 * limit < feedback.abs().max() <= limit
    assert feedback.mean().abs() < 0.05 * limit
    assert feedback.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.02)


def test_wrong_labels_are_uniform_over_draws_and_those_of_two_images_independent(
    make_spec, monkeypatch
):
    learner = build(make_spec("forward_forward"), SHAPE, 4)
    randomness, drawn, count = torch.Generator().manual_seed(4), [], 3000

    def one_hot(labels, logits):
        drawn.append(labels)
        return F.one_hot(labels, 4).to(logits)

    monkeypatch.setattr(forward_forward, "one_hot", one_hot)
    x, labels = torch.randn(2, *SHAPE, generator=randomness), torch.tensor([2, 2])
    run = learner.trace(x)
    for _ in range(count):
        learner.method.update_state(learner.network, learner.state, randomness)
        learner.method.credits(learner.network, run, labels, learner.state)
    assert all(torch.equal(given, labels) for given in drawn[::2])
    pairs = torch.zeros(4, 4)
    for one, other in drawn[1::2]:
        pairs[one, other] += 1 / count
    assert not pairs[2].any() and not pairs[:, 2].any()
    rest = pairs[[0, 1, 3]][:, [0, 1, 3]]
    assert (rest - 1 / 9).abs().max() < 4 * math.sqrt(1 / 9 / count)


def test_images_with_fewer_values_than_there_are_classes_are_refused(make_spec):
    with pytest.raises(AuditError, match="images of 3 values and 4 classes"):
        build(make_spec("forward_forward"), (1, 1, 3), 4)
    build(make_spec("forward_forward"), (1, 1, 4), 4)


def test_wrong_labels_are_drawn_anew_for_every_minibatch_and_by_nothing_else():
    learner, batch = learner_of("forward_forward"), batch_of()
    drawn = learner.state.r.clone()
    first, again = (credits_of(learner, *batch).objective.item() for _ in range(2))
    assert first == again and torch.equal(learner.state.r, drawn)
    learn(learner, *batch, torch.Generator().manual_seed(8))
    assert not (learner.state.r == drawn).any()


def labels_by_hand(network, x, first):
    """The label with most goodness, summed over the states from `first` on."""
    sums = []
    for c in range(CLASSES):
        images = labelled(x, torch.full((len(x),), c))
        states, _ = chain("resmlp", network, of_unit_size(images), of_unit_size)
        sums.append(sum(squares(h) for h in states[first:]))
    return torch.stack(sums).argmax(0).tolist()


def test_classify_returns_the_label_with_most_goodness_in_all_layers_but_the_first():
    learner, (x, _) = learner_of("forward_forward"), batch_of(count=40)
    with torch.no_grad():
        learner.network.embed[1].weight.mul_(3)
        found = forward_forward.classify(learner.network, x).tolist()
        assert found == labels_by_hand(learner.network, x, 1)
        assert found != labels_by_hand(learner.network, x, 0) and len(set(found)) == CLASSES


def test_classify_neutral_reads_all_layers_but_the_first_of_an_image_with_a_neutral_label():
    learner, (x, _) = learner_of("forward_forward"), batch_of(count=40)
    found = forward_forward.classify_neutral(learner.network, x, learner.state)
    assert torch.equal(found, neutral_outputs("resmlp", learner, x).argmax(dim=1))
    assert len(set(found.tolist())) == CLASSES


def test_the_documents_code_prints_the_accuracy_by_goodness(
    make_spec, dataset, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    learner = build(make_spec("forward_forward"), (1, 8, 8), CLASSES)
    save_checkpoint(learner, "my/forward_forward.safetensors")
    save_dataset(dataset, "my/cifar10.safetensors")
    given = {"torch": torch, "load_checkpoint": load_checkpoint, "load_dataset": load_dataset}
    given |= {"forward_forward": forward_forward, "evaluation_batches": evaluation_batches}
    document = (ROOT / "docs/methods.md").read_text()
    exec(re.search(r"```python\n(import torch.*?)```", document, re.DOTALL)[1], given)
    ((x, labels),) = evaluation_batches(dataset)
    right = forward_forward.classify(learner.network, x) == labels
    neutral = forward_forward.classify_neutral(learner.network, x, learner.state) == labels
    shares = [hits.double().mean().item() for hits in (right, neutral)]
    assert capsys.readouterr().out == "goodness {}\nneutral {}\n".format(*shares)
