"""A failed job is never taken for done, although Snakemake records it so (docs/faults.md)."""

import shutil
from pathlib import Path

import pytest
from forks import snakemake_calls
from projects import EVERYTHING, command, plan_of, snakemake, write_config

FIGURES = ("results/figures/audit_overview.pdf", "results/figures/depth_sweep.pdf")
STAGES = {  # what is edited -> the rule that fails; the failures follow one another
    "src/fa_audit/training/run_files.py": "train_network",  # which no later job imports
    "src/fa_audit/protocol/verdicts.py": "audit_network",
    "src/fa_audit/results/figures/style.py": "draw_figure",
}
SETTINGS = EVERYTHING["settings"]
SMALL = {  # an audit with baselines, and one without any, which no baseline's job makes stale
    "settings": {
        "student_mlp": SETTINGS["student_mlp"],
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
