"""The control: an even random teacher on Gaussian inputs, on which no check fires."""

import numpy as np
import pytest
import torch

from fa_audit.audit.run_audit import audit
from fa_audit.core.randomness import generator
from fa_audit.data.dataset import evaluation_batches, pad, training_batches
from fa_audit.data.synthetic_teacher import SEED, synthetic_teacher
from fa_audit.experiments.spec import RunSpec
from fa_audit.training.loop import train
from fa_audit.training.monitor import first_flags

OPTIONS = (("depth", 4), ("width", 128))


@pytest.fixture(scope="module")
def data():
    return synthetic_teacher(None)


def test_the_labels_are_the_formula_s():
    torch.randn(7)  # of no influence
    data, randomness = synthetic_teacher(None), generator(SEED, "synthetic teacher")
    x = torch.randn(4000, 1, 4, 4, generator=randomness)
    w1, w2 = (
        torch.randn(16, n, generator=randomness, dtype=torch.float64).numpy() / 4 for n in (16, 10)
    )
    outputs = np.abs(x.flatten(1).double().numpy() @ w1) @ w2
    labels = ((outputs - outputs.mean(0)) / outputs.std(0)).argmax(1)
    assert torch.equal(torch.cat([data.train_images, data.test_images]), x)
    assert torch.cat([data.train_labels, data.test_labels]).tolist() == labels.tolist()


def test_float_images_pass_through_batches_unchanged_and_unharmed(data):
    before = data.test_images.clone(), data.train_images.clone()
    batches = evaluation_batches(data, 512)
    assert torch.equal(torch.cat([x for x, _ in batches]), before[0])
    batches[0][0].zero_()
    padded = pad(data.train_images, data.padding)
    seen = torch.cat([x for x, _ in training_batches(data, padded, 300, generator(1, "epoch"))])
    assert torch.equal(data.test_images, before[0]) and torch.equal(data.train_images, before[1])
    assert torch.equal(seen[:, 0, 0, 0].sort()[0], before[1][:, 0, 0, 0].sort()[0])


def test_nothing_fires_on_the_control(data, method="dfa"):
    common = {
        "dataset": "synthetic_teacher",
        "architecture": "student_mlp",
        "architecture_options": OPTIONS,
    }
    frozen = train(RunSpec(**common, method=method, frozen_blocks=4, epochs=4), data).accuracy
    run = train(RunSpec(**common, method=method, epochs=20), data)
    report = audit(
        run.learner, data, run.accuracy, own_frozen=("own", frozen), bp_frozen_acc=frozen
    ).to_dict()
    assert (
        report["verdict"]["three_check"] == "PASS"
        and report["verdict"]["four_check"] == "trustworthy"
    )
    assert report["flags"] == [] and set(first_flags(run.history, 50.0, 1e-7).values()) == {None}
    assert frozen < 0.2 < run.accuracy
