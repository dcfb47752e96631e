"""CIFAR-10 as the sources of some rules use it, for the settings source_* of configs/board.yaml."""

from dataclasses import replace
from pathlib import Path

from fa_audit.data.cifar import cifar10
from fa_audit.data.dataset import Dataset


def cifar10_as_is(data_root: Path) -> Dataset:
    """Load CIFAR-10 without random crops and flips, like the code of Dellaferrera, Kreiman 2022."""
    return replace(cifar10(data_root), padding=0, flip=False)
