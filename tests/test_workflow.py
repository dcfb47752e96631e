"""The workflow through its front door: Snakemake itself, on a small grid over real digits."""

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from projects import ROOT, checkpoints, command, copy_sources, make_all, planned, snakemake, write_config

from fa_audit.core.files import exclusive
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES

CONFIG = {
    "settings": {
        "tiny": {
            "dataset": "digits",
            "architecture": {"name": "resmlp", "width": 16, "depth": 2},
            "epochs": 2,
            "batch_size": 64,
            "seeds": [1],
            "runs": ["bp", "dfa"],
            "baselines": ["bp+frozen", "dfa+frozen"],
        }
    },
    "figures": {name: {"settings": ["tiny"], "title": name} for name in ("audit_overview", "trajectories")},
    "tables": {"main_audit": {"settings": ["tiny"], "title": "tiny"}},
}
RUNS = ("bp", "bp+frozen", "dfa", "dfa+frozen")


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A folder in which the whole tiny grid has been run once, on two cores."""
    folder = copy_sources(tmp_path_factory.mktemp("workflow") / "project")
    (folder / "first.log").write_text(make_all(folder, CONFIG))
    return folder


@pytest.fixture
def project(finished, tmp_path):
    """A copy of the finished folder, results and Snakemake's records included, to change at will."""
    return Path(shutil.copytree(finished, tmp_path / "project"))


def test_one_command_makes_everything_and_says_where(finished):
    said = (finished / "first.log").read_text()
    for path in (
        "results/data/digits.safetensors",
        *(f"results/checkpoints/tiny/{run}/seed1.{kind}" for run in RUNS for kind in ("safetensors", "json")),
        *(f"results/trajectories/tiny/{run}/seed1.csv" for run in RUNS),
        *(f"results/baselines/tiny/{run}/seed1.json" for run in ("bp+frozen", "dfa+frozen")),
        *(f"results/tidy/{name}.csv" for name in ("runs", "layers", "trajectories")),
    ):
        assert (finished / path).stat().st_size > 0, path
    for path in (
        *(f"results/figures/{name}.{kind}" for name in CONFIG["figures"] for kind in ("pdf", "png")),
        *(f"results/tables/main_audit.{kind}" for kind in ("csv", "md", "tex")),
    ):
        assert (finished / path).stat().st_size > 0 and Path(path).stem in said, path
    assert re.search(r"^tiny +1 +2 +2 +1 +4 +0 +0 ", said, re.MULTILINE)  # nets, runs, baselines, seeds, trainings
    assert "device     CPU" in said
    assert "verdicts in tiny" in said


def test_an_audit_holds_evidence_verdicts_and_the_baselines_of_its_cell(finished):
    audit = json.loads((finished / "results/audits/tiny/dfa/seed1.json").read_text())
    frozen = json.loads((finished / "results/checkpoints/tiny/dfa+frozen/seed1.json").read_text())
    sidecar = json.loads((finished / "results/checkpoints/tiny/dfa/seed1.json").read_text())
    assert audit["headline_acc"] == sidecar["accuracy"]
    assert audit["baselines"]["own"] == frozen["accuracy"] and audit["baselines"]["own_name"] == "dfa+frozen"
    assert audit["checks"]["depth"]["value"] == pytest.approx(sidecar["accuracy"] - frozen["accuracy"], abs=1e-8)
    assert [layer["layer"] for layer in audit["layers"]] == [0, 1, 2] and len(audit["credit"]) == 2
    assert set(audit["verdict"]) == {"three_check", "four_check", "baseline"}
    assert sidecar["provenance"]["threads"] == 1 and sidecar["provenance"]["device"].startswith("cpu")
    assert audit["provenance"].items() <= sidecar["provenance"].items()


def test_training_writes_a_progress_line_per_epoch(finished):
    text = (finished / "results/logs/train_network/tiny/dfa/seed1.log").read_text()
    assert "epoch 1/2" in text and "epoch 2/2" in text


def test_a_second_run_has_nothing_to_do(finished):
    assert "Nothing to be done" in snakemake(finished).stdout


def test_touching_or_checking_out_the_sources_reruns_nothing(project):
    time.sleep(1.1)
    copy_sources(project)
    assert planned(project, PYTHONHASHSEED="1") == {}
    assert planned(project, PYTHONHASHSEED="2") == {}


def test_an_edit_to_one_method_reruns_that_method_only(project):
    with (project / "src/fa_audit/methods/dfa.py").open("a") as stream:
        stream.write("# edited\n")
    jobs = planned(project)
    assert set(jobs["train_network"]) == {f"setting=tiny, run={run}, seed=1" for run in ("dfa", "dfa+frozen")}
    assert "prepare_data" not in jobs


def test_an_edit_to_the_protocol_audits_again_and_trains_nothing(project):
    with (project / "src/fa_audit/audit/verdicts.py").open("a") as stream:
        stream.write("# edited\n")
    jobs = planned(project)
    assert len(jobs["audit_network"]) == 2 and "train_network" not in jobs


def test_a_new_label_or_title_redraws_and_trains_nothing(project):
    write_config(project, CONFIG | {"labels": {"bp": "Backprop"}})
    jobs = planned(project)
    assert set(jobs) == {"draw_figure", "build_table", "manifest"}


def test_a_deleted_figure_is_drawn_again_alone(project):
    (project / "results/figures/trajectories.pdf").unlink()
    assert planned(project) == {"draw_figure": ["figure=trajectories"], "manifest": [""]}


def test_a_new_seed_trains_that_seed_only(project):
    config = json.loads(json.dumps(CONFIG))
    config["settings"]["tiny"]["seeds"] = [1, 2]
    write_config(project, config)
    jobs = planned(project)
    assert set(jobs["train_network"]) == {f"setting=tiny, run={run}, seed=2" for run in RUNS}
    assert set(jobs["audit_network"]) == {f"setting=tiny, run={run}, seed=2" for run in ("bp", "dfa")}


def test_another_budget_retrains_that_setting(project):
    config = json.loads(json.dumps(CONFIG))
    config["settings"]["tiny"]["epochs"] = 3
    write_config(project, config)
    assert len(planned(project)["train_network"]) == 4


def test_the_same_data_in_another_folder_retrain_nothing(project):
    write_config(project, CONFIG | {"data_root": "elsewhere"})
    assert planned(project) == {}


def test_thresholds_are_for_audits_not_for_training(project):
    write_config(project, CONFIG | {"thresholds": {"growth": 10}})
    jobs = planned(project)
    assert len(jobs["audit_network"]) == 2 and "train_network" not in jobs


@pytest.mark.parametrize(
    "target",
    [
        "results/data/digits.safetensors",
        "results/checkpoints/tiny/dfa/seed1.json",
        "results/trajectories/tiny/dfa+frozen/seed1.csv",
        "results/baselines/tiny/bp+frozen/seed1.json",
        "results/audits/tiny/bp/seed1.json",
        "results/tidy/layers.csv",
        "results/figures/trajectories.png",
        "results/tables/main_audit.tex",
    ],
)
def test_every_file_of_interest_is_a_target(project, target):
    (project / target).unlink()
    assert planned(project, target)


def test_one_core_and_two_give_the_same_bits(finished, tmp_path):
    other = copy_sources(tmp_path / "project")
    write_config(other, CONFIG)
    done = snakemake(other, "train", "baselines", "--cores", "1")
    assert done.returncode == 0, done.stdout
    assert checkpoints(other) == checkpoints(finished)


LONG = {**CONFIG, "settings": {"tiny": CONFIG["settings"]["tiny"] | {"epochs": 120, "runs": ["dfa"]}}}
TARGET = "results/checkpoints/tiny/dfa/seed1.safetensors"


def start_long_training(folder):
    """Snakemake on one long training, in a process group of its own, stopped nowhere yet but past some epochs."""
    write_config(folder, LONG, "long.yaml")
    process = subprocess.Popen(
        command(TARGET, "--cores", "1", config="long.yaml"),
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    log = folder / "results/logs/train_network/tiny/dfa/seed1.log"
    deadline = time.monotonic() + 120
    while not (log.exists() and "epoch 5/120" in log.read_text()):
        assert time.monotonic() < deadline and process.poll() is None, "the training did not start"
        time.sleep(0.05)
    return process


@pytest.fixture(scope="session")
def undisturbed(finished, tmp_path_factory):
    """The bits of the long training when nobody interrupts it."""
    folder = Path(shutil.copytree(finished, tmp_path_factory.mktemp("undisturbed") / "project"))
    write_config(folder, LONG, "long.yaml")
    assert snakemake(folder, TARGET, config="long.yaml").returncode == 0
    return (folder / TARGET).read_bytes()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
def test_interrupted_work_goes_on_and_ends_with_the_same_bits(project, undisturbed, how):
    process = start_long_training(project)
    os.killpg(process.pid, how)
    process.wait(timeout=60)
    resume = project / "results/resume/tiny/dfa/seed1.safetensors"
    if how is signal.SIGINT and (project / TARGET).exists():  # Python loses an interrupt that meets a destructor
        assert (project / TARGET).read_bytes() == undisturbed
        return
    assert resume.exists()
    done = snakemake(project, TARGET, config="long.yaml")
    assert done.returncode == 0, done.stdout
    assert "going on after epoch" in (project / "results/logs/train_network/tiny/dfa/seed1.log").read_text()
    assert (project / TARGET).read_bytes() == undisturbed
    assert not resume.exists()


def test_two_workflows_do_not_share_a_folder(project):
    (project / "results/figures/trajectories.pdf").unlink()
    with exclusive(project / ".snakemake/fa-audit.lock"):
        refused = snakemake(project)
    assert refused.returncode != 0 and "another snakemake" in refused.stdout
    assert snakemake(project).returncode == 0


def test_a_failed_job_names_its_log_and_how_to_go_on(project):
    (project / "results/checkpoints/tiny/bp/seed1.safetensors").write_bytes(b"no network")
    done = snakemake(project, "results/audits/tiny/bp/seed1.json")
    assert done.returncode != 0
    for words in ("altered, or of another training", "results/logs/", "run the same command again"):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epoch": 3}, "Did you mean 'epochs'"),
        ({"runs": ["dfb"]}, "unknown method 'dfb'"),
        ({"seeds": ["x"]}, "expected an integer"),
        ({"runs": ["dfa+penalty-1"]}, "not a finite number >= 0"),
        ({"baselines": ["bp+frozen"]}, "missing 'dfa+frozen'"),
    ],
)
def test_a_bad_configuration_stops_with_one_message_before_any_job(tmp_path, change, words):
    folder = copy_sources(tmp_path / "project")
    write_config(folder, CONFIG | {"settings": {"tiny": CONFIG["settings"]["tiny"] | change}})
    done = snakemake(folder)
    assert done.returncode == 1
    assert words in done.stdout and "Traceback" not in done.stdout and "  File " not in done.stdout
    assert not (folder / "results").exists()


def test_a_target_that_is_not_in_the_grid_is_answered_with_what_is(finished):
    done = snakemake(finished, "results/audits/tiny/dfaa/seed1.json", "-n")
    assert done.returncode == 1 and "unknown run 'dfaa'; known: bp, bp+frozen, dfa, dfa+frozen" in done.stdout
    assert "Traceback" not in done.stdout


def test_planning_the_paper_s_grid_imports_no_torch(tmp_path):
    folder = copy_sources(tmp_path / "project")
    (tmp_path / "poison").mkdir()
    (tmp_path / "poison/torch.py").write_text("raise ImportError('torch was imported while planning')\n")
    done = snakemake(folder, "-n", config=None, PYTHONPATH=str(tmp_path / "poison"))
    assert done.returncode == 0, done.stdout
    assert "train_network" in done.stdout


def test_the_menu_of_targets(tmp_path):
    done = snakemake(copy_sources(tmp_path / "project"), "--list-target-rules", config=None)
    names = {line.split()[0] for line in done.stdout.splitlines() if line.endswith(")") and "(" in line}
    stages = {"train", "baselines", "audit", "sweeps", "figures", "tables", "models"}
    assert names == stages | {"all", "plan", "scorecard", "reproduce", "build_scorecard", "draw_scorecard", "manifest"}


def test_snakemake_s_linter_and_formatter_have_nothing_to_say(tmp_path):
    folder = copy_sources(tmp_path / "project")
    lint = snakemake(folder, "--lint", config=None)
    assert lint.returncode == 0 and "good condition" in lint.stdout, lint.stdout
    formatter = [sys.executable, "-m", "snakefmt", "--check", "Snakefile", "rules"]
    shutil.copyfile(ROOT / "pyproject.toml", folder / "pyproject.toml")
    assert subprocess.run(formatter, cwd=folder, capture_output=True).returncode == 0


def rules_with_scripts():
    text = "\n".join(path.read_text() for path in sorted((ROOT / "rules").rglob("*.smk")))
    blocks = re.split(r"^rule ", text, flags=re.MULTILINE)[1:]
    return {block.split(":")[0]: block for block in blocks}


@pytest.mark.parametrize("name", rules_with_scripts())
def test_every_rule_says_what_it_does_and_what_it_needs(name):
    block = rules_with_scripts()[name]
    assert re.search(r'\A\w+:\n    """[A-Z].*\."""\n', block)
    for directive in ("input", "output", "log", "benchmark", "conda", "threads", "resources", "script"):
        assert f"    {directive}:" in block, directive
    for resource in ("gpu=", "mem_mb=", "runtime="):
        assert resource in block
    assert "code=" in block


SCRIPTS = sorted(path.name for path in (ROOT / "workflow_scripts").glob("[a-z]*.py"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_s_declared_code_is_all_project_code_that_it_loads(script):
    sys.path.insert(0, str(ROOT / "workflow_scripts"))
    try:
        from _code import code_files
    finally:
        sys.path.pop(0)
    used = ["fa_audit.methods.dfa", "fa_audit.networks.resmlp"] if script in ("train.py", "audit.py") else []
    loaded = project_files_loaded_by(script, used)
    declared = set(code_files(f"workflow_scripts/{script}", *used))
    assert declared >= {name for name in loaded if not name.endswith("__init__.py")}
    assert f"workflow_scripts/{script}" in declared


def project_files_loaded_by(script, modules):
    """Run a script's import statements in a fresh interpreter and list the project files behind them."""
    tree = ast.parse((ROOT / "workflow_scripts" / script).read_text())
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    program = "\n".join(
        [
            f"import sys; sys.path.append({str(ROOT / 'workflow_scripts')!r})",
            *map(ast.unparse, imports),
            *(f"import {module}" for module in modules),
            "print(*{m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)}, sep='\\n')",
        ]
    )
    listed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    inside = [Path(line) for line in listed.splitlines() if Path(line).is_relative_to(ROOT)]
    relative = (path.relative_to(ROOT) for path in inside)
    return {str(path) for path in relative if path.parts[0] in ("src", "workflow_scripts")}


def test_scripts_find_the_library_in_an_environment_without_it():
    program = (
        f"import sys; sys.path.append({str(ROOT / 'workflow_scripts')!r}); import _workflow, fa_audit.experiments.spec;"
        "print(fa_audit.experiments.spec.__file__)"
    )
    done = subprocess.run([sys.executable, "-S", "-E", "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == str(ROOT / "src/fa_audit/experiments/spec.py"), done.stderr


def test_every_registered_method_is_a_file_of_its_name():
    for registry in (METHODS, ARCHITECTURES):
        for name, entry in registry.items():
            assert entry.partition(":")[0].endswith(f".{name}")
