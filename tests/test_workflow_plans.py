"""Dry runs on copies of a finished project: what a change makes stale, errors before any job."""

import copy
import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest
import yaml
from forks import snakemake_calls
from projects import EVERYTHING, PUBLISHED, command, copy_sources, plan_of, write_config


def configured(*path, value):
    """`EVERYTHING` with one value changed."""
    config = copy.deepcopy(EVERYTHING)
    part = config
    for name in path[:-1]:
        part = part.setdefault(name, {})
    part[path[-1]] = value
    return lambda folder: write_config(folder, config)


def appended(name, text="EDITED = 1\n"):
    return lambda folder: (folder / name).write_text((folder / name).read_text() + text)


def deleted(name):
    return lambda folder: (folder / name).unlink()


def untouched(folder):
    """As it was made: nothing is stale."""


def checked_out(folder):
    time.sleep(1.1)
    copy_sources(folder)
    (folder / "reference/published.yaml").write_text(yaml.safe_dump(PUBLISHED))


def changed_audit(folder):
    path = folder / "results/audits/student_mlp/ep/seed1.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"headline_acc": 0.5}))


def without_records(folder):
    """Snakemake's records are gone, and the sources are newer than every result, even of tomorrow."""
    shutil.rmtree(folder / ".snakemake")
    for path in (folder / "src").rglob("*.py"):
        os.utime(path, (time.time() + 86400,) * 2)


def without_data(folder):
    """The folder of data is missing, of which these data sets read nothing."""
    shutil.rmtree(folder / "results/data")
    configured("data_root", value="nowhere")(folder)


def without_results(folder):
    shutil.rmtree(folder / "results")


def runs(setting, *names, seed=1):
    return sorted(f"setting={setting}, run={name}, seed={seed}" for name in names)


DRAWN = {"draw_figure", "build_table", "build_scorecard", "draw_scorecard"}
AFTER_AUDITS = {"tidy_setting", "tidy", *DRAWN}
AFTER_TRAININGS = {"collect_baseline", "audit_network", *AFTER_AUDITS}
STUDENTS = ["ep", "layerwise+random_targets"]
TRAINED = ["bp+frozen", "ep", "ep+frozen", "layerwise+frozen", "layerwise+random_targets"]
FIGURES_OF_EP = [f"figure={name}" for name in ("audit_overview", "trajectories", "verdict_matrix")]
# What is done to a finished project -> the edit; planned jobs by rule, their number or their
# wildcards; the other rules that may be planned; what is asked for.
PLANS = {
    "a checkout": (checked_out, {}, set()),
    "a folder of data that is missing and not needed": (without_data, {}, set()),
    "no records and newer sources": (without_records, {}, set()),
    "a method": (
        appended("src/fa_audit/methods/ep.py"),
        {"train_network": runs("student_mlp", "ep", "ep+frozen")},
        AFTER_TRAININGS,
    ),
    "a deleted trajectory": (
        deleted("results/trajectories/student_mlp/ep/seed1.csv"),
        {"train_network": runs("student_mlp", "ep"), "audit_network": runs("student_mlp", "ep")},
        AFTER_AUDITS,
    ),
    "a label": (configured("labels", "bp", value="Backprop"), {}, {"draw_figure", "build_table"}),
    "a seed": (
        configured("settings", "student_mlp", "seeds", value=[1, 2]),
        {
            "train_network": runs("student_mlp", *TRAINED, seed=2),
            "audit_network": runs("student_mlp", *STUDENTS, seed=2),
        },
        AFTER_TRAININGS,
    ),
    "a threshold": (
        configured("thresholds", "growth", value=7.0),
        {"audit_network": 10},
        {"audit_model", "report_model", *AFTER_AUDITS},
    ),
    "other snapshots, of finished runs": (
        configured("settings", "snapshots", "snapshots", value=[0]),
        {
            "train_network": runs("snapshots", "bp+epoch0", "bp+frozen+epoch0", seed=2),
            "audit_network": runs("snapshots", "bp+epoch0", seed=2),
        },
        AFTER_TRAININGS,
    ),
    "a monitor": (
        configured("monitor", "stop_on", value=["D1"]),
        {"train_network": 7},
        {"share_run", *AFTER_TRAININGS},
    ),
    "a changed audit": (
        changed_audit,
        {"tidy_setting": ["setting=student_mlp"], "draw_figure": FIGURES_OF_EP},
        {"tidy", "build_table"},
    ),
    "an edited copy of the published numbers": (
        appended("reference/published.yaml", "# edited\n"),
        {"build_scorecard": [""]},
        {"draw_scorecard"},
    ),
    "a copied run in a fresh folder": (
        without_results,
        {
            "train_network": runs("depths_depth2", "bp+frozen"),
            "share_run": ["duplicate=resmlp/bp+frozen/seed1"],
        },
        {"prepare_data"},
        "results/checkpoints/resmlp/bp+frozen/seed1.json",
    ),
}
WRONG_NUMBERS = yaml.safe_dump(PUBLISHED | {"entries": [{"n": 1}]})
NO_DATA = {"tiny": EVERYTHING["settings"]["student_mlp"] | {"dataset": "cifar10"}}
REFUSED = {  # what the message names -> what is edited, and the target
    "settings.student_mlp.epoch: ": (configured("settings", "student_mlp", "epoch", value=3),),
    "'epp'": (untouched, "results/audits/student_mlp/epp/seed1.json"),
    "'w.safetensors'": (configured("models", "resnet18", "weights", value="w.safetensors"),),
    "reference/published.yaml": (
        lambda folder: (folder / "reference/published.yaml").write_text(WRONG_NUMBERS),
    ),
    "tiny.yaml, line 1: data_root: ": (
        lambda folder: write_config(folder, {"settings": NO_DATA, "data_root": "nowhere"}),
    ),
}


@pytest.fixture(scope="module")
def outcomes(everything, tmp_path_factory):
    """The outcome of every dry run, by its name."""
    folder, calls = tmp_path_factory.mktemp("plans"), {}
    cases = {name: (edit, *targets) for name, (edit, _, _, *targets) in PLANS.items()} | REFUSED
    for number, (name, (edit, *targets)) in enumerate(cases.items()):
        project = Path(shutil.copytree(everything, folder / str(number)))
        edit(project)
        calls[name] = (command("-n", *targets)[3:], {"PROJECT": str(project)})
    return dict(zip(calls, snakemake_calls(folder, list(calls.values()))))


@pytest.mark.parametrize("name", PLANS)
def test_a_change_makes_stale_what_uses_it_and_nothing_else(outcomes, name):
    (edit, expected, others, *targets), outcome = PLANS[name], outcomes[name]
    assert outcome.status == 0, outcome.said
    jobs = plan_of(outcome.said)
    for rule, wanted in expected.items():
        assert (len(jobs[rule]) if isinstance(wanted, int) else jobs[rule]) == wanted
    assert set(jobs) <= set(expected) | others
    assert ("Without .snakemake/metadata" in outcome.said) == (edit is without_records)
    # The table is of what is asked for, and counts as done what Snakemake need not do.
    table = re.search(r"^in all" + r" +(\S+)" * 5, outcome.said, re.M)
    trainings, _, done, hours, on_gpu = table.groups()
    assert int(trainings) - int(done) == len(jobs.get("train_network", ()))
    if not targets:
        assert (hours == on_gpu == "0.0") == (not {"train_network", "audit_network"} & set(jobs))
        # By results/benchmarks, where every run was timed.
        assert not set("~?") & set(hours)


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_wrong_is_one_message_before_any_job(outcomes, words):
    outcome = outcomes[words]
    assert outcome.status == 1 and words in outcome.said, outcome.said
    assert "Traceback" not in outcome.said and "  File " not in outcome.said
