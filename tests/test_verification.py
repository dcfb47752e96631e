"""What `fa-audit verify` compares, and what it says of manifests that are none, or that hostile hands wrote."""

import json
import os
from itertools import product

import pytest

from fa_audit.cli import main
from fa_audit.core.files import sha256_of

TABLE, INPUT, OTHER = "results/tables/t.md", "results/tidy/s/runs.csv", "results/checkpoints/s/dfa/seed1.safetensors"
NONE = 64 * "0"
ODD = (
    None,
    1,
    -1.5,
    True,
    "",
    "x",
    [],
    {},
    [[]],
    {"a": 1},
    "\ud800",
    "a\nb\x1b[31m",
    "../x",
    "/etc/passwd",
    5000 * "a",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three files, a manifest of two of them, and the list of an archive of all."""
    monkeypatch.chdir(tmp_path)
    for name in (TABLE, INPUT, OTHER):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(name)
    entry = {"sha256": sha256_of(TABLE), "inputs": {INPUT: sha256_of(INPUT)}}
    write("MANIFEST", {"artefacts": {TABLE: entry}, "versions": {}})
    write("ARCHIVE", {"files": {name: sha256_of(name) for name in (TABLE, INPUT, OTHER)}})
    return tmp_path


def write(name, content):
    with open(f"results/{name}.json", "w") as stream:
        stream.write(content if isinstance(content, str) else json.dumps(content))


def verify(capsys, *arguments):
    """The exit status and the lines that are printed; an error is one readable line, and then the only one."""
    status = main(["verify", *arguments])
    out, err = capsys.readouterr()
    lines = (out + err).splitlines()
    assert all(line.isprintable() and len(line) < 1000 for line in lines), lines
    assert not err or (status == 1 and len(lines) == 1 and err.startswith("fa-audit: "))
    return status, lines


def test_everything_that_is_recorded_is_compared(folder, capsys):
    both = "results/MANIFEST.json and results/ARCHIVE.json: 1 artefacts, 1 inputs, 3 archived files; "
    assert verify(capsys) == (0, [f"{both}all as recorded"])
    for name in (TABLE, INPUT, OTHER):
        (folder / name).write_text("altered")
        status, (line, summary) = verify(capsys)
        assert status == 1 and summary == f"{both}1 not as recorded"
        assert line.startswith(f"{name}: found SHA-256 {sha256_of(name)}; expected SHA-256 ")
        (folder / name).write_text(name)
    (folder / OTHER).unlink()
    assert verify(capsys)[1][0].startswith(f"{OTHER}: found no file; expected SHA-256 ")


def test_the_cure_is_that_of_the_place(folder, capsys):
    for name in (TABLE, OTHER):
        (folder / name).unlink()
    of_the_archive, of_the_manifest, _ = verify(capsys)[1]
    again = f"make it again with snakemake --force {TABLE} and the --configfile that it was made with."
    assert of_the_manifest.endswith(f"Unpack it again, or {again}")
    assert of_the_archive.endswith("delete results/ARCHIVE.json, which is about the archive.")


def test_one_of_the_two_is_enough_and_none_is_an_error(folder, capsys):
    (folder / "results/MANIFEST.json").unlink()  # a configuration of models alone has none
    assert verify(capsys) == (0, ["results/ARCHIVE.json: 3 archived files; all as recorded"])
    (folder / "results/ARCHIVE.json").unlink()
    assert "results/MANIFEST.json: no such file; snakemake writes it" in verify(capsys)[1][0]
    assert verify(capsys, "results/other.json")[0] == 1


@pytest.mark.parametrize(
    "content", ['{"artefacts": {}}', '{"files": {}}', "{", "[]", "1", '"files"', '{"artefacts": {"a": {}}}']
)
def test_a_manifest_that_is_none_or_says_nothing_is_one_line(folder, capsys, content):
    write("MANIFEST", content)
    status, (line,) = verify(capsys)
    assert status == 1 and line.startswith("fa-audit: results/MANIFEST.json: ")


@pytest.mark.parametrize("name", ["../outside", "a/../../outside", "/etc/hostname", "\ud800/../../outside"])
def test_no_path_climbs_out_of_the_folder(folder, capsys, name):
    (folder.parent / "outside").write_text("secret")
    write("ARCHIVE", {"files": {name: NONE}})
    status, (line,) = verify(capsys)
    assert status == 1 and "expected a path in its folder and a SHA-256" in line


@pytest.mark.parametrize(
    "name", ["\ud800", "a\nb: all as recorded", "\u202egnp", "\x00", 300 * "a", 5000 * "a/", "", "."]
)
def test_an_odd_name_is_a_file_that_is_not_there(folder, capsys, name):
    write("ARCHIVE", {"files": {name: NONE}})
    status, (line, summary) = verify(capsys)
    assert status == 1 and "expected SHA-256 000" in line and summary.endswith("1 not as recorded")


def test_what_is_no_plain_file_is_not_waited_for(folder, capsys):
    (folder / OTHER).unlink()
    os.mkfifo(folder / OTHER)
    assert verify(capsys)[1][0].startswith(f"{OTHER}: found no file")


@pytest.mark.parametrize("name", ["MANIFEST", "ARCHIVE"])
def test_hostile_values_anywhere_are_told_in_one_line_each(folder, capsys, name):
    path = folder / f"results/{name}.json"
    whole = json.loads(path.read_text())
    for place, odd in product(places(whole), ODD):
        write(name, replaced(whole, place, odd))
        assert verify(capsys)[0] == 1 or place[0] == "versions" or odd == {}, (place, odd)
    for end in range(len(text := json.dumps(whole))):
        write(name, text[:end])
        assert verify(capsys)[0] == 1


def places(value, above=()):
    """Every key of nested objects, as a path."""
    for key, child in value.items() if isinstance(value, dict) else ():
        yield (*above, key)
        yield from places(child, (*above, key))


def replaced(value, place, odd):
    key, *rest = place
    return value | {key: replaced(value[key], rest, odd) if rest else odd}
