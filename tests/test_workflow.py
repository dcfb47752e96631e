"""The workflow through its front door: everything of configs/test.yaml, made once, and what is
promised of it.
"""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pandas as pd
import pytest
import yaml
from projects import (
    EVERYTHING,
    ROOT,
    TINY,
    audits,
    check_evidence,
    copy_sources,
    make_all,
    planned,
    snakemake,
    started,
    wait_for,
    write_config,
)
from test_readme import TARGETS

from fa_audit.cli import main
from fa_audit.core.files import exclusive, sha256_of
from fa_audit.data import DATASETS
from fa_audit.experiments.paths import ORIGIN, RunKey, artefact_files, scorecard_files
from fa_audit.experiments.spec import parse_run
from fa_audit.networks import ARCHITECTURES
from fa_audit.protocol.audit import Audit
from fa_audit.results.figures import FIGURES
from fa_audit.results.tables import TABLES

slow = pytest.mark.slow
# One method of every kind, of configs/test_all.yaml; configs/ci.yaml has them all.
EVERY_KIND = {
    "bp",
    "dfa",
    "drtp",
    "brsf",
    "kolen_pollack",
    "ep",
    "layerwise",
    "state_bridge",
    "credit_bridge",
}


def artefacts(figures, tables):
    """The files of some figures and tables and of the scorecard."""
    files = scorecard_files()
    for section, names in (("figures", figures), ("tables", tables)):
        for name in names:
            files += artefact_files(section, name)
    return files


ARTEFACTS = artefacts(EVERYTHING["figures"], EVERYTHING["tables"])


def test_everything_that_the_registries_name_is_trained_audited_and_drawn(everything, tmp_path):
    folder = shutil.copytree(everything, tmp_path / "project")
    more = yaml.safe_load((ROOT / "configs/test_all.yaml").read_text())
    make_all(folder, EVERYTHING | {part: EVERYTHING[part] | more[part] for part in more})
    found = audits(folder)
    assert {audit["spec"]["method"] for audit in found.values()} == EVERY_KIND
    assert {audit["spec"]["architecture"] for audit in found.values()} == set(ARCHITECTURES)
    datasets = {audit["spec"]["dataset"] for audit in found.values()}
    assert datasets == {name for name in DATASETS if "cifar" not in name}
    for field in ("penalty", "frozen_blocks", "random_targets"):
        assert any(audit["spec"][field] for audit in found.values()), field
    for path in [*artefacts(FIGURES, TABLES), "results/models/resnet18.md"]:
        assert (folder / path).stat().st_size > 0, path
    for audit in found.values():
        check_evidence(audit)
    runs = pd.read_csv(folder / "results/tidy/runs.csv")
    assert set(zip(runs["setting"], runs["run"], runs["seed"])) == set(found)


def test_audits_hold_finite_evidence_and_are_compared_with_the_baselines_of_their_setting(
    everything,
):
    for key, audit in audits(everything).items():
        check_evidence(audit)
        assert all(layer["float32_cosine"]["value"] > 0.999 for layer in audit["layers"])
        sidecar = json.loads((everything / key.path("checkpoints", "json")).read_text())
        assert audit["headline_acc"] == sidecar["accuracy"]
        assert sidecar["provenance"]["threads"] == 1
        depth = audit["checks"]["depth"]
        if audit["spec"]["frozen_blocks"] == len(audit["credit"]):
            assert audit.get("baseline_runs", {}) == {} and depth["fires"] is None
            continue
        own = key._replace(run=str(parse_run(key.run).baselines["own"]))
        baseline = json.loads((everything / own.path("checkpoints", "json")).read_text())
        assert audit["baselines"]["own"] == baseline["accuracy"]
        assert depth["value"] == pytest.approx(sidecar["accuracy"] - baseline["accuracy"])


def test_torch_computes_with_the_threads_that_the_command_sets(tmp_path):
    folder = copy_sources(tmp_path / "project")
    write_config(folder, {"settings": {"tiny": TINY}})
    target = "results/checkpoints/tiny/bp+frozen/seed1.json"
    done = snakemake(folder, target, "--cores", "2", "--set-threads", "train_network=2")
    assert done.returncode == 0, done.stdout
    sidecar = json.loads((folder / target).read_text())
    assert sidecar["provenance"]["threads"] == 2


def test_a_run_that_settings_share_is_trained_once(everything):
    shared = RunKey("resmlp", "bp+frozen", 1)
    assert not (everything / f"results/logs/train_network/{shared}.log").exists()
    one, other = (
        key.path("checkpoints", "safetensors")
        for key in (shared, shared._replace(setting="depths_depth2"))
    )
    assert (everything / one).read_bytes() == (everything / other).read_bytes()


def test_the_files_say_what_they_were_made_from(everything):
    origins = sorted(everything.glob(f"results/**/*{ORIGIN}"))
    made = set()
    for origin in origins:
        entry = json.loads(origin.read_text())
        assert all(sha256_of(everything / name) == found for name, found in entry["inputs"].items())
        for path in {*origin.parent.glob(f"{origin.name.removesuffix(ORIGIN)}.*")} - {origin}:
            made.add(str(path.relative_to(everything)))
            if path.suffix not in (".csv", ".md", ".html"):
                for part in (entry["commit"], entry["spec"], *entry["inputs"].values()):
                    assert part.encode() in path.read_bytes()
    assert made == set(ARTEFACTS)


def test_the_scorecard_is_the_same_from_the_workflow_and_from_its_packed_audits(
    everything, capsys, monkeypatch
):
    rows = pd.read_csv(everything / "results/scorecard.csv")
    assert rows["verdict"].tolist() == ["agrees", "not run", "agrees", "agrees"]
    monkeypatch.chdir(everything)
    for options in ([], ["--from", "results"], ["--from", "results/tidy"]):
        assert main(["scorecard", "--published", "reference/published.yaml", *options]) == 0
        assert capsys.readouterr().out == (everything / "results/scorecard.md").read_text()
    path = everything / "results/audits/resmlp/bp/seed1.json"
    audit = Audit.read(path)
    work = pd.read_csv(everything / "results/tidy/resmlp/work.csv").set_index("run").loc["bp"]
    sidecar = json.loads((everything / "results/checkpoints/resmlp/bp/seed1.json").read_text())
    digests = [work[f"{name}_sha256"] for name in ("data", "checkpoint", "audit")]
    assert digests == [sidecar["data_sha256"], sidecar["checkpoint_sha256"], sha256_of(path)]
    made = sidecar["provenance"]
    assert [work["cpu"], work["torch"]] == [made["cpu"], made["packages"]["torch"]]
    assert float(rows["reproduced"][0]) == pytest.approx(audit.headline_acc, abs=1e-3)


def test_the_page_has_everything_of_a_configuration_and_is_stale_when_that_changes(
    everything, tmp_path
):
    folder, target = shutil.copytree(everything, tmp_path / "project"), "results/report.html"
    done = snakemake(folder, target, "--cores", "2")
    assert done.returncode == 0, done.stdout
    page = (folder / target).read_text()
    runs = pd.read_csv(folder / "results/tidy/runs.csv")
    assert page.count("<tr role=") == 1 + len(runs[["setting", "run"]].drop_duplicates()) + 1
    assert page.count("data:image/svg") == sum(path.endswith(".svg") for path in ARTEFACTS)
    assert "FA explodes" in page and planned(folder, target) == {}
    for part in ("src/fa_audit/results/page/page.css", "src/fa_audit/results/page/page.html"):
        (folder / part).write_text((folder / part).read_text() + " ")
        assert "build_report" in planned(folder, target)
        assert snakemake(folder, target, "--touch", "--cores", "1").returncode == 0


LONG = {"settings": {"tiny": TINY | {"epochs": 60}}}
TARGET = "results/checkpoints/tiny/dfa/seed1.safetensors"


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    """A fresh project with a long training."""
    folder = copy_sources(tmp_path_factory.mktemp("long") / "project")
    write_config(folder, LONG)
    return folder


@slow
def test_a_killed_training_resumes_to_the_bits_of_an_undisturbed_one_on_any_number_of_cores(
    trainings, tmp_path
):
    other = Path(shutil.copytree(trainings, tmp_path / "project"))
    done = snakemake(other, TARGET, "results/checkpoints/tiny/bp+frozen/seed1.json", "--cores", "2")
    assert done.returncode == 0, done.stdout
    process = started(trainings, TARGET, "--cores", "1")
    log = trainings / "results/logs/train_network/tiny/dfa/seed1.log"
    wait_for(log, "epoch 5/60", process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=60)
    assert not (trainings / TARGET).exists() and list(
        trainings.glob("results/resume/tiny/dfa/seed1.safetensors")
    )
    done = snakemake(trainings, TARGET, "--cores", "1")
    assert done.returncode == 0 and "resuming after epoch" in log.read_text(), done.stdout
    assert (trainings / TARGET).read_bytes() == (other / TARGET).read_bytes()
    assert not list(trainings.glob("results/resume/**/*.safetensors"))


UPPER = re.search(r'"snakemake>=[\d.]+,<(\d+)"', (ROOT / "pyproject.toml").read_text())[1]


def test_a_snakemake_newer_than_pyproject_allows_is_refused(tmp_path):
    folder = copy_sources(tmp_path / "project")
    code = f"import snakemake\n\nsnakemake.__version__ = '{UPPER}.0.0'\n"
    (folder / "src/sitecustomize.py").write_text(code)
    done = snakemake(folder, "--list-rules", config=None)
    assert done.returncode == 1 and re.search("^fa-audit: ", done.stdout, re.M), done.stdout


OUTER = """
configfile: "mine.yaml"


module fa_audit:
    snakefile:
        "{root}/Snakefile"
    config:
        config
    {more}


use rule * from fa_audit as fa_*


onstart:
    fa_audit.onstart()


rule copied:
    input:
        "results/audits/tiny/{run}/seed1.json",
    output:
        "audit.json",
    default_target: True
    shell:
        "cp {{input}} {{output}}"
"""


@slow
def test_another_workflow_uses_this_one_as_a_module_with_code_of_its_own_folder(tmp_path):
    (tmp_path / "my_method.py").write_text(
        "from fa_audit.methods.dfa import DFA\n\n\nclass Mine(DFA): ...\n"
    )
    shown = {"settings": ["tiny"], "title": "Mine"}
    tiny = TINY | {
        "epochs": 1,
        "runs": ["my_method:Mine"],
        "baselines": ["bp+frozen", "my_method:Mine+frozen"],
    }
    own = {"settings": {"tiny": tiny}, "figures": {"trajectories": shown}}
    write_config(tmp_path, own, "mine.yaml")
    outer = {"root": ROOT, "run": "my_method:Mine"}
    (tmp_path / "Snakefile").write_text(OUTER.format(**outer, more="prefix: 'sub'"))
    installed = {"config": None, "PYTHONPATH": str(ROOT / "src")}
    refused = snakemake(tmp_path, "-n", **installed)
    assert refused.returncode == 1 and "sub/results/" in refused.stdout
    (tmp_path / "Snakefile").write_text(OUTER.format(**outer, more=""))
    with exclusive(tmp_path / "results/.lock"):
        refused = snakemake(tmp_path, "--cores", "2", **installed)
    assert refused.returncode == 1 and not list(tmp_path.glob("results/[a-z]*")), refused.stdout
    done = snakemake(tmp_path, "--cores", "2", **installed)
    assert done.returncode == 0, done.stdout
    assert json.loads((tmp_path / "audit.json").read_text())["spec"]["method"] == "my_method:Mine"
    assert planned(tmp_path, **installed) == {}
    jobs = planned(tmp_path, "fa_all", "results/report.html", **installed)
    assert {"fa_draw_figure", "fa_build_report"} <= set(jobs) and "fa_train_network" not in jobs


def test_two_workflows_do_not_share_a_folder(trainings):
    with exclusive(trainings / "results/.lock"):
        refused = snakemake(trainings, "baselines")
    assert refused.returncode != 0 and f"another workflow (process {os.getpid()}" in refused.stdout


@pytest.mark.slow
def test_planning_the_paper_readmes_targets_and_the_models_of_the_docs_imports_no_torch(tmp_path):
    folder = copy_sources(tmp_path / "project")
    models = re.search(
        r"```yaml\n(models:.*?)```", (ROOT / "docs/auditing.md").read_text(), re.DOTALL
    )[1]
    (folder / "config.yaml").write_text((folder / "config.yaml").read_text() + models)
    (tmp_path / "poison").mkdir()
    (tmp_path / "poison/torch.py").write_text(
        "raise ImportError('torch was imported while planning')\n"
    )
    jobs = planned(
        folder, "all", *TARGETS, config=None, PYTHONPATH=f"{tmp_path}/poison:{folder}/src"
    )
    assert len(jobs["train_network"]) >= 500 and len(jobs["audit_model"]) == 2


RULES = "\n".join(path.read_text() for path in sorted((ROOT / "rules").rglob("*.smk")))


@pytest.mark.parametrize(
    "block", re.split(r"^rule ", RULES, flags=re.M)[1:], ids=lambda block: block.split(":")[0]
)
def test_every_rule_says_what_it_does_and_what_it_needs(block):
    assert re.search(r'\A\w+:\n    """[A-Z].*\."""\n', block)
    for part in ("    output:", "    log:", "    conda:", "    script:", "code="):
        assert part in block, part
    if "    localrule: True" not in block:  # it may be sent to a cluster
        for part in ("benchmark:", "threads: THREADS", "gpu=gpus", "mem_mb=", "runtime="):
            assert part in block, part
