"""Handwritten digits as scikit-learn ships them: 1,797 grey images of 8 x 8, ten classes, no
download.

Source: Alpaydin and Kaynak 1998 (UCI optical recognition of handwritten digits, test part).
This project adds a fixed stratified split into 1,437 training and 360 test images, and shifts
training images by up to one pixel.
"""

from __future__ import annotations

from pathlib import Path

import torch

from fa_audit.core.registry import naming_extras
from fa_audit.data.dataset import Dataset

_BRIGHTEST = 16  # pixel values are counts 0..16


def digits(data_root: Path) -> Dataset:
    """Load handwritten digits: 1,437 training and 360 test images of 1 x 8 x 8, ten classes.

    `data_root` is unused.
    """
    with naming_extras():
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    images = torch.from_numpy(images).to(torch.uint8).reshape(-1, 1, 8, 8)
    labels = torch.from_numpy(labels).to(torch.int64)
    train, test = train_test_split(
        range(len(labels)), test_size=360, stratify=labels.numpy(), random_state=0
    )
    return Dataset(
        name="digits",
        train_images=images[train],
        train_labels=labels[train],
        test_images=images[test],
        test_labels=labels[test],
        classes=10,
        scale=_BRIGHTEST,
        mean=(0.305,),
        std=(0.376,),
        padding=1,
        flip=False,
    )
