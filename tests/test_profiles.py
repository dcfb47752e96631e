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


@pytest.mark.parametrize(("name", "other"), [("slurm", ("cores", "resources", "logger")), ("gpu", ("resources",))])
def test_other_profiles_repeat_what_default_says_of_staleness_and_failures(name, other):
    """A workflow profile replaces profiles/default: nothing is merged. Slurm's executor needs Snakemake's logger."""
    here = {key: value for key, value in profile("default").items() if key not in other}
    assert {key: profile(name).get(key) for key in here} == here


def test_what_the_slurm_profile_offers_in_comments_is_yaml_and_about_its_rules():
    blocks = re.findall(r"^# [\w-]+:\n(?:#   .+\n)+", SLURM.read_text(), flags=re.MULTILINE)
    offered = [yaml.safe_load(re.sub("^# ", "", block, flags=re.MULTILINE)) for block in blocks]
    assert [list(entry) for entry in offered] == [["default-resources"], ["set-resources"], ["set-resources"]]
    rules = "".join(path.read_text() for path in (ROOT / "rules").rglob("*.smk"))
    computing = set(re.findall(r"^rule (\w+):\n(?:(?!^rule ).*\n)*?        gpu=gpus,", rules, flags=re.MULTILINE))
    assert [set(entry["set-resources"]) for entry in offered[1:]] == [computing] * 2


def test_where_slurm_cannot_be_installed_one_line_says_why():
    call = [sys.executable, str(ROOT / "tools/slurm_packages.py")]
    done = subprocess.run(call, env={"PATH": "/nowhere"}, capture_output=True, text=True)  # no sbatch, no apt-get
    assert done.returncode == 77 and not done.stderr
    assert re.fullmatch(r"fa-audit: test-slurm skipped: .*sbatch.* not found .*, and .+\n", done.stdout)


METHOD = """from typing import ClassVar

from fa_audit.methods.dfa import DFA


class Mine(DFA):
    relative_time: ClassVar[float] = 2.0
    memory_mb: ClassVar[int] = 500
"""
RUN = "my_method:Mine"
NETWORK = {"dataset": "cifar10", "architecture": {"name": "small_resnet"}, "seeds": [1], "epochs": 100, "runs": [RUN]}
NO_GPU = ("train_network:gpu=0", "audit_network:gpu=0")
ASKED = [  # options, then minutes and memory of a training and of an audit
    ((), (430, 4486), (15, 5486)),  # nothing was measured on a GPU, but main memory on a CPU
    ((*NO_GPU, "train_network:gres=gpu:1", "audit_network:gres=gpu:1"), (430, 4486), (15, 5486)),
    (NO_GPU, (10471, 4486), (36, 5486)),
]


def test_jobs_ask_for_the_time_and_memory_of_their_network_method_and_device(tmp_path):
    write_config(copy_sources(tmp_path), {"settings": {"big": NETWORK}})
    (tmp_path / "my_method.py").write_text(METHOD)
    cluster = ("-n", f"results/audits/big/{RUN}/seed1.json", "--workflow-profile", "none", "--jobs", "4")
    calls = [command(*cluster, *(("--set-resources", *asked) if asked else ()))[3:] for asked, _, _ in ASKED]
    for outcome, (_, *expected) in zip(snakemake_calls(tmp_path, [(call, {}) for call in calls]), ASKED, strict=True):
        for rule, (minutes, memory) in zip(("train_network", "audit_network"), expected):
            job = rf"rule {rule}:\n(?: +.*\n)*? +wildcards: setting=big, run={RUN}, .*\n(?: +.*\n)*? +resources: (.*)"
            (resources,) = re.findall(job, outcome.said)
            assert f"mem_mb={memory}," in resources and re.search(rf"runtime={minutes}\b", resources), resources
