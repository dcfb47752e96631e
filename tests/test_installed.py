"""Every extra, installed by itself into a fresh environment: what the documents promise of it runs.

Gigabytes and many minutes: `make test-extras`. Environments share the files of the library without
extras.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from projects import PARTS, ROOT

MORE = ("pyproject.toml", "README.md", "LICENSE", "CONTRIBUTING.md", "CHANGELOG.md", "docs",
        "mkdocs.yml", "tools", "tests", "examples", "Makefile", "constraints.txt", "CITATION.cff")  # fmt: skip
SMALL = "--width 8 --depth 2 --epochs 1"
OPTIONS = " --cores 2 --resources gpu=0 --configfile configs/test.yaml"
EMPTY, CHECKOUT = "empty", "checkout"
PROMISED = {  # extra -> where, and what is run there; without an extra what the library alone does
    "": (EMPTY, [f"fa-audit train dfa a.safetensors {SMALL} --data synthetic_teacher",
                 f"fa-audit train dfa+frozen b.safetensors {SMALL} --data synthetic_teacher",
                 "fa-audit audit a.safetensors --frozen b.json", "fa-audit check dfa", "fa-audit list",
                 "fa-audit describe my_net:make --image-shape 8",
                 "fa-audit audit my_net:make --data my_net:batches --accuracy 0.4 --frozen 0.3 --directions 2"]),
    "datasets": (EMPTY, [f"fa-audit train dfa a.safetensors {SMALL} --data digits",
                         "fa-audit describe torchvision.models:resnet18 --image-shape 3 64 64"]),
    "plots": (EMPTY, ["fa-audit report mine.json", "fa-audit draw mine.json",
                      "fa-audit board mine.json --output board", "fa-audit scorecard", "fa-audit draw"]),
    "report": (EMPTY, ["fa-audit report --html mine.json"]),
    "workflow": (CHECKOUT, [f"snakemake{OPTIONS}", f"snakemake results/report.html{OPTIONS}",
                            f"snakemake --report report.zip{OPTIONS}"]),
    "completion": (EMPTY, ["register-python-argcomplete fa-audit"]),
    "lightning": (EMPTY, ["python lightning_section.py"]),
    "transformers": (EMPTY, ["python transformers_section.py"]),
    "docs": (CHECKOUT, ["mkdocs build --quiet --strict"]),
    "slurm": (CHECKOUT, [f"snakemake -n --workflow-profile profiles/slurm{OPTIONS}"]),
    "dev": (CHECKOUT, ["ruff check src tests", "mypy", "snakefmt --check Snakefile rules",
                       "python -m pytest tests/test_rooms.py tests/test_pins.py"]),
}  # fmt: skip
SECTIONS = {
    "lightning_section.py": "In Lightning",
    "transformers_section.py": "In Hugging Face's Trainer",
}
BEFORE = """
import torch
from fa_audit import Description
TRAINING, blocks = 64, Description("*", "all features")
inputs, labels = torch.randn(96, 8), torch.arange(96) % 4
test_batches = [(inputs[TRAINING:], labels[TRAINING:])]
def ResidualMLP():
    return torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(4)))
def local_losses(net, x, y):
    return torch.nn.functional.cross_entropy(net(x), y)
"""
MY_NET = """
import json
import torch
from fa_audit import Description, diagnose
batches = [(torch.randn(16, 8), torch.arange(16) % 4) for _ in range(8)]
def make():
    return torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(4)))
if __name__ == "__main__":
    blocks = Description(("1", "2", "3"), "all features")
    report = diagnose(make(), batches, 0.4, 0.3, "mine", description=blocks, directions=2)
    json.dump(report.to_dict(), open("mine.json", "w"))
"""


def run(environment, folder, line):
    """Run a command of an environment in a folder; neither is of the checkout that is tested."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "SNAKEMAKE"))
    }
    path = f"{environment}/bin:/usr/local/bin:/usr/bin:/bin"
    program, *words = line.split()
    done = subprocess.run([f"{environment}/bin/{program}", *words], cwd=folder, text=True,
                          env=clean | {"PATH": path, "NO_MKDOCS_2_WARNING": "1"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    assert done.returncode == 0, f"{line}: {done.stdout[-3000:]}"


def code_of(section):
    """The Python of a section of docs/monitor.md; what it has from earlier ones is in `BEFORE`."""
    text = (ROOT / "docs/monitor.md").read_text(encoding="utf-8").partition(f"\n## {section}\n")[2]
    return "".join(re.findall(r"```python\n(.*?)```", text.partition("\n## ")[0], re.DOTALL))


def site(environment):
    return next(Path(environment).glob("lib/python*/site-packages"))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources") / "fa-audit"
    folder.mkdir()
    for name in (*PARTS, *MORE):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def library(checkout, tmp_path_factory):
    """The environment of the library without extras, and an audit that it made."""
    folder = tmp_path_factory.mktemp("library")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    run(folder, checkout, f"python -m pip install -q -c constraints.txt {checkout}")
    (folder / "my_net.py").write_text(MY_NET, encoding="utf-8")
    run(folder, folder, "python my_net.py")
    return folder


@pytest.mark.extras
@pytest.mark.parametrize("extra", PROMISED)
def test_after_its_installation_every_documented_command_runs(checkout, library, tmp_path, extra):
    environment, folder = tmp_path / "environment", tmp_path / "empty"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    shutil.copytree(site(library), site(environment), copy_function=os.link, dirs_exist_ok=True)
    where, lines = PROMISED[extra]
    wanted = f"{'-e ' * (where == CHECKOUT)}{checkout}{f'[{extra}]' * bool(extra)}"  # a workflow uses its own library
    run(environment, checkout, f"python -m pip install -q -c constraints.txt {wanted}")
    folder.mkdir()
    for name in ("mine.json", "my_net.py"):
        shutil.copyfile(library / name, folder / name)
    for name, section in SECTIONS.items():
        (folder / name).write_text(BEFORE + code_of(section), encoding="utf-8")
    for line in lines:
        run(environment, {EMPTY: folder, CHECKOUT: checkout}[where], line)
    shutil.rmtree(tmp_path)
