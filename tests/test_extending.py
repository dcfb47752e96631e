"""docs/extending.md: its examples are short, and its project runs as it stands there."""

import json
import re
import shlex
import subprocess
import sys
from collections import Counter

import pandas as pd
import pytest
from projects import ROOT, copy_sources

DOCUMENT = (ROOT / "docs/extending.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(?:# |\.\. )?(.*?)\n(.*?)^```", DOCUMENT, flags=re.MULTILINE | re.DOTALL)
FILES = {place: text for kind, place, text in BLOCKS if kind != "bash" and ", in " not in place}
LINES = [(place, text) for kind, place, text in BLOCKS if kind == "python" and ", in " in place]
COMMAND = next(line for kind, line, _ in BLOCKS if kind == "bash")


def test_every_example_is_short():
    places = Counter(path.partition("/")[0] for path in FILES)
    assert places == {"mine.yaml": 1, "my_method.py": 1, "report": 2, "src": 4}
    assert all(text.count("\n") < 30 for text in FILES.values())
    assert len(LINES) == 5 and all(text.count("\n") == 1 for _, text in LINES)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A copy of the project with the document's files and lines, in which the document's command has been run."""
    folder = copy_sources(tmp_path_factory.mktemp("extending") / "project")
    for path, text in FILES.items():
        (folder / path).write_text(text)
    for place, line in LINES:
        path, registry = place.split(", in ")
        before = (folder / path).read_text()
        after = re.sub(rf"^{registry}: .*\{{\n", lambda found, line=line: found[0] + line, before, flags=re.MULTILINE)
        assert after != before
        (folder / path).write_text(after)
    arguments = [sys.executable, "-m", *shlex.split(COMMAND), "--resources", "gpu=0"]
    done = subprocess.run(arguments, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return folder


def test_the_method_is_trained_and_audited_in_the_network_on_the_data_set(finished):
    audit = json.loads((finished / "results/audits/mine/my_method:SignDFA/seed42.json").read_text())
    spec = audit["spec"]
    assert (spec["method"], spec["architecture"], spec["dataset"]) == ("my_method:SignDFA", "gated_mlp", "blobs")
    assert audit["verdict"]["baseline"] == "my_method:SignDFA+frozen" and audit["checks"]["depth"]["fires"] is not None
    assert len(audit["layers"]) == 3 and "blocks.1.gates.weight" in audit["feature_drift"]
    assert audit["headline_acc"] > 0.5 and (audit["samples"], audit["batches"]) == (128, 8)


def test_the_figure_and_the_table_show_the_run(finished):
    assert (finished / "results/figures/growth_accuracy.pdf").read_bytes().startswith(b"%PDF")
    runs = pd.read_csv(finished / "results/tidy/mine/runs.csv")
    values = pd.read_csv(finished / "results/tables/gradients.csv")
    assert values["max"].tolist() == pytest.approx(runs["grad_norm_last"].tolist())
    assert "| Sign DFA | 1 | " in (finished / "results/tables/gradients.md").read_text()
