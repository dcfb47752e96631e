"""README.md: one screen, whose commands exist and whose numbers are measured; links of all
documents lead somewhere.

What its code prints, the reproduced share and the hours are held by tools/readme.py
(tests/test_documents.py), what it says of the demo by tests/test_demo.py.
"""

import re
import shlex
from itertools import chain
from pathlib import Path

import pytest
import yaml
from projects import ROOT
from snakemake.cli import parse_args

from fa_audit.cli import _parser
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.results.tidy import read_tidy

README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
FLAT = " ".join(README.split())
QUOTED = re.findall(r"`((?:snakemake|fa-audit|make) [^`]+)`", README)


def fences_of(text: str) -> list[tuple[str, str]]:
    """The language and the content of every block of code."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


COMMANDS = "".join(block for language, block in fences_of(README) if not language).splitlines()
ASKED = " ".join([*COMMANDS, *QUOTED]).replace("NAME", "trajectories")
TARGETS = re.findall(r"results/\S+", ASKED)  # of Snakemake


def documents() -> list[Path]:
    """Markdown files of the repository."""
    patterns = ("*.md", "docs/**/*.md", "reference/**/*.md", "results/README.md")
    return list(chain.from_iterable(map(ROOT.glob, patterns)))


def test_its_text_has_at_most_900_words_and_it_has_both_commands():
    assert len(re.sub(r"```.*?```", "", README, flags=re.DOTALL).split()) <= 900
    assert {"make demo", "make test"} <= set(COMMANDS)


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_commands_of_documents_are_understood(path, monkeypatch, capsys):
    """By the parsers of make, fa-audit and Snakemake, but for what needs its plugin for Slurm."""
    monkeypatch.chdir(ROOT)
    lines = QUOTED if path.name == "README.md" and path.parent == ROOT else []
    for language, block in fences_of(path.read_text(encoding="utf-8")):
        if language in ("", "bash", "sh"):
            lines = [*lines, *block.splitlines()]
    for line in lines:
        name, *arguments = shlex.split(line, comments=True) or [""]
        if name == "make":
            assert re.search(rf"^{arguments[0]}:", MAKEFILE, re.MULTILINE), line
        elif name == "fa-audit":
            assert _parser().parse_args(arguments).command
        elif name == "snakemake" and "profiles/slurm" not in arguments:
            assert parse_args(arguments), line
        for word in arguments:
            if word.startswith(("configs/", "profiles/", "benchmarks/", "examples/")):
                assert (ROOT / word).exists(), line


def test_what_github_runs_exists():
    steps = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["ci"]["steps"]
    runs = {step["run"].removeprefix("make ") for step in steps if "run" in step}
    targets = set(re.findall(r"^([a-z-]+):.*##", MAKEFILE, re.MULTILINE))
    assert runs == {"lint", "test", "test-slow", "docs", "demo"} <= targets


def test_what_it_and_other_documents_say_of_cifar_is_measured():
    runs = read_tidy([ROOT / "reference/measured/main_audit/audits.json"]).runs
    dfa = runs[runs["run"] == "dfa"].mean(numeric_only=True)
    accuracy, frozen = (f"{100 * value:.0f} %" for value in (dfa.accuracy, dfa.own_frozen_acc))
    assert f"{accuracy} accuracy" in FLAT and "blocks is nearly six points better" in FLAT
    assert 0.055 < dfa["own_frozen_acc"] - dfa["accuracy"] < 0.06
    assert (
        "more than a thousandfold in one block" in FLAT
        and runs[runs["run"] == "dfa"]["max_growth"].min() > 1000
    )
    assert "the gradient vanishes" in FLAT and runs[runs["run"] == "dfa"]["reference_fires"].all()
    questions = " ".join((ROOT / "docs/auditing.md").read_text().split())
    assert f"reach {frozen} on CIFAR-10" in questions and f"DFA's {accuracy} are" in questions


def test_it_shows_the_forward_pass_of_the_network_that_it_audits():
    shown = re.search(r"```py\n(.*?)```", README, re.DOTALL)[1]
    assert shown in (ROOT / "examples/my_network.py").read_text()


def test_its_checks_have_the_limits_of_the_code():
    limits = DiagnosticThresholds().limits
    stated = re.findall(
        r"\| (?:growth in a block|median norm|cosine of batches|margin) [<>] ([\d.e-]+)", README
    )
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
    assert set(re.findall(r"results/figures/([a-z_0-9]+)\.pdf", workflow)) <= set(config["figures"])
    assert set(re.findall(r"results/tables/(\w+)\.\w+", workflow)) <= set(config["tables"])


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", plain, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(path):
    text = re.sub(
        r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", text):
        there = (path.parent / target) if target else path
        assert there.exists(), target
        assert not anchor or anchor in anchors(there.read_text(encoding="utf-8")), (
            f"{target}#{anchor}"
        )
