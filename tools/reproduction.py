"""Make what docs/reproduction.md, docs/findings.md and docs/leaderboard.md show from the tidy tables in reference/.

python tools/reproduction.py [--check]
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from methods_table import ROOT, filled, markdown

from fa_audit.cli import main as fa_audit
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.grid import Grid
from fa_audit.experiments.read_grid import read_grid
from fa_audit.experiments.spec import parse_run
from fa_audit.methods import METHODS
from fa_audit.results.artefacts import artefacts_from
from fa_audit.results.figures.scorecard_figure import draw
from fa_audit.results.figures.style import save
from fa_audit.results.judging import NOT_RUN
from fa_audit.results.kinds import KINDS
from fa_audit.results.scorecard import counted
from fa_audit.results.tidy import read_table

MEASURED = ROOT / "reference/measured"
DOCUMENTS = {  # document -> configurations, their tidy tables, and how the names of what they make begin
    "reproduction": [("configs/measured.yaml", MEASURED, "")],
    "findings": [("configs/findings.yaml", MEASURED, "")],
    "leaderboard": [
        ("configs/field_digits.yaml", ROOT / "reference/field", ""),
        ("config.yaml", ROOT / "reference/field_cifar10", "field"),
    ],
}
SECTIONS = (("claims", "The paper's claims"), ("misses", "Missed, and why"), ("scripts", "Which script made"))
SAMPLES = (128, 1024, 2048)  # shown of those in samples.csv
OF_RUN, STATES, RHO = ["setting", "run", "accuracy (%)"], r"log10 \|\|h\_L\|\|", "deep rho"
MARGIN, GROWTH, TOTAL = "margin over own frozen (points)", "log10 max growth", r"log10 \|\|h\_L\|\| / \|\|h\_0\|\|"
COLUMNS = {  # of docs/findings.md: those that the answer needs
    "float32_rho": ["setting", "run", STATES, RHO, "deep rho, float32"],
    "floor": [*OF_RUN, MARGIN, GROWTH],
    "cumulative_growth": ["setting", "run", GROWTH, TOTAL, "three-check"],
    "embedding": [*OF_RUN, MARGIN, STATES],
    "explosion": [*OF_RUN, MARGIN, GROWTH],
    "explosion_optimisers": [*OF_RUN, MARGIN, GROWTH],
    "earlier_script": [*OF_RUN, GROWTH, STATES],
    "without_skips": [*OF_RUN, MARGIN, STATES],
}
MARK = re.compile(r"<!-- table: (\S+) -->")


def make(name: str, folder: Path, *, figures: bool) -> dict[str, str]:
    """Write a document's tables, its figures if asked for, and the scorecard beside those of the reproduction.

    Returns:
        Parts of the document by name: what stands in place of a table whose settings were not run, pictures
        (`NAME.png`), and `coverage`.
    """
    parts = {}
    for source, tidy, prefix in DOCUMENTS[name]:
        config, line_of = load_config(ROOT / source)
        for section in ("figures", "tables"):
            config[section] = {key: entry for key, entry in config.get(section, {}).items() if key.startswith(prefix)}
        grid = read_grid(config, KINDS, line_of)
        pictures = config["figures"]
        config |= {} if figures else {"figures": {}}
        for artefact, problem in artefacts_from(config, grid, tidy, folder):
            section, _, key = artefact.partition("/")
            if absent := _absent(config[section][key], grid, tidy):
                parts[key] = absent
            elif problem:
                raise SystemExit(f"{artefact}: {problem}")
        for key, entry in pictures.items():
            parts[f"{key}.png"] = _absent(entry, grid, tidy) or f"![{entry['title']}]({name}/{key}.png)\n"
        if prefix:
            parts["coverage"] = coverage(config["labels"], grid, tidy)
    if name == "reproduction":
        with contextlib.redirect_stdout(io.StringIO()):
            fa_audit(["scorecard", "--from", str(MEASURED), "--output", str(folder)])
        if figures:
            picture = draw(read_table(folder / "scorecard.csv"), title="Scorecard")
            save(picture, folder / "figures/scorecard.png", "reference/measured")
    return parts


def _absent(entry: Mapping[str, Any], grid: Grid, tidy: Path) -> str:
    """Say which settings of a figure or table were not run; empty if all were."""
    absent = [setting for setting in grid.named(entry["settings"]) if not (tidy / setting).exists()]
    return f"*Not run yet: {', '.join(absent)}.*\n" if absent else ""


def coverage(labels: Mapping[str, str], grid: Grid, tidy: Path) -> str:
    """Say which rules have how many seeds in `field`, which have none, and how long the longest training took."""
    setting, there = grid.settings["field"], (tidy / "field").exists()
    runs, work = (read_table(tidy / f"field/{table}.csv") if there else None for table in ("runs", "work"))
    seeds = {} if runs is None else runs.groupby("run")["seed"].nunique().to_dict()
    chosen = {parse_run(run).method: run for run in setting.runs}
    found: dict[str, list[str]] = {}
    for method in METHODS:
        count = seeds.get(chosen.get(method), 0)
        state = f"{count} of {len(setting.seeds)} seeds" if count else "not trained yet"
        found.setdefault(state if method in chosen else "not searched yet", []).append(labels.get(method, method))
    lines = [f"- {state}: {', '.join(names)}" for state, names in sorted(found.items(), reverse=True)]
    hours = [] if work is None else [f"- the longest training of a seed: {work['seconds'].max() / 3600:.1f} hours"]
    return "\n".join([*lines, *hours, ""])


def texts(name: str, folder: Path, made: dict[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield the path and the new text of a document, and of the tables that it links to."""
    document = ROOT / f"docs/{name}.md"
    text = document.read_text(encoding="utf-8")
    tables = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("tables/*.md")}
    parts = made | {table: chosen(table, _rows(text)) for table, text in tables.items()}
    if name == "findings":
        parts["samples"] = by_samples()
    if name == "reproduction":
        parts |= from_scorecard(folder)
        tables["scorecard"] = (folder / "scorecard.md").read_text(encoding="utf-8")
        yield ROOT / "docs/reproduction/scorecard.csv", (folder / "scorecard.csv").read_text(encoding="utf-8")
    pages = made | tables
    linked = (table for table in pages if f"]({name}/{table}.md)" in text)
    yield from ((ROOT / f"docs/{name}/{table}.md", pages[table]) for table in linked)
    yield document, filled(text, {table: parts[table] for table in MARK.findall(text)}, document)


def from_scorecard(folder: Path) -> dict[str, str]:
    """Return the scorecard's sum, claims, misses and scripts, and what was not run, as Markdown."""
    text, rows = (folder / "scorecard.md").read_text(encoding="utf-8"), counted(read_table(folder / "scorecard.csv"))
    absent = rows[rows["verdict"] == NOT_RUN].groupby("setting", sort=False)["run"]
    not_run = [[name, str(len(runs)), ", ".join(dict.fromkeys(runs))] for name, runs in absent]
    first, _, rest = text.splitlines()[0].partition(". ")
    parts = {part.partition("\n")[0]: part for part in text.split("\n## ")}
    named = {name: next(part for title, part in parts.items() if title.startswith(begin)) for name, begin in SECTIONS}
    return {
        "sum": f"**{first}.** {rest}",
        **{name: _rows(part) for name, part in named.items()},
        "not_run": markdown(["setting", "numbers", "runs"], not_run),
    }


def by_samples() -> str:
    """Return the reference gradient and D2 by run and number of samples, as Markdown."""
    table = read_table(MEASURED / "samples.csv")
    table["run"] = table["setting"] + " " + table["run"]
    rows = [
        [run, str(samples), f"{np.log10(group['grad_norm_last']).median():.2f}"]
        + [f"{group[column].sum()}/{len(group)}" for column in ("fires_at_published_floor", "fires")]
        for (run, samples), group in table[table["samples"].isin(SAMPLES)].groupby(["run", "samples"], sort=False)
    ]
    return markdown(["run", "samples", r"log10 \|\|g\_L\|\|", "D2 fires, floor 1e-7", "D2 fires, scaled floor"], rows)


def chosen(name: str, text: str) -> str:
    """Return the columns of a findings table that its answer needs."""
    lines = [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in text.splitlines()]
    kept = [index for index, head in enumerate(lines[0]) if head in COLUMNS.get(name, lines[0])]
    return "".join(f"| {' | '.join(line[index] for index in kept)} |\n" for line in lines)


def _rows(text: str) -> str:
    """Return the rows of a Markdown table without its caption."""
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith("|"))


def main() -> None:
    """Rewrite the documents; with --check exit with 1 if a text is stale instead."""
    check = "--check" in sys.argv[1:]
    sys.path.append(str(ROOT))  # kinds of tables of its own
    for name in DOCUMENTS:
        with tempfile.TemporaryDirectory() as temporary:
            made = make(name, folder := Path(temporary), figures=not check)
            found = dict(texts(name, folder, made))
            stale = [str(path) for path, text in found.items() if not path.exists() or path.read_text("utf-8") != text]
            if check and stale:
                raise SystemExit(f"stale: {', '.join(stale)}; run make reproduction")
            for path, text in {} if check else found.items():
                path.write_text(text, encoding="utf-8")
            for path in folder.glob("figures/*.png"):
                shutil.copy(path, ROOT / "docs" / name / path.name)


if __name__ == "__main__":
    main()
