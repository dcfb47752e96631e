"""Numbers, tables and figures of docs/reproduction.md, findings.md and board.md, from
reference/.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from methods_table import ROOT, filled, markdown
from PIL import Image

from fa_audit.cli import main as fa_audit
from fa_audit.core.files import sha256_of
from fa_audit.documents.formats import escape_markdown
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.costs import read_costs
from fa_audit.experiments.paths import ENDINGS, RunKey
from fa_audit.experiments.plan import hours_text
from fa_audit.experiments.published import FILE, read_published_file
from fa_audit.experiments.read_grid import read_grid
from fa_audit.results.artefacts import KINDS, artefacts_from
from fa_audit.results.figures.scorecard_figure import draw
from fa_audit.results.figures.style import save
from fa_audit.results.judging import NOT_RUN
from fa_audit.results.scorecard import counted
from fa_audit.results.scorecard_texts import mean_text, our_text
from fa_audit.results.tidy import read_table

MEASURED = Path("reference/measured")  # relative to the root, as figures record it
DOCUMENTS = {  # document -> configuration and audits
    "reproduction": ("configs/measured.yaml", MEASURED),
    "findings": ("configs/findings.yaml", MEASURED),
    "board": ("configs/board.yaml", Path("reference/field")),
}
SECTIONS = {"claims": "The paper's claims", "differences": "Different, and why"}
SAMPLES = (128, 1024, 2048)  # the counts in samples.csv that the table shows
OF_RUN, STATES, RHO = ["setting", "run", "n", "accuracy (%)"], r"log10 \|\|h\_L\|\|", "deep rho"
MARGIN, GROWTH, TOTAL = (
    "margin over own frozen (points)",
    "log10 max growth",
    r"log10 \|\|h\_L\|\| / \|\|h\_0\|\|",
)
COLUMNS = {  # table of docs/findings.md -> the columns that the answer needs
    "float32_rho": ["setting", "run", "n", STATES, RHO, "deep rho, float32"],
    "floor": [*OF_RUN, MARGIN, GROWTH],
    "cumulative_growth": ["setting", "run", "n", GROWTH, TOTAL, "three-check"],
    "embedding": [*OF_RUN, MARGIN, STATES],
    "explosion": [*OF_RUN, MARGIN, GROWTH],
    "explosion_optimisers": [*OF_RUN, MARGIN, GROWTH],
    "earlier_script": [*OF_RUN, GROWTH, STATES],
    "without_skips": [*OF_RUN, MARGIN, STATES],
}
MARK = re.compile(r"<!-- table: (\S+) -->")


def make(name: str, folder: Path) -> dict[str, str]:
    """Write a document's tables and figures to a folder; for the reproduction also the scorecard.

    Returns:
        A link to every picture, by its file's name.
    """
    links = {}
    source, tidy = DOCUMENTS[name]
    config, line_of = load_config(ROOT / source)
    grid = read_grid(config, KINDS, line_of)
    for artefact, problem in artefacts_from(config, grid, tidy, folder):
        if problem:
            raise SystemExit(f"{artefact}: {problem}")
        section, _, key = artefact.partition("/")
        if section == "figures":
            title = config["figures"][key]["title"]
            links[f"{key}.png"] = f"![{title}]({name}/{key}.png)\n"
    if name == "reproduction":
        with contextlib.redirect_stdout(io.StringIO()):
            fa_audit(["scorecard", "--from", str(MEASURED), "--output", str(folder)])
        rows = folder / "scorecard.csv"
        picture = draw(read_table(rows), title="Scorecard")
        save(picture, folder / "figures/scorecard.png", f"scorecard.csv {sha256_of(rows)}")
    return links


def texts(name: str, folder: Path, links: dict[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield the path and the new text of a document, and of the tables and CSV that it links to."""
    document = ROOT / f"docs/{name}.md"
    text = document.read_text(encoding="utf-8")
    shown = dict(links)
    for path in folder.glob("tables/*.md"):
        table = path.read_text(encoding="utf-8")
        shown[path.stem] = chosen(path.stem, _rows(table))
        if f"]({name}/{path.name})" in text:
            yield ROOT / f"docs/{name}/{path.name}", table
    if name == "findings":
        shown["samples"] = by_samples()
    if name == "reproduction":
        shown |= from_scorecard(folder)
        rows = (folder / "scorecard.csv").read_text(encoding="utf-8")
        yield ROOT / "docs/reproduction/scorecard.csv", rows
    yield document, filled(text, {table: shown[table] for table in MARK.findall(text)}, document)


def from_scorecard(folder: Path) -> dict[str, str]:
    """Return the scorecard's headline, claims, differences and scripts, and what was not run, as
    Markdown.
    """
    text = (folder / "scorecard.md").read_text(encoding="utf-8")
    rows = read_table(folder / "scorecard.csv")
    headline, _, released, *_ = text.splitlines()
    found = {"sum": f"**{headline}** {released}", "scripts": scripts(rows)}
    for name, begin in SECTIONS.items():
        found[name] = _rows(text.partition(f"\n## {begin}")[2].partition("\n## ")[0])
    rows = counted(rows)
    return found | {"not_run": not_run(rows[rows["verdict"] == NOT_RUN])}


def not_run(rows: pd.DataFrame) -> str:
    """Return a Markdown table: the numbers and runs that each setting lacks, and the hours of a CPU
    core that one training of each of these runs takes.
    """
    published, costs = read_published_file(ROOT / FILE), read_costs(ROOT / "benchmarks/costs.json")
    runs_of = {(entry.setting, entry.whose): entry.all_runs for entry in published.entries}
    table = []
    for setting, labels in rows.groupby("setting", sort=False)["run"]:
        experiment = published.experiments[published.settings[setting].script]
        found = {}
        for label in labels:
            for run in runs_of[setting, label]:
                spec = experiment.spec(RunKey(setting, run, 42))
                found[run] = costs.training_hours(spec, "cpu")
        missing = ", ".join(dict.fromkeys(labels))
        table.append([setting, str(len(labels)), missing, hours_text([*found.values()])])
    return markdown(["setting", "published numbers", "missing runs", "hours to train"], table)


def scripts(rows: pd.DataFrame) -> str:
    """Return a Markdown table: the script assumed for each setting, the reason, and the number that
    tells scripts apart.
    """
    deciding = rows[rows["decides"].notna()].set_index("setting")
    table = []
    for name, setting in read_published_file(ROOT / FILE).settings.items():
        cells = [name, setting.script, setting.reason]
        if name in deciding.index:
            row = deciding.loc[name]
            # These columns also hold verdicts, so the file has their numbers as texts.
            row = {**row, "reproduced": float(row["reproduced"])}
            value = float(row["published"])
            published = mean_text(value, row["published_deviation"], row["published_n"])
            ours = f"{our_text(row)}, {row['verdict']}" if row["n"] else ""
            cells += [f"{row['quantity']} of {row['run']}", published, ours, row["other_scripts"]]
            cells += [row["decides"]]
        table.append([escape_markdown(cell) for cell in [*cells, *[""] * (8 - len(cells))]])
    heads = ["setting", "script", "reason", "number", "published", "ours"]
    return markdown([*heads, "by the other script", "decides"], table)


def by_samples() -> str:
    """Return the reference gradient and D2 by run and number of samples, as Markdown."""
    table = read_table(MEASURED / "samples.csv")
    table["run"] = table["setting"] + " " + table["run"]
    table = table[table["samples"].isin(SAMPLES)]
    rows = []
    for (run, samples), group in table.groupby(["run", "samples"], sort=False):
        cells = [run, str(samples), f"{np.log10(group['grad_norm_last']).median():.2f}"]
        for column in ("fires_at_published_floor", "fires"):
            cells.append(f"{group[column].sum()}/{len(group)}")
        rows.append(cells)
    heads = ["run", "samples", r"log10 \|\|g\_L\|\|"]
    return markdown([*heads, "D2 fires, floor 1e-7", "D2 fires, scaled floor"], rows)


def chosen(name: str, text: str) -> str:
    """Return a Markdown table with only the `COLUMNS` that docs/findings.md shows."""
    if name not in COLUMNS:
        return text
    kept, lines = [], ""
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|\n").split(" | ")]
        kept = kept or [index for index, head in enumerate(cells) if head in COLUMNS[name]]
        lines += f"| {' | '.join(cells[index] for index in kept)} |\n"
    return lines


def _rows(text: str) -> str:
    """Return the rows of a Markdown table without its caption."""
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith("|"))


def made() -> Iterator[tuple[Path, str | bytes]]:
    """Yield the documents, the tables and CSV that they link to, and their figures."""
    sys.path.append(str(ROOT))  # configs/findings.yaml names tables of this folder
    ENDINGS.update(figures=("png",), tables=("md",))  # the documents show no other formats
    with contextlib.chdir(ROOT):
        for name in DOCUMENTS:
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                links = make(name, folder)
                yield from texts(name, folder, links)
                for figure in sorted(folder.glob("figures/*.png")):
                    yield ROOT / "docs" / name / figure.name, figure.read_bytes()


def alike(old: bytes, new: bytes) -> bool:
    """Return whether two texts are equal, or two pictures have the same inputs and nearly the same
    pixels, whatever machine and commit made them.
    """
    if not new.startswith(b"\x89PNG"):
        return old == new
    before, inputs = _seen(Image.open(io.BytesIO(old)))
    after, now = _seen(Image.open(io.BytesIO(new)))
    if inputs != now or before.shape != after.shape:
        return False
    return bool((abs(before - after) > 32).mean() < 1e-4)


def _seen(picture: Image.Image) -> tuple[np.ndarray, str]:
    """Return a picture's levels of grey, 0 to 255, and the digests of what it was drawn from."""
    grey = np.asarray(picture.convert("L"), dtype=int)
    return grey, re.sub(r"^commit [^;]*; ", "", picture.info["Comment"])
