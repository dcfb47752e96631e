"""The profiles, without the programs that they are for."""

import re
import subprocess
import sys

import pytest
import yaml
from forks import snakemake_calls
from projects import ROOT, command, copy_sources, write_config

SLURM = ROOT / "profiles/slurm/config.yaml"


def profile(name):
    return yaml.safe_load((ROOT / f"profiles/{name}/config.yaml").read_text())


def test_slurm_repeats_what_default_says_of_staleness_and_failures():
    """A workflow profile replaces profiles/default: nothing is merged. Its executor needs Snakemake's logger."""
    other = ("cores", "resources", "logger")
    here = {key: value for key, value in profile("default").items() if key not in other}
    assert {key: profile("slurm").get(key) for key in here} == here


@pytest.mark.parametrize("key", profile("slurm"))
def test_every_key_of_the_slurm_profile_is_explained_above_it(key):
    lines = SLURM.read_text().splitlines()
    place = next(index for index, line in enumerate(lines) if line.startswith(f"{key}:"))
    assert lines[place - 1].startswith("# ") and lines[place - 1][2:3].strip(), lines[place - 1]


def test_what_the_slurm_profile_offers_in_comments_is_yaml_and_about_its_rules():
    blocks = re.findall(r"^# [\w-]+:\n(?:#   .+\n)+", SLURM.read_text(), flags=re.MULTILINE)
    offered = [yaml.safe_load(re.sub("^# ", "", block, flags=re.MULTILINE)) for block in blocks]
    assert [list(entry) for entry in offered] == [["default-resources"], ["set-resources"], ["set-resources"]]
    rules = "".join(path.read_text() for path in (ROOT / "rules").rglob("*.smk"))
    computing = set(re.findall(r"^rule (\w+):\n(?:(?!^rule ).*\n)*?        gpu=gpus,", rules, flags=re.MULTILINE))
    assert [set(entry["set-resources"]) for entry in offered[1:]] == [computing] * 2


def test_without_the_plugin_the_last_line_says_which_executor_is_missing():
    program = (
        "import pkgutil, sys; found = pkgutil.iter_modules;"
        "pkgutil.iter_modules = lambda *a: (m for m in found(*a) if 'slurm' not in m.name);"
        "from snakemake.cli import main; main(sys.argv[1:])"
    )
    call = [sys.executable, "-c", program, "-n", "--workflow-profile", "profiles/slurm"]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert done.returncode != 0 and "argument --executor" in last and "invalid choice: 'slurm'" in last
    assert "invalid choice: 'slurm'" in (ROOT / "docs/cluster.md").read_text()


def test_where_slurm_cannot_be_installed_one_line_says_why():
    call = [sys.executable, str(ROOT / "tools/slurm_packages.py")]
    done = subprocess.run(call, env={"PATH": "/nowhere"}, capture_output=True, text=True)  # no sbatch, no apt-get
    assert done.returncode == 77 and not done.stderr
    assert re.fullmatch(r"fa-audit: test-slurm skipped: .*sbatch.* not found .*, and .+\n", done.stdout)


NETWORK = {"dataset": "cifar10", "architecture": {"name": "small_resnet"}, "seeds": [1], "epochs": 100, "runs": ["bp"]}
NO_GPU = ("train_network:gpu=0", "audit_network:gpu=0")


ASKED = [  # options, then minutes and memory of a training and of an audit
    ((), (230, 3986), (15, 4986)),  # nothing was measured on a GPU, but main memory on a CPU
    ((*NO_GPU, "train_network:gres=gpu:1", "audit_network:gres=gpu:1"), (230, 3986), (15, 4986)),
    (NO_GPU, (5251, 3986), (36, 4986)),
]


def test_minutes_and_memory_are_those_of_the_device_that_a_cluster_s_job_gets(tmp_path):
    write_config(copy_sources(tmp_path), {"settings": {"big": NETWORK}})
    cluster = ("-n", "audit", "--workflow-profile", "none", "--jobs", "4")
    calls = [command(*cluster, *(("--set-resources", *asked) if asked else ()))[3:] for asked, _, _ in ASKED]
    for outcome, (_, *expected) in zip(snakemake_calls(tmp_path, [(call, {}) for call in calls]), ASKED, strict=True):
        for rule, (minutes, memory) in zip(("train_network", "audit_network"), expected):
            (resources,) = set(re.findall(rf"rule {rule}:\n(?: +.*\n)*? +resources: (.*)", outcome.said))
            assert f"mem_mb={memory}," in resources and re.search(rf"runtime={minutes}\b", resources), resources
