"""Update the outputs of code in README.md, docs/tutorial.md and docs/monitor.md; the share of
reproduced numbers and the planned hours in README.md; the counts of verdicts in docs/protocol.md.

The `python` blocks of a document run in one namespace. A `python` block's output is in the `text`
block after it, up to the line `...` if there is one.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import math
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import matplotlib
from methods_table import ROOT, filled

from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.costs import read_costs
from fa_audit.experiments.plan import plan_table
from fa_audit.experiments.read_grid import read_grid
from fa_audit.results.artefacts import KINDS
from fa_audit.results.measured import read_measured

DOCUMENTS = (ROOT / "README.md", ROOT / "docs/tutorial.md", ROOT / "docs/monitor.md")
CODE = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<said>.*?)```)?", re.DOTALL)
PRINTED = re.compile(r"(?<=\n```text\n).*?(?=```)", re.DOTALL)
DIGEST = re.compile(r"p[0-9a-f]{10}")  # an id in an SVG file: a digest of numbers
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
PICTURES = ROOT / "docs/pictures"
LARGE = (
    "vit_mini_clipped",
    "bn_cnn_clipped",
)  # settings of the convolutional network and of the transformer


def rerun(text: str) -> str:
    """Return a document's text with what its code prints now; pictures go to the current folder."""
    scope: dict[str, object] = {}

    def block(match: re.Match[str]) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(match["code"], scope)
        if match["said"] is None:
            return match[0]
        lines, shown = out.getvalue().splitlines(), match["said"].splitlines()
        lines = [*lines[: len(shown) - 1], "..."] if shown[-1:] == ["..."] else lines
        return f"```python\n{match['code']}```\n\n```text\n" + "\n".join(lines) + "\n```"

    return CODE.sub(block, text)


def facts() -> dict[str, str]:
    """Return the headline of the scorecard, and the hours of the paper's grid."""
    page = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
    headline = page.partition("<!-- table: sum -->\n")[2].partition("\n<!-- end -->")[0]
    config, line_of = load_config(ROOT / "config.yaml")
    grid = read_grid(config, KINDS, line_of)
    networks, audits = grid.all_run_keys(), grid.run_keys("runs")
    costs = read_costs(ROOT / "benchmarks/costs.json")
    plan = plan_table(grid, costs, dict.fromkeys(networks, True), dict.fromkeys(audits, True))
    rows = re.findall(r"^(in all|\w+) .* ~?([\d.]+) +\S+$", plan, re.MULTILINE)
    cpu = {name: float(hours) for name, hours in rows}
    small = cpu["in all"] - sum(cpu[name] for name in LARGE)
    return {
        "sum": headline,
        "hours": f"On one CPU core the full grid takes about {cpu['in all']:,.0f} hours"
        f" ({small:,.0f} without BatchNorm CNN and ViT-Mini), `main_audit`"
        f" {cpu['main_audit']:.0f} hours.",
    }


def differing() -> str:
    """Return how many measured networks pass by three checks but not by four, and why."""
    runs = read_measured(ROOT / "reference/measured").runs
    passed = runs.loc[runs["three_check"] == "PASS", "four_check"].tolist()
    fires = {name: passed.count(f"needs walk-back ({name})") for name in ("D1", "C", "D1, C")}
    others = len(passed) - passed.count("trustworthy")
    return (
        f"Among the {len(passed)} [measured](reproduction.md) audits with the three-check verdict"
        f" `PASS`, {others} have the four-check verdict `needs walk-back`: {fires['C']} for C"
        f" alone, {fires['D1']} for D1 alone, {fires['D1, C']} for both."
    )


def made() -> Iterator[tuple[Path, str | bytes]]:
    """Yield the documents, and the pictures that their code draws."""
    sys.path.insert(0, str(ROOT / "examples"))
    # Pictures get the same date and the same ids every time.
    os.environ["SOURCE_DATE_EPOCH"] = "0"
    matplotlib.rcParams["svg.hashsalt"] = "fa-audit"
    my_network = importlib.import_module("my_network")
    my_network.train = functools.cache(my_network.train)  # both documents train the same
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("benchmarks").symlink_to(ROOT / "benchmarks")
        for document in DOCUMENTS:
            text = document.read_text(encoding="utf-8")
            if "<!-- table: sum -->" in text:
                text = filled(text, facts(), document)
            yield document, rerun(text)
        protocol = ROOT / "docs/protocol.md"
        yield protocol, filled(protocol.read_text("utf-8"), {"differing": differing()}, protocol)
        for picture in Path().glob("*.svg"):
            yield PICTURES / picture.name, picture.read_bytes()


def alike(old: bytes, new: bytes) -> bool:
    """Return whether two contents show the same. Numbers that code printed or drew may differ by
    25 % or by 1, since machines round differently.
    """
    before, now = (DIGEST.sub("", text.decode()) for text in (old, new))
    if not before.startswith("<?xml"):
        if PRINTED.sub("", before) != PRINTED.sub("", now):
            return False
        before, now = ("".join(PRINTED.findall(text)) for text in (before, now))
    numbers = zip(*(map(float, NUMBER.findall(text)) for text in (before, now)))
    same = NUMBER.sub("0", before).split() == NUMBER.sub("0", now).split()
    return same and all(math.isclose(*pair, rel_tol=0.25, abs_tol=1) for pair in numbers)
