"""GPUs: one job on each, limited before any work begins, and recorded in the provenance."""

import json
import os
import signal
import subprocess
import sys
from uuid import uuid4

import pytest
from forks import snakemake_calls
from printed_audits import printed_audits
from projects import ROOT, copy_sources, write_config
from test_costs import row

from fa_audit.data.dataset import save_dataset
from fa_audit.data.digits import digits
from fa_audit.experiments.costs import read_costs
from fa_audit.experiments.spec import RunSpec
from fa_audit.training.run_files import training_origin

# A torch with GPUs that need no driver: NVIDIA's names of those that CARDS lists.
TORCH = """
import os
from types import SimpleNamespace

names = os.environ["CARDS"].split()
cuda = SimpleNamespace(
    is_available=lambda: bool(names),
    device_count=lambda: len(names),
    get_device_properties=lambda index: SimpleNamespace(uuid=names[index]),
    get_device_name=lambda index: f"a GPU named {names[index]}",
    set_device=lambda index: None,
)
"""
# Takes a GPU as every script of the workflow does, says which, and holds it until it is stopped.
JOB = """
import json, os, sys
from types import SimpleNamespace

sys.path.insert(0, sys.argv[1])
import logging
from _workflow import device

logging.basicConfig(stream=sys.stdout, level="INFO", format="%(message)s")
with device(SimpleNamespace(resources=json.loads(os.environ.get("RESOURCES", '{"gpu": 1}')))) as where:
    print(where, flush=True)
    sys.stdin.read()
"""
OWN = "FA_AUDIT_JOBS_PER_GPU"


@pytest.fixture
def start(tmp_path):
    """Start a job that sees GPUs, all of a name of this test's own, in a folder of its own."""
    (tmp_path / "torch.py").write_text(TORCH)
    (tmp_path / "job.py").write_text(JOB)
    jobs, name = [], uuid4().hex

    def start(*cards, **environment):
        folder = tmp_path / f"project{len(jobs)}"
        folder.mkdir()
        own = {"PYTHONPATH": str(tmp_path), "CARDS": " ".join(f"{card}-{name}" for card in cards)}
        jobs.append(subprocess.Popen(
            [sys.executable, tmp_path / "job.py", ROOT / "workflow_scripts"], cwd=folder, text=True,
            env={"PATH": os.environ["PATH"]} | own | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ))  # fmt: skip
        return jobs[-1]

    yield start
    for job in jobs:
        job.kill()
        job.communicate()


def said(job):
    """The next line of a job."""
    return job.stdout.readline().strip()


def device_of(job):
    first = said(job)
    assert first.startswith("computing on "), first
    where = said(job)
    assert first.startswith(f"computing on {where} (a GPU named ")
    return where


def waits(job):
    return said(job).startswith("waiting: other jobs hold every GPU (")


def test_jobs_of_two_folders_take_different_gpus_and_a_third_waits_until_one_is_done_or_killed(
    start,
):
    first, second = start("a", "b"), start("a", "b")
    assert {device_of(first), device_of(second)} == {"cuda:0", "cuda:1"}
    third = start("a", "b")
    assert waits(third)
    second.communicate()
    freed = device_of(third)
    assert freed.startswith("cuda:")
    fourth = start("a", "b")
    assert waits(fourth)
    third.send_signal(signal.SIGKILL)
    assert device_of(fourth) == freed


def test_a_gpu_is_the_same_gpu_whatever_else_is_hidden(start):
    first = start("a", "b", "c")
    assert device_of(first) == "cuda:0"
    assert device_of(start("b", "a")) == "cuda:0"  # b, which is first here
    assert waits(start("b"))


def test_jobs_share_a_gpu_only_where_it_is_asked_for_and_use_the_others_first(start):
    shared = {OWN: "2"}
    devices = [device_of(start("a", "b", **shared)) for _ in range(4)]
    assert devices == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert waits(start("a", "b", **shared)) and waits(start("a", "b"))


@pytest.mark.parametrize(
    ("cards", "gpu", "why"),
    [
        ("", 1, "a GPU was granted, but torch sees none"),
        ("a", 0, "no GPU was asked for"),
    ],
)
def test_why_a_job_computes_on_the_cpu_stands_in_the_log(start, cards, gpu, why):
    job = start(*cards, RESOURCES=json.dumps({"gpu": gpu}))
    reason = said(job)
    assert reason.startswith("computing on the CPU") and why in reason and said(job) == "cpu"


RESMLP = {"depth": 4, "residual": True, "terminal_norm": True, "width": 16}
RUNS = {"dataset": "digits", "architecture": {"name": "resmlp"} | RESMLP, "runs": ["bp"]}
TINY = {"settings": {"tiny": RUNS | {"seeds": [1, 2, 3]}}}
NO_PROFILE = "--workflow-profile none --cores 1 --nolock"
DATA = "results/data/digits.safetensors"
CALL = [DATA, "--touch", "--force", "--configfile", "tiny.yaml"]
# Runs of 4000 MB on GPUs of 16000 and of 10000 MB, as many on each as fit.
SMI = """#!/bin/sh
case "$*" in *--id=0,1) echo 16000; echo 10000;; *--id=0) echo 16000;; *) echo 'No devices were found'; exit 6;; esac
"""
MANY = {OWN: "8", "PATH": f".:{os.environ['PATH']}"}  # with nvidia-smi
STARTS = [  # what CUDA shows of two GPUs, more of the environment, options, whether it is refused, words
    ("0", {}, "--resources other=1", True, "Add --resources gpu=1"),
    ("0,GPU-1", {}, NO_PROFILE, True, "Add --resources gpu=2"),
    ("0", {}, "--resources gpu=0", False, "CPU"),
    ("", {}, "--resources other=1", False, "CPU"),
    ("0,1", {}, "--resources gpu=2", False, "GPU, 2 at a time"),
    ("0", {OWN: "0"}, "--resources gpu=1", True, f"fa-audit: {OWN}: found '0'"),
    ("0,1", MANY, "--resources gpu=4", False, "GPU, 4 at a time"),
    ("0,1", MANY, "--resources gpu=5", True, "found 3 jobs on a GPU of 10000 MB"),
]
BP = RunSpec(
    dataset="digits", method="bp", architecture="resmlp", architecture_options=tuple(RESMLP.items())
)
MEASURED = row(BP, seconds_per_epoch=1.0)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Every start, on a machine that looks as if it had two GPUs."""
    folder = copy_sources(tmp_path_factory.mktemp("devices") / "project")
    write_config(folder, TINY)
    save_dataset(digits(folder), folder / DATA)
    (folder / "devices").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (folder / "devices" / name).touch()
    gpu = folder / "src/fa_audit/core/gpu.py"
    gpu.write_text(gpu.read_text().replace('Path("/dev")', 'Path("devices")'))
    (folder / "nvidia-smi").write_text(SMI)
    (folder / "nvidia-smi").chmod(0o755)
    costs = {"gpu": [MEASURED | {"gpu_memory_mb": 4000}]}
    (folder / "benchmarks/costs.json").write_text(json.dumps(costs))
    calls = []
    for gpus, more, options, *_ in STARTS:
        calls.append(([*CALL, *options.split()], more | {"CUDA_VISIBLE_DEVICES": gpus}))
    return snakemake_calls(folder, calls)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(STARTS)))
def test_what_the_gpus_do_not_bear_is_refused_with_the_option_to_add(outcomes, number):
    outcome, (*_, refused, words) = outcomes[number], STARTS[number]
    assert outcome.status == refused and words in outcome.said, outcome.said
    assert "Traceback" not in outcome.said


def test_the_memory_of_a_gpu_is_estimated_from_a_cpu_s_until_it_is_measured(tmp_path):
    stored = tmp_path / "costs.json"
    for gpu, expected in [([], 700 + 500), ([MEASURED | {"gpu_memory_mb": 900}], 900)]:
        stored.write_text(json.dumps({"cpu": [MEASURED | {"memory_mb": 700}], "gpu": gpu}))
        assert read_costs(stored).gpu_memory_mb(BP) == expected
    assert read_costs(tmp_path / "none.json").gpu_memory_mb(BP) == 0


def test_a_training_that_was_begun_on_another_model_of_gpu_starts_over(make_spec, monkeypatch):
    models = iter(("H100", "H100", "A100"))
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: next(models))
    monkeypatch.setattr("fa_audit.training.run_files.cuda_versions", lambda device: {})
    first, same, other = (training_origin(make_spec(), [], "cuda:0") for _ in range(3))
    assert first == same != other


def test_sidecars_and_audits_say_where_and_how_they_were_computed(tmp_path):
    (audit,) = printed_audits(tmp_path, [1])
    sidecar = json.loads((tmp_path / "dfa1.json").read_text())["provenance"]
    assert sidecar.pop("peak_memory_mb")["resident"] > 0
    assert audit["provenance"] == sidecar and sidecar["device"].startswith("cpu (")
    assert (sidecar["cuda"], sidecar["threads"], sidecar["fp32_precision"]) == (None, 1, "ieee")
    assert sidecar["deterministic_algorithms"] and not any(sidecar["tf32"].values())
    assert not any(sidecar["cudnn"].values()) and sidecar["cublas_workspace"] == ":4096:8"
