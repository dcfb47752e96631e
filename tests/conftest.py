"""Shared fixtures: a small data set in memory and specifications that train on it within a second."""

from collections.abc import Callable, Iterator
from pathlib import Path

import browser
import pytest
import torch
from hypothesis import settings
from networks import batch_of, spec_of
from projects import finished_project

from fa_audit.data.dataset import Dataset
from fa_audit.experiments.spec import RunSpec

CLASSES = 3
LARGEST = {
    "test_workflow": 0,
    "test_stages": 1,
    "test_conformance": 2,
}  # first: none is left to the end

settings.register_profile("tests", deadline=None, derandomize=True)
settings.load_profile("tests")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need `everything` are slow; the file that makes it begins, and those that need it
    come last.
    """
    needing = [item for item in items if "everything" in item.fixturenames]
    for item in needing:
        item.add_marker("slow")
    users = {item.path for item in needing}
    items.sort(key=lambda item: (LARGEST.get(item.path.stem, len(LARGEST)), item.path in users))


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which all of `projects.EVERYTHING` has been made; nobody writes into it."""
    return finished_project(tmp_path_factory)


@pytest.fixture(scope="module")
def chromium():
    """A headless Chromium."""
    path = browser.executable()
    if path is None:
        pytest.skip("no Chromium on this machine: make test-browser installs Debian's")
    with browser.chromium(path) as opened:
        yield opened


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """One thread: the order of sums, and with it the bits, must not depend on the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def dataset() -> Dataset:
    """Fifty training and twenty-four test images of three classes: a bright row per class under
    Gaussian noise; crops and flips leave the classes apart.
    """
    labels = torch.arange(74) % CLASSES
    images = 60 + 20 * torch.randn(74, 1, 8, 8, generator=torch.Generator().manual_seed(7))
    images[torch.arange(74), 0, 3 * labels + 1] += 150
    images = images.round().clamp(0, 255).to(torch.uint8)
    return Dataset(
        name="tiny",
        train_images=images[:50],
        train_labels=labels[:50],
        test_images=images[50:],
        test_labels=labels[50:],
        classes=CLASSES,
        scale=255,
        mean=(0.4,),
        std=(0.2,),
        padding=1,
        flip=True,
    )


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Five images ``(5, 1, 4, 4)`` in float64, and labels of three classes."""
    return batch_of((1, 4, 4))


@pytest.fixture
def make_spec() -> Callable[..., RunSpec]:
    """``make_spec("fa", penalty=0.1, depth=2)``: a small specification with few epochs."""

    return lambda method="bp", **given: spec_of(
        "resmlp", method, **{"depth": 3, "epochs": 2} | given
    )
