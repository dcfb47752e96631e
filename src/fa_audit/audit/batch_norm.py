"""Measure norms under the BatchNorm statistics of the paper's code, which updates them twice a
batch.

Layers in training mode do not read these statistics, so the weights are the same and only
evaluation differs. A checkpoint holds the result of single updates. The last batches are therefore
run again, with the final weights. This approximates the statistics: the learning rate ends at 0,
and older batches weigh only ``(1 - momentum)^(2 STEPS)``, 2e-4.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from fa_audit.audit.inputs import BATCH_SIZE
from fa_audit.core.randomness import generator
from fa_audit.core.vectors import growth, median_norm
from fa_audit.data.dataset import Dataset, evaluation_batches, held_out, pad, training_batches
from fa_audit.networks.trace import reference, untouched
from fa_audit.training.learner import Learner

STEPS = 40  # last steps of the training, which are repeated


def batch_norm_twice(learner: Learner, dataset: Dataset, epochs: int) -> dict[str, float | None]:
    """Return the largest growth across a block and the median norms of ``h_L`` and ``g_L``, with
    statistics that every batch updated twice; empty if no BatchNorm layer trains.

    Args:
        dataset: on the learner's device.
        epochs: the number of epochs of the training.
    """
    twin = replace(learner, network=copy.deepcopy(learner.network))
    network = twin.network
    twin.train_mode()
    layers = [m for m in network.modules() if isinstance(m, _BatchNorm) and m.training]
    if not layers:
        return {}
    # One update with this momentum equals two updates by the same batch.
    for layer in layers:
        layer.momentum = 1 - (1 - (layer.momentum or 0.0)) ** 2
    with torch.no_grad():
        for x in _last_batches(learner, dataset, epochs):
            network(x)
    with untouched(network):
        truth = reference(network, *evaluation_batches(dataset, BATCH_SIZE, 1)[0])
    norms = [median_norm(h) for h in truth.states]
    return {
        "max_growth": max(growth(norms), default=None),
        "hidden_norm_last": norms[-1],
        "grad_norm_last": median_norm(truth.gradients[-1]),
    }


def _last_batches(learner: Learner, dataset: Dataset, epochs: int) -> Iterable[Tensor]:
    """Return the inputs of the last `STEPS` batches of a training."""
    spec, dataset = learner.spec, held_out(dataset, learner.spec.validation)[0]
    padded = pad(dataset.train_images, dataset.padding)
    steps = math.ceil(len(dataset.train_labels) / spec.batch_size)
    found: deque[Tensor] = deque(maxlen=STEPS)
    # Every epoch has a random stream of its own: earlier epochs need not be drawn first.
    for epoch in range(max(0, epochs - math.ceil(STEPS / steps)), epochs):
        stream = generator(spec.seed, "epoch", epoch)
        for x, _ in training_batches(dataset, padded, spec.batch_size, stream):
            found.append(x)
    return found
