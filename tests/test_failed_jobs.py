"""A failed job is never taken for done, although Snakemake records it so (docs/workflow.md)."""

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from forks import snakemake_calls
from projects import (
    EVERYTHING,
    EXPERIMENT,
    command,
    copy_sources,
    plan_of,
    snakemake,
    started,
    wait_for,
    write_config,
)

from fa_audit.core.files import exclusive

FIGURES = ("results/figures/audit_overview.pdf", "results/figures/depth_sweep.pdf")
STAGES = {  # what is edited -> the rule that fails; the failures follow one another
    "src/fa_audit/training/run_files.py": "train_network",  # which no later job imports
    "src/fa_audit/audit/statistics.py": "audit_network",
    "src/fa_audit/results/figures/style.py": "draw_figure",
}
SETTINGS = EVERYTHING["settings"]
SMALL = {  # an audit with baselines, and one without any, which no baseline's job makes stale
    "settings": {
        "student_mlp": SETTINGS["student_mlp"]
        | {"runs": ["ep"], "baselines": ["bp+frozen", "ep+frozen"]},
        "depths": SETTINGS["depths"] | {"vary": {"depth": [1]}},
    },
    "figures": {name: EVERYTHING["figures"][name] for name in ("audit_overview", "depth_sweep")},
}


def plans(folder):
    """What the figures alone and everything would do next."""
    calls = [(command("-n", *targets, config="small.yaml")[3:], {}) for targets in (FIGURES, ())]
    return [plan_of(outcome.said) for outcome in snakemake_calls(folder, calls)]


@pytest.mark.slow
def test_a_job_that_failed_with_older_figures_in_place_is_done_again_whatever_is_asked_for(
    everything, tmp_path
):
    project = Path(shutil.copytree(everything, tmp_path / "project"))
    write_config(project, SMALL, "small.yaml")
    assert snakemake(project, *FIGURES, "--cores", "2", config="small.yaml").returncode == 0
    for path, rule in STAGES.items():
        sound = (project / path).read_text()
        (project / path).write_text(
            "raise ValueError('a bug')\n" + sound.replace("from __future__", "#")
        )
        before = plans(project)
        failed = snakemake(project, *FIGURES, "--cores", "2", config="small.yaml")
        assert failed.returncode == 1 and f"rule {rule}" in failed.stdout, failed.stdout
        for wanted, jobs in zip(before, plans(project), strict=True):
            assert jobs[rule] == wanted[rule] and "draw_figure" in jobs
        (project / path).write_text(sound + "# corrected\n")
    done = snakemake(project, *FIGURES, "--cores", "2", config="small.yaml")
    assert done.returncode == 0, done.stdout
    assert "Nothing to be done" in snakemake(project, *FIGURES, config="small.yaml").stdout


BROKEN = """from fa_audit.methods.dfa import DFA


class Broken(DFA):
    def credits(self, *arguments, **options):
        raise ValueError("no credit today")
"""
STOPS = {
    "Ctrl-C": (os.killpg, signal.SIGINT),
    "the end of a container": (os.kill, signal.SIGTERM),  # Snakemake alone
    "the end of a terminal": (os.killpg, signal.SIGHUP),
}


def heed_signals():
    # Tests under nohup, or in the background of a shell, would pass on that these are ignored.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("how", STOPS)
def test_what_stops_snakemake_stops_its_jobs_and_none_of_them_counts_as_failed(tmp_path, how):
    folder = copy_sources(tmp_path / "project")
    (folder / "mine.py").write_text(BROKEN)
    runs = {"runs": ["dfa", "mine:Broken"], "seeds": [1], "epochs": 50000}
    write_config(folder, {"settings": {"tiny": EXPERIMENT | runs}})
    targets = [f"results/checkpoints/tiny/{run}/seed1.safetensors" for run in runs["runs"]]
    options = {"stdout": subprocess.PIPE, "preexec_fn": heed_signals}
    process = started(folder, *targets, "--cores", "2", **options)
    logs = folder / "results/logs/train_network/tiny"
    try:
        wait_for(logs / "mine:Broken/seed1.log", "Traceback", process)
        wait_for(logs / "dfa/seed1.log", "epoch 3/", process)
        (log,) = (folder / ".snakemake/log").iterdir()
        wait_for(log, "Error in rule", process)
        send, number = STOPS[how]
        send(process.pid, number)
        said = process.communicate(timeout=30)[0]  # waits for all that hold the pipe
    finally:
        with suppress(ProcessLookupError):  # nothing trains on after a failure
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 1 and "Traceback" not in said, said
    assert said.count("Error in rule") == 1 and "ValueError no credit today" in said, said
    with exclusive(folder / "results/resume/tiny/dfa/seed1.lock", wait=False):
        pass
