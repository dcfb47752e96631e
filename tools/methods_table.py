"""Tables of docs/methods.md, from the registry and from benchmarks/methods.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fa_audit.methods import METHODS
from fa_audit.methods.info import INFO
from fa_audit.methods.method import load_method

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs/methods.md"
MEASURED = ROOT / "benchmarks/methods.json"


def methods_table() -> str:
    """Return a Markdown table of the methods: credit, feedback, source and time per step."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))["methods"]
    times = {name: f"{row['relative_to_bp']:.1f}" for name, row in measured.items()}
    rows = [
        [f"`{name}`", f"`{m.equation}`", m.feedback, m.source, times.get(name, "–")]  # noqa: RUF001 the en dash is meant
        for name, m in INFO.items()
    ]
    header = ["method", "credit", "feedback", "source", "time per step / BP's"]
    return markdown(header, rows)


def constants_table() -> str:
    """Return a Markdown table of the methods' constants with their defaults."""
    rows = []
    for name in METHODS:
        constants = vars(load_method(name)).items()
        if constants:
            rows.append([f"`{name}`", ", ".join(f"{key} = {value}" for key, value in constants)])
    return markdown(["method", "constants"], rows)


def markdown(header: list[str], rows: Iterable[list[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows])


def filled(text: str, tables: Mapping[str, str], path: Path) -> str:
    """Return a document's text with the tables between their markers replaced."""
    for name, table in tables.items():
        begin, end = f"<!-- table: {name} -->\n", "<!-- end -->"
        new = begin + table.rstrip("\n") + "\n" + end
        text, count = re.subn(
            f"{re.escape(begin)}.*?{end}", lambda _, new=new: new, text, flags=re.DOTALL
        )
        if count != 1:
            raise SystemExit(f"{path}: found {count} places for the table '{name}'; expected one.")
    return text


def made() -> Iterator[tuple[Path, str]]:
    """Yield the path of docs/methods.md and its text with new tables."""
    tables = {"methods": methods_table(), "constants": constants_table()}
    yield DOCUMENT, filled(DOCUMENT.read_text(encoding="utf-8"), tables, DOCUMENT)
