"""Audit an external model by its entry in a configuration (see
`fa_audit.experiments.config.ModelEntry`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fa_audit.audit.diagnose import diagnose
from fa_audit.audit.inputs import BATCH_SIZE
from fa_audit.core.errors import AuditError, first_line
from fa_audit.core.randomness import seeded
from fa_audit.core.registry import load
from fa_audit.data.dataset import Dataset, evaluation_batches, stability_batches
from fa_audit.networks.states import Description
from fa_audit.networks.trace import accuracy_of
from fa_audit.protocol.audit import DiagnosticReport
from fa_audit.protocol.evidence import DiagnosticThresholds

_LONGEST = 400  # characters that are shown of torch's list of weights that do not fit


def audit_model(
    name: str,
    entry: Mapping[str, Any],
    dataset: Dataset,
    device: str,
    thresholds: DiagnosticThresholds,
) -> DiagnosticReport:
    """Build a model and audit it.

    Args:
        name: its name in the configuration and the report.
        entry: its configuration with every key, as `model_entry` returns it.
        dataset: on the CPU.

    Raises:
        AuditError: the model cannot be built, or its description, weights or inputs do not fit it.
    """
    weights = f"weights from {entry['weights']}"
    if not entry["weights"]:
        weights = f"random weights of seed {entry['seed']}"
    accuracy, source = entry["accuracy"], "given by the configuration"
    if accuracy is None:
        source = "computed on the whole test set"
    shaped = partial(_shaped, shape=entry["image_shape"], device=device)
    try:
        model = build_model(entry).to(device)
        report = diagnose(
            model,
            shaped(evaluation_batches(dataset, BATCH_SIZE, limit=1)),
            accuracy,
            entry["frozen_accuracy"],
            method_name=name,
            notes=f"{entry['model']} with {weights} on {entry['dataset']}; accuracy {source}.",
            thresholds=thresholds,
            bp_frozen_acc=entry["bp_frozen_accuracy"],
            frozen_baseline_name="frozen baseline",
            test_samples=len(dataset.test_labels),
            stability_batches=shaped(stability_batches(dataset, BATCH_SIZE, entry["batches"])),
            description=Description(entry["blocks"], entry["reads"]),
        )
        # The whole test set runs last, so that a wrong description fails early.
        if accuracy is None:
            accuracy = accuracy_of(model, shaped(evaluation_batches(dataset, BATCH_SIZE)))
        # Replacing the accuracy is enough: a report computes its verdicts when they are read.
        return report.replace(headline_acc=accuracy)
    except AuditError as error:
        raise AuditError(f"models.{name}: {error}") from error


def build_model(entry: Mapping[str, Any]) -> nn.Module:
    """Build the model with the weights of its safetensors file, or random ones of the entry's seed.

    Raises:
        AuditError: the callable does not exist, fails or does not return a module, or the weights
            do not fit.
    """
    call = f"{entry['model']} with arguments {dict(entry['arguments'])}"
    try:
        make = load("model", {}, entry["model"])
        if isinstance(make, nn.Module):
            raise AuditError(
                f"{entry['model']}: found a model; expected a function that returns it."
            )
        # The entry's seed alone decides random weights.
        with seeded(entry["seed"]):
            model = make(**entry["arguments"])
    except AuditError:
        raise
    except Exception as error:  # external code may raise anything
        raise AuditError(f"{call} failed: {first_line(error)}. Change its arguments.") from error
    if not isinstance(model, nn.Module):
        raise AuditError(f"{call} returned {type(model).__name__}; expected a torch.nn.Module.")
    if entry["weights"] is not None:
        _load_weights(model, entry["weights"])
    return model


def _load_weights(model: nn.Module, path: str) -> None:
    """Load a model's state dict from a safetensors file, which cannot execute code.

    Raises:
        AuditError: the file is not safetensors, or its names or shapes are not the model's.
    """
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise AuditError(
            f"{path}: no safetensors file ({error}); save weights with safetensors.torch.save_file."
        ) from error
    try:
        model.load_state_dict(found)
    except RuntimeError as error:  # torch lists what is missing, unexpected and of another shape
        problems = textwrap.shorten(str(error), _LONGEST)
        raise AuditError(
            f"{path}: {problems} Expected the state dict of {type(model).__name__} as this entry"
            " builds it."
        ) from error


def _shaped(
    batches: Iterable[tuple[Tensor, Tensor]], *, shape: Iterable[int] | None, device: str
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches on the model's device, images resized to ``(C, H, W)``; None keeps their shape."""
    # One batch at a time: resized test sets can be larger than the memory.
    for images, labels in batches:
        yield fitted(images, tuple(shape or images.shape[1:])).to(device), labels.to(device)


def fitted(images: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Fit normalised images ``(B, C, H, W)`` to `shape`: repeat a grey channel, resize bilinearly.

    Raises:
        AuditError: the images are in colour, and `shape` has another number of channels.
    """
    channels, *sides = shape
    if images.shape[1] not in (1, channels):
        raise AuditError(
            f"image_shape: found {list(shape)} for images of {images.shape[1]} channels; expected"
            f" {images.shape[1]} channels, because only a grey channel can be repeated."
        )
    if list(images.shape[2:]) != sides:
        images = F.interpolate(images, sides, mode="bilinear", align_corners=False, antialias=True)
    return images.expand(-1, channels, -1, -1).contiguous()
