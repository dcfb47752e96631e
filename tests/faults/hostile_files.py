"""Audits, sidecars and checkpoints that no fa-audit wrote: each the damage that a number fixes to a whole file."""

import copy
import io
import json
import os
import pickle
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import torch
from hostile_configs import mutate
from safetensors.torch import save, save_file

JSON_TEXTS = (
    b"", b" ", b"null", b"[]", b"{}", b"1", b'"text"', b"[{}]", b"NaN", b"Infinity", b"{", b"}", b"\x00", b"{}{}", b"'",
    b"\xff\xfe\x00", b"\xef\xbb\xbf{}", b'{"a": 1, "a": 2}', b"[" * 100000, b'{"a":' * 100000, b"9" * 5000, b"true",
    b'{"method": 1e999}', b"\x80\x04]q.", '{"method": "dfa"}'.encode("utf-16"), b"PK\x03\x04",
    b'{"spec": {"seed": 1e5000}}',
)  # fmt: skip


def hostile_json(whole: bytes, number: int) -> bytes:
    """The bytes of a JSON file: cut, with other bytes, with other values, or no such file at all."""
    choose = random.Random(number)
    kind = choose.choices(("cut", "flipped", "values", "foreign", "twice"), weights=(2, 2, 8, 2, 1))[0]
    if kind == "cut":
        return whole[: choose.randrange(len(whole))]
    if kind == "flipped":
        return flipped(whole, choose, range(len(whole)))
    if kind == "foreign":
        return choose.choice(JSON_TEXTS)
    if kind == "twice":
        place = choose.randrange(len(whole))
        return whole[:place] + whole[choose.randrange(place + 1) :]
    value = json.loads(whole)
    for _ in range(choose.choice([1, 1, 1, 2, 5])):
        mutate(value, choose)
    return json.dumps(_plain(value)).encode("utf-8", "surrogatepass")


def _plain(value: Any) -> Any:
    """Keys and values as JSON can write them."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else repr(key): _plain(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_plain(child) for child in value]
    return value if value is None or isinstance(value, str | int | float) else repr(value)


def hostile_csv(whole: bytes, number: int) -> bytes:
    """The bytes of a CSV file: cut, with other bytes, or with another cell."""
    choose = random.Random(number)
    kind = choose.choice(("cut", "flipped", "cell", "cell"))
    if kind == "cut":
        return whole[: choose.randrange(len(whole))]
    if kind == "flipped":
        return flipped(whole, choose, range(len(whole)))
    rows = [row.split(b",") for row in whole.split(b"\n")]
    row = choose.choice(rows[1:-1])
    cells = [b"", b"nan", b"-inf", b"1e999", b"0", b"-1", b"9" * 400, b"x", b'"']
    row[choose.randrange(len(row))] = choose.choice(cells)
    return b"\n".join(b",".join(row) for row in rows)


def flipped(whole: bytes, choose: random.Random, places: range) -> bytes:
    """The bytes with one to eight of them changed, at some of the places."""
    changed = bytearray(whole)
    for _ in range(choose.randint(1, 8)):
        changed[choose.choice(places)] ^= choose.randint(1, 255)
    return bytes(changed)


class Payload:
    """What unpickling would execute."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


def hostile_checkpoint(whole: bytes, number: int, path: Path, trap: Path) -> None:
    """Put something else in the place of a checkpoint.

    Args:
        whole: the bytes of a checkpoint.
        path: where it is put.
        trap: a file that an executed payload would create.
    """
    choose = random.Random(number)
    if choose.random() < 0.7:
        whole = _with_header(whole, _without_checksum)  # which tells of every change before anything else does
    (length,) = struct.unpack("<Q", whole[:8])
    kinds = ("cut", "length", "header", "data", "shapes", "about", "foreign", "pickle", "odd", "longer")
    kind = choose.choices(kinds, weights=(4, 1, 5, 3, 3, 8, 2, 2, 1, 1))[0]
    if kind == "odd":
        _odd_place(choose, path)
        return
    lengths, notes = [0, 1, length - 1, length + 1, 2**31, 2**63, 2**64 - 1], [None, {"a": "b"}, {"fa_audit": "1"}]
    made = {
        "cut": lambda: whole[: choose.randrange(len(whole))],
        "length": lambda: struct.pack("<Q", choose.choice(lengths)) + whole[8:],
        "header": lambda: flipped(whole, choose, range(8 + length)),
        "data": lambda: flipped(whole, choose, range(8 + length, len(whole))),
        "shapes": lambda: _with_header(whole, lambda header: _reshaped(header, choose)),
        "about": lambda: _with_header(whole, lambda header: _misdescribed(header, choose)),
        "foreign": lambda: save({"weight": torch.zeros(choose.randint(0, 9))}, choose.choice(notes)),
        "pickle": lambda: _executable(choose, trap),
        "longer": lambda: whole + bytes(choose.randint(1, 99)),
    }
    path.write_bytes(made[kind]())


def _with_header(whole: bytes, change: Any) -> bytes:
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])
    change(header)
    written = json.dumps(header).encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(written)) + written + whole[8 + length :]


def _without_checksum(header: dict[str, Any]) -> None:
    about = json.loads(header["__metadata__"]["fa_audit"])
    del about["sha256"]
    header["__metadata__"]["fa_audit"] = json.dumps(about)


def _reshaped(header: dict[str, Any], choose: random.Random) -> None:
    """Another type, shape or place of one tensor."""
    tensor = header[choose.choice([name for name in header if name != "__metadata__"])]
    changes = {
        "dtype": ["F64", "I64", "BOOL", "F8_E4M3", "X", None],
        "shape": [[], [0], [2**40], [2**63, 2], [-1], [1.5], None, "x"],
        "data_offsets": [[0, 0], [0, 2**62], [9, 3], [-1, 4], None, [0]],
    }
    key = choose.choice(sorted(changes))
    tensor[key] = choose.choice(changes[key])


def _misdescribed(header: dict[str, Any], choose: random.Random) -> None:
    """Another specification or other constants beside the same tensors: any value, or one of a far larger network."""
    about = json.loads(header["__metadata__"]["fa_audit"])
    large = choose.choice([17, 8192, 10**5, 10**6, 10**9, 2**62, 10**30])
    options, constants = about["spec"]["architecture_options"], about["method"]["constants"]
    values = [large, -large, 0, -1, 2, 10**400, 0.0, 1e300, float("nan"), True, None, "x"]
    shapes = [[1, 8, large], [1, 4, 16], [64], [], [0, 8, 8], [1, -8, -8], "188"]
    changes = (
        lambda: mutate(about, choose),
        lambda: mutate(about["spec"], choose),
        lambda: options.update({choose.choice(["width", "depth"]): large}),
        lambda: about.update(classes=choose.choice([large, 0, -1, 9])),
        lambda: about.update(image_shape=choose.choice(shapes)),
        lambda: about["spec"].update(method=choose.choice(["bp", "fa", "ep", "state_bridge", "os:system", "../x:Y"])),
        lambda: about["spec"].update(architecture=choose.choice(["vit_mini", "bn_cnn", "os:system", "x"])),
        lambda: about["method"].update(constants={"hidden": large}),
        lambda: constants.update({choose.choice([*constants, "x"]): choose.choice(values)}),
        lambda: constants.update(dict.fromkeys(constants, choose.choice(values))),
    )
    choose.choice(changes)()
    header["__metadata__"]["fa_audit"] = json.dumps(_plain(copy.deepcopy(about)))


def _executable(choose: random.Random, trap: Path) -> bytes:
    """A pickle, alone, as torch writes it, or in a zip of its own."""
    stream = io.BytesIO()
    kind = choose.randrange(3)
    if kind == 0:
        return pickle.dumps(Payload(trap), protocol=choose.choice([0, 2, 4]))
    if kind == 1:
        torch.save({"network": Payload(trap)}, stream)
        return stream.getvalue()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(Payload(trap)))
        archive.writestr("../../escaped", "text")
    return stream.getvalue()


def _odd_place(choose: random.Random, path: Path) -> None:
    """A folder, a loop of links, a link to nothing, or a file that is as large as it is empty."""
    kind = choose.randrange(4)
    if kind == 0:
        path.mkdir()
    elif kind == 1:
        path.symlink_to(path)
    elif kind == 2:
        path.symlink_to(path.with_name("nothing"))
    else:
        save_file({"weight": torch.zeros(1)}, path)
        os.truncate(path, 2**36)
