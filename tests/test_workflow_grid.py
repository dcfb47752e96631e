"""The grid through Snakemake: shared runs, blocks that vary something, the monitor, the table of a dry run."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from projects import ROOT, checkpoints, copy_sources, make_all, planned, snakemake, write_config

BLOCK = {
    "dataset": "digits",
    "architecture": {"name": "resmlp", "width": 16, "depth": 2},
    "epochs": 3,
    "batch_size": 64,
    "seeds": [1],
    "runs": ["bp", "dfa"],
    "baselines": ["bp+frozen", "dfa+frozen"],
}
VARIED = {key: value for key, value in BLOCK.items() if key != "epochs"} | {"vary": {"epochs": [2, 3]}, "runs": ["dfa"]}
CONFIG = {
    "settings": {"first": BLOCK, "second": VARIED, "frozen": BLOCK | {"runs": ["dfa+frozen"], "baselines": []}},
    "thresholds": {"growth": 1e-6, "reference": 1e9},  # both checks fire at once
    "monitor": {"stop_on": ["D1", "D2"]},
    "tables": {"main_audit": {"settings": ["second_epochs3"], "title": "tiny"}},
}


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    folder = copy_sources(tmp_path_factory.mktemp("grid") / "project")
    (folder / "first.log").write_text(make_all(folder, CONFIG))
    return folder


def read(folder, kind, *cell):
    return json.loads((folder / f"results/{kind}/{cell[0]}/{cell[1]}/seed1.json").read_text())


def test_a_run_that_settings_share_is_trained_once_and_lies_under_every_name(finished):
    sums = checkpoints(finished)
    for run in ("dfa", "bp+frozen", "dfa+frozen"):
        one, other = (sums[f"results/checkpoints/{s}/{run}/seed1.safetensors"] for s in ("first", "second_epochs3"))
        assert one == other
    logs = {path.relative_to(finished / "results/logs") for path in finished.glob("results/logs/*/*/*/seed1.log")}
    trained = {str(path.parent) for path in logs if path.parts[0] == "train_network"}
    shared = {str(path.parent) for path in logs if path.parts[0] == "share_run"}
    own = {f"first/{run}" for run in ("bp", "dfa", "bp+frozen", "dfa+frozen")}
    own |= {f"second_epochs2/{run}" for run in ("dfa", "bp+frozen", "dfa+frozen")}
    assert trained == {f"train_network/{cell}" for cell in own}
    copies = ["second_epochs3/dfa", "second_epochs3/bp+frozen", "second_epochs3/dfa+frozen", "frozen/dfa+frozen"]
    assert shared == {f"share_run/{cell}" for cell in copies}
    assert (
        read(finished, "audits", "second_epochs3", "dfa")["digest"]
        == read(finished, "audits", "first", "dfa")["digest"]
    )
    assert planned(finished) == {}


def test_a_shared_run_can_be_asked_for_alone_and_brings_its_training(finished, tmp_path):
    folder = copy_sources(tmp_path / "project")
    write_config(folder, CONFIG)
    jobs = planned(folder, "results/checkpoints/second_epochs3/dfa/seed1.safetensors")
    assert jobs["train_network"] == ["setting=first, run=dfa, seed=1"]
    assert jobs["share_run"] == ["twin=second_epochs3/dfa/seed1"] and set(jobs) == {
        "prepare_data", "train_network", "share_run"
    }  # fmt: skip


def test_a_monitored_run_ends_early_and_says_so_everywhere(finished):
    for setting in ("first", "second_epochs2", "second_epochs3"):
        audit = read(finished, "audits", setting, "dfa")
        assert audit["stopped_after"] == 1 and audit["first_flags"] == dict.fromkeys(audit["first_flags"], 1)
        assert audit["checks"]["depth"]["fires"] is None and "D3" not in audit["verdict"]["three_check"]
    assert read(finished, "checkpoints", "first", "dfa")["stopped_after"] == 1
    history = pd.read_csv(finished / "results/trajectories/first/dfa/seed1.csv")
    assert set(history["epoch"]) == {1}
    runs = pd.read_csv(finished / "results/tidy/runs.csv").set_index(["setting", "run"])
    assert runs.loc[("first", "dfa"), "stopped_after"] == 1 and runs.loc[("first", "dfa"), "epochs"] == 3


def test_baselines_train_to_the_end_and_an_audited_one_is_compared_with_nothing(finished):
    history = pd.read_csv(finished / "results/trajectories/first/dfa+frozen/seed1.csv")
    assert set(history["epoch"]) == {1, 2, 3}
    audit = read(finished, "audits", "frozen", "dfa+frozen")
    assert audit["stopped_after"] is None and audit["baseline_runs"] == {}
    assert audit["checks"]["depth"]["fires"] is None and "no own frozen baseline" in audit["checks"]["depth"]["note"]


def test_without_a_monitor_nothing_is_stopped_and_switching_it_off_retrains_the_runs_alone(finished, tmp_path):
    project = Path(shutil.copytree(finished, tmp_path / "project"))
    write_config(project, {key: value for key, value in CONFIG.items() if key != "monitor"})
    jobs = planned(project)
    assert sorted(jobs["train_network"]) == [
        f"setting={setting}, run={run}, seed=1"
        for setting, run in (("first", "bp"), ("first", "dfa"), ("second_epochs2", "dfa"))
    ]


def table_of(said):
    """The rows of the grid's table, by their first column."""
    start = re.search(r"^setting +nets", said, re.MULTILINE).start()
    lines = said[start:].split("\nDone: ")[0].splitlines()
    return {line.split("  ")[0]: re.split(r" {2,}", line.strip())[1:] for line in lines if line.strip()}


def test_a_dry_run_shows_the_table_of_the_grid_and_so_does_a_run(finished, tmp_path):
    costs = {"architecture_options": {"depth": 2, "residual": True, "terminal_norm": True, "width": 16}}
    entry = costs | {"dataset": "digits", "architecture": "resmlp", "batch_size": 64}
    entry |= {"seconds_per_epoch": 3600.0, "seconds_per_audit": 36.0, "memory_mb": 4000, "machine": "a card"}
    project = Path(shutil.copytree(finished, tmp_path / "project"))
    (project / "benchmarks/costs.json").write_text(json.dumps({"gpu": [entry]}))
    (project / "fresh").mkdir()
    options = ["--directory", "fresh", "--workflow-profile", "profiles/default"]
    fresh, after = (table_of(snakemake(project, "-n", *more).stdout) for more in (options, []))
    head = fresh.pop("setting")
    assert head == ["nets", "runs", "baselines", "seeds", "trainings", "shared", "done", "CPU h", "GPU h"]
    assert fresh["first"][:7] == ["1", "2", "2", "1", "4", "0", "0"]
    assert fresh["second"][:7] == ["2", "1", "2", "1", "3", "3", "0"]
    assert fresh["frozen"][:7] == ["1", "1", "0", "1", "0", "1", "0"]
    assert fresh["in all"] == ["4", "7", "4", "0", "?", fresh["in all"][-1]]
    assert float(fresh["first"][-1]) == pytest.approx(3 * (2 + 2 * 1.03) + 0.02, abs=0.3)  # epochs x methods, audits
    assert after["first"][4:] == ["4", "0", "4", "0.0", "0.0"]
    assert table_of((finished / "first.log").read_text())["first"][:7] == fresh["first"][:7]


def test_stored_benchmarks_decide_how_much_time_and_memory_a_job_gets(finished, tmp_path):
    project = Path(shutil.copytree(finished, tmp_path / "project"))
    network = {"depth": 2, "residual": True, "terminal_norm": True, "width": 16}
    entry = {"dataset": "digits", "architecture": "resmlp", "architecture_options": network, "batch_size": 64}
    entry |= {"seconds_per_epoch": 600.0, "seconds_per_audit": 300.0, "memory_mb": 4000, "machine": "mine"}
    (project / "benchmarks/costs.json").write_text(json.dumps({"cpu": [entry]}))
    said = snakemake(project, "-n", "--forceall", "audit").stdout
    blocks = said.split("\n\n")
    training = next(block for block in blocks if "rule train_network" in block and "run=bp," in block)
    audit = next(block for block in blocks if "rule audit_network" in block and "run=bp," in block)
    assert "runtime=90," in training and "mem_mb=5000" in training  # 3 epochs of 10 minutes, twice, and 30 minutes
    assert "runtime=25," in audit and "mem_mb=6000" in audit


def test_the_whole_paper_is_planned_with_its_table(tmp_path):
    folder = copy_sources(tmp_path / "project")
    done = snakemake(folder, "-n", config=None)
    assert done.returncode == 0, done.stdout[-2000:]
    table = table_of(done.stdout)
    assert len(table) == 19 and int(table["in all"][1]) >= 125  # a head, 17 settings, the sum
    trainings = int(re.search(r"^train_network +(\d+)$", done.stdout, re.MULTILINE)[1])
    assert trainings == int(table["in all"][1])


def test_a_dry_run_of_a_large_grid_is_its_table_unless_a_target_is_named(tmp_path):
    folder = copy_sources(tmp_path / "project")
    write_config(folder, {"settings": {"large": BLOCK | {"seeds": list(range(1300))}}})  # 5,200 networks
    assert planned(folder) == {"plan": [""]}
    done = snakemake(folder, "-n")
    assert table_of(done.stdout)["in all"][1] == "5200" and "Every job: snakemake -n all" in done.stdout
    part = planned(folder, "results/baselines/large/bp+frozen/seed1299.json")
    assert part["train_network"] == ["setting=large, run=bp+frozen, seed=1299"] and "plan" not in part


def test_the_table_stays_out_of_what_programs_read(finished):
    listed = snakemake(finished, "--summary")
    assert listed.returncode == 0 and "CPU h" not in listed.stdout
    assert (ROOT / "benchmarks/costs.json").exists()
