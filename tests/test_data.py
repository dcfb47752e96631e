"""Augmentation against torchvision, one image at a time; files that are damaged; data sets as
published.
"""

import pickle
from dataclasses import replace
from hashlib import md5
from unittest.mock import Mock
from urllib.error import URLError

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as tvf
from damage import altered
from PIL import Image
from safetensors.torch import save
from torchvision.datasets import CIFAR10
from torchvision.transforms import Compose, Normalize, ToTensor

from fa_audit.core.errors import AuditError
from fa_audit.data import cifar
from fa_audit.data.data_file import ARRAYS, check_data_files, checksum
from fa_audit.data.dataset import (
    Dataset,
    crop_and_flip,
    evaluation_batches,
    load_dataset,
    pad,
    save_dataset,
    training_batches,
)
from fa_audit.data.digits import digits


def distinct_images(count, channels=1, height=5, width=6):
    randomness = torch.Generator().manual_seed(51)
    return torch.randint(
        1, 256, (count, channels, height, width), dtype=torch.uint8, generator=randomness
    )


@pytest.mark.parametrize("padding", [0, 1, 4])
def test_crop_and_flip_is_torchvisions(padding):
    images, size = distinct_images(4, channels=3), (5, 6)
    side = torch.arange(2 * padding + 1)
    rows, columns, flips = torch.cartesian_prod(side, side, torch.tensor([0, 1])).T
    index = torch.arange(len(rows)) % 4
    found = crop_and_flip(pad(images, padding), index, rows, columns, flips.bool(), size)
    assert found.dtype == torch.uint8 and found.shape == (len(rows), 3, 5, 6)
    for which, row, column, flip, image in zip(
        index, rows.tolist(), columns.tolist(), flips, found
    ):
        expected = tvf.crop(tvf.pad(images[which], [padding] * 4, fill=0), row, column, *size)
        assert torch.equal(image, tvf.hflip(expected) if flip else expected)


def batches_of(dataset, batch_size, seed=0):
    padded = pad(dataset.train_images, dataset.padding)
    randomness = torch.Generator().manual_seed(seed)
    return list(training_batches(dataset, padded, batch_size, randomness))


def numbered(dataset, count, **options):
    """`count` different images, and labels that number them."""
    images, plain = distinct_images(count), {"mean": (0.0,), "std": (1.0,), "scale": 1}
    return replace(
        dataset, train_images=images, train_labels=torch.arange(count), **plain, **options
    )


def test_test_batches_are_in_order_and_normalised(dataset):
    batches = evaluation_batches(dataset, batch_size=10)
    images, labels = map(torch.cat, zip(*batches))
    assert [len(x) for x, _ in batches] == [10, 10, 4]
    assert len(evaluation_batches(dataset, 10, limit=2)) == 2
    assert torch.equal(images, dataset.normalise(dataset.test_images))
    assert torch.equal(labels, dataset.test_labels)


def test_every_sample_comes_once_per_epoch_and_the_short_last_batch_is_kept(dataset):
    data = numbered(dataset, 50, padding=0, flip=False)
    orders = []
    for seed in (0, 1, 0):
        batches = batches_of(data, 16, seed)
        assert [len(x) for x, _ in batches] == [16, 16, 16, 2]
        images, labels = map(torch.cat, zip(*batches))
        assert torch.equal(images, data.train_images[labels].float())
        orders.append(labels.tolist())
    assert sorted(orders[0]) == list(range(50)) != orders[0]
    assert orders[0] == orders[2] != orders[1]


def test_all_offsets_occur_equally_and_half_of_the_images_are_flipped(dataset):
    padding, count = 2, 2000
    data = numbered(dataset, count, padding=padding, flip=True)
    padded, side = pad(data.train_images, padding).float(), 2 * padding + 1
    offsets, flips = torch.zeros(side, side), 0
    for x, labels in batches_of(data, 256):
        windows = padded[labels].unfold(2, 5, 1).unfold(3, 6, 1)[:, 0]
        straight = (windows == x[:, 0, None, None]).all(-1).all(-1)
        mirrored = (windows == x.flip(-1)[:, 0, None, None]).all(-1).all(-1)
        assert ((straight | mirrored).flatten(1).sum(dim=1) == 1).all()
        offsets += (straight | mirrored).sum(dim=0)
        flips += int(mirrored.sum())
    expected = count / side**2
    assert offsets.sum() == count and (offsets - expected).abs().max() < 5 * expected**0.5
    assert abs(flips / count - 0.5) < 5 * 0.5 / count**0.5


def test_normalise_is_torchvisions():
    nothing = {name: torch.empty(0) for name in ARRAYS}
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    data = Dataset(
        name="c", **nothing, classes=10, scale=255, mean=mean, std=std, padding=4, flip=True
    )
    images = distinct_images(3, channels=3, height=32, width=32)
    transform = Compose([ToTensor(), Normalize(data.mean, data.std)])
    expected = torch.stack(
        [transform(Image.fromarray(image.permute(1, 2, 0).numpy())) for image in images]
    )
    before = images.clone()
    torch.testing.assert_close(data.normalise(images), expected, rtol=0, atol=1e-6)
    assert torch.equal(images, before) and data.normalise(images).dtype == torch.float32


DIGITS = {
    "train_images": "5760f944f9d4583320655eb3932bdbb8a1d7ecccece1d5e8ac73699a93fdf434",
    "train_labels": "c1281028e5251b910fbb998bc625b6d6473e39ec5817e7c6d69de2f5f8bf38ab",
    "test_images": "3cc232bd25364446c8646cd9434a26e35ea92e20045d395b2fdd2232a75c9b8f",
    "test_labels": "4493b2052e7b4258621d51f10f17a672594c5e3f2beaa1cf97c818dc583aafe7",
}


def test_digits_are_always_the_same_arrays(tmp_path):
    data = digits(tmp_path)
    assert {name: checksum(getattr(data, name)) for name in ARRAYS} == DIGITS
    assert data.scale == data.train_images.max() == 16
    x = data.normalise(data.train_images)
    assert abs(x.mean().item()) < 0.01 and abs(x.std().item() - 1) < 0.01


def test_a_saved_data_set_is_read_back(dataset, tmp_path):
    save_dataset(dataset, tmp_path / "deep" / "tiny.safetensors")
    again = load_dataset(tmp_path / "deep" / "tiny.safetensors")
    assert again.described == dataset.described and again.sha256 == dataset.sha256
    assert again.train_images.dtype == torch.uint8
    assert again.sha256 != replace(dataset, mean=(0.5,)).sha256


DAMAGES = {
    "cut by a byte": lambda content: content[:-1],
    "of another program": lambda content: save({"a": torch.zeros(1)}),
    "a bit": altered,
    "another mean": lambda content: content.replace(b"[0.4]", b"[0.5]"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_and_other_files_are_refused(dataset, tmp_path, damage):
    path = tmp_path / "tiny"
    save_dataset(dataset, path)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    for read in (load_dataset, lambda path: check_data_files([path])):
        with pytest.raises(AuditError, match=f"^{path}: "):
            read(path)


PUBLISHED = {"batches.meta": {"label_names": list("0123456789")}}
for name, count in (("data_batch_1", 6), ("data_batch_2", 5), ("test_batch", 4)):
    pixels = distinct_images(count, channels=3, height=32, width=32).flatten(1).numpy()
    PUBLISHED[name] = {"data": pixels, "labels": list(range(count))}
CONTENTS = {name: pickle.dumps(content) for name, content in PUBLISHED.items()}
SUMS = {name: md5(content).hexdigest() for name, content in CONTENTS.items()}


class SmallCifar(CIFAR10):
    base_folder = "small-batches-py"
    url, filename, tgz_md5 = "https://example.invalid/small.tar.gz", "small.tar.gz", ""
    train_list = [[name, SUMS[name]] for name in ("data_batch_1", "data_batch_2")]  # noqa: RUF012
    test_list = [["test_batch", SUMS["test_batch"]]]  # noqa: RUF012
    meta = {"filename": "batches.meta", "key": "label_names", "md5": SUMS["batches.meta"]}  # noqa: RUF012


@pytest.fixture
def network(monkeypatch):
    """Stands for the internet, where every download fails."""
    network = Mock(side_effect=URLError("no route to host"))
    monkeypatch.setattr("torchvision.datasets.CIFAR10", SmallCifar)
    monkeypatch.setattr("torchvision.datasets.utils.download_and_extract_archive", network)
    monkeypatch.setattr(cifar.time, "sleep", lambda seconds: None)
    return network


def write_folder(root, contents):
    folder = root / SmallCifar.base_folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def test_a_folder_as_published_is_read_without_the_network(network, tmp_path):
    write_folder(tmp_path, CONTENTS)
    data = cifar.cifar10(tmp_path)
    first, second, test = map(PUBLISHED.get, ("data_batch_1", "data_batch_2", "test_batch"))
    train = np.concatenate([first["data"], second["data"]])
    assert np.array_equal(data.train_images.flatten(1), train)
    assert np.array_equal(data.test_images.flatten(1), test["data"])
    assert data.train_labels.tolist() == first["labels"] + second["labels"]
    assert data.test_labels.tolist() == test["labels"] and data.test_labels.dtype == torch.int64
    assert data.image_shape == (3, 32, 32) and not network.called
    assert (data.scale, data.padding, data.flip) == (255, 4, True)


@pytest.mark.parametrize("name", CONTENTS)
def test_corrupted_files_are_never_accepted_and_missing_ones_downloaded_once(
    network, tmp_path, name
):
    corrupted = CONTENTS | {name: altered(CONTENTS[name])}
    write_folder(tmp_path / "here", corrupted)
    network.side_effect = lambda url, root, **_: write_folder(root, corrupted)
    for folder in (tmp_path / "here", tmp_path / "downloaded"):
        with pytest.raises(AuditError) as caught:
            cifar.cifar10(folder)
        assert f"{name} (wrong md5)" in str(caught.value) and str(folder) in str(caught.value)
    network.side_effect = lambda url, root, **_: write_folder(root, CONTENTS)
    network.reset_mock()
    for folder in (tmp_path / "here", tmp_path / "here", tmp_path / "downloaded"):
        assert len(cifar.cifar10(folder).train_labels) == 11
    assert network.call_count == 2


def test_without_files_and_network_the_message_says_what_to_do(network, tmp_path):
    with pytest.raises(AuditError) as caught:
        cifar.cifar10(tmp_path)
    for part in ("data_batch_1", str(tmp_path), "no route to host", SmallCifar.base_folder):
        assert part in str(caught.value)
    assert network.call_count == cifar.ATTEMPTS
