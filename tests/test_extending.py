"""docs/extending.md: its project runs as it stands there, and mistakes end in one line."""

import json
import re
import shlex
import zipfile

import pandas as pd
import pytest
import torch
from forks import SNAKEMAKE, Server
from projects import ROOT, copy_sources, own_library, plan_of, python

from fa_audit.cli import main
from fa_audit.core.errors import AuditError
from fa_audit.core.files import write_json
from fa_audit.data.dataset import load_dataset, prepare_data_file
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.costs import Costs
from fa_audit.experiments.plan import plan_table
from fa_audit.experiments.read_grid import read_grid
from fa_audit.experiments.spec import RunSpec
from fa_audit.results.artefacts import KINDS
from fa_audit.training.learner import build

DOCUMENT = (ROOT / "docs/extending.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(?:# )?(.*?)\n(.*?)^```", DOCUMENT, flags=re.MULTILINE | re.DOTALL)
FILES = {place: text for kind, place, text in BLOCKS if kind != "bash"}
COMMAND = next(line for kind, line, _ in BLOCKS if kind == "bash")
TARGETS = [word for word in shlex.split(COMMAND) if word.startswith("results/")]
DATA = "results/data/my_data:blobs.safetensors"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout with the document's files beside the Snakefile."""
    folder = copy_sources(tmp_path_factory.mktemp("extending") / "project")
    for path, text in FILES.items():
        (folder / path).write_text(text)
    return folder


@pytest.fixture(scope="module")
def finished(checkout):
    """That checkout, in which the document's command has been run."""
    done = python(
        checkout, "-m", *shlex.split(COMMAND), "--resources", "gpu=0", **own_library(checkout)
    )
    assert done.returncode == 0, done.stderr
    return checkout


@pytest.fixture
def folder(checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    monkeypatch.syspath_prepend(checkout)
    return checkout


@pytest.mark.slow
def test_the_document_s_network_is_trained_audited_drawn_and_tabled(finished):
    results = finished / "results"
    audit = json.loads((results / "audits/mine/my_method:SignDFA/seed42.json").read_text())
    spec = audit["spec"]
    assert (spec["method"], spec["architecture"]) == ("my_method:SignDFA", "my_net:GatedMLP")
    assert audit["verdict"]["baseline"] == "my_method:SignDFA+frozen"
    assert len(audit["layers"]) == 3 and "blocks.1.gates.weight" in audit["feature_drift"]
    assert audit["headline_acc"] > 0.5 and (audit["samples"], audit["batches"]) == (128, 8)
    sidecar = json.loads((results / "checkpoints/mine/bp+frozen/seed42.json").read_text())
    assert sorted(sidecar["provenance"]["own_code"]) == ["my_data.py", "my_net.py"]
    assert (results / "figures/growth_accuracy.pdf").read_bytes().startswith(b"%PDF")
    gradients = pd.read_csv(results / "tidy/mine/runs.csv")["grad_norm_last"]
    values = pd.read_csv(results / "tables/gradients.csv")
    assert values["max"].tolist() == pytest.approx(gradients.tolist())
    assert "| Sign DFA | 1 | " in (results / "tables/gradients.md").read_text()


@pytest.mark.slow
def test_an_edit_makes_stale_what_the_file_decides_and_docstrings_are_captions_in_the_report(
    finished, folder
):
    options = [*TARGETS, "--configfile", "mine.yaml", "--resources", "gpu=0"]
    planned = {}
    with Server("snakemake.cli", *SNAKEMAKE) as server:
        for name in ("mine.yaml", "my_net.py", "my_figures.py"):
            (folder / name).write_text(
                FILES[name] + ("EDITED = 1\n" if ".py" in name else "# edited\n")
            )
            planned[name] = sorted(plan_of(server.run(folder, "-n", *options).said))
            (folder / name).write_text(FILES[name])
        server.run(folder, "--report", "report.zip", *options)
    after = "audit_network build_table collect_baseline draw_figure tidy_setting train_network"
    assert [*planned.values()] == [[], after.split(), ["draw_figure"]]
    page = zipfile.ZipFile(folder / "report.zip").read("report/report.html").decode()
    assert "D1 fires to the right of the line" in page and "smallest and largest over seeds" in page


def test_a_plan_invents_no_hours(folder):
    config, line_of = load_config("mine.yaml")
    grid = read_grid(config, KINDS, line_of)
    everything = dict.fromkeys(grid.all_run_keys(), True)
    costs = Costs({"cpu": {}, "gpu": {}})
    assert "?" in plan_table(grid, costs, everything, {})
    # Nor that networks of another torch are those of this one.
    done = dict.fromkeys(everything, False)
    assert "9.9.9" not in plan_table(grid, costs, done, {})
    made = {"provenance": {"packages": {"torch": "9.9.9"}}}
    write_json(next(iter(done)).path("checkpoints", "json"), made)
    assert "9.9.9" in plan_table(grid, costs, done, {})
    assert "9.9.9" not in plan_table(grid, costs, everything, {})


def test_the_command_line_takes_own_networks_but_no_file_decides_what_is_imported(folder, capsys):
    named = ["--architecture", "my_net:GatedMLP"]
    (folder / DATA).exists() or prepare_data_file("my_data:blobs", "data", DATA)
    assert (
        main([*f"train dfa mine.safetensors --data {DATA} --epochs 1 --width 8".split(), *named])
        == 0
    )
    assert main(["audit", "mine.safetensors"]) == 1
    assert "--architecture package.module:Class" in capsys.readouterr().err
    assert main(["audit", "mine.safetensors", *named]) == 0
    assert main(["list", "architectures", "my_net:GatedMLP"]) == 0
    assert "width=128, depth=4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            "dataset: my_data:blob",
            "dataset: .*unknown dataset of my_data 'blob'.*Did you mean 'blobs'",
        ),
        (
            "kind: my_figures:grwth_accuracy",
            "figures.growth_accuracy: .*Did you mean 'growth_accuracy'",
        ),
        ("kind: my_tables:gradients", "keyword argument 'thresholds'; it is called as gradients"),
        (
            "dataset: my_wrong:no_folder",
            "positional arguments; it is called as no_folder.data_root",
        ),
    ],
)
def test_a_wrong_name_or_option_is_named_before_anything_runs(folder, changed, words):
    (folder / "my_wrong.py").write_text("def no_folder(): return 1\n")
    config, _ = load_config("mine.yaml")
    key, value = changed.split(": ")
    where = config["figures"]["growth_accuracy"] if key == "kind" else config["settings"]["mine"]
    where[key] = value
    with pytest.raises(AuditError, match=rf"^config: .*{words}"):
        read_grid(config, KINDS)


BROKEN = """
from dataclasses import replace
import my_data, my_net
class Ten(my_net.GatedMLP):
    def __init__(self, *, image_shape, classes, depth=1):
        super().__init__(image_shape=image_shape, classes=10, width=8, depth=depth)
        self.classes = classes
def labels(root): return replace(my_data.blobs(root), classes=3)
def fails(root): return 1 / 0
def nan(root): return replace(my_data.blobs(root), std=(0.0,))
def tensor(root):
    data = my_data.blobs(root)
    return replace(data, classes=data.train_labels.max() + 1)
def shared(root):
    data = my_data.blobs(root)
    return replace(data, test_images=data.train_images[:9], test_labels=data.train_labels[:9])
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Ten", r"found logits \(2, 10\) for two images of 4 classes; expected \(2, 4\)"),
        ("labels", "train_labels: found 0 to 3; expected 0 to 2"),
        ("nan", r"found scale 1, mean \(0.0,\) and std \(0.0,\); expected .* std above 0"),
        ("fails", "ZeroDivisionError division by zero in .*broken.py, line 9"),
        ("tensor", "TypeError Object of type Tensor"),
    ],
)
def test_code_of_one_s_own_that_is_wrong_ends_in_one_line(folder, name, words):
    (folder / "broken.py").write_text(BROKEN)
    with pytest.raises(AuditError, match=f"^[a-z]+ 'broken:{name}': {words}"):
        if name != "Ten":
            prepare_data_file(f"broken:{name}", "data", "broken.safetensors")
        build(RunSpec(dataset="d", architecture=f"broken:{name}", method="bp"), (1, 2, 4), 4)


def test_a_data_set_may_be_tested_on_images_that_it_is_trained_on(folder):
    (folder / "broken.py").write_text(BROKEN)
    prepare_data_file("broken:shared", "data", "shared.safetensors")
    data = load_dataset("shared.safetensors")
    assert torch.equal(data.test_images, data.train_images[:9]) and len(data.test_labels) == 9
