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
from fa_audit.data import DATASETS
from fa_audit.data.dataset import save_dataset
from fa_audit.data.digits import digits
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES
from fa_audit.testing import CHECKS

DATA = "--data digits"
SMALL = f"{DATA} --width 16 --depth 2 --epochs 1 --batch-size 64"


def run(command):
    return main(command.split())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with one short run made by `fa-audit train`, and the data set that it makes."""
    folder = tmp_path_factory.mktemp("cli")
    save_dataset(replace(digits(None), name="others"), folder / "others.safetensors")
    (folder / "my_own_method.py").write_text(MY_METHOD)
    (folder / "broken_method.py").write_text("class X(")
    (folder / "a_folder.safetensors").mkdir()
    os.mkfifo(folder / "pipe")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for _ in range(2):  # the same run may be trained again
            assert (
                run(f"train dfa dfa.safetensors {SMALL} --lr 2e-3 --weight-decay 0 --penalty 0")
                == 0
            )
    return folder


@pytest.fixture(autouse=True)
def folder(trained, monkeypatch):
    monkeypatch.chdir(trained)
    return trained


def sidecar(folder, name, **changes):
    """The run's sidecar with another accuracy or specification, as the file of a baseline."""
    facts = json.loads((folder / "dfa.json").read_text())
    (folder / name).write_text(
        json.dumps(signed(facts | {"accuracy": 0.99, "spec": facts["spec"] | changes}))
    )
    return name


def test_an_audit_of_a_trained_run_without_a_baseline_is_incomplete_never_a_pass(folder, capsys):
    assert {path.suffix for path in folder.glob("dfa.*")} == {".safetensors", ".json", ".csv"}
    assert (
        json.loads((folder / "dfa.json").read_text())["spec"].items()
        >= {"lr": 2e-3, "weight_decay": 0}.items()
    )
    assert run(f"audit dfa.safetensors {DATA}") == 0
    assert "INCOMPLETE(D3 not evaluated)" in capsys.readouterr().out


def test_audit_with_both_baselines_gives_both_verdicts_as_json(folder, capsys):
    own = sidecar(folder, "own.json", frozen_blocks=2)
    bp = sidecar(folder, "bp.json", method="bp", frozen_blocks=2)
    assert run(f"audit dfa.safetensors {DATA} --frozen {own} --bp-frozen {bp} --format json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (
        report["verdict"]["three_check"] == "FAIL(D3)"
        and report["verdict"]["baseline"] == "dfa+frozen"
    )
    assert report["headline_acc"] == json.loads((folder / "dfa.json").read_text())["accuracy"]


@pytest.mark.parametrize(
    ("option", "changes", "words"),
    [
        (
            "--frozen",
            {"frozen_blocks": 2, "epochs": 9},
            "epochs 9, not 1. Expected dfa+frozen with the network",
        ),
        ("--frozen", {"frozen_blocks": 2, "seed": 9}, "seed 9, not 42"),
        ("--frozen", {}, "frozen_blocks 0, not 2. "),
        (
            "--bp-frozen",
            {"frozen_blocks": 2},
            "method 'dfa', not 'bp'. Expected bp+frozen with the network",
        ),
    ],
)
def test_a_baseline_must_be_frozen_and_of_its_method_network_and_budget(
    folder, capsys, option, changes, words
):
    assert (
        run(f"audit dfa.safetensors {DATA} {option} {sidecar(folder, 'other.json', **changes)}")
        == 1
    )
    said = capsys.readouterr().err
    assert "other.json: of another run than expected: " in said and words in said
    assert said.endswith("data, budget and seed of the audited one. Give its file, or train it.\n")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("audit missing.safetensors", "No such file"),
        (
            "audit .",
            ".: found a folder; expected the .safetensors file of a training, such as "
            "dfa.safetensors, or what",
        ),
        (
            f"audit dfa.safetensors {DATA} --frozen 0.3",
            "0.3: No such file or directory; expected the JSON beside a",
        ),
        (f"train dfa a_folder.safetensors {DATA}", "found 'a_folder.safetensors'; expected a file"),
        (
            f"train dfa {__file__}/x.safetensors {DATA}",
            "not written (Not a directory). Name another place, or make",
        ),
        ("describe nix", "unknown model 'nix'. Expected package.module:Name"),
        (f"audit {__file__}", "truncated, foreign or executable file"),
        (
            "audit dfa.safetensors --data others.safetensors",
            "the network was trained on 'digits' with images",
        ),
        (
            f"audit dfa.safetensors {DATA} --method broken_method:X",
            "SyntaxError '(' was never closed",
        ),
        (
            f"train dfx x.safetensors {DATA}",
            "unknown method 'dfx'; known: bp, brsf, credit_bridge, dfa",
        ),
        (f"train bp dfa.safetensors {SMALL}", "method 'dfa', not 'bp'"),
        (
            f"train dfa others.safetensors {SMALL.replace('digits', 'others.safetensors')}",
            "as input and output",
        ),
        (f"train dfa others.safetensors {SMALL}", "others.json: No such file"),
        (f"train dfa x.json {DATA}", "expected a file whose name ends in .safetensors"),
        (f"train dfa x.safetensors {DATA} --device meta", "expected one of cpu, cuda"),
        (f"train dfa x.safetensors {DATA} --device foo", "'foo' is not available"),
        (f"train dfa x.safetensors {DATA} --epochs 100001", "epochs: "),
        (f"train dfa x.safetensors {DATA} --lr 0", "lr: "),
        (f"train dfa+lr3e-3 x.safetensors {DATA} --lr 0.001", "--lr: "),
        (f"train dfa+unnormalised x.safetensors {DATA} --normalise", "--normalise: "),
        (f"train dfa x.safetensors {DATA} --epohcs 3", "unrecognized arguments: --epohcs 3"),
        (f"train dfa+frozen x.safetensors {DATA} --frozen", "option 'frozen' appears twice"),
        ("train dfa", "required: output, --data. See: fa-audit train --help"),
        ("audti dfa.safetensors", "invalid choice: 'audti'"),
        ("train dfa x.safetensors --data digit", "Did you mean 'digits'?"),
        ("train dfa x.safetensors --data absent.safetensors", "absent.safetensors: No such file"),
        ("describe nix --image-shape 0", "found '0'; expected an integer >= 1"),
        ("describe nix --arguments [1]", "found '[1]'; expected a JSON mapping"),
        ("report dfa.json --output dfa.json", "dfa.json: "),
        ("report pipe", "pipe: found a named pipe; expected a file"),
        ("list method", "invalid choice: 'method'"),
        ("board --only bq", "unknown run 'bq'; known: bp, "),
        ("draw mine.json --from tidy", "found AUDIT and --from"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_1(capsys, command, words):
    assert run(command) == 1
    said = capsys.readouterr().err
    assert said.startswith("fa-audit: ") and words in said and len(said.splitlines()) == 1


def test_the_lists_have_a_line_for_everything_registered(capsys):
    for kind, registry in {
        "methods": METHODS,
        "architectures": ARCHITECTURES,
        "datasets": DATASETS,
    }.items():
        assert run(f"list {kind}") == 0
        lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
        assert [line.split(maxsplit=1)[0] for line in lines] == list(registry)
        assert all(len(line.split()) > 1 for line in lines)
    assert run("list") == 0
    assert {line for line in capsys.readouterr().out.splitlines() if line.endswith(":")} == {
        f"{kind}:" for kind in KINDS
    }


def test_the_help_names_every_command(capsys):
    with pytest.raises(SystemExit):
        run("--help")
    assert set(COMMANDS) <= set(capsys.readouterr().out.split())


def test_every_argument_has_help_and_every_option_its_default(capsys):
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            run(f"{command} --help")
        for entry in re.findall(
            r"(?m)^  (?!-h)\S.*(?:\n    .*)*", capsys.readouterr().out.split("\n\n", 2)[2]
        ):
            name, *words = entry.split()
            assert len(words) > 2 and (name[0] != "-" or "default" in words), entry


def test_a_description_is_proposed_ready_to_paste(capsys):
    assert run("describe torchvision.models:resnet18 --image-shape 3 64 64") == 0
    assert 'description=Description("layer*.*", "spatial mean")' in capsys.readouterr().out


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
    assert "Audit of my_own_method:Mine" in capsys.readouterr().out
    assert run(f"audit mine.safetensors {DATA}") == 1
    assert "--method package.module:Class" in capsys.readouterr().err


def test_a_reader_that_has_read_enough_is_not_an_error():
    reader, writer = os.pipe()
    os.close(reader)
    program = "from fa_audit.cli import main; raise SystemExit(main(['list', 'methods', 'dfa']))"
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, text=True
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
