"""The library without its extras: what works, and what the rest says; and the shell completion, which is one."""

import os
import subprocess
import sys

import pytest

from fa_audit.core.extras import EXTRAS

PROGRAM = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))  # importing them raises ModuleNotFoundError
import torch
from fa_audit import Description, diagnose
from fa_audit.cli import main

model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
batch = torch.eye(16).view(16, 1, 4, 4), torch.arange(16) % 3
print(diagnose(model, [batch], 0.41, 0.40, description=Description(("1", "2"), "all features")).three_check_verdict)
for line in sys.argv[2:]:
    main(line.split())
"""
SMALL = "--data d.safetensors --width 8 --depth 2 --epochs 1 --lr 0.01"
WORKING = (
    "data synthetic_teacher --output d.safetensors",
    f"train dfa run.safetensors {SMALL}",
    f"train dfa frozen.safetensors {SMALL} --frozen --penalty 0",
    "audit run.safetensors --data d.safetensors --frozen frozen.json",
    "datasets",
)
MISSING = {
    "data digits": "datasets",
    "data cifar10": "datasets",
    "report audit.json": "plots",
    "plan": "workflow",
    "scorecard": "workflow",
}


def python(*arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=os.environ | environment, capture_output=True, text=True
    )


def test_without_extras_models_and_runs_are_audited_and_the_rest_names_the_extra(tmp_path):
    done = python("-c", PROGRAM, ",".join(EXTRAS), *WORKING, *MISSING, cwd=tmp_path)
    said = [line for line in done.stderr.splitlines() if not line.startswith("epoch ")]
    assert done.returncode == 0 and done.stdout.startswith("FAIL(D3)\nd.safetensors\n"), done.stderr
    assert "Audit of dfa" in done.stdout and "\ncifar10 " in done.stdout
    assert len(said) == len(MISSING), done.stderr
    assert all(f"pip install 'fa-audit[{extra}]'" in line for line, extra in zip(said, MISSING.values()))


def test_the_shell_completes_commands_options_and_names(tmp_path):
    pytest.importorskip("argcomplete")

    def completions(line):
        place = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE": "1"}
        python("-m", "fa_audit.cli", cwd=tmp_path, _ARGCOMPLETE_STDOUT_FILENAME=f"{tmp_path}/said", **place)
        return (tmp_path / "said").read_text().split()

    assert completions("fa-audit sc") == ["scorecard"]
    assert completions("fa-audit train --arch") == ["--architecture"]
    assert completions("fa-audit train credit") == ["credit_bridge"]
