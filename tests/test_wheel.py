"""An installed wheel in an empty folder, where there is no checkout: boards, drawings and reports
work.
"""

import json
import shutil
import tarfile
import zipfile

import pytest
import torch
from projects import ROOT, python

from fa_audit import Description, diagnose

pytestmark = pytest.mark.slow
MEGABYTES = 6
PARTS = ("pyproject.toml", "README.md", "LICENSE", "config.yaml",
         "benchmarks", "configs", "reference", "src")  # fmt: skip
BUILD = "import setuptools.build_meta as build, sys; getattr(build, f'build_{sys.argv[1]}')(sys.argv[2])"
PROGRAM = """
import sys
import fa_audit
from fa_audit.cli import main
print(fa_audit.__file__)
for line in sys.argv[1:]:
    if main(line.split()):
        sys.exit(line)
"""


def output(folder, *arguments, **environment):
    done = python(folder, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheel of a checkout, and that of its source distribution."""
    folder = tmp_path_factory.mktemp("built")
    checkout = folder / "checkout"
    for part in PARTS:
        (checkout / part).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, checkout / part, symlinks=True)
        else:
            shutil.copyfile(ROOT / part, checkout / part)
    output(checkout, "-c", BUILD, "wheel", str(folder))
    output(checkout, "-c", BUILD, "sdist", str(folder))
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (folder / "again").mkdir()
    output(next((folder / "unpacked").iterdir()), "-c", BUILD, "wheel", str(folder / "again"))
    return next(folder.glob("*.whl")), next((folder / "again").glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheels, tmp_path_factory):
    """Run commands of the wheel in an empty folder, and return the folder and what they print."""
    site, folder = tmp_path_factory.mktemp("installed") / "a/site", tmp_path_factory.mktemp("empty")
    zipfile.ZipFile(wheels[0]).extractall(site)
    model = torch.nn.Sequential(
        *(layer for _ in range(3) for layer in (torch.nn.Linear(8, 8), torch.nn.Tanh()))
    )
    batches = [
        (torch.randn(8, 8, generator=torch.Generator().manual_seed(i)), torch.arange(8))
        for i in range(8)
    ]
    description = Description(("1", "2", "3", "4"), "all features")
    report = diagnose(model, batches, 0.6, 0.4, "mine", description=description, directions=2,
                      credits=lambda model, x, y, states: [state.detach() for state in states[1:]])  # fmt: skip
    (folder / "mine.json").write_text(json.dumps(report.to_dict()))
    said = lambda *lines: output(folder, "-c", PROGRAM, *lines, PYTHONPATH=str(site))  # noqa: E731
    assert said().startswith(str(site))
    return folder, said


def test_a_wheel_is_small_and_has_the_files_of_the_checkout_from_its_source_distribution_too(
    wheels,
):
    assert wheels[0].stat().st_size < MEGABYTES * 1e6
    packed = []
    for path in wheels:
        with zipfile.ZipFile(path) as wheel:
            names = [name for name in wheel.namelist() if ".dist-info/" not in name]
            packed.append({name: wheel.read(name) for name in names})
    assert packed[0] == packed[1]
    prefix = "fa_audit/provided/"
    data = {
        name.removeprefix(prefix): content
        for name, content in packed[0].items()
        if name.startswith(prefix)
    }
    assert all(content == (ROOT / name).read_bytes() for name, content in data.items())
    measured = [str(path.relative_to(ROOT)) for path in ROOT.glob("reference/measured/*/*.*")]
    assert {"configs/measured.yaml", "reference/published.yaml", *measured} <= data.keys()


def test_a_wheel_has_every_number_of_the_scorecard(installed):
    folder, said = installed
    assert " agree (" in said("scorecard --output card")
    assert (folder / "card/scorecard.csv").read_bytes() == (
        ROOT / "docs/reproduction/scorecard.csv"
    ).read_bytes()


def test_boards_and_reports_work_in_an_empty_folder(installed):
    folder, said = installed
    lines = ("board mine.json --from reference/measured --only bp dfa",
             "board --from reference/field --only ep+lr3e-4",
             "report mine.json", "report --html mine.json", "draw mine.json")  # fmt: skip
    text = said(*lines)
    for words in ("main_audit", "(yours)", "D1", "D3"):
        assert words in text, words
    drawn = {path.name for path in (folder / "drawn").iterdir()}
    assert drawn >= {"audit_overview.pdf", "layers.png", "board.pdf", "board.tex"}
    assert "<html" in (folder / "report.html").read_text(encoding="utf-8")
