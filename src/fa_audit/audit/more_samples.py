"""Measure states and gradients on more samples than an audit's 128, as some published numbers do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import TypeVar

from fa_audit.audit.diagnostics import distance_from
from fa_audit.core.metrics import median_ratio
from fa_audit.core.vectors import median_norm
from fa_audit.data.dataset import Dataset, evaluation_batches
from fa_audit.experiments.spec import SAMPLES
from fa_audit.networks.network import Network
from fa_audit.networks.trace import Reference, reference, untouched
from fa_audit.protocol.evidence import Evidence

E = TypeVar("E", bound=Evidence)


def with_more_samples(evidence: E, network: Network, dataset: Dataset) -> E:
    """Add every state's measurements on the first 256 and 1,024 test images, if there are that
    many.

    Gradients are those of the mean loss of these images.
    """
    layers = list(evidence.layers)
    for count in SAMPLES:
        if count > len(dataset.test_labels):
            continue
        with untouched(network):
            truth = reference(network, *evaluation_batches(dataset, count, limit=1)[0])
        for index, row in enumerate(_states(truth, network.skip)):
            named = {f"{name}_{count}": value for name, value in row.items()}
            if index in evidence.missing:
                named[f"grad_norm_{count}"] = None
            more = layers[index].more_samples | named
            layers[index] = layers[index].replace(more_samples=more)
    return evidence.replace(layers=tuple(layers))


def _states(truth: Reference, skip: str) -> Iterator[dict[str, float | None]]:
    """Yield every state's norms, relative residual norm and distance from the embedding's output."""
    for h, g, after in zip_longest(truth.states, truth.gradients, truth.states[1:]):
        moved, angle = distance_from(truth.states[0], h)
        ratio = None
        if after is not None and after.shape == h.shape:
            ratio = median_ratio(after if skip == "none" else after - h, h).value
        yield {
            "hidden_norm": median_norm(h),
            "grad_norm": median_norm(g),
            "residual_ratio": ratio,
            "displacement": moved.value,
            "cosine_to_embedding": angle.value,
        }
