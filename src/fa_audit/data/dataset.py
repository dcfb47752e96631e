"""A data set as arrays in memory, and its minibatches.

Shapes: N images, C channels, H x W pixels, p padding, B batch. Images stay as they are stored
(uint8, or float32 for inputs that are not pictures) until a batch is made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load, save
from torch import Tensor

from fa_audit.core.errors import AuditError
from fa_audit.core.files import write_bytes
from fa_audit.core.registry import call, naming_errors
from fa_audit.data import DATASETS
from fa_audit.data.data_file import ARRAYS, HINT, KEY, checksums, read_data_file


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Images, labels, and the settings by which images are scaled and augmented.

    Attributes:
        name: the registered name, or ``package.module:function``; `prepare_data_file` sets it.
        train_images, test_images: ``(N, C, H, W)``, uint8 or float32.
        train_labels, test_labels: ``(N,)`` int64.
        classes: number of classes.
        scale: the pixel value that means 1.0.
        mean, std: per-channel normalisation of ``pixel / scale``.
        padding: random crops come from images with this many zero pixels on each side; 0 turns
            cropping off.
        flip: whether to mirror each training image with probability 1/2.
    """

    name: str = ""
    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: int
    scale: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    padding: int
    flip: bool

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Return ``(C, H, W)``."""
        return tuple(self.train_images.shape[1:])

    @property
    def sha256(self) -> str:
        """Return the digest of all arrays and settings."""
        arrays = {name: getattr(self, name).cpu() for name in ARRAYS}
        found = checksums(self.described, arrays)
        return hashlib.sha256("".join(found.values()).encode()).hexdigest()

    @property
    def described(self) -> dict[str, Any]:
        """Return all fields except the arrays, by name."""
        names = [field.name for field in fields(self)]
        return {name: getattr(self, name) for name in names if name not in ARRAYS}

    def to(self, device: torch.device | str) -> Dataset:
        """Return the same data set with its arrays on `device`."""
        return replace(self, **{name: getattr(self, name).to(device) for name in ARRAYS})

    def normalise(self, images: Tensor) -> Tensor:
        """Return float32 copies of images ``(B, C, H, W)``: ``(pixel / scale - mean) / std``."""
        mean, std = self._moments
        # One copy, changed in place, saves memory.
        return images.to(torch.float32, copy=True).sub_(mean).div_(std)

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and std of stored pixels, ``(1, C, 1, 1)``, on the images' device."""
        moments = torch.tensor((self.mean, self.std)).view(2, 1, -1, 1, 1)
        mean, std = self.scale * moments.to(self.train_images.device)
        return mean, std


def held_out(dataset: Dataset, fraction: float) -> tuple[Dataset, Dataset | None]:
    """Hold out the last samples of the training set.

    Return the data set without these samples, and a data set that has them as its test set (None if
    `fraction` is 0).

    Args:
        fraction: share of the training set, rounded to at least one sample; 0 holds out nothing.

    Raises:
        AuditError: nothing would be left to train on.
    """
    if not fraction:
        return dataset, None
    first = len(dataset.train_labels) - max(1, round(fraction * len(dataset.train_labels)))
    if first < 1:
        raise AuditError(
            f"validation: found {fraction} of {len(dataset.train_labels)} samples; expected a"
            " fraction that leaves samples to train on."
        )
    images, labels = dataset.train_images, dataset.train_labels
    training = replace(dataset, train_images=images[:first], train_labels=labels[:first])
    return training, replace(dataset, test_images=images[first:], test_labels=labels[first:])


def save_dataset(dataset: Dataset, path: str | Path) -> None:
    """Write a data set to a safetensors file, with the SHA-256 of its settings and of each array."""
    # Cloned, since safetensors refuses tensors that share memory.
    layout = torch.contiguous_format
    arrays = {name: getattr(dataset, name).clone(memory_format=layout) for name in ARRAYS}
    described = dataset.described
    text = json.dumps(described | {"sha256": checksums(described, arrays)}, sort_keys=True)
    write_bytes(path, save(arrays, {KEY: text}))


def prepare_data_file(name: str, data_root: str | Path, path: str | Path) -> None:
    """Make a data set and write it with `save_dataset`.

    Args:
        name: a registered name, or ``package.module:function``.
        data_root: folder that has, or receives, the downloaded files; ``~`` is the home folder.

    Raises:
        AuditError: the data set is unknown, it cannot be obtained, or its arrays or settings do
            not fit each other.
    """
    dataset = call("dataset", DATASETS, name, Dataset, Path(data_root).expanduser())
    with naming_errors("dataset", DATASETS, name):
        try:
            _check_arrays(dataset)
        except AuditError as error:
            raise AuditError(f"dataset '{name}': {error}") from None
        save_dataset(replace(dataset, name=name), path)


def _check_arrays(dataset: Dataset) -> None:
    """Raise an `AuditError` if arrays or normalisation have a wrong shape, type or value."""
    shape = dataset.image_shape
    for part in ("train", "test"):
        images, labels = getattr(dataset, f"{part}_images"), getattr(dataset, f"{part}_labels")
        alike = len(shape) == 3 and images.shape[1:] == shape
        if not alike or images.dtype not in (torch.uint8, torch.float32):
            raise AuditError(
                f"{part}_images: found {tuple(images.shape)} of {images.dtype}; expected"
                " (N, C, H, W) of torch.uint8 or torch.float32, with the same C, H and W for"
                " training and test."
            )
        if not len(images) or not images.isfinite().all():
            raise AuditError(f"{part}_images: expected one or more, all finite.")
        if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
            raise AuditError(
                f"{part}_labels: found {tuple(labels.shape)} of {labels.dtype}; expected"
                f" ({len(images)},) of torch.int64."
            )
        if labels.min() < 0 or labels.max() >= dataset.classes:
            raise AuditError(
                f"{part}_labels: found {labels.min()} to {labels.max()}; expected 0 to"
                f" {dataset.classes - 1}."
            )
    moments = (dataset.mean, dataset.std)
    if any(len(values) != shape[0] for values in moments) or min(dataset.scale, *dataset.std) <= 0:
        raise AuditError(
            f"found scale {dataset.scale}, mean {dataset.mean} and std {dataset.std}; expected a"
            f" mean and a std for each of {shape[0]} channels, with scale and std above 0."
        )


def load_dataset(path: str | Path) -> Dataset:
    """Read a data set that `save_dataset` wrote, onto the CPU, and check its SHA-256.

    Raises:
        AuditError: the file is missing, truncated, foreign or altered.
    """
    described, arrays = read_data_file(path, load)
    try:
        moments = {name: tuple(described[name]) for name in ("mean", "std")}
        return Dataset(**described | moments, **arrays)
    except (LookupError, TypeError) as error:
        raise AuditError(f"{path}: not the description of a data set ({error}); {HINT}.") from error


def pad(images: Tensor, padding: int) -> Tensor:
    """Pad ``(N, C, H, W)`` with zeros to ``(N, C, H + 2p, W + 2p)``."""
    return F.pad(images, (padding,) * 4)


def crop_and_flip(
    padded: Tensor,
    index: Tensor,
    rows: Tensor,
    columns: Tensor,
    flips: Tensor,
    size: tuple[int, int],
) -> Tensor:
    """Return the augmented images ``(B, C, H, W)`` of a minibatch, as torchvision's RandomCrop and
    flip make them.

    Args:
        padded: ``(N, C, H + 2p, W + 2p)``.
        index: ``(B,)`` images to take.
        rows, columns: ``(B,)`` top left corners of the crops, 0..2p.
        flips: ``(B,)`` bool, or 0 and 1: whether to mirror an image after its crop.
        size: ``(H, W)``.
    """
    # A view (N, C, 2p + 1, 2p + 1, H, W) of every crop.
    windows = padded.unfold(2, size[0], 1).unfold(3, size[1], 1)
    cropped = windows[index, :, rows, columns]
    either, count = torch.cat([cropped, cropped.flip(-1)]), len(flips)
    # Copying whole images is faster than torch.where.
    which = torch.arange(count, device=flips.device) + count * flips
    return either.index_select(0, which)


def training_batches(
    dataset: Dataset, padded: Tensor, batch_size: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Iterate once over the training set, shuffled and augmented; the last batch may be smaller.

    All random numbers of the epoch are drawn first, from the CPU `generator`, so that every device
    gets the same draws. They are moved to the device together, so that no step waits for a copy.

    Args:
        padded: ``pad(dataset.train_images, dataset.padding)``, made once per run.
    """
    count, size = len(dataset.train_labels), dataset.image_shape[-2:]
    order = torch.randperm(count, generator=generator)
    corners = torch.randint(0, 2 * dataset.padding + 1, (2, count), generator=generator)
    flips = torch.rand(count, generator=generator) < (0.5 if dataset.flip else 0.0)
    draws = torch.stack([order, *corners, flips]).to(padded.device)
    for index, rows, columns, flip in (part.unbind() for part in draws.split(batch_size, dim=1)):
        images = crop_and_flip(padded, index, rows, columns, flip, size)
        yield dataset.normalise(images), dataset.train_labels[index]


def evaluation_batches(
    dataset: Dataset, batch_size: int = 128, limit: int | None = None
) -> list[tuple[Tensor, Tensor]]:
    """Return the first `limit` unshuffled, normalised test batches; without a limit, all of them."""
    parts = zip(dataset.test_images.split(batch_size), dataset.test_labels.split(batch_size))
    return [(dataset.normalise(images), labels) for images, labels in list(parts)[:limit]]


def stability_batches(
    dataset: Dataset, batch_size: int = 128, limit: int = 10
) -> list[tuple[Tensor, Tensor]]:
    """Return up to `limit` unshuffled test batches of one size.

    If the test set has fewer than 8 batches of `batch_size`, the batches are smaller. Samples left
    over at the end, too few for a batch, are dropped.
    """
    size = max(1, min(batch_size, len(dataset.test_labels) // 8))
    return [batch for batch in evaluation_batches(dataset, size, limit) if len(batch[1]) == size]
