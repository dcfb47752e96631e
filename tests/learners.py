"""Learners for tests of rules: their credits, and steps of the engine."""

from dataclasses import replace

import torch
from networks import rough_learner

from fa_audit.training.learner import learn


def learner_of(method, architecture="resmlp", *, constants=None, **options):
    """A learner in float64 and evaluation mode, far from its initialisation."""
    learner = rough_learner(architecture, method, **{"depth": 3} | options)
    learner.network.eval()
    return replace(learner, method=constants or learner.method)


def credits_of(learner, x, labels):
    """The credits of a batch, with their objective."""
    return learner.method.credits(learner.network, learner.trace(x), labels, learner.state)


def listed_credits(learner, x, labels):
    """The credits of embedding and blocks, bottom to top."""
    return [*credits_of(learner, x, labels).by_name().values()]


def take_steps(learner, batches, randomness=None):
    """Train a learner by one step of the engine for every batch, and return it."""
    optimiser, randomness = learner.optimiser(), randomness or torch.Generator()
    for x, labels in batches:
        optimiser.zero_grad()
        learn(learner, x, labels, randomness)
        optimiser.step()
    return learner
