"""The grid through a real Slurm: what is submitted, what goes on after a job was lost, and how results come home."""

import re
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
from projects import copy_sources, planned, snakemake, write_config
from slurm_cluster import missing, running_cluster

pytestmark = pytest.mark.slurm

SETTING = {
    "dataset": "digits",
    "architecture": {"name": "resmlp", "width": 16, "depth": 2},
    "epochs": 2,
    "batch_size": 64,
    "seeds": [1],
    "runs": ["bp", "dfa"],
    "baselines": ["bp+frozen", "dfa+frozen"],
}
GRID = {"settings": {"tiny": SETTING}, "tables": {"main_audit": {"settings": ["tiny"], "title": "tiny"}}}
LONG = {"settings": {"tiny": SETTING | {"epochs": 120}}}
TARGET = "results/checkpoints/tiny/dfa/seed1.safetensors"
PROFILE = ("--workflow-profile", "profiles/slurm")
# The plugin's first look at a job is after 40 s otherwise, and `sacct` needs an accounting database.
QUICK = ("--slurm-init-seconds-before-status-checks", "2", "--slurm-status-command", "squeue")


@pytest.fixture(scope="module")
def cluster():
    if absent := missing():
        pytest.skip(f"not on this machine: {', '.join(absent)} (Debian's packages are slurm-wlm and munge)")
    if find_spec("snakemake_executor_plugin_slurm") is None:
        pytest.skip("snakemake-executor-plugin-slurm is not installed: make slurm")
    with running_cluster() as running:
        yield running


def project(folder, config=GRID):
    write_config(copy_sources(folder), config)
    return folder


def submit(cluster, folder, *arguments):
    """Start Snakemake with the Slurm profile, as on a login node."""
    return subprocess.Popen(
        [sys.executable, "-m", "snakemake", *arguments, *PROFILE, *QUICK, "--configfile", "tiny.yaml"],
        cwd=folder, env=cluster.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def said_by(process):
    """What Snakemake said until it ended."""
    return process.communicate(timeout=600)[0]


def run(cluster, folder, *arguments):
    """Run Snakemake to a good end; what it said, and its submissions."""
    process = submit(cluster, folder, *arguments)
    said = said_by(process)
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
    assert sorted(job["Comment"] for job in jobs) == [
        *["rule_cell_audit_network_train_network"] * 2,  # bp and dfa
        *["rule_cell_train_network"] * 2,  # their baselines
    ]
    for job in jobs:
        audited = "audit" in job["Comment"]
        assert job["JobState"] == "COMPLETED" and job["TresPerJob"] == "gres:gpu:1"
        assert job["TRES"].startswith(f"cpu=1,mem={3000 if audited else 2000}M,node=1")
        assert job["TimeLimit"] == ("00:49:00" if audited else "00:34:00")  # minutes of the training, and of the audit
        assert job["JobName"].startswith("fa-audit_") and job["Requeue"] == "1"
    assert "nodes of a cluster, at most 4 GPUs at a time" in said


def test_with_one_gpu_never_two_gpu_jobs_run_at_once(grid):
    _, _, jobs = grid
    assert any(second["SubmitTime"] < first["EndTime"] for first, second in pairwise(jobs)), "nothing ever waited"
    by_start = sorted(jobs, key=lambda job: job["StartTime"])
    assert all(second["StartTime"] >= first["EndTime"] for first, second in pairwise(by_start))


def test_a_gpu_that_torch_does_not_see_is_told_in_the_log(grid):
    folder, _, _ = grid
    for log in ("train_network/tiny/bp+frozen", "train_network/tiny/dfa", "audit_network/tiny/dfa"):
        assert "a GPU was granted, but torch sees none" in (folder / f"results/logs/{log}/seed1.log").read_text()
    assert (folder / "results/benchmarks/train_network/tiny/dfa/seed1.tsv").stat().st_size > 0


def test_results_that_come_home_are_up_to_date_there(grid, tmp_path):
    folder, _, _ = grid
    home = project(tmp_path / "home")
    assert planned(home)
    for kept in ("results", ".snakemake/metadata"):
        # Contents alone: every file is newer than what it was made from, or older, by chance.
        shutil.copytree(folder / kept, home / kept, copy_function=shutil.copyfile, dirs_exist_ok=True)
    assert planned(home) == {}
    (home / "results/tables/main_audit.csv").unlink()
    assert set(planned(home)) == {"build_table", "manifest"}


def uncomment(folder, named, *changes):
    """Take the first block of the profile that holds the words out of its comment, names of this cluster put in."""
    path = folder / "profiles/slurm/config.yaml"
    text = path.read_text()
    block = next(found[0] for found in re.finditer(r"^# [\w-]+:\n(#   .+\n)+", text, re.MULTILINE) if named in found[0])
    plain = re.sub("^# ", "", block, flags=re.MULTILINE)
    for old, new in changes:
        assert old in plain
        plain = plain.replace(old, new)
    path.write_text(text.replace(block, plain))


def test_with_a_cap_of_one_gpu_never_two_are_submitted_at_once(cluster, tmp_path):
    folder = project(tmp_path / "project")
    names = (
        ("gpu_model: h200", "gpu_model: fake"),
        ("_partition: gpu", "_partition: test"),
        ("  slurm_account: my_group\n", ""),
    )
    uncomment(folder, "default-resources", *names)
    _, jobs = run(cluster, folder, "baselines", "--resources", "gpu=1")
    assert [(job["Partition"], job["TresPerJob"]) for job in jobs] == [("test", "gres:gpu:fake:1")] * 2
    assert jobs[1]["SubmitTime"] >= jobs[0]["EndTime"]


def test_a_gpu_by_gres_alone_is_a_gpu_to_the_jobs(cluster, grid, tmp_path):
    folder = Path(shutil.copytree(grid[0], tmp_path / "project"))
    for result in ("checkpoints/tiny/bp/seed1.json", "audits/tiny/bp/seed1.json"):
        (folder / "results" / result).unlink()
    shutil.rmtree(folder / "results/logs")
    uncomment(folder, "gres")
    _, (job,) = run(cluster, folder, "audit", "--resources", "cards=1")
    assert job["TresPerNode"] == "gres:gpu:1" and "TresPerJob" not in job
    for rule in ("train_network", "audit_network"):
        assert "a GPU was granted" in (folder / f"results/logs/{rule}/tiny/bp/seed1.log").read_text()


def test_a_cluster_s_cpus_are_asked_for_where_the_rules_want_no_gpu(cluster, tmp_path):
    folder = project(tmp_path / "project")
    refused = submit(cluster, folder, TARGET, "--resources", "gpu=0")
    said = said_by(refused)
    assert refused.returncode == 1 and "--set-resources train_network:gpu=0" in said and "Traceback" not in said
    assert submissions(cluster, folder) == []
    uncomment(folder, "{gpu: 0}")
    _, (job,) = run(cluster, folder, TARGET.replace("/dfa/", "/bp+frozen/"))
    assert "gpu" not in str(job) and job["JobState"] == "COMPLETED"
    assert "computing on the CPU\n" in (folder / "results/logs/train_network/tiny/bp+frozen/seed1.log").read_text()


@pytest.fixture(scope="module")
def undisturbed(cluster, tmp_path_factory):
    """The bits of the long training, on this machine, when nobody interrupts it."""
    folder = project(tmp_path_factory.mktemp("undisturbed") / "project", LONG)
    assert snakemake(folder, TARGET).returncode == 0
    return (folder / TARGET).read_bytes()


def start_long_training(cluster, folder):
    """Snakemake on one long training, past some epochs; it and the number of its job."""
    process = submit(cluster, folder, TARGET)
    log = folder / "results/logs/train_network/tiny/dfa/seed1.log"
    deadline = time.monotonic() + 240
    while not (log.exists() and "epoch 5/120" in log.read_text()):
        assert time.monotonic() < deadline and process.poll() is None, "the training did not start"
        time.sleep(0.05)
    (job,) = submissions(cluster, folder)
    return process, job["JobId"]


def test_a_cancelled_training_goes_on_in_a_plain_rerun_to_the_same_bits(cluster, undisturbed, tmp_path):
    folder = project(tmp_path / "project", LONG)
    process, job = start_long_training(cluster, folder)
    cluster.ask("scancel", job)
    said = said_by(process)
    assert process.returncode == 1 and "CANCELLED" in said and "run the same command again" in said
    assert not (folder / TARGET).exists()
    _, jobs = run(cluster, folder, TARGET)
    assert [job["JobState"] for job in jobs] == ["CANCELLED", "COMPLETED"]
    assert "going on after epoch" in (folder / "results/logs/train_network/tiny/dfa/seed1.log").read_text()
    assert (folder / TARGET).read_bytes() == undisturbed


def test_a_requeued_training_goes_on_by_itself_to_the_same_bits(cluster, undisturbed, tmp_path):
    folder = project(tmp_path / "project", LONG)
    process, job = start_long_training(cluster, folder)
    cluster.ask("scontrol", "requeue", job)
    said = said_by(process)
    assert process.returncode == 0, said
    (job,) = submissions(cluster, folder)
    assert job["Restarts"] == "1" and job["JobState"] == "COMPLETED"
    assert "going on after epoch" in (folder / "results/logs/train_network/tiny/dfa/seed1.log").read_text()
    assert (folder / TARGET).read_bytes() == undisturbed


def test_the_profile_plans(cluster, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "-n", *PROFILE, "--configfile", "tiny.yaml"],
        cwd=project(tmp_path / "project"), text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0 and re.search(r"train_network +4\n", done.stdout), done.stdout + done.stderr
    assert len(re.findall(r" rule train_network:\n(?: {8}.*\n)* {8}resources: .*\bgpu=1\b", done.stdout)) == 4
