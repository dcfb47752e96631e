"""Cards: one job on each, counted as CUDA counts them, limited before any work begins, and told in the provenance."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from uuid import uuid4

import pytest
from forks import snakemake_calls
from printed_audits import printed_audits
from projects import ROOT, copy_sources, write_config

from fa_audit.data.dataset import save_dataset
from fa_audit.data.digits import digits
from fa_audit.training.run_files import fingerprint

# A torch with cards that need no driver: NVIDIA's names of those that CARDS lists.
TORCH = """
import os
from types import SimpleNamespace

names = os.environ["CARDS"].split()
cuda = SimpleNamespace(
    is_available=lambda: bool(names),
    device_count=lambda: len(names),
    get_device_properties=lambda index: SimpleNamespace(uuid=names[index]),
    get_device_name=lambda index: f"a card named {names[index]}",
    set_device=lambda index: None,
)
"""
# Takes a card as every script of the workflow does, says which, and holds it until it is told to end.
JOB = """
import json, os, sys
from types import SimpleNamespace

sys.path.insert(0, sys.argv[1])
from _workflow import device, log

log.setLevel("INFO")
log.info = lambda words, *values: print(words % values, flush=True)
with device(SimpleNamespace(resources=json.loads(os.environ.get("RESOURCES", '{"gpu": 1}')))) as where:
    print(where, flush=True)
    sys.stdin.read()
"""
OWN = "FA_AUDIT_JOBS_PER_GPU"


@pytest.fixture
def start(tmp_path):
    """Starts a job that sees cards, all of a name of this test's own, in a folder of its own."""
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
    told = said(job)
    assert told.startswith("computing on "), told
    where = said(job)
    assert told.startswith(f"computing on {where} (a card named ")
    return where


def waits(job):
    return said(job).startswith("waiting: other jobs hold every GPU (")


def test_jobs_of_two_folders_take_different_cards_and_a_third_waits_until_one_is_done(start):
    first, second = start("a", "b"), start("a", "b")
    assert {device_of(first), device_of(second)} == {"cuda:0", "cuda:1"}
    third = start("a", "b")
    assert waits(third)
    second.communicate()
    assert device_of(third).startswith("cuda:")


def test_a_card_is_the_same_card_whatever_else_is_hidden(start):
    first = start("a", "b", "c")
    assert device_of(first) == "cuda:0"
    assert device_of(start("b", "a")) == "cuda:0"  # b, which is first here
    assert waits(start("b"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda how: how.name)
def test_the_card_of_a_killed_job_is_free(start, how):
    first = start("a")
    assert device_of(first) == "cuda:0"
    second = start("a")
    assert waits(second)
    first.send_signal(how)
    assert device_of(second) == "cuda:0"


def test_jobs_share_a_card_only_when_told_to_and_use_the_others_first(start):
    shared = {OWN: "2"}
    jobs = [start("a", "b", **shared)]
    devices = [device_of(jobs[0])]
    for _ in range(3):
        jobs.append(start("a", "b", **shared))
        devices.append(device_of(jobs[-1]))
    assert devices == ["cuda:0", "cuda:1", "cuda:0", "cuda:1"]
    assert waits(start("a", "b", **shared)) and waits(start("a", "b"))


def test_slices_of_a_card_are_cards(start):
    one, two = (f"MIG-{uuid4()}" for _ in range(2))
    assert device_of(start("a", CUDA_VISIBLE_DEVICES=one)) == "cuda:0"
    assert device_of(start("a", CUDA_VISIBLE_DEVICES=two)) == "cuda:0"
    assert waits(start("a", CUDA_VISIBLE_DEVICES=one))


def test_a_slice_after_a_whole_card_is_not_what_cuda_shows(start):
    assert device_of(start("a", "b")) == "cuda:0"
    assert device_of(start("a", "b", CUDA_VISIBLE_DEVICES=f"0,1,MIG-{uuid4()}")) == "cuda:1"


def test_a_share_of_a_card_by_gres_is_a_gpu(start):
    assert device_of(start("a", RESOURCES='{"gpu": 0, "gres": "shard:1"}')) == "cuda:0"


@pytest.mark.parametrize(
    ("cards", "gpu", "why"),
    [
        ("", 1, ": a GPU was granted, but torch sees none (CUDA_VISIBLE_DEVICES: not set)"),
        ("a", 0, ": torch sees a GPU, but none was asked for"),
        ("", 0, ""),
    ],
)
def test_why_a_job_computes_on_the_cpu_is_told_in_the_log(start, cards, gpu, why):
    job = start(*cards, RESOURCES=json.dumps({"gpu": gpu}))
    assert said(job) == f"computing on the CPU{why}" and said(job) == "cpu"


# --- what Snakemake is allowed to start ----------------------------------------------------------------------------


TINY = {"settings": {"tiny": {"dataset": "digits", "architecture": {"name": "resmlp"}, "seeds": [1], "runs": ["bp"]}}}
NO_PROFILE = ["--workflow-profile", "none", "--cores", "1", "--nolock"]
ONE, TWO, NONE = "0", "0,GPU-1", ""
DATA = "results/data/digits.safetensors"
STARTS = [  # what CUDA shows, options, the error, and the command or the banner
    (ONE, ["--resources", "other=1"], "no limit", "--resources other=1 gpu=1"),
    (TWO, ["--resources=other=1", "--keep-going"], "no limit", "--keep-going --resources other=1 gpu=2"),
    (ONE, ["--resources=other=1", DATA], "no limit", f"tiny.yaml --resources other=1 gpu=1 -- {DATA}"),
    (ONE, ["--resources", "other=1", "--", DATA], "no limit", f"tiny.yaml --resources other=1 gpu=1 -- {DATA}"),
    (ONE, [*NO_PROFILE, "--profile", "mine"], "no limit", "--profile mine --resources other=1 gpu=1"),
    (ONE, NO_PROFILE, "no limit", "--nolock --resources gpu=1"),
    (ONE, ["--res", "gpu=3", "other=2"], "gpu=3: found room for 1 (GPUs: 1, jobs on each: 1)", "other=2 gpu=1"),
    (TWO, ["--resources", "gpu=3"], "gpu=3: found room for 2", "--resources gpu=2"),
    ("0,-1,GPU-1", ["--resources", "gpu=2"], "gpu=2: found room for 1", "--resources gpu=1"),
    ("MIG-1,MIG-2", ["--resources", "gpu=2"], "gpu=2: found room for 1", "--resources gpu=1"),
    ("77", NO_PROFILE, "", "device     CPU"),
    ("GPU-1,0,GPU-1", NO_PROFILE, "", "device     CPU"),
    ("-1,0", NO_PROFILE, "", "device     CPU"),
    ("NoDevFiles", [], "", "device     CPU"),
    (NONE, ["--resources", "other=1"], "", "device     CPU"),
    (ONE, ["--resources", "gpu=0"], "", "device     CPU"),
    (TWO, ["--resources", "gpu=2"], "", "device     GPU, 2 at a time"),
]
NUMBERS = ("0", "two")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Every start, on a machine that looks as if it had a GPU; what is let start touches a file."""
    folder = copy_sources(tmp_path_factory.mktemp("devices") / "project")
    write_config(folder, TINY)
    save_dataset(digits(folder), folder / DATA)
    (folder / "nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: A card (UUID: GPU-0)'\n")
    (folder / "nvidia-smi").chmod(0o755)
    (folder / "mine").mkdir()
    (folder / "mine/config.yaml").write_text("resources: {other: 1}\n")
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    call = ["--touch", "--force", "--configfile", "tiny.yaml"]
    starts = [([*call, *options], path | {"CUDA_VISIBLE_DEVICES": visible}) for visible, options, *_ in STARTS]
    numbers = [(call, path | {"CUDA_VISIBLE_DEVICES": "0", OWN: number}) for number in NUMBERS]
    calls = [*starts, *numbers]
    return snakemake_calls(folder, [(words if DATA in words else [DATA, *words], env) for words, env in calls])


@pytest.mark.parametrize(
    "number", range(len(STARTS)), ids=lambda number: " ".join([*STARTS[number][:1], *STARTS[number][1]])
)
def test_a_limit_that_the_gpus_do_not_bear_is_refused_with_the_command_to_use(outcomes, number):
    outcome, (_, _, error, words) = outcomes[number], STARTS[number]
    refusals = [line for line in outcome.said.splitlines() if re.match("fa-audit: (?!done)", line)]
    assert (outcome.status, len(refusals)) == ((1, 1) if error else (0, 0)), outcome.said
    assert error in outcome.said and (refusals[0].endswith(words) if error else words in outcome.said), outcome.said


def test_a_wrong_number_of_jobs_on_a_card_is_refused(outcomes):
    for number, outcome in zip(NUMBERS, outcomes[len(STARTS) :], strict=True):
        assert outcome.status == 1 and f"fa-audit: {OWN}: found '{number}'; expected an integer 1..99" in outcome.said


@pytest.mark.parametrize("said", ["exit 1", "echo No devices were found", "exec sleep 60"])
def test_the_driver_s_program_alone_is_no_gpu(tmp_path, monkeypatch, said):
    monkeypatch.syspath_prepend(ROOT / "workflow_scripts")
    machine = importlib.import_module("_machine")
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{said}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(machine, "DEVICES", tmp_path)
    assert machine.most_cards.__wrapped__() == 0


# --- provenance ----------------------------------------------------------------------------------------------------


def test_a_training_that_was_begun_on_another_model_of_gpu_starts_over(make_spec, monkeypatch):
    models = iter(("H100", "H100", "A100"))
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: next(models))
    monkeypatch.setattr("fa_audit.training.run_files.cuda_versions", lambda device: {"runtime": "13.0", "cudnn": 91900})
    first, same, other = (fingerprint(make_spec(), [], "cuda:0") for _ in range(3))
    assert first == same != other


def test_sidecars_and_audits_say_where_and_how_they_were_computed(tmp_path):
    (audit,) = printed_audits(tmp_path, [1])
    sidecar = json.loads((tmp_path / "dfa1.json").read_text())["provenance"]
    assert sidecar.pop("peak_memory_mb")["resident"] > 0
    assert audit["provenance"] == sidecar
    assert sidecar["device"].startswith("cpu (") and sidecar["cuda"] is None and sidecar["threads"] == 1
    assert sidecar["deterministic_algorithms"] and sidecar["fp32_precision"] == "ieee"
    assert sidecar["tf32"] == {"matmul": False, "convolution": False, "recurrence": False}
    assert sidecar["cudnn"] == {"deterministic": False, "benchmark": False}
    assert sidecar["cublas_workspace"] == ":4096:8"
