"""States and gradients on more samples than an audit's 128, as some published numbers have them."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

from fa_audit.audit.diagnostics import Diagnostics, distance_from
from fa_audit.core.metrics import median_ratio
from fa_audit.core.vectors import median_norm
from fa_audit.data.dataset import Dataset, evaluation_batches
from fa_audit.experiments.spec import SAMPLES
from fa_audit.networks.network import Network
from fa_audit.networks.trace import Reference, reference, untouched

NAMES = ("hidden_norm", "grad_norm", "residual_ratio", "displacement", "cosine_to_embedding")


def with_more_samples(evidence: Diagnostics, network: Network, dataset: Dataset) -> Diagnostics:
    """Add what is measured of every state on the first 256 and 1,024 test images, where there are
    as many.

    The gradient is of the mean loss of these images.
    """
    layers = list(evidence.layers)
    for count in (count for count in SAMPLES if count <= len(dataset.test_labels)):
        with untouched(network):
            found = _states(
                reference(network, *evaluation_batches(dataset, count, limit=1)[0]), network.skip
            )
        for index, layer in enumerate(layers):
            named = {f"{name}_{count}": value for name, value in found[index].items()}
            if index in evidence.missing:
                named[f"grad_norm_{count}"] = None
            layers[index] = replace(layer, more_samples=layer.more_samples | named)
    return replace(evidence, layers=tuple(layers))


def _states(truth: Reference, skip: str) -> list[dict[str, float | None]]:
    """Return norms, the residual's relative norm and the distance from the embedding's output of
    every state.
    """
    rows = []
    for h, g, after in zip_longest(truth.states, truth.gradients, truth.states[1:]):
        moved, angle = distance_from(truth.states[0], h)
        ratio = None
        if after is not None and after.shape == h.shape:
            ratio = median_ratio(after if skip == "none" else after - h, h).value
        rows.append(
            dict(
                zip(
                    NAMES,
                    (median_norm(h), median_norm(g), ratio, moved.value, angle.value),
                    strict=True,
                )
            )
        )
    return rows
