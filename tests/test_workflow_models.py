"""External models through Snakemake: a configuration and no code (tests/test_workflow.py audits one)."""

import json
import os
import shutil

import pytest
import yaml
from projects import MODEL, ROOT, copy_sources, planned, snakemake, write_config

VIT = MODEL | {
    "model": "torchvision.models:vit_b_16",
    "arguments": {"num_classes": 10, "image_size": 16},
    "image_shape": [3, 16, 16],
    "blocks": "encoder.layers.*",
    "reads": "cls token",
    "accuracy": 0.1,
}
del VIT["frozen_accuracy"]


@pytest.mark.matrix
def test_a_transformer_is_audited_without_a_frozen_accuracy(tmp_path):
    folder = copy_sources(tmp_path / "project")
    write_config(folder, {"models": {"vit_b_16": VIT}})
    done = snakemake(folder, "--cores", "1")
    assert done.returncode == 0, done.stdout
    audit = json.loads((folder / "results/models/vit_b_16.json").read_text())
    assert len(audit["layers"]) == 13 and "INCOMPLETE" in audit["verdict"]["three_check"]
    assert audit["headline_acc"] == 0.1 and audit["provenance"]["packages"]["torchvision"]


def test_wrong_descriptions_end_in_one_clear_message_each(everything, tmp_path):
    folder = shutil.copytree(everything, tmp_path / "project")
    wrong = {"name": MODEL | {"blocks": ["layer1.0", "layer5.0"]}, "vector": MODEL | {"reads": "cls token"}}
    write_config(folder, {"models": wrong})
    done = snakemake(folder, "--cores", "2", "--keep-going")
    assert done.returncode != 0 and "Traceback" not in done.stdout
    for message in (
        "audit_model: models.name: ResNet: blocks: 'layer5.0' is no module; the model has: conv1, bn1",
        "audit_model: models.vector: ResNet: the input of block 'layer1.0': found shape (3, 64, 8, 8)",
    ):
        assert done.stdout.count(message) == 1
    assert not list((folder / "results/models").glob("name.*"))


def documented():
    """The configuration of models in README.md."""
    blocks = (ROOT / "README.md").read_text().split("```yaml\n")[1:]
    config = next(c for c in (yaml.safe_load(block.partition("```")[0]) for block in blocks) if "models" in c)
    assert {body["model"] for body in config["models"].values()} >= {MODEL["model"], VIT["model"]}
    return config


@pytest.mark.parametrize(
    ("config", "rule", "count"),
    [(None, "train_network", 500), (documented(), "audit_model", 2)],
    ids=["the paper", "models"],
)
def test_planning_imports_no_torch(tmp_path, config, rule, count):
    folder = copy_sources(tmp_path / "project")
    if config:
        write_config(folder, config, "config.yaml")
    (tmp_path / "poison").mkdir()
    (tmp_path / "poison/torch.py").write_text("raise ImportError('torch was imported while planning')\n")
    jobs = planned(folder, config=None, PYTHONPATH=f"{tmp_path}/poison:{os.environ.get('PYTHONPATH', '')}")
    assert len(jobs[rule]) >= count and (rule == "train_network") == ("tidy" in jobs)
