"""The profiles, without the programs that they are for."""

import json
import re

import pytest
import yaml
from projects import ROOT, copy_sources, snakemake, write_config

SLURM = ROOT / "profiles/slurm/config.yaml"


def profile(name):
    return yaml.safe_load((ROOT / f"profiles/{name}/config.yaml").read_text())


@pytest.mark.parametrize(
    ("name", "other"), [("slurm", ("cores", "resources", "logger")), ("gpu", ("resources",))]
)
def test_other_profiles_repeat_what_default_says_of_staleness_and_failures(name, other):
    """A workflow profile replaces profiles/default: nothing is merged. Slurm's executor needs
    Snakemake's logger.
    """
    here = {key: value for key, value in profile("default").items() if key not in other}
    assert {key: profile(name).get(key) for key in here} == here


def test_what_the_slurm_profile_offers_in_comments_is_yaml_about_the_rules_that_compute():
    blocks = re.findall(r"^# [\w-]+:\n(?:#   .+\n)+", SLURM.read_text(), flags=re.MULTILINE)
    offered = {}
    for block in blocks:
        offered |= yaml.safe_load(re.sub("^# ", "", block, flags=re.MULTILINE))
    assert set(offered) == {"default-resources", "set-resources"}
    rules = "".join(path.read_text() for path in (ROOT / "rules").rglob("*.smk")).split("\nrule ")
    computing = {rule.partition(":")[0] for rule in rules if "gpu=gpus," in rule}
    assert set(offered["set-resources"]) == computing


METHOD = """from typing import ClassVar

from fa_audit.methods.dfa import DFA


class Mine(DFA):
    relative_time: ClassVar[float] = 2.0
    memory_mb: ClassVar[int] = 500
"""
RUN = "my_method:Mine"
NETWORK = {
    "dataset": "cifar10",
    "architecture": {"name": "small_resnet"},
    "seeds": [1],
    "runs": [RUN],
}
SETTINGS = {  # their names say where the network was measured, with backpropagation
    "both": NETWORK | {"epochs": 100},
    "cpu": NETWORK | {"epochs": 100, "batch_size": 64},
    "nowhere": NETWORK | {"epochs": 100, "batch_size": 32},
    "long": NETWORK | {"epochs": 1000, "batch_size": 64},
}
EXPECTED = {  # minutes and memory of a training, and of an audit
    "both": ((77, 4250), (13, 5250)),  # on a GPU
    "cpu": ((410, 4250), (30, 5250)),
    "nowhere": ((410, 2500), (10, 3500)),
    "long": ((1320, 4250), (30, 5250)),
}


def costs_of_backpropagation():
    """An epoch takes a minute on the CPU, ten seconds on a GPU, an audit ten times as long."""
    network = NETWORK | {
        "architecture": "small_resnet",
        "architecture_options": {"width": 64, "depth": 4},
    }
    step = network | {"method": "bp", "frozen_blocks": 0, "shallow": False, "machine": "mine"}
    slow = {"seconds_per_epoch": 60, "seconds_per_audit": 600, "memory_mb": 3000}
    fast = {"seconds_per_epoch": 10, "seconds_per_audit": 100}
    return {
        "cpu": [step | slow | {"batch_size": size} for size in (64, 128)],
        "gpu": [step | fast | {"batch_size": 128}],
    }


@pytest.mark.slow
def test_jobs_ask_for_twice_what_was_measured_of_their_network_method_and_device_and_never_for_days(
    tmp_path,
):
    write_config(copy_sources(tmp_path), {"settings": SETTINGS})
    (tmp_path / "benchmarks/costs.json").write_text(json.dumps(costs_of_backpropagation()))
    (tmp_path / "my_method.py").write_text(METHOD)
    targets = [f"results/audits/{name}/{RUN}/seed1.json" for name in EXPECTED]
    cluster = ("--workflow-profile", "none", "--jobs", "4")
    done = snakemake(tmp_path, "-n", *targets, *cluster)
    for setting, expected in EXPECTED.items():
        for rule, (minutes, memory) in zip(("train_network", "audit_network"), expected):
            run = rf" .*wildcards: setting={setting}, run={RUN}, .*\n"
            job = rf"rule {rule}:\n(?: .*\n)*?{run}(?: .*\n)*? .*resources: (.*)"
            (resources,) = re.findall(job, done.stdout)
            assert f"mem_mb={memory}," in resources, resources
            assert re.search(rf"runtime={minutes}\b", resources), resources
