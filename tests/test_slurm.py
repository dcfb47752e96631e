"""The grid through a real Slurm: what is submitted, and what goes on after a job was lost."""

import re
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from projects import TINY, copy_sources, snakemake, wait_for, write_config
from slurm_cluster import ENDS_WITH_US, GPU, missing, running_cluster

pytestmark = pytest.mark.slurm

SETTING = TINY | {"runs": ["bp", "dfa"]}
GRID = {
    "settings": {"tiny": SETTING},
    "tables": {"main_audit": {"settings": ["tiny"], "title": "tiny"}},
}
LONG = {"settings": {"tiny": TINY | {"epochs": 240}}}
TARGET = "results/checkpoints/tiny/dfa/seed1.safetensors"
PROFILE = ("--workflow-profile", "profiles/slurm")
# The plugin's first look at a job is after 40 s otherwise, and `sacct` needs an accounting
# database.
QUICK = ("--slurm-init-seconds-before-status-checks", "2", "--slurm-status-command", "squeue")
NO_GPU = f"a GPU was granted, but torch sees none (CUDA_VISIBLE_DEVICES: {GPU})"


@pytest.fixture(scope="module")
def cluster(request):
    absent = missing()
    if absent:
        pytest.skip(
            f"not on this machine: {', '.join(absent)} (Debian's packages are slurm-wlm and munge)"
        )
    if find_spec("snakemake_executor_plugin_slurm") is None:
        pytest.skip("snakemake-executor-plugin-slurm is not installed: make slurm")
    with running_cluster() as running:
        yield running
        kept = request.config.cache.mkdir("slurm") / "slurmctld.log"
        shutil.copyfile(running.folder / kept.name, kept)


def project(folder, config=GRID):
    write_config(copy_sources(folder), config)
    return folder


@contextmanager
def submit(cluster, folder, *arguments):
    """Snakemake with the Slurm profile, as on a login node; neither it nor its jobs outlive the
    block.
    """
    process = subprocess.Popen(
        [*ENDS_WITH_US, sys.executable, "-m", "snakemake", *arguments, *PROFILE, *QUICK, "--configfile", "tiny.yaml"],
        cwd=folder, env=cluster.environment | {"PYTHONPATH": f"{folder}/src"},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
            cluster.cancel_all()


def run(cluster, folder, *arguments):
    """Run Snakemake to a good end; what it said, and its submissions."""
    with submit(cluster, folder, *arguments) as process:
        said = process.communicate(timeout=600)[0]
    assert process.returncode == 0, said
    return said, submissions(cluster, folder)


def submissions(cluster, folder):
    return [job for job in cluster.jobs() if job["WorkDir"] == str(folder)]


@pytest.fixture(scope="module")
def grid(cluster, tmp_path_factory):
    """A folder in which the grid went through Slurm, with a cap of GPUs above what the node has."""
    folder = project(tmp_path_factory.mktemp("slurm") / "project")
    said, jobs = run(cluster, folder)
    return folder, said, jobs


def test_training_and_audit_of_a_run_are_one_submission_with_its_gpu_memory_and_time(grid):
    _, said, jobs = grid
    assert Counter(job["Comment"] for job in jobs) == {
        "rule_run_audit_network_train_network": 2,  # bp and dfa
        "rule_baseline_train_network": 2,
    }
    for job in jobs:
        audited = "audit" in job["Comment"]
        assert job["JobState"] == "COMPLETED" and job["TresPerJob"] == "gres:gpu:1"
        assert job["TRES"].startswith(f"cpu=1,mem={3000 if audited else 2000}M,node=1")
        assert job["TimeLimit"] == (
            "00:24:00" if audited else "00:14:00"
        )  # minutes of the training, and of the audit
        assert job["JobName"].startswith("fa-audit_") and job["Requeue"] == "1"
    assert "nodes of a cluster, at most 4 GPUs at a time" in said


def test_logs_name_their_slurm_job_and_a_gpu_that_torch_does_not_see(grid):
    folder, _, jobs = grid
    logs = {path: path.read_text() for path in (folder / "results/logs").rglob("seed1.log")}
    assert {job["JobId"] for job in jobs} == set(
        re.findall(r"Slurm job (\d+) on \S", "".join(logs.values()))
    )
    computing = {
        path: text for path, text in logs.items() if re.search("/(train|audit)_network/", str(path))
    }
    assert len(computing) == 6 and all(NO_GPU in text for text in computing.values())


def uncomment(folder, named, *changes):
    """Take the first block of the profile that holds the words out of its comment, names of this
    cluster put in.
    """
    path = folder / "profiles/slurm/config.yaml"
    text = path.read_text()
    block = next(
        found[0]
        for found in re.finditer(r"^# [\w-]+:\n(#   .+\n)+", text, re.MULTILINE)
        if named in found[0]
    )
    plain = re.sub("^# ", "", block, flags=re.MULTILINE)
    for old, new in changes:
        assert old in plain
        plain = plain.replace(old, new)
    path.write_text(text.replace(block, plain))


def test_a_gpu_by_gres_alone_is_a_gpu_to_the_jobs(cluster, grid, tmp_path):
    folder = Path(shutil.copytree(grid[0], tmp_path / "project"))
    for result in ("checkpoints/tiny/bp/seed1.json", "audits/tiny/bp/seed1.json"):
        (folder / "results" / result).unlink()
    shutil.rmtree(folder / "results/logs")
    uncomment(folder, "gres")
    said, (job,) = run(cluster, folder, "audit", "--resources", "cards=1")
    assert "nodes of a cluster, at most 1 GPUs at a time (cards)" in said
    assert job["TresPerNode"] == "gres:gpu:1" and "TresPerJob" not in job
    for rule in ("train_network", "audit_network"):
        assert NO_GPU in (folder / f"results/logs/{rule}/tiny/bp/seed1.log").read_text()


GRES = ["--set-resources", "train_network:gpu=0", "train_network:gres=gpu:1"]
REFUSED = [
    (["--resources", "gpu=0"], "replace it by --set-resources train_network:gpu=0"),
    (["--resources", "other=1"], "no limit of GPUs (gpu)", "Add --resources gpu=4"),
    ([*GRES], "gres 'gpu:1' and no cards"),
    ([*GRES, "train_network:cards=1"], "no limit of GPUs (cards)", "Add --resources cards=4"),
]


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    return project(tmp_path_factory.mktemp("untouched") / "project")


@pytest.mark.parametrize(("options", "words"), [(options, words) for options, *words in REFUSED])
def test_what_would_wait_for_ever_or_take_every_gpu_is_refused_at_once(
    cluster, untouched, options, words
):
    with submit(cluster, untouched, TARGET, *options) as refused:
        said = refused.communicate(timeout=60)[0]
    (error,) = re.findall("^fa-audit: .*", said, re.MULTILINE)
    assert refused.returncode == 1 and all(word in error for word in words), said
    assert "Traceback" not in said and submissions(cluster, untouched) == []


@pytest.fixture(scope="module")
def undisturbed(cluster, tmp_path_factory):
    """The bits of the long training, on this machine, when nobody interrupts it."""
    folder = project(tmp_path_factory.mktemp("undisturbed") / "project", LONG)
    assert snakemake(folder, TARGET).returncode == 0
    return (folder / TARGET).read_bytes()


@pytest.mark.parametrize(
    ("command", "states"),
    [(["scancel"], ["CANCELLED", "COMPLETED"]), (["scontrol", "requeue"], ["COMPLETED"])],
    ids=["cancelled", "requeued"],
)
def test_a_lost_training_goes_on_to_the_same_bits(cluster, undisturbed, tmp_path, command, states):
    """A cancelled one in a plain rerun, a requeued one by itself."""
    folder = project(tmp_path / "project", LONG)
    log = folder / "results/logs/train_network/tiny/dfa/seed1.log"
    with submit(cluster, folder, TARGET) as process:
        wait_for(log, "epoch 5/240", process)
        cluster.ask(*command, submissions(cluster, folder)[0]["JobId"])
        said = process.communicate(timeout=600)[0]
    assert (folder / TARGET).exists() == (process.returncode == 0) == (len(states) == 1), said
    if process.returncode:
        assert "CANCELLED" in said and "the same command again" in said
        run(cluster, folder, TARGET)
    jobs = submissions(cluster, folder)
    assert [job["JobState"] for job in jobs] == states and (
        len(jobs) == 2 or jobs[0]["Restarts"] == "1"
    )
    assert (
        "resuming after epoch" in log.read_text() and (folder / TARGET).read_bytes() == undisturbed
    )
