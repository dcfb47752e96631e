"""Snakemake itself killed, doubled, starved and misled: one plain run of the same command puts
everything right.
"""

import contextlib
import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from damage import altered
from harness import at_random, lasting
from projects import TINY, snakemake, started, write_config

pytestmark = pytest.mark.faults

TARGET = "results/audits/tiny/dfa/seed1.json"
SIDECAR = "results/checkpoints/tiny/dfa/seed1.json"
BASELINE = "results/baselines/tiny/bp+frozen/seed1.json"
OWN_BASELINE = "results/baselines/tiny/dfa+frozen/seed1.json"
CONFIG = {"settings": {"tiny": TINY | {"epochs": 30, "batch_size": 256}}}
MADE = ("checkpoints", "trajectories", "baselines", "audits")


@pytest.fixture(scope="session")
def finished(sources, tmp_path_factory):
    """A folder in which nobody disturbed the work, with how long it took in seconds."""
    folder = Path(shutil.copytree(sources, tmp_path_factory.mktemp("finished") / "project"))
    write_config(folder, CONFIG)
    start = time.monotonic()
    done = snakemake(folder, TARGET, "--cores", "2")
    assert done.returncode == 0, done.stdout
    return folder, time.monotonic() - start


@pytest.fixture
def project(finished, tmp_path):
    """The folder before its trainings: the data are there."""
    folder = Path(shutil.copytree(finished[0], tmp_path / "project"))
    for name in MADE:
        shutil.rmtree(folder / "results" / name)
    return folder


@pytest.fixture
def complete(finished, tmp_path):
    """A copy of the finished folder."""
    return Path(shutil.copytree(finished[0], tmp_path / "project"))


def results(folder):
    """The contents of every result, times and memory left out."""
    found = {}
    for path in sorted(
        path for name in MADE for path in (folder / "results" / name).rglob("*") if path.is_file()
    ):
        name, content = str(path.relative_to(folder)), path.read_bytes()
        found[name] = lasting(json.loads(content)) if path.suffix == ".json" else content
    return found


def rerun_to_the_same_bits(folder, finished, target=TARGET):
    """What has its final name is whole before and after."""
    whole = results(finished[0])
    assert all(content == whole[name] for name, content in results(folder).items() if name in whole)
    done = snakemake(folder, target, "--cores", "2")
    assert done.returncode == 0, done.stdout
    assert results(folder) == results(finished[0])
    assert not list(folder.glob("results/resume/**/*.safetensors"))


def refused(folder, *words, target=TARGET):
    done = snakemake(folder, target, "--cores", "2")
    assert done.returncode == 1 and "Traceback" not in done.stdout, done.stdout
    assert any(all(word in line for word in words) for line in done.stdout.splitlines()), (
        done.stdout
    )


def stop(process):
    """End whatever a killed Snakemake left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


HOW = {
    "kill -9 of Snakemake alone": lambda process: process.send_signal(signal.SIGKILL),
    "kill -9 of Snakemake and its jobs": lambda process: os.killpg(process.pid, signal.SIGKILL),
    "SIGTERM to Snakemake alone": lambda process: process.send_signal(signal.SIGTERM),
    "SIGTERM to Snakemake and its jobs": lambda process: os.killpg(process.pid, signal.SIGTERM),
}
KILLS = [(how, moment) for how in HOW for moment in at_random(2, how)]


@pytest.mark.parametrize(("how", "moment"), KILLS)
def test_snakemake_stopped_at_any_moment(project, finished, how, moment):
    process = started(project, TARGET, "--cores", "2")
    time.sleep(moment * finished[1])
    HOW[how](process)
    try:
        process.wait()  # asked to stop, Snakemake may let its jobs end
        rerun_to_the_same_bits(project, finished)
    finally:
        stop(process)


DAMAGED = "delete it and run the training again"
MIXED_UP = "altered, or of another training"
OTHER = "of another run than expected: method"


@pytest.mark.parametrize(
    ("name", "of", "words"),
    [
        ("results/checkpoints/tiny/dfa/seed1.safetensors", None, MIXED_UP),
        ("results/trajectories/tiny/dfa/seed1.csv", None, MIXED_UP),
        (SIDECAR, None, DAMAGED),
        (BASELINE, None, DAMAGED),
        (BASELINE, OWN_BASELINE, OTHER),
        (OWN_BASELINE, BASELINE, OTHER),
        (SIDECAR.replace("dfa", "dfa+frozen"), SIDECAR.replace("dfa", "bp+frozen"), OTHER),
    ],
)
def test_a_damaged_file_and_one_of_another_run_are_named_and_made_again(
    complete, finished, name, of, words
):
    path = complete / name
    damaged = b"[]" if path.suffix == ".json" else altered(path.read_bytes())
    path.write_bytes((complete / of).read_bytes() if of else damaged)
    for _ in range(2):
        refused(complete, name, words, target="audit")  # which asks for the baselines, too
        assert (complete / TARGET).exists()
    path.unlink()
    if words == MIXED_UP:
        (complete / SIDECAR).unlink()
    rerun_to_the_same_bits(complete, finished, "audit")


def test_damaged_data_cost_nothing_that_was_trained_on_them(complete, finished):
    path = complete / "results/data/digits.safetensors"
    path.write_bytes(altered(path.read_bytes()))
    refused(complete, "results/data/digits.safetensors", "trainings on it stay valid")
    path.unlink()
    for target in ("results/data/digits.safetensors", TARGET):
        done = snakemake(complete, target, "--cores", "2")
        assert done.returncode == 0 and "rule train_network:" not in done.stdout, done.stdout
    assert results(complete) == results(finished[0])
