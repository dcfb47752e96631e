"""README.md: one screen, whose commands exist and whose numbers are measured; links of all documents lead somewhere.

What its code prints, the reproduced share and the hours are held by tools/readme.py (tests/test_documents.py), what it
says of the demo by tests/test_demo.py.
"""

import re
import tomllib
from itertools import chain
from pathlib import Path
from statistics import mean

import pandas as pd
import pytest
import yaml
from projects import ROOT, copy_sources, planned

from fa_audit.cli import _parsed
from fa_audit.core.thresholds import DiagnosticThresholds

README = (ROOT / "README.md").read_text(encoding="utf-8")
FLAT = " ".join(README.split())
FENCES = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = [line for language, block in FENCES if not language for line in block.splitlines()]
QUOTED = re.findall(r"`((?:snakemake|fa-audit|make) [^`]+)`", README)
IGNORED = {".venv", "site", "results", "data", ".snakemake", ".pytest_cache", ".hypothesis", "build"}


def documents() -> list[Path]:
    """Markdown files of the repository."""
    return [
        path
        for path in chain(ROOT.glob("*.md"), ROOT.glob("docs/**/*.md"), ROOT.glob("reference/**/*.md"))
        if not IGNORED & set(path.relative_to(ROOT).parts)
    ] + [ROOT / "results/README.md"]


def test_it_has_at_most_900_words_and_both_commands():
    assert len(README.split()) <= 900
    assert {"make demo", "make test"} <= set(COMMANDS)


@pytest.mark.parametrize("command", sorted({*COMMANDS, *QUOTED}))
def test_its_commands_exist(command, tmp_path):
    name, *arguments = command.split()
    if name == "make":
        assert re.search(rf"^{arguments[0]}: .*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif name == "fa-audit":
        assert _parsed(arguments).command
    elif name == "snakemake":
        wanted = ["results/figures/trajectories.pdf" if "NAME" in word else word for word in arguments]
        targets = [word for word in wanted if word.startswith("results/")]
        assert "train_network" in planned(copy_sources(tmp_path / "project"), *targets, config=None)
    elif name == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert set(re.search(r"\[(.*)\]", command)[1].split(",")) <= set(extras)
    else:
        assert command in ("cd examples", ". .venv/bin/activate")


def test_what_it_says_of_cifar_is_measured():
    runs = pd.read_csv(ROOT / "reference/measured/main_audit/runs.csv")
    dfa = runs[runs["run"] == "dfa"]
    (accuracy,), (points,) = re.findall(r"(\d+) % accuracy", FLAT), re.findall(r"blocks is (\w+) points better", FLAT)
    assert len(dfa) == 3 and f"{100 * mean(dfa['accuracy']):.0f}" == accuracy
    assert points == "five" and 5 < 100 * mean(dfa["own_frozen_acc"] - dfa["accuracy"]) < 6
    assert "more than a thousandfold in one block" in FLAT and min(dfa["max_growth"]) > 1000
    assert "the reference gradient has vanished" in FLAT and dfa["reference_fires"].all()


def test_its_checks_have_the_limits_of_the_code():
    limits = DiagnosticThresholds().limits
    stated = re.findall(r"\| (?:growth in a block|median norm|cosine of batches|margin) [<>] ([\d.e-]+)", README)
    names = ("growth", "reference", "stability", "depth_margin")
    assert [float(value) for value in stated] == [
        limits[name] * (100 if name == "depth_margin" else 1) for name in names
    ]


def test_the_figures_and_tables_that_documents_name_are_those_of_the_configuration():
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    menu = re.search(r"## Figures\n(.*?)\n## ", README, re.DOTALL)[1]
    named = set(re.findall(r"`([a-z_0-9]+)`", menu))
    assert named <= {*config["figures"], "scorecard"} and len(named) > 10
    workflow = (ROOT / "docs/workflow.md").read_text()
    assert set(re.findall(r"results/figures/(\w+)\.pdf", workflow)) <= set(config["figures"])
    assert set(re.findall(r"results/tables/(\w+)\.\w+", workflow)) <= set(config["tables"])


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", plain, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(path):
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", text):
        there = (path.parent / target) if target else path
        assert there.exists(), target
        assert not anchor or anchor in anchors(there.read_text(encoding="utf-8")), f"{target}#{anchor}"


def test_every_document_is_tracked_by_the_site_s_navigation():
    """mkdocs is strict about it, but is not installed everywhere."""
    navigation = (ROOT / "mkdocs.yml").read_text()
    left_out = [
        path.name
        for folder in ("docs", "docs/api")
        for path in (ROOT / folder).glob("*.md")
        if path.relative_to(ROOT / "docs").as_posix() not in navigation
    ]
    assert left_out == []
