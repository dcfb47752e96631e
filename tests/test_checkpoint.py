"""Checkpoints keep every bit, refuse everything else, and interrupted trainings end with the same bytes."""

import dataclasses
import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import fa_audit
from fa_audit.core.errors import AuditError
from fa_audit.data.dataset import save_dataset
from fa_audit.methods.credit_bridge import CreditBridge
from fa_audit.methods.dfa import DFA
from fa_audit.methods.ep import EP
from fa_audit.methods.fa import FA
from fa_audit.methods.state_bridge import StateBridge
from fa_audit.training.checkpoint import FORMAT, Resume, learner_tensors, load_checkpoint, save_checkpoint
from fa_audit.training.learner import build, load_method
from fa_audit.training.loop import train

SHAPE, CLASSES = (1, 4, 4), 3
METHODS = [("bp", 0.0), ("fa", 0.0), ("dfa", 0.0), ("dfa", 0.01)]


@pytest.fixture
def learner(make_spec):
    return build(make_spec("fa", penalty=0.1, frozen_blocks=1), SHAPE, CLASSES)


def progress_of(path):
    """The progress stored in a resume file."""
    return json.loads(content_of(path)[0]["progress"].numpy().tobytes())


def content_of(path):
    with safe_open(path, framework="pt") as stream:
        about = json.loads(stream.metadata()["fa_audit"])
        about.pop("sha256", None)  # which would tell of every change before anything else does
        return {name: stream.get_tensor(name) for name in stream.keys()}, about  # noqa: SIM118


# --- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["bp", "fa", "dfa"])
def test_a_checkpoint_is_read_back_bit_by_bit(make_spec, tmp_path, method):
    learner = build(make_spec(method), SHAPE, CLASSES)
    for tensor in learner_tensors(learner).values():
        tensor.detach().add_(0.1)  # away from what building alone would give
    save_checkpoint(learner, tmp_path / "c")
    again = load_checkpoint(tmp_path / "c")
    ours, theirs = learner_tensors(learner), learner_tensors(again)
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert (again.spec, again.image_shape, again.network.classes) == (learner.spec, SHAPE, CLASSES)
    assert {name: p.requires_grad for name, p in again.network.named_parameters()} == {
        name: p.requires_grad for name, p in learner.network.named_parameters()
    }
    save_checkpoint(again, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "c").read_bytes()


def test_equal_learners_give_equal_bytes(make_spec, tmp_path):
    for name in "ab":
        save_checkpoint(build(make_spec("dfa"), SHAPE, CLASSES), tmp_path / name)
    save_checkpoint(build(make_spec("dfa", seed=4), SHAPE, CLASSES), tmp_path / "other")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != (tmp_path / "other").read_bytes()


def test_truncated_checkpoints_are_refused(learner, tmp_path):
    save_checkpoint(learner, tmp_path / "whole")
    content, path = (tmp_path / "whole").read_bytes(), tmp_path / "part"
    for length in [*range(0, 40), *range(40, len(content), 997), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(AuditError, match="truncated"):
            load_checkpoint(path)


def test_other_files_are_refused(learner, tmp_path):
    torch.save(learner.network.state_dict(), tmp_path / "pickle")
    (tmp_path / "json").write_text(json.dumps({"format": FORMAT}))
    (tmp_path / "noise").write_bytes(random.Random(0).randbytes(5000))
    save_file({"weight": torch.zeros(3)}, tmp_path / "safetensors")
    for name in ("pickle", "json", "noise", "safetensors", "."):
        with pytest.raises(AuditError, match="truncated, foreign or executable"):
            load_checkpoint(tmp_path / name)
    with pytest.raises(AuditError, match="no such file"):
        load_checkpoint(tmp_path / "missing")


def change_spec(about, **values):
    return about | {"spec": about["spec"] | values}


def with_options(about, **options):
    return change_spec(about, architecture_options=about["spec"]["architecture_options"] | options)


DISTORTIONS = {
    "wrong width": lambda about: with_options(about, width=9),
    "wrong depth": lambda about: with_options(about, depth=2),
    "wrong classes": lambda about: about | {"classes": 4},
    "wrong image": lambda about: about | {"image_shape": [1, 4, 5]},
    "unknown method": lambda about: change_spec(about, method="magic"),
    "unknown architecture": lambda about: change_spec(about, architecture="magic"),
    "unknown option": lambda about: with_options(about, colour="red"),
    "no specification": lambda about: {name: about[name] for name in about if name != "spec"},
    "missing field": lambda about: about | {"spec": {}},
    "specification is a list": lambda about: about | {"spec": []},
    "options are a list": lambda about: change_spec(about, architecture_options=[1]),
    "options are null": lambda about: change_spec(about, architecture_options=None),
    "image is null": lambda about: about | {"image_shape": None},
    "method is null": lambda about: about | {"method": None},
    "method is text": lambda about: about | {"method": "fa"},
    "constants are a list": lambda about: about | {"method": {"constants": [1]}},
    "constants are null": lambda about: about | {"method": {"constants": None}},
    "other format": lambda about: about | {"format": "fa-audit resume 1"},
    "no format": lambda about: {},
    "a list": lambda about: [],
    "null": lambda about: None,
    "a number": lambda about: 3,
}


@pytest.mark.parametrize("distortion", DISTORTIONS)
def test_tensors_that_do_not_fit_are_refused(learner, tmp_path, distortion):
    save_checkpoint(learner, tmp_path / "whole")
    tensors, about = content_of(tmp_path / "whole")
    save_file(tensors, tmp_path / "odd", {"fa_audit": json.dumps(DISTORTIONS[distortion](about))})
    with pytest.raises(AuditError):
        load_checkpoint(tmp_path / "odd")


def test_missing_and_additional_tensors_are_refused(learner, tmp_path):
    save_checkpoint(learner, tmp_path / "whole")
    tensors, about = content_of(tmp_path / "whole")
    metadata = {"fa_audit": json.dumps(about)}
    for changed in (
        {name: tensor for name, tensor in tensors.items() if name != "state.B1"},
        tensors | {"network.extra": torch.zeros(1)},
        tensors | {"state.B0": torch.zeros(2, 2)},
        *({name: tensor.to(kind) for name, tensor in tensors.items()} for kind in (torch.int64, torch.complex64)),
    ):
        save_file(changed, tmp_path / "odd", metadata)
        with pytest.raises(AuditError, match="do not fit"):
            load_checkpoint(tmp_path / "odd")


def test_a_failed_save_leaves_the_old_file(learner, tmp_path, monkeypatch):
    path = tmp_path / "c"
    save_checkpoint(learner, path)
    before = path.read_bytes()

    def half(part, content):
        part.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(AuditError, match=r"c: not written \(No space left on device; .* free on its disk\)"):
        save_checkpoint(learner, path)
    assert path.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["c"]


# --- methods in checkpoints ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Scaled(DFA):
    """A method of the reader's own."""

    scale: float = 2.0
    table: tuple = (1, 2)


def altered(path, change):
    """Rewrite the metadata of a checkpoint."""
    tensors, about = content_of(path)
    save_file(tensors, path, {"fa_audit": json.dumps(change(about))})


def change_constants(about, **constants):
    return about | {"method": about["method"] | {"constants": about["method"]["constants"] | constants}}


METHODS_WITH_CONSTANTS = {
    "ep": EP(beta=0.3, steps=7, alpha=1, symmetric=True),
    "state_bridge": StateBridge(hidden=5),
    "credit_bridge": CreditBridge(hidden=6, tau=0.1 + 0.2, draws=2, warm_up=0.0),
}


@pytest.mark.parametrize("name", METHODS_WITH_CONSTANTS)
def test_a_method_comes_back_with_its_constants(make_spec, tmp_path, name):
    learner = build(make_spec(name), SHAPE, CLASSES, METHODS_WITH_CONSTANTS[name])
    save_checkpoint(learner, tmp_path / "c")
    again = load_checkpoint(tmp_path / "c")
    assert again.method == METHODS_WITH_CONSTANTS[name] != load_method(name)
    save_checkpoint(again, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "c").read_bytes()


def test_a_file_without_constants_stands_for_the_defaults(make_spec, tmp_path):
    for method in (StateBridge(), StateBridge(hidden=5)):
        save_checkpoint(build(make_spec("state_bridge"), SHAPE, CLASSES, method), tmp_path / "c")
        altered(tmp_path / "c", lambda about: {key: about[key] for key in about if key != "method"})
        if method == StateBridge():
            assert load_checkpoint(tmp_path / "c").method == method
    with pytest.raises(AuditError, match="do not fit"):
        load_checkpoint(tmp_path / "c")
    altered(tmp_path / "c", lambda about: about | {"method": {"constants": {"hidden": 5}}})
    assert load_checkpoint(tmp_path / "c").method == StateBridge(hidden=5)


@pytest.mark.parametrize(
    "constants",
    [{"colour": 1}, {"colour": None}, {"beta": "0.5"}, {"beta": None}, {"beta": [0.5]}, {"steps": 2.5},
     {"symmetric": 1}, {"steps": True}, {"beta": False}],
)  # fmt: skip
def test_odd_constants_are_refused(make_spec, tmp_path, constants):
    save_checkpoint(build(make_spec("ep"), SHAPE, CLASSES), tmp_path / "c")
    altered(tmp_path / "c", lambda about: change_constants(about, **constants))
    with pytest.raises(AuditError, match=f"odd constants of EP: {next(iter(constants))}=.*; expected e.g. beta=0.5"):
        load_checkpoint(tmp_path / "c")


@pytest.mark.parametrize(
    ("method", "constants"),
    [("state_bridge", {"hidden": -1}), ("state_bridge", {"hidden": 10**30}), ("ep", {"steps": 10**12}),
     ("ep", {"alpha": 10**400}), ("ep", {"beta": float("nan")}), ("credit_bridge", {"draws": 10**9}),
     ("credit_bridge", {"draws": -1}), ("credit_bridge", {"sigma": -1e300})],
)  # fmt: skip
def test_constants_that_would_make_an_audit_endless_or_impossible_are_refused(make_spec, tmp_path, method, constants):
    save_checkpoint(build(make_spec(method), SHAPE, CLASSES), tmp_path / "c")
    altered(tmp_path / "c", lambda about: change_constants(about, **constants))
    with pytest.raises(AuditError, match=r"c: odd constants of .*; train the run again or name another file\.$"):
        load_checkpoint(tmp_path / "c")


def test_a_file_imports_nothing_that_its_reader_did_not_name(make_spec, learner, tmp_path, monkeypatch):
    (tmp_path / "poison.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "c"
    for name in ("poison:Mine", "os:getcwd", "fa_audit.methods.fa:FA", "mine"):
        save_checkpoint(learner, path)
        altered(path, lambda about, name=name: change_spec(about, method=name))
        with pytest.raises(AuditError, match=f"method '{name}'.*pass load_checkpoint.path, method=YourMethod"):
            load_checkpoint(path)
    save_checkpoint(learner, path)
    altered(path, lambda about: change_spec(about, architecture="poison:Network"))
    for method in (None, FA()):
        with pytest.raises(AuditError, match="architecture 'poison:Network'"):
            load_checkpoint(path, method=method)
    assert "poison" not in sys.modules


def test_a_registered_name_does_not_stand_for_another_class(make_spec, tmp_path):
    save_checkpoint(build(make_spec("dfa"), SHAPE, CLASSES, Scaled()), tmp_path / "c")
    with pytest.raises(AuditError, match=r"method 'dfa' .class 'test_checkpoint:Scaled'., which is none"):
        load_checkpoint(tmp_path / "c")


def test_the_reader_s_method_is_used_as_it_is(make_spec, tmp_path, caplog):
    path = tmp_path / "c"
    learner = build(make_spec("test_checkpoint:Scaled"), SHAPE, CLASSES, Scaled(scale=3.0))
    save_checkpoint(learner, path)
    same, other = (load_checkpoint(path, method=Scaled(scale=scale)) for scale in (3.0, 4.0))
    assert (same.method, other.method.scale, same.spec) == (learner.method, 4.0, learner.spec)
    assert [record.levelname for record in caplog.records] == ["WARNING"] and "'scale': 3.0" in caplog.text
    assert torch.equal(same.state.B1, learner.state.B1)


def test_constants_that_are_no_json_are_refused_before_anything_is_written(make_spec, tmp_path):
    learner = build(make_spec("dfa"), SHAPE, CLASSES, Scaled(scale=torch.ones(2)))
    with pytest.raises(AuditError, match=r"Scaled': constants found that are not JSON.*Keep tensors in the state"):
        save_checkpoint(learner, tmp_path / "c")
    assert not any(tmp_path.iterdir())


# --- resuming --------------------------------------------------------------------------------------------------------


class Interrupted(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Interrupting(Resume):
    """A resume file whose training is interrupted once an epoch has been kept."""

    after: int = 0

    def save(self, learner, optimiser, progress):
        super().save(learner, optimiser, progress)
        if progress["epoch"] == self.after:
            raise Interrupted


def checkpoint_bytes(trained, path):
    save_checkpoint(trained.learner, path)
    return path.read_bytes()


def assert_same_run(one, other, folder):
    assert (one.history, one.accuracy) == (other.history, other.accuracy)
    assert checkpoint_bytes(one, folder / "one") == checkpoint_bytes(other, folder / "other")


@pytest.mark.parametrize(("method", "penalty"), METHODS)
def test_interrupted_after_any_epoch_and_resumed_is_uninterrupted(make_spec, dataset, tmp_path, method, penalty):
    spec, path = make_spec(method, penalty=penalty, epochs=4, frozen_blocks=1), tmp_path / "resume"
    whole = train(spec, dataset)
    for epoch in (1, 2, 3, 4):
        with pytest.raises(Interrupted):
            train(spec, dataset, resume=Interrupting(path, "same", after=epoch))
        assert progress_of(path)["epoch"] == epoch
        resumed = train(spec, dataset, resume=Resume(path, "same"))
        assert_same_run(resumed, whole, tmp_path)
        path.unlink()


def test_a_run_interrupted_again_and_again_is_uninterrupted(make_spec, dataset, tmp_path):
    spec, path = make_spec("fa", epochs=4, random_targets=True), tmp_path / "resume"
    for epoch in (1, 2, 3):
        with pytest.raises(Interrupted):
            train(spec, dataset, resume=Interrupting(path, "same", after=epoch))
    assert_same_run(train(spec, dataset, resume=Resume(path, "same")), train(spec, dataset), tmp_path)


def test_a_resumed_run_does_not_repeat_epochs(make_spec, dataset, tmp_path, monkeypatch):
    spec, resume = make_spec("bp", epochs=3), Resume(tmp_path / "resume", "same")
    done = train(spec, dataset, resume=resume)
    monkeypatch.setattr("fa_audit.training.loop._run_epoch", lambda *_: 1 / 0)
    assert_same_run(train(spec, dataset, resume=resume), done, tmp_path)
    resume.clear()
    resume.clear()
    with pytest.raises(ZeroDivisionError):
        train(spec, dataset, resume=resume)


@pytest.mark.parametrize("fraction", [0.001, 0.5, 0.999, 1.0])
def test_a_resume_file_that_is_truncated_or_differs_in_a_bit_starts_over(make_spec, dataset, tmp_path, fraction):
    spec, path = make_spec("dfa"), tmp_path / "resume"
    with pytest.raises(Interrupted):
        train(spec, dataset, resume=Interrupting(path, "same", after=1))
    content = path.read_bytes()
    path.write_bytes(content[: int(fraction * len(content)) - 1] + bytes([content[-1] ^ 1]))
    assert_same_run(train(spec, dataset, resume=Resume(path, "same")), train(spec, dataset), tmp_path)


def test_another_runs_resume_file_starts_over(make_spec, dataset, tmp_path):
    path = tmp_path / "resume"
    with pytest.raises(Interrupted):
        train(make_spec("dfa", width=6), dataset, resume=Interrupting(path, "other", after=1))
    spec = make_spec("dfa")
    assert_same_run(train(spec, dataset, resume=Resume(path, "same")), train(spec, dataset), tmp_path)


def test_a_checkpoint_is_no_resume_file(make_spec, dataset, tmp_path):
    spec, path = make_spec("dfa"), tmp_path / "resume"
    whole = train(spec, dataset)
    save_checkpoint(whole.learner, path)
    assert_same_run(train(spec, dataset, resume=Resume(path, "same")), whole, tmp_path)


CHILD = """
import json, sys
from pathlib import Path
import torch
from fa_audit.training.checkpoint import Resume
from fa_audit.data.dataset import load_dataset
from fa_audit.experiments.spec import RunSpec
from fa_audit.training.loop import train
torch.set_num_threads(1)
spec = RunSpec.from_dict(json.loads(sys.argv[1]))
train(spec, load_dataset(sys.argv[2]), resume=Resume(Path(sys.argv[3]), "same"))
"""


def killed_training(spec, data, resume):
    """Start a training in another process and kill it at a random moment after its first epoch."""
    source = str(Path(fa_audit.__file__).parents[1])
    command = [sys.executable, "-c", CHILD, json.dumps(spec.to_dict()), str(data), str(resume)]
    child = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": source})
    deadline = time.monotonic() + 60
    while not resume.exists() and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(random.uniform(0, 0.2))
    child.send_signal(signal.SIGKILL)
    return child.wait()


def test_a_killed_training_goes_on_and_ends_with_the_same_bytes(make_spec, dataset, tmp_path):
    spec = make_spec("dfa", penalty=0.01, epochs=80)
    save_dataset(dataset, tmp_path / "data")
    assert killed_training(spec, tmp_path / "data", tmp_path / "resume") == -signal.SIGKILL
    assert 0 < progress_of(tmp_path / "resume")["epoch"] < 80
    resumed = train(spec, dataset, resume=Resume(tmp_path / "resume", "same"))
    assert_same_run(resumed, train(spec, dataset), tmp_path)
