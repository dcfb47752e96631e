"""Every command of the documents, as it is written, on the results of a workflow and a terminal of
ASCII.

Snakemake's are dry runs. What parsers make of the others is in tests/test_readme.py.
"""

import re
import shlex
import shutil
from glob import glob

import pytest
from forks import SNAKEMAKE, Server
from projects import ROOT
from test_readme import documents, fences_of

LEFT_OUT = {  # what is in a command -> why it is not run here
    "fa-audit train": "trains for minutes (tests/test_cli.py)",
    "fa-audit draw --configfile": "draws for a minute (tests/test_board.py)",
    "--output board": "draws for half a minute (tests/test_board.py)",
    "--workflow-profile": "asks for Slurm or for a GPU (tests/test_profiles.py, tests/test_slurm.py)",
    "growth_accuracy.pdf": "asks for code of the document (tests/test_extending.py)",
}
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
NETWORK = "results/{}/resmlp/dfa{}/seed1.{}".format
YOURS = {  # what a reader has under the names of the documents
    "my/seed1.json": NETWORK("audits", "", "json"),
    "my_audit.json": NETWORK("audits", "", "json"),
    "my/dfa.safetensors": NETWORK("checkpoints", "", "safetensors"),
    "my/dfa.json": NETWORK("checkpoints", "", "json"),
    "my/dfa.csv": NETWORK("trajectories", "", "csv"),
    "my/frozen.json": NETWORK("checkpoints", "+frozen", "json"),
    **dict.fromkeys(("grid.yaml", "my_models.yaml"), "tiny.yaml"),
}


MY_FILE = """import torch
from torch import nn
batches = [(torch.randn(16, 20), torch.arange(16) % 5) for _ in range(8)]
def make_model():
    inner = [layer for _ in range(3) for layer in (nn.Linear(16, 16), nn.Tanh())]
    return nn.Sequential(nn.Linear(20, 16), nn.Tanh(), *inner, nn.Linear(16, 5))
def credits(model, x, y, states):
    return [h + 1 for h in states[1:]]
"""

ALIKE = r" (-n|--cores \S+|--resources \S+|--list-target-rules)(?= |$)"  # the same plan


def commands():
    """The commands of all documents that are run here, each once."""
    lines = {
        re.sub(ALIKE, "", line.partition(" #")[0].strip())
        for path in documents()
        for language, block in fences_of(path.read_text("utf-8"))
        if language in ("", "bash", "sh")
        for line in block.splitlines()
    }
    return sorted(
        line
        for line in lines
        if line.startswith(("fa-audit", "snakemake")) and not any(word in line for word in LEFT_OUT)
    )


@pytest.fixture(scope="module")
def project(everything, tmp_path_factory):
    folder = shutil.copytree(everything, tmp_path_factory.mktemp("documented") / "project")
    shutil.copyfile(ROOT / "reference/published.yaml", folder / "reference/published.yaml")
    (folder / "my").mkdir()
    (folder / "my_file.py").write_text(MY_FILE, encoding="utf-8")
    for name, result in YOURS.items():
        shutil.copyfile(folder / result, folder / name)
    return folder


@pytest.fixture(scope="module")
def servers():
    with (
        Server("fa_audit.cli", "pandas", "torch", **ASCII) as ours,
        Server("snakemake.cli", *SNAKEMAKE, **ASCII) as theirs,
    ):
        yield {"fa-audit": ours, "snakemake": theirs}


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_documents_does_what_they_say(project, servers, command):
    program, *words = shlex.split(command.replace("audits/demo/", "audits/resmlp/"))
    words = [path for word in words for path in sorted(glob(word, root_dir=project)) or [word]]
    outcome = servers[program].run(project, *words, *(["-n"] if program == "snakemake" else []))
    assert outcome.status == 0 and "Traceback" not in outcome.said, outcome.said
