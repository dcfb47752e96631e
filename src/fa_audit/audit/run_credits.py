"""Measure the credits of a trained run, in the precision of its training and in float64.

`fa_audit.audit.credit_metrics` explains shapes and conventions.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fa_audit.audit.credit_metrics import (
    DRAWS,
    EPS,
    FLOAT32,
    IN_DOUBLE,
    RESHAPED,
    Block,
    CreditReport,
    Fresh,
    against_the_loss,
    alignment,
    deep_means,
    loss_changes,
    nulls,
    perturbation_correlation,
    unit_directions,
)
from fa_audit.audit.statistics import median_ratio
from fa_audit.core.errors import first_line
from fa_audit.core.measured import Measured
from fa_audit.core.randomness import generator
from fa_audit.core.vectors import mean_of
from fa_audit.networks.network import Network
from fa_audit.networks.trace import reference, trace, untouched
from fa_audit.training.learner import Learner, build
from fa_audit.training.loop import block_credits

_NOT_RANDOM = "the method has no random feedback"


def measure_credits(learner: Learner, x: Tensor, labels: Tensor) -> CreditReport:
    """Compute every credit metric of a run on one batch; the learner is left unchanged, and results
    are reproducible.

    Args:
        x: the batch, on the learner's device.
        labels: ``(B,)``.
    """
    aligned, rounded = _credits_as_trained(learner, x, labels)
    network, state = copy.deepcopy(learner.network).double(), copy.deepcopy(learner.state).double()
    twin = replace(learner, network=network, state=state)
    with untouched(network):
        # `init_state` expects a network in float32 on the CPU.
        single = copy.deepcopy(learner.network).cpu()
        worth, fresh, reason = _in_double(twin, x.double(), labels, single)
    by_name, by_block = feature_drift(learner)
    blocks = []
    for layer, moved in enumerate(by_block):
        blocks.append(aligned[layer] | worth[layer] | rounded[layer] | {"feature_drift": moved})
    deep = deep_means(blocks) | nulls("fresh_b_null", list(map(deep_means, fresh)), reason)
    return CreditReport(tuple(blocks), deep, by_name)


def _credits_as_trained(
    learner: Learner, x: Tensor, labels: Tensor
) -> tuple[tuple[Block, ...], list[Block]]:
    """Compare every block's credit with backpropagation's gradient, in the network's own precision.

    Returns:
        Every block's `alignment`, and two correlations at the block's input, as published: ``rho``
        of the credit, and ``rho`` of the true gradient as the ceiling. In float32 the ceiling can
        be near 0: a step of 1e-3 from a state of norm 1e4 is little more than rounding.
    """
    network = learner.network
    rounded = []
    with untouched(network):
        g, credits = reference(network, x, labels).gradients, block_credits(learner, x, labels)
        states = trace(network, x, local=True).states
        for layer, a in enumerate(credits):
            rhos = [Measured(None, len(labels), 0, RESHAPED)] * 2
            if a.shape == g[layer].shape:
                # States, directions and losses are in float32, as in published numbers.
                h = states[layer].detach()
                directions = unit_directions(learner.spec.seed, layer, a).to(h.dtype)
                changes = loss_changes(network, layer, h, labels, directions, EPS)
                vectors = (a, g[layer])
                rhos = [perturbation_correlation(v, directions, changes) for v in vectors]
            rounded.append(dict(zip(FLOAT32, rhos)))
        return alignment(credits, g), rounded


def _in_double(
    twin: Learner, x: Tensor, labels: Tensor, network: Network
) -> tuple[list[Block], Fresh, str]:
    """Compute every block's metrics in float64, and its cosines under fresh feedback.

    Args:
        twin: the learner in float64.
        network: the trained network in float32 on the CPU, for which fresh feedback is drawn.
    """
    run = trace(twin.network, x, local=True)
    states = [h.detach() for h in run.states]
    gradients = reference(twin.network, x, labels).gradients
    try:
        credits = block_credits(twin, x, labels)
    except Exception as error:  # an external method may require its own precision
        reason = f"float64 recomputation failed: {first_line(error)}"
        none = dict.fromkeys(IN_DOUBLE, Measured(None, len(labels), 0, reason))
        return [none] * network.depth, [], reason
    residuals = bridge_residuals(twin, x, labels)
    fresh = fresh_feedback_cosines(twin, x, labels, gradients, network)
    worth = against_the_loss(twin.network, twin.spec.seed, states, labels, credits, gradients)
    for layer, block in enumerate(worth):
        added, start = twin.network.read(run.residuals[layer].detach()), states[layer]
        ratio = median_ratio(added, twin.network.read(start))
        block |= {"residual_ratio": ratio, "bridge_residual": residuals[layer]}
        block |= nulls("fresh_b_cosine", [drawn[layer] for drawn in fresh], _NOT_RANDOM)
    return worth, fresh, _NOT_RANDOM


def bridge_residuals(twin: Learner, x: Tensor, labels: Tensor) -> tuple[Measured, ...]:
    """Return for every block how far the method's auxiliary net is from its target, averaged over
    samples.
    """
    network, randomness = twin.network, generator(twin.spec.seed, "audit", "bridge residual")
    residuals = twin.method.bridge_residual(
        network, trace(network, x, local=True), labels, twin.state, randomness
    )
    if residuals is None:
        return (Measured(None, len(labels), 0, "the method has no auxiliary net"),) * network.depth
    return tuple(mean_of(r, r.isfinite(), "no sample with a finite residual") for r in residuals)


def fresh_feedback_cosines(
    twin: Learner, x: Tensor, labels: Tensor, gradients: Sequence[Tensor], network: Network
) -> Fresh:
    """Return every block's cosines under `DRAWS` fresh draws of the feedback; empty if the method
    has no random feedback.

    Args:
        gradients: ``g_0..g_L``, each ``(B, d)``.
        network: the trained network as `init_state` expects it: float32, on the CPU.
    """
    fresh: list[Sequence[Block]] = []
    if not twin.method.random_feedback:
        return fresh
    for draw in range(DRAWS):
        # This stream differs from the training's: no draw repeats the feedback used in training.
        stream = generator(twin.spec.seed, "audit", "feedback", draw)
        state = twin.method.init_state(network, stream)
        learner = replace(twin, state=state.double().to(x.device))
        fresh.append(alignment(block_credits(learner, x, labels), gradients))
    return fresh


def feature_drift(learner: Learner) -> tuple[dict[str, Measured], tuple[Measured, ...]]:
    """Measure how far every parameter, and every block, has moved since initialisation.

    The initial network is built again from the specification, with the same bits.
    """
    # Checkpoints do not hold the initial network.
    spec, network = learner.spec, learner.network
    untrained = build(spec, learner.image_shape, network.classes, learner.method).network
    before = dict(untrained.named_parameters())
    by_name = {name: drift(before[name], p) for name, p in network.named_parameters()}
    pairs = zip(untrained.blocks, network.blocks, strict=True)
    by_block = [drift(_flat(one.parameters()), _flat(other.parameters())) for one, other in pairs]
    return by_name, tuple(by_block)


def _flat(parameters: Iterable[Tensor]) -> Tensor:
    # torch.cat refuses an empty list, and a block may have no parameters.
    return torch.cat([torch.empty(0), *(p.detach().cpu().flatten() for p in parameters)])


def drift(before: Tensor, after: Tensor) -> Measured:
    """Compute ``||W - W_0||_F / ||W_0||_F`` in float64; `n` and `n_valid` count entries."""
    before, after = (tensor.detach().cpu().double().flatten() for tensor in (before, after))
    finite = before.isfinite() & after.isfinite()
    n, n_valid = len(finite), int(finite.sum())
    start = torch.linalg.vector_norm(before).item()
    if n_valid < n:
        return Measured(None, n, n_valid, "an entry is not finite")
    if not start:
        return Measured(None, n, n_valid, "zero at initialisation")
    return Measured(torch.linalg.vector_norm(after - before).item() / start, n, n_valid)
