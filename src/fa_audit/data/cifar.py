"""CIFAR-10 and CIFAR-100, read from a folder or downloaded into it by torchvision; md5 is checked.

Source: Krizhevsky 2009. Normalisation constants and augmentation (random crop with padding 4, flip)
are those of Hao, Wan, Zhai 2026.
"""

from __future__ import annotations

import logging
import time
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from fa_audit.core.errors import AuditError, listed
from fa_audit.core.registry import naming_extras
from fa_audit.data.dataset import Dataset

if TYPE_CHECKING:
    from torchvision.datasets import CIFAR10

log = logging.getLogger(__name__)
ATTEMPTS = 3


def cifar10(data_root: Path) -> Dataset:
    """Load CIFAR-10: 50,000 training and 10,000 test images of 3 x 32 x 32, ten classes."""
    return _dataset("cifar10", data_root, 10, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))


def cifar100(data_root: Path) -> Dataset:
    """Load CIFAR-100: like CIFAR-10, but with one hundred classes."""
    return _dataset("cifar100", data_root, 100, (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))


def _dataset(
    name: str, root: Path, classes: int, mean: tuple[float, ...], std: tuple[float, ...]
) -> Dataset:
    with naming_extras():
        from torchvision import datasets
    source = getattr(datasets, name.upper())
    _fetch(source, root)
    train, test = (source(root, train=part, download=False) for part in (True, False))
    return Dataset(
        name=name,
        train_images=torch.from_numpy(train.data).permute(0, 3, 1, 2).contiguous(),
        train_labels=torch.tensor(train.targets),
        test_images=torch.from_numpy(test.data).permute(0, 3, 1, 2).contiguous(),
        test_labels=torch.tensor(test.targets),
        classes=classes,
        scale=255,
        mean=mean,
        std=std,
        padding=4,
        flip=True,
    )


def _damaged(source: type[CIFAR10], root: Path) -> list[str]:
    """List the data set's files that are missing or have the wrong md5, each with the reason."""
    from torchvision.datasets.utils import check_integrity

    meta = [source.meta["filename"], source.meta["md5"]]
    damaged = []
    for name, md5 in [*source.train_list, *source.test_list, meta]:
        path = root / source.base_folder / name
        if not check_integrity(str(path), md5):
            damaged.append(f"{path} ({'wrong md5' if path.exists() else 'missing'})")
    return damaged


def _fetch(source: type[CIFAR10], root: Path) -> None:
    """Download the data set into `root`, unless every file is there with the right md5.

    Raises:
        AuditError: downloading failed `ATTEMPTS` times.
    """
    from torchvision.datasets.utils import download_and_extract_archive

    name = source.__name__
    failure: Exception | None = None
    for attempt in range(ATTEMPTS):
        if not _damaged(source, root):
            return
        log.info("downloading %s into %s (attempt %d of %d)", name, root, attempt + 1, ATTEMPTS)
        try:
            download_and_extract_archive(
                source.url, root, filename=source.filename, md5=source.tgz_md5
            )
        except (OSError, HTTPException, RuntimeError) as error:  # RuntimeError: wrong md5
            failure = error
            time.sleep(2**attempt)
    damaged = _damaged(source, root)
    if damaged:
        raise AuditError(
            f"{name}: not available in data_root '{root}': {listed(damaged, most=1)}. Downloading"
            f" failed {ATTEMPTS} times (last error: {failure}). Connect to the network and run"
            f" again, or set data_root in the config, or --data-root, to a folder that holds"
            f" {source.base_folder}/ as published ({source.url})."
        )
