"""Dry runs on copies of a finished project: what a change makes stale, what jobs ask for, errors before any job."""

import copy
import json
import shutil
import time
from pathlib import Path

import pytest
import yaml
from forks import snakemake_calls
from projects import EVERYTHING, PUBLISHED, command, copy_sources, plan_of, write_config

METHOD = """from dataclasses import dataclass
from typing import ClassVar

from fa_audit.methods.dfa import DFA
from my_signs import signs


@dataclass(frozen=True)
class Mine(DFA):
    relative_time: ClassVar[float] = 7.5
    memory_mb: ClassVar[int] = 500
"""
RESOURCES = {"dataset": "digits", "architecture": "resmlp", "batch_size": 128, "machine": "mine", "memory_mb": 4000}
RESOURCES |= {"architecture_options": {"depth": 2, "residual": True, "terminal_norm": True, "width": 8}}


def configured(*path, value):
    """`EVERYTHING` with one value changed."""
    config = copy.deepcopy(EVERYTHING)
    part = config
    for name in path[:-1]:
        part = part.setdefault(name, {})
    part[path[-1]] = value
    return lambda folder: write_config(folder, config)


def appended(name):
    return lambda folder: (folder / name).write_text((folder / name).read_text() + "# edited\n")


def deleted(name):
    return lambda folder: (folder / name).unlink()


def checked_out(folder):
    time.sleep(1.1)
    copy_sources(folder)
    (folder / "reference/published.yaml").write_text(yaml.safe_dump(PUBLISHED))


def changed_audit(folder):
    path = folder / "results/audits/student_mlp/ep/seed1.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"headline_acc": 0.5}))


def runs(setting, *names, seed=1):
    return sorted(f"setting={setting}, run={name}, seed={seed}" for name in names)


DRAWN = {"draw_figure", "build_table", "build_scorecard", "draw_scorecard", "manifest"}
AFTER_AUDITS = {"tidy_setting", "tidy", *DRAWN}
# What is done to a finished project, the targets asked for, jobs that are planned by rule (a number, or wildcards), and
# the other rules that may be planned; every rule may where it says None.
PLANS = {
    "nothing": (lambda folder: None, (), {}, set()),
    "a checkout": (checked_out, (), {}, set()),
    "the same data elsewhere": (configured("data_root", value="elsewhere"), (), {}, set()),
    "a deleted figure": (
        deleted("results/figures/trajectories.pdf"),
        (),
        {"draw_figure": ["figure=trajectories"], "manifest": [""]},
        set(),
    ),
    "a method": (
        appended("src/fa_audit/methods/ep.py"),
        (),
        {"train_network": runs("student_mlp", "ep", "ep+frozen")},
        {"collect_baseline", "audit_network", *AFTER_AUDITS},
    ),
    "the protocol": (
        appended("src/fa_audit/audit/verdicts.py"),
        (),
        {"audit_network": 15},
        {"audit_model", *AFTER_AUDITS},
    ),
    "the style": (
        appended("src/fa_audit/results/figures/style.py"),
        (),
        {"draw_figure": 10},
        {"draw_scorecard", "manifest"},
    ),
    "a label": (configured("labels", "bp", value="Backprop"), (), {}, {"draw_figure", "build_table", "manifest"}),
    "a seed": (
        configured("settings", "student_mlp", "seeds", value=[1, 2]),
        (),
        {
            "train_network": runs("student_mlp", "bp+frozen", "ep", "ep+frozen", seed=2),
            "audit_network": runs("student_mlp", "ep", seed=2),
        },
        {"collect_baseline", *AFTER_AUDITS},
    ),
    "a budget": (
        configured("settings", "bn_cnn", "epochs", value=2),
        (),
        {"train_network": 5, "audit_network": 2},
        {"collect_baseline", *AFTER_AUDITS},
    ),
    "a threshold": (
        configured("thresholds", "growth", value=7.0),
        (),
        {"audit_network": 15},
        {"audit_model", *AFTER_AUDITS},
    ),
    "a monitor": (
        configured("monitor", "stop_on", value=["D1"]),
        (),
        {"train_network": 13},
        {"share_run", "collect_baseline", "audit_network", *AFTER_AUDITS},
    ),
    "a changed audit": (
        changed_audit,
        (),
        {
            "tidy_setting": ["setting=student_mlp"],
            "draw_figure": [f"figure={name}" for name in ("audit_overview", "trajectories", "verdict_matrix")],
        },
        AFTER_AUDITS - {"build_scorecard", "draw_scorecard"},
    ),
    "an edited copy of the published numbers": (
        appended("reference/published.yaml"),
        (),
        {"build_scorecard": [""]},
        {"draw_scorecard", "manifest"},
    ),
    "other labels of one model": (
        configured("models", "resnet18", "blocks", value="layer1.*"),
        ("models",),
        {"audit_model": ["model=resnet18"]},
        {"models"},
    ),
    "one figure in a fresh folder": (
        lambda folder: shutil.rmtree(folder / "results"),
        ("results/figures/verdict_matrix.pdf",),
        {"draw_figure": ["figure=verdict_matrix"], "train_network": 29},
        {"share_run", "prepare_data", "audit_network", "collect_baseline", "tidy_setting"},
    ),
    "a copied run in a fresh folder": (
        lambda folder: shutil.rmtree(folder / "results"),
        ("results/checkpoints/resmlp/bp+frozen/seed1.json",),
        {"train_network": runs("depths_depth2", "bp+frozen"), "share_run": ["twin=resmlp/bp+frozen/seed1"]},
        {"prepare_data"},
    ),
}
SETTING = EVERYTHING["settings"]["student_mlp"]
MINE = {
    "settings": {"mine": SETTING | {"runs": ["my_method:Mine"], "baselines": ["bp+frozen", "my_method:Mine+frozen"]}}
}


def own_method(folder):
    (folder / "my_method.py").write_text(METHOD)
    (folder / "my_signs.py").write_text("def signs(credit):\n    return credit.sign()\n")
    write_config(folder, MINE)


def measured(folder):
    entry = RESOURCES | {"seconds_per_epoch": 600.0, "seconds_per_audit": 300.0}
    (folder / "benchmarks/costs.json").write_text(json.dumps({"cpu": [entry]}))


ASKED = {  # target of a forced plan -> what its job asks for
    "a measured network": (
        measured,
        "results/audits/resmlp/bp/seed1.json",
        {
            "train_network": ("runtime=70", "mem_mb=5000"),  # 2 epochs of 10 minutes, twice, and 30 minutes
            "audit_network": ("runtime=25", "mem_mb=6000"),
        },
    ),
    "what a method declares": (
        own_method,
        "results/checkpoints/mine/my_method:Mine/seed1.json",
        {
            "train_network": ("runtime=45", "mem_mb=2500"),
        },
    ),
}


def in_setting(**change):
    config = {"settings": {"tiny": SETTING | change}}
    return lambda folder: write_config(folder, config)


REFUSED = {
    "an unknown key": (in_setting(epoch=3), (), "fa-audit: tiny.yaml, line 2: settings.tiny: unknown key 'epoch'"),
    "an unknown run": (
        lambda folder: None,
        ("results/audits/student_mlp/epp/seed1.json",),
        "unknown run 'epp'; known: bp+frozen, ep, ep+frozen",
    ),
    "an unknown figure": (
        lambda folder: None,
        ("results/figures/audit_overveiw.pdf",),
        "unknown figure 'audit_overveiw'; known: audit_overview",
    ),
    "absent weights": (
        configured("models", "resnet18", "weights", value="w.safetensors"),
        (),
        "no file 'w.safetensors' in ",
    ),
    "a kind without its caption": (deleted("report/captions/audit_overview.rst"), (), "no caption of 'audit_overview'"),
    "wrong published numbers": (
        lambda folder: (folder / "reference/published.yaml").write_text(
            yaml.safe_dump(PUBLISHED | {"entries": [{"n": 1}]})
        ),
        (),
        "reference/published.yaml",
    ),
    "a key that stands twice": (
        lambda folder: (folder / "tiny.yaml").write_text("settings: {}\nsettings: {}\n"),
        (),
        "tiny.yaml, line 2",
    ),
}


@pytest.fixture(scope="module")
def outcomes(everything, tmp_path_factory):
    """The outcome of every dry run, by its name."""
    folder, calls = tmp_path_factory.mktemp("plans"), {}
    cases = {name: (edit, targets, ()) for name, (edit, targets, *_) in (PLANS | REFUSED).items()}
    cases |= {name: (edit, (target,), ("--forceall",)) for name, (edit, target, _) in ASKED.items()}
    for number, (name, (edit, targets, options)) in enumerate(cases.items()):
        project = Path(shutil.copytree(everything, folder / str(number)))
        edit(project)
        words = command("-n", *targets, *options)[3:]
        calls[name] = (words, {"PROJECT": str(project), "PYTHONHASHSEED": str(number)})
    return dict(zip(calls, snakemake_calls(folder, list(calls.values()))))


@pytest.mark.parametrize("name", PLANS)
def test_a_change_makes_stale_what_uses_it_and_nothing_else(outcomes, name):
    _, _, expected, others = PLANS[name]
    assert outcomes[name].status == 0, outcomes[name].said
    jobs = plan_of(outcomes[name].said)
    found = {
        rule: len(jobs.get(rule, ())) if isinstance(wanted, int) else jobs.get(rule)
        for rule, wanted in expected.items()
    }
    assert found == expected and set(jobs) <= set(expected) | others


@pytest.mark.parametrize("name", ASKED)
def test_jobs_ask_for_the_time_and_memory_of_their_network_and_method(outcomes, name):
    for rule, values in ASKED[name][2].items():
        block = next(part for part in outcomes[name].said.split("\n\n") if f"rule {rule}:" in part)
        assert all(f"{value}," in block + "," for value in values), block


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_is_one_message_before_any_job(outcomes, name):
    outcome, words = outcomes[name], REFUSED[name][2]
    assert outcome.status == 1 and words in outcome.said, outcome.said
    assert "Traceback" not in outcome.said and "  File " not in outcome.said
