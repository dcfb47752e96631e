"""The command line, through its own front door."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from networks import MY_METHOD

from fa_audit.cli import COMMANDS, main
from fa_audit.data import DATASETS
from fa_audit.data.dataset import save_dataset
from fa_audit.data.digits import digits
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES
from fa_audit.testing import CHECKS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the digits made by `fa-audit data` and one short run made by `fa-audit train`."""
    folder = tmp_path_factory.mktemp("cli")
    assert main(["data", "digits", "--output", str(folder / "digits.safetensors")]) == 0
    arguments = ["train", "dfa", str(folder / "dfa.safetensors"), "--data", str(folder / "digits.safetensors")]
    options = {"width": 16, "depth": 2, "epochs": 1, "batch-size": 64, "lr": 2e-3, "weight-decay": 0, "penalty": 0}
    assert main([*arguments, *(f"--{name}={value}" for name, value in options.items())]) == 0
    return folder


def audit(folder, *options):
    return main(["audit", str(folder / "dfa.safetensors"), "--data", str(folder / "digits.safetensors"), *options])


def test_an_audit_of_a_trained_run_without_a_baseline_is_incomplete_never_a_pass(folder, capsys):
    assert {path.suffix for path in folder.glob("dfa.*")} == {".safetensors", ".json", ".csv"}
    assert json.loads((folder / "dfa.json").read_text())["spec"].items() >= {"lr": 2e-3, "weight_decay": 0}.items()
    assert audit(folder) == 0
    assert "INCOMPLETE(D3 not evaluated)" in capsys.readouterr().out


def sidecar(folder, name, **changes):
    """The run's sidecar with another accuracy or specification, as the file of a baseline."""
    facts = json.loads((folder / "dfa.json").read_text())
    facts["accuracy"] = 0.99
    facts["spec"] |= changes
    (folder / name).write_text(json.dumps(facts))
    return str(folder / name)


def test_audit_with_a_baseline_gives_both_verdicts_as_json(folder, capsys):
    frozen = sidecar(folder, "frozen.json", frozen_blocks=2)
    assert audit(folder, "--frozen", frozen, "--format", "json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"]["three_check"] == "FAIL(D3)" and report["verdict"]["baseline"] == "dfa+frozen"
    assert report["headline_acc"] == json.loads((folder / "dfa.json").read_text())["accuracy"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"frozen_blocks": 2, "epochs": 9}, "other.json: of another run than expected: epochs 9, not 1."),
        ({"frozen_blocks": 2, "seed": 9}, "seed 9, not 42"),
        ({"frozen_blocks": 2, "method": "bp"}, "method 'bp', not 'dfa'. "),
        ({}, "frozen_blocks 0, not 2. "),
    ],
)
def test_a_baseline_must_be_the_method_s_own_and_of_the_cell(folder, capsys, changes, words):
    assert audit(folder, "--frozen", sidecar(folder, "other.json", **changes)) == 1
    said = capsys.readouterr().err
    assert words in said and said.endswith(
        "Expected dfa+frozen with the network, data, budget and seed of the audited one. Give its file, or train it.\n"
    )


def test_backpropagation_s_baseline_must_be_that(folder, capsys):
    frozen = {"method": "bp", "frozen_blocks": 2}
    assert audit(folder, "--bp-frozen", sidecar(folder, "bp.json", **frozen), "--format", "markdown") == 0
    assert capsys.readouterr().out.startswith("## Audit of dfa\n")
    assert audit(folder, "--bp-frozen", sidecar(folder, "dfa_frozen.json", frozen_blocks=2)) == 1
    assert "method 'dfa', not 'bp'. " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["audit", "missing.safetensors"], "no such file"),
        (["audit", __file__], "truncated, foreign or executable file"),
        (
            ["train", "dfx", "x.safetensors", "--data", "DATA"],
            "unknown method 'dfx'; known: bp, brsf, credit_bridge, dfa",
        ),
        (["train", "dfa", "x.safetensors", "--data", "missing"], "missing: no such file"),
        (["train", "dfa", "x.safetensors", "--data", "DATA", "--architecture", "x"], "unknown architecture 'x'"),
        (["train", "dfa", "x.json", "--data", "DATA"], "expected a name that ends in .safetensors"),
        (["train", "dfa", "x.safetensors", "--data", "DATA", "--epochs", "0"], "epochs: found 0"),
        (["train", "dfa", "x.safetensors", "--data", "DATA", "--device", "meta"], "expected one of cpu, cuda"),
        (["train", "dfa", "x.safetensors", "--data", "DATA", "--device", "foo"], "'foo' is not available"),
        (["train", "dfa", "x.safetensors", "--data", "DATA", "--epohcs", "3"], "Did you mean '--epochs'?"),
        (["train", "dfa+frozen", "x.safetensors", "--data", "DATA", "--frozen"], "option 'frozen' appears twice"),
        (["train", "dfa"], "required: output, --data. See: fa-audit train --help"),
        (["data", "digit"], "unknown dataset 'digit'; known: cifar10, cifar100, digits, synthetic_teacher. Did you"),
        (["audti", "x.safetensors"], "unknown command 'audti'; "),
        (["check", "dfaa"], "Did you mean 'dfa'?"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_1(folder, capsys, arguments, words):
    data = str(folder / "digits.safetensors")
    assert main([data if argument == "DATA" else argument for argument in arguments]) == 1
    said = capsys.readouterr().err
    assert said.startswith("fa-audit: ") and words in said and len(said.splitlines()) == 1


def test_a_method_s_file_that_cannot_be_imported_is_one_line(folder, tmp_path, capsys, monkeypatch):
    (tmp_path / "broken_method.py").write_text("class X(")
    monkeypatch.syspath_prepend(tmp_path)
    assert audit(folder, "--method", "broken_method:X") == 1
    said = capsys.readouterr().err
    assert said.startswith("fa-audit: method 'broken_method:X': SyntaxError '(' was never closed")
    assert len(said.splitlines()) == 1


def test_data_of_another_name_are_refused(folder, tmp_path, capsys):
    save_dataset(replace(digits(None), name="others"), tmp_path / "others.safetensors")
    assert main(["audit", str(folder / "dfa.safetensors"), "--data", str(tmp_path / "others.safetensors")]) == 1
    said = capsys.readouterr().err
    assert "data set: found 'others' with images" in said and "the network was trained on 'digits' with images" in said


def test_a_sidecar_of_another_run_is_refused(folder, tmp_path, capsys):
    for path in folder.glob("dfa.*"):
        shutil.copyfile(path, tmp_path / path.name)
    sidecar(tmp_path, "dfa.json", seed=7)
    arguments = ["audit", str(tmp_path / "dfa.safetensors"), "--data", str(folder / "digits.safetensors")]
    assert main(arguments) == 1
    assert "dfa.json: of another run than expected: seed 7, not 42." in capsys.readouterr().err


def test_the_lists_have_a_line_for_everything_registered(capsys):
    for kind, registry in {"methods": METHODS, "architectures": ARCHITECTURES, "datasets": DATASETS}.items():
        assert main([kind]) == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
        assert [line.split(maxsplit=1)[0] for line in lines] == list(registry)
        assert all(len(line.split()) > 1 for line in lines)


def test_every_argument_has_help_and_every_option_its_default(capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        for entry in re.findall(r"(?m)^  (?!-h)\S.*(?:\n    .*)*", capsys.readouterr().out.split("\n\n", 2)[2]):
            name, *words = entry.split()
            assert len(words) > 2 and (name[0] != "-" or "default" in words), entry


def test_a_description_is_proposed_ready_to_paste(capsys):
    pytest.importorskip("fa_audit.networks.proposals")
    assert main(["describe", "torchvision.models:resnet18", "--image-shape", "3", "64", "64"]) == 0
    assert 'description=Description("layer*.*", "spatial mean")' in capsys.readouterr().out


def test_check_says_what_passed_and_prints_one_finding_for_a_mistake(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    for name, scale, failed in (("steep", "2.0", []), ("uphill", "-2.0", ["direction"])):
        (folder / f"{name}.py").write_text(MY_METHOD.replace("2.0", scale))
        assert main(["check", f"{name}:Mine"]) == len(failed)
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert [check for word, check, *_ in lines if word == "FAILED"] == failed
        assert failed or sum(word == "passed" for word, *_ in lines) == len(CHECKS)


def test_help_needs_no_torch():
    program = "import sys; sys.modules['torch'] = None; from fa_audit.cli import main; main(['--help'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0 and "audit a checkpoint" in done.stdout, done.stderr


def test_a_method_beside_the_user_is_trained_and_audited_when_it_is_named(folder, capsys, monkeypatch):
    (folder / "command_line_method.py").write_text(MY_METHOD)
    monkeypatch.chdir(folder)
    name, data = "command_line_method:Mine", ["--data", "digits.safetensors"]
    small = ["--width", "16", "--depth", "2", "--epochs", "1", "--batch-size", "64"]
    assert main(["train", name, "mine.safetensors", *data, *small]) == 0
    assert main(["audit", "mine.safetensors", *data, "--method", name]) == 0
    assert "Audit of command_line_method:Mine" in capsys.readouterr().out
    assert main(["audit", "mine.safetensors", *data]) == 1
    assert "--method package.module:ClassName" in capsys.readouterr().err
