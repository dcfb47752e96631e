"""The command line, through its own front door."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from networks import MY_METHOD

from fa_audit.cli import COMMANDS, main
from fa_audit.cli.lists import KINDS
from fa_audit.core.files import signed
from fa_audit.data.dataset import save_dataset
from fa_audit.data.digits import digits
from fa_audit.testing import CHECKS

DATA = "--data digits"
SMALL = f"{DATA} --width 16 --depth 2 --epochs 1 --batch-size 64"

TEXT = """
import torch
from torch import nn

sentences = [(torch.arange(12).reshape(4, 3), torch.arange(4))]
nothing = []
unpaired = {"x": torch.arange(3), "labels": torch.arange(3)}


def make():
    layers = [nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)]
    return nn.Sequential(nn.Embedding(12, 2), nn.Flatten(), *layers)
"""


def run(command):
    return main(command.split())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with one short run made by `fa-audit train`, and the data set that it makes."""
    folder = tmp_path_factory.mktemp("cli")
    save_dataset(replace(digits(None), name="others"), folder / "others.safetensors")
    (folder / "my_own_method.py").write_text(MY_METHOD)
    (folder / "broken_method.py").write_text("class X(")
    (folder / "my_text.py").write_text(TEXT)
    (folder / "a_folder.safetensors").mkdir()
    (folder / "half.json").write_text(r'{"settings": {"a": 1}, "setting": "\ud800"}')
    os.mkfifo(folder / "pipe")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for _ in range(2):  # the same run may be trained again
            assert run(f"train dfa dfa.safetensors {SMALL} --lr 2e-3 --weight-decay 0") == 0
    return folder


@pytest.fixture(autouse=True)
def folder(trained, monkeypatch):
    monkeypatch.chdir(trained)
    return trained


def sidecar(folder, name, **changes):
    """The run's sidecar with another accuracy or specification, as the file of a baseline."""
    facts = json.loads((folder / "dfa.json").read_text())
    facts |= {"accuracy": 0.99, "spec": facts["spec"] | changes}
    (folder / name).write_text(json.dumps(signed(facts)))
    return name


def test_a_trained_run_is_audited_and_incomplete_without_its_baseline(folder, capsys):
    spec = json.loads((folder / "dfa.json").read_text())["spec"]
    assert (spec["lr"], spec["weight_decay"], spec["batch_size"]) == (2e-3, 0, 64)
    assert run(f"audit dfa.safetensors {DATA} --format json") == 0
    verdict = json.loads(capsys.readouterr().out)["verdict"]["three_check"]
    assert verdict == "INCOMPLETE(D3 not evaluated)"


def test_a_network_with_frozen_blocks_is_named_so_and_compared_with_no_baseline(folder, capsys):
    assert run(f"train dfa+frozen frozen.safetensors {SMALL}") == 0
    assert run(f"audit frozen.safetensors {DATA} --format json") == 0
    assert json.loads(capsys.readouterr().out)["method"] == "dfa+frozen"
    assert run(f"audit frozen.safetensors {DATA} --frozen frozen.json") == 1
    assert "frozen.safetensors: " in capsys.readouterr().err


def test_audit_with_both_baselines_gives_both_verdicts_as_json(folder, capsys):
    own = sidecar(folder, "own.json", frozen_blocks=2)
    bp = sidecar(folder, "bp.json", method="bp", frozen_blocks=2)
    assert run(f"audit dfa.safetensors {DATA} --frozen {own} --bp-frozen {bp} --format json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"]["three_check"] == "FAIL(D3)"
    assert report["verdict"]["baseline"] == "dfa+frozen"
    assert report["headline_acc"] == json.loads((folder / "dfa.json").read_text())["accuracy"]


@pytest.mark.parametrize(
    ("option", "changes", "words"),
    [
        ("--frozen", {"frozen_blocks": 2, "epochs": 9}, "epochs 9, not 1."),
        ("--frozen", {"frozen_blocks": 2, "seed": 9}, "seed 9, not 42"),
        ("--frozen", {}, "frozen_blocks 0, not 2."),
        ("--bp-frozen", {"frozen_blocks": 2}, "method 'dfa', not 'bp'."),
    ],
)
def test_a_baseline_must_be_frozen_and_of_its_method_network_and_budget(
    folder, capsys, option, changes, words
):
    other = sidecar(folder, "other.json", **changes)
    assert run(f"audit dfa.safetensors {DATA} {option} {other}") == 1
    said = capsys.readouterr().err
    assert other in said and words in said


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("audit missing.safetensors", "missing.safetensors: "),
        ("audit .", "dfa.safetensors"),
        (f"audit dfa.safetensors {DATA} --frozen 0.3", "0.3: "),
        ("audit dfa.safetensors --accuracy 0.3", "--accuracy: "),
        ("audit dfa.safetensors --data others.safetensors", "'digits'"),
        (f"audit dfa.safetensors {DATA} --method broken_method:X", "SyntaxError"),
        ("describe nix", "'nix'"),
        ("describe nix --image-shape 0", "'0'"),
        ("describe nix --arguments [1]", "'[1]'"),
        ("audit my_text:make --data my_text:sentence", "sentences"),
        ("describe my_text:make --data my_text:nothing", "--data"),
        ("describe my_text:make --data my_text:unpaired", "found the batch 'x'"),
        ("train dfa", "--data"),
        (f"train dfx x.safetensors {DATA}", "'dfx'"),
        (f"train bp dfa.safetensors {SMALL}", "method 'dfa', not 'bp'"),
        (f"train dfa a_folder.safetensors {DATA}", "'a_folder.safetensors'"),
        (f"train dfa {__file__}/x.safetensors {DATA}", "Not a directory"),
        (f"train dfa others.safetensors {SMALL}", "others.json: "),
        (f"train dfa others.safetensors {SMALL.replace('digits', 'others.safetensors')}", "input"),
        (f"train dfa x.json {DATA}", "'x.json'"),
        (f"train dfa x.safetensors {DATA} --device meta", "'meta'"),
        (f"train dfa x.safetensors {DATA} --device foo", "'foo'"),
        (f"train dfa x.safetensors {DATA} --lr 0", "lr: "),
        (f"train dfa+lr3e-3 x.safetensors {DATA} --lr 0.001", "--lr: "),
        (f"train dfa+unnormalised x.safetensors {DATA} --normalise", "--normalise: "),
        (f"train dfa x.safetensors {DATA} --epohcs 3", "--epohcs"),
        ("train dfa x.safetensors --data digit", "'digits'"),
        ("train dfa x.safetensors --data absent.safetensors", "absent.safetensors: "),
        ("report dfa.json --output dfa.json", "dfa.json: "),
        ("report pipe", "pipe: "),
        ("board --only bq", "'bq'"),
        ("draw mine.json --from tidy", "--from"),
        ("audti dfa.safetensors", "'audti'"),
        *(
            (f"{reader} half.json", "half.json: ")
            for reader in ("report", "board", "draw", "draw --configfile", "scorecard --published")
        ),
    ],
)
def test_bad_input_is_one_line_that_names_it_and_exit_status_1(capsys, command, words):
    assert run(command) == 1
    said = capsys.readouterr().err
    assert said.startswith("fa-audit: ") and words in said and len(said.splitlines()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_lists_have_a_line_for_everything_registered(capsys, kind):
    assert run(f"list {kind}") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line[0] != " "]
    assert [name for name, *_ in lines] == list(KINDS[kind])
    assert all(len(line) > 1 for line in lines)


def test_every_argument_has_help_and_every_option_its_default(capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            run(f"{command} --help")
        arguments = capsys.readouterr().out.split("\n\n", 2)[2]
        for entry in re.findall(r"(?m)^  (?!-h)\S.*(?:\n    .*)*", arguments):
            name, *words = entry.split()
            assert len(words) > 2 and (name[0] != "-" or "default" in entry), entry


def test_a_description_is_proposed_ready_to_paste(capsys):
    assert run("describe torchvision.models:resnet18 --image-shape 3 64 64") == 0
    assert 'description=Description("layer*.*", "spatial mean")' in capsys.readouterr().out


def test_a_model_of_token_numbers_is_described_on_its_own_batches(capsys):
    assert run("describe my_text:make --data my_text:sentences") == 0
    assert "input:2, input:3, input:4" in capsys.readouterr().out


@pytest.mark.slow
def test_check_says_what_passed_and_what_failed(folder, capsys):
    (folder / "uphill.py").write_text(MY_METHOD.replace("2.0", "-2.0"))
    for name, wrong in (("my_own_method", False), ("uphill", True)):
        assert run(f"check {name}:Mine") == wrong
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        failed = [check for word, check, *_ in lines if word == "FAILED"]
        assert ("direction" in failed) == wrong
        assert sum(word == "passed" for word, *_ in lines) == len(CHECKS) - len(failed)


def test_a_method_beside_the_user_is_trained_and_audited_when_it_is_named(capsys):
    assert run(f"train my_own_method:Mine mine.safetensors {SMALL}") == 0
    assert run(f"audit mine.safetensors {DATA} --method my_own_method:Mine") == 0
    assert "my_own_method:Mine" in capsys.readouterr().out
    assert run(f"audit mine.safetensors {DATA}") == 1
    assert "--method" in capsys.readouterr().err


def test_a_reader_that_has_read_enough_is_not_an_error():
    reader, writer = os.pipe()
    os.close(reader)
    call = [sys.executable, "-m", "fa_audit.cli", "list", "methods", "dfa"]
    done = subprocess.run(call, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
