"""CIFAR-10 without crops and flips, for the sources' networks in configs/board.yaml."""

from dataclasses import replace
from pathlib import Path

from fa_audit.data.cifar import cifar10
from fa_audit.data.dataset import Dataset


def cifar10_as_is(data_root: Path) -> Dataset:
    """Load CIFAR-10 without augmentation, like the code of Akrout et al. 2019 and Dellaferrera,
    Kreiman 2022; pixels are standardised, theirs are in [0, 1].
    """
    return replace(cifar10(data_root), padding=0, flip=False)
