"""Checkpoints keep every bit, refuse everything else, and interrupted trainings end with the same
bytes.
"""

import dataclasses
import json
import math
import sys

import pytest
import safetensors.torch
import torch
from damage import altered
from networks import assert_same_bits, spec_of
from safetensors.torch import save_file

from fa_audit.core.errors import AuditError
from fa_audit.methods.credit_bridge import CreditBridge
from fa_audit.methods.dfa import DFA
from fa_audit.methods.ep import EP
from fa_audit.methods.fa import FA
from fa_audit.methods.method import load_method
from fa_audit.methods.state_bridge import StateBridge
from fa_audit.training import resume as resume_files
from fa_audit.training.checkpoint import (
    FORMAT,
    HINT,
    learner_tensors,
    load_checkpoint,
    read_tensor_file,
    save_checkpoint,
    write_tensor_file,
)
from fa_audit.training.learner import build
from fa_audit.training.loop import train
from fa_audit.training.resume import Resume

SHAPE, CLASSES = (1, 4, 4), 3


@pytest.fixture
def learner(make_spec):
    return build(make_spec("fa", penalty=0.1, frozen_blocks=1), SHAPE, CLASSES)


STORED = [  # architecture, method, its constants where they are not the usual ones
    ("resmlp", "bp", None),
    ("vit_mini", "fa", None),
    ("student_mlp", "ep", EP(beta=0.3, steps=7, alpha=1, symmetric=True)),
    ("bn_cnn", "state_bridge", StateBridge(hidden=5)),
    ("small_resnet", "credit_bridge", CreditBridge(hidden=6, tau=0.1 + 0.2, draws=2, warm_up=0.0)),
]


@pytest.mark.parametrize(("architecture", "name", "method"), STORED)
def test_a_checkpoint_is_read_back_bit_by_bit(tmp_path, architecture, name, method):
    learner = build(spec_of(architecture, name, frozen_blocks=1), SHAPE, CLASSES, method)
    for tensor in learner_tensors(learner).values():
        # Away from what building alone would give.
        tensor.detach().add_(0.1 if tensor.is_floating_point() else True)
    save_checkpoint(learner, tmp_path / "c")
    again = load_checkpoint(tmp_path / "c")
    assert_same_bits(learner_tensors(learner), learner_tensors(again))
    assert (again.spec, again.image_shape, again.network.classes) == (learner.spec, SHAPE, CLASSES)
    assert again.method == learner.method and (method is None or again.method != load_method(name))
    for one, other in zip(again.network.parameters(), learner.network.parameters(), strict=True):
        assert one.requires_grad == other.requires_grad
    save_checkpoint(again, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "c").read_bytes()


def test_weights_that_blocks_share_are_saved(tmp_path):
    tensors = torch.nn.ModuleList([torch.nn.Linear(2, 2)] * 2).state_dict()
    write_tensor_file(tmp_path / "c", FORMAT, tensors, {})
    assert_same_bits(read_tensor_file(tmp_path / "c", FORMAT)[0], tensors)


def test_damaged_and_other_files_are_refused(learner, tmp_path):
    save_checkpoint(learner, tmp_path / "whole")
    content = (tmp_path / "whole").read_bytes()
    tensors, about = read_tensor_file(tmp_path / "whole", FORMAT)
    for length in (0, 100, len(content) - 1):
        (tmp_path / f"cut to {length}").write_bytes(content[:length])
    (tmp_path / "a bit").write_bytes(altered(content))
    torch.save(learner.network.state_dict(), tmp_path / "pickle")
    save_file({"weight": torch.zeros(3)}, tmp_path / "safetensors")
    save_file(tensors, tmp_path / "no digest", {"fa_audit": json.dumps(about)})
    save_file(tensors, tmp_path / "no object", {"fa_audit": "[]"})
    write_tensor_file(tmp_path / "resume", "fa-audit resume 1", tensors, {})
    for path in {*tmp_path.iterdir(), tmp_path / "missing", tmp_path} - {tmp_path / "whole"}:
        with pytest.raises(AuditError, match=f"^{path}: .*{HINT}"):
            load_checkpoint(path)


def with_spec(**values):
    return lambda about: about | {"spec": about["spec"] | values}


def without(name):
    return lambda values: {key: value for key, value in values.items() if key != name}


DESCRIPTIONS = [
    with_spec(architecture_options={"width": 9, "depth": 2}),
    with_spec(architecture_options={"width": 10**30, "depth": 2}),
    with_spec(architecture_options={"colour": "red"}),
    with_spec(architecture="magic"),
    without("spec"),
    lambda about: about | {"image_shape": None},
    lambda about: about | {"method": about["method"] | {"constants": {"colour": 1}}},
]
TENSORS = [
    without("state.layers.0.bias"),
    lambda tensors: tensors | {"network.extra": torch.zeros(1)},
    lambda tensors: {name: tensor.double() for name, tensor in tensors.items()},
]


def test_a_description_and_tensors_that_do_not_fit_each_other_are_refused(tmp_path):
    """The file has a SHA-256 that fits, as its author could give it."""
    path = tmp_path / "c"
    learner = build(spec_of("resmlp", "state_bridge"), SHAPE, CLASSES, StateBridge(hidden=5))
    save_checkpoint(learner, path)
    tensors, about = read_tensor_file(path, FORMAT)
    changed = [(tensors, change(about)) for change in DESCRIPTIONS]
    changed += [(change(tensors), about) for change in TENSORS]
    for wrong, description in changed:
        write_tensor_file(path, FORMAT, wrong, description)
        with pytest.raises(AuditError, match=rf"^{path}: .*; {HINT}\.$"):
            load_checkpoint(path)


@dataclasses.dataclass(frozen=True)
class Scaled(DFA):
    """A method that is not registered."""

    scale: float = 2.0
    table: tuple = (1, 2)


def test_a_file_imports_nothing_that_its_reader_did_not_name(learner, tmp_path, monkeypatch):
    (tmp_path / "poison.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "c"
    save_checkpoint(learner, path)
    tensors, about = read_tensor_file(path, FORMAT)
    for name in ("poison:Mine", "os:getcwd", "fa_audit.methods.fa:FA", "mine"):
        write_tensor_file(path, FORMAT, tensors, with_spec(method=name)(about))
        with pytest.raises(AuditError, match=f"method '{name}'.*--method"):
            load_checkpoint(path)
    write_tensor_file(path, FORMAT, tensors, with_spec(architecture="poison:Network")(about))
    for method in (None, FA()):
        with pytest.raises(AuditError, match=r"architecture 'poison:Network'.*--architecture"):
            load_checkpoint(path, method=method)
    assert "poison" not in sys.modules


def test_the_reader_s_method_is_used_as_it_is(make_spec, tmp_path, caplog):
    path = tmp_path / "c"
    learner = build(make_spec("test_checkpoint:Scaled"), SHAPE, CLASSES, Scaled(scale=3.0))
    save_checkpoint(learner, path)
    same, other = (load_checkpoint(path, method=Scaled(scale=scale)) for scale in (3.0, 4.0))
    assert (same.method, other.method.scale, same.spec) == (learner.method, 4.0, learner.spec)
    assert len(caplog.records) == 1 and "'scale': 3.0" in caplog.text
    assert torch.equal(same.state.B1, learner.state.B1)


def test_constants_that_are_no_json_are_refused_before_anything_is_written(make_spec, tmp_path):
    learner = build(make_spec("dfa"), SHAPE, CLASSES, Scaled(scale=torch.ones(2)))
    with pytest.raises(AuditError, match=r"Scaled': constants .*Keep tensors in the state"):
        save_checkpoint(learner, tmp_path / "c")
    assert not any(tmp_path.iterdir())


class Interrupted(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Interrupting(Resume):
    """A resume file whose training is interrupted once an epoch has been kept."""

    every: float = 0.0
    after: int = 0

    def save(self, learner, optimiser, progress):
        super().save(learner, optimiser, progress)
        if progress["epoch"] == self.after:
            raise Interrupted


def interrupt(spec, dataset, path, *, after, fingerprint="same"):
    with pytest.raises(Interrupted):
        train(spec, dataset, resume=Interrupting(path, fingerprint, after=after))


def assert_same_run(one, other):
    # Texts, since NaN differs from itself.
    assert str(one.history) == str(other.history)
    assert one.validation_accuracy == other.validation_accuracy
    tensors, expected = learner_tensors(one.learner), learner_tensors(other.learner)
    assert safetensors.torch.save(tensors) == safetensors.torch.save(expected)


@pytest.mark.parametrize(
    ("architecture", "method", "options"),
    [
        ("resmlp", "bp", {"random_targets": True}),
        ("resmlp", "dfa", {"lr": 1e30}),  # diverges to NaN
        ("resmlp", "fa", {"optimiser": "sgd", "clip": 0.1, "validation": 0.2}),
        ("small_resnet", "dfa", {"penalty": 0.01, "frozen_blocks": 1}),
    ],
)
def test_interrupted_after_any_epochs_and_resumed_is_uninterrupted(
    dataset, tmp_path, architecture, method, options
):
    spec, path = spec_of(architecture, method, epochs=4, **options), tmp_path / "resume"
    whole = train(spec, dataset)
    assert math.isfinite(whole.history[-1]["train_loss"]) == ("lr" not in options)
    for epochs in ([1], [4], [1, 2, 3]):
        for epoch in epochs:
            interrupt(spec, dataset, path, after=epoch)
        tensors = read_tensor_file(path, resume_files.FORMAT)[0]
        assert json.loads(tensors["progress"].numpy().tobytes())["epoch"] == epoch
        assert_same_run(train(spec, dataset, resume=Resume(path, "same")), whole)
        path.unlink()


@pytest.mark.parametrize(
    ("architecture", "method"), [("resmlp", "credit_bridge"), ("small_resnet", "ep")]
)
def test_a_snapshot_has_the_bits_of_the_run_after_its_epoch(
    dataset, tmp_path, architecture, method
):
    spec, path = spec_of(architecture, method, epochs=4), tmp_path / "resume"
    whole, initial = train(spec, dataset), train(dataclasses.replace(spec, snapshot=0), dataset)
    fresh = build(spec, dataset.image_shape, dataset.classes)
    assert_same_bits(learner_tensors(initial.learner), learner_tensors(fresh))
    assert {(row["epoch"], row["train_loss"]) for row in initial.history} == {(0, None)}
    for epoch in (1, 2):
        interrupt(spec, dataset, path, after=epoch)
        part = train(dataclasses.replace(spec, snapshot=epoch), dataset)
        tensors = read_tensor_file(path, resume_files.FORMAT)[0]
        found = learner_tensors(part.learner)
        assert_same_bits(found, {name: tensors[name] for name in found})
        assert part.history == [row for row in whole.history if row["epoch"] <= epoch]
        assert part.stopped_after is None


def test_a_resume_file_of_another_run_or_a_damaged_one_starts_over(make_spec, dataset, tmp_path):
    spec, path = make_spec("dfa"), tmp_path / "resume"
    whole = train(spec, dataset)
    interrupt(make_spec("dfa", seed=9), dataset, path, after=1, fingerprint="other")
    assert_same_run(train(spec, dataset, resume=Resume(path, "same")), whole)
    path.write_bytes(path.read_bytes()[:-1])
    assert_same_run(train(spec, dataset, resume=Resume(path, "same")), whole)
