"""Torchvision's models through Snakemake: a configuration and no code."""

import ast
import json

import pytest
import yaml
from projects import ROOT, copy_sources, planned, snakemake, write_config

COMMON = {"dataset": "digits", "image_shape": [3, 32, 32], "batches": 2}
RESNET = COMMON | {
    "model": "torchvision.models:resnet18",
    "arguments": {"num_classes": 10},
    "blocks": "layer*.*",
    "reads": "spatial mean",
    "frozen_accuracy": 0.9,
}
VIT = COMMON | {
    "model": "torchvision.models:vit_b_16",
    "arguments": {"num_classes": 10, "image_size": 16},
    "image_shape": [3, 16, 16],
    "blocks": "encoder.layers.*",
    "reads": "cls token",
    "accuracy": 0.1,
    "batches": 1,
}
CONFIG = {"models": {"resnet18": RESNET, "vit_b_16": VIT}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder in which both models have been audited."""
    folder = copy_sources(tmp_path_factory.mktemp("models") / "project")
    write_config(folder, CONFIG)
    done = snakemake(folder, "--cores", "1")
    assert done.returncode == 0, done.stdout
    (folder / "first.log").write_text(done.stdout)
    return folder


def test_two_unmodified_models_are_audited_from_a_configuration(finished):
    said = (finished / "first.log").read_text()
    assert "models     2, 0 audited already" in said and "results/models/vit_b_16.md" in said
    resnet, vit = (json.loads((finished / f"results/models/{name}.json").read_text()) for name in CONFIG["models"])
    assert [len(audit["layers"]) for audit in (resnet, vit)] == [9, 13]
    assert resnet["model"] == resnet["method"] == "resnet18" and resnet["batches"] == 2 and resnet["samples"] == 128
    assert resnet["verdict"]["three_check"] == "FAIL(D3)" and resnet["finite"]
    assert all(layer["grad_norm"] > 0 and layer["float32_error"]["value"] < 1e-3 for layer in resnet["layers"])
    assert vit["headline_acc"] == 0.1 and "INCOMPLETE" in vit["verdict"]["three_check"]
    assert vit["entry"] | VIT == vit["entry"] and vit["weights_sha256"] is None
    assert vit["provenance"]["packages"]["torchvision"]
    report = (finished / "results/models/resnet18.md").read_text()
    assert report.startswith("## Audit of resnet18") and "random weights of seed 42 on digits" in report


def test_a_second_run_has_nothing_to_do_and_another_description_audits_that_model_alone(finished):
    assert planned(finished) == {}
    write_config(finished, {"models": {"resnet18": RESNET | {"blocks": "layer1.*"}, "vit_b_16": VIT}}, "other.yaml")
    assert planned(finished, "models", config="other.yaml") == {"audit_model": ["model=resnet18"], "models": [""]}


def test_other_weights_audit_again(finished):
    write_config(finished, {"models": {"resnet18": RESNET | {"weights": "w.safetensors"}}}, "weights.yaml")
    missing = snakemake(finished, "-n", config="weights.yaml")
    assert missing.returncode != 0 and "Traceback" not in missing.stdout
    assert f"models.resnet18.weights: no file 'w.safetensors' in {finished}" in missing.stdout
    (finished / "w.safetensors").write_bytes(b"not weights")
    assert planned(finished, config="weights.yaml") == {"audit_model": ["model=resnet18"]}


def test_wrong_descriptions_end_in_one_clear_message_each(finished):
    wrong = {"name": RESNET | {"blocks": ["layer1.0", "layer5.0"]}, "vector": RESNET | {"reads": "cls token"}}
    write_config(finished, {"models": wrong}, "wrong.yaml")
    done = snakemake(finished, "--cores", "1", config="wrong.yaml")
    assert done.returncode != 0 and "Traceback" not in done.stdout
    for message in (
        "audit_model: models.name: ResNet: blocks: 'layer5.0' is no module; the model has: conv1, bn1",
        "audit_model: models.vector: ResNet: the input of block 'layer1.0': found shape (3, 64, 8, 8)",
    ):
        assert done.stdout.count(message) == 1
    assert not list((finished / "results/models").glob("name.*"))


def test_the_documented_configuration_is_planned_without_torch(tmp_path):
    blocks = (ROOT / "README.md").read_text().split("```yaml\n")[1:]
    config = next(c for c in (yaml.safe_load(block.partition("```")[0]) for block in blocks) if "models" in c)
    assert {body["model"] for body in config["models"].values()} >= {RESNET["model"], VIT["model"]}
    folder = copy_sources(tmp_path / "project")
    write_config(folder, config)
    (tmp_path / "poison").mkdir()
    (tmp_path / "poison/torch.py").write_text("raise ImportError('torch was imported while planning')\n")
    jobs = planned(folder, PYTHONPATH=str(tmp_path / "poison"))
    assert len(jobs["audit_model"]) == len(config["models"]) and "tidy" not in jobs


def test_the_list_of_models_imports_no_torch():
    tree = ast.parse((ROOT / "src/fa_audit/experiments/models.py").read_text())
    ours = {f"fa_audit.{name}" for name in ("datasets", "errors", "registry")}
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported - ours <= {"__future__", "collections.abc", "typing"}
