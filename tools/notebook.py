"""docs/tutorial.ipynb: docs/tutorial.md as a notebook that was run from top to bottom.

Machines round differently, so a check ignores printed numbers and the content of pictures.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
from methods_table import ROOT
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from readme import CODE, NUMBER

SOURCE, NOTEBOOK = ROOT / "docs/tutorial.md", ROOT / "docs/tutorial.ipynb"
SETUP = 'import sys\n\nsys.path.insert(0, "../examples")  # where my_network.py is'
PICTURE = re.compile(r"!\[.*?\]\(.*?\)\n")  # left out: the notebook shows what its code draws
HERE = re.compile(r"This page is also a \[notebook\].*?\n\n", re.DOTALL)


def cells(text: str) -> Iterator[NotebookNode]:
    """Yield the document's text and code as cells, without what its code prints and draws."""
    end, text = 0, HERE.sub("", text)
    yield new_code_cell(SETUP)
    for match in CODE.finditer(text):
        yield new_markdown_cell(PICTURE.sub("", text[end : match.start()]).strip())
        yield new_code_cell(match["code"].strip())
        end = match.end()
    yield new_markdown_cell(text[end:].strip())


def executed(text: str) -> NotebookNode:
    """Return the notebook of a document, run in a temporary folder that links to the examples."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = new_notebook(cells=list(cells(text)), metadata={"kernelspec": kernel})
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        (Path(folder) / "docs").mkdir()
        where = {"metadata": {"path": f"{folder}/docs"}}
        NotebookClient(notebook, timeout=600, record_timing=False, resources=where).execute()
    notebook.metadata.pop("language_info", None)  # the version of this machine's Python
    for cell in notebook.cells:
        if cell.cell_type == "code":  # drop progress bars: they show this machine's speed
            cell.outputs = [found for found in cell.outputs if found.get("name") != "stderr"]
    return notebook


def said(notebook: NotebookNode) -> list[object]:
    """Return every cell's source, the words that it printed, and how many pictures it has."""
    outputs = [cell.get("outputs", []) for cell in notebook.cells]
    printed = [
        NUMBER.sub("0", "".join(found.get("text", "") for found in each)).split()
        for each in outputs
    ]
    drawn = [sum("image/png" in found.get("data", {}) for found in each) for each in outputs]
    return list(zip((cell.source for cell in notebook.cells), printed, drawn))


def made() -> Iterator[tuple[Path, str]]:
    """Yield the path of docs/tutorial.ipynb and its new content."""
    os.environ["OMP_NUM_THREADS"] = "1"  # for the kernel: threads slow small tensors down
    yield NOTEBOOK, nbformat.writes(executed(SOURCE.read_text(encoding="utf-8"))) + "\n"


def alike(old: bytes, new: bytes) -> bool:
    """Return whether two notebooks have the same source, printed words and count of pictures."""
    one, other = (said(nbformat.reads(text.decode(), as_version=4)) for text in (old, new))
    return one == other
