"""Pictures of the library's rooms and of the workflow's rules, from the imports and from
Snakemake's own graph.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import mean

import networkx as nx
from methods_table import ROOT

PACKAGE = ROOT / "src/fa_audit"
FOLDER = ROOT / "docs/pictures"
ROW, HEIGHT, GAP, LETTER = 64, 34, 18, 8.2  # pixels; LETTER is the width of a monospaced one
STYLE = (
    "text{font:13.5px ui-monospace,Menlo,Consolas,monospace;fill:#1a1a1a;text-anchor:middle}"
    "rect.box{fill:#eef3f8;stroke:#0b5c92}path{fill:none;stroke:#4d4d4d;stroke-width:1.4;marker-end:url(#tip)}"
)
TIP = '<marker id="tip" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto"><path d="M0,0L9,4L0,8z"'
TIP += ' style="fill:#4d4d4d;stroke:none;marker-end:none"/></marker>'


def imports() -> Iterator[tuple[str, str]]:
    """Yield which room imports which."""
    for path in sorted(PACKAGE.glob("*/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for room in (
                module.split(".")[1] for module in modules if module.startswith("fa_audit.")
            ):
                yield path.relative_to(PACKAGE).parts[0], room


def rules() -> Iterator[tuple[str, str]]:
    """Yield which rule's files go into which rule."""
    command = [sys.executable, "-m", "snakemake", "--rulegraph", "mermaid-js"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = dict(re.findall(r"(id\d+)\[(\w+)\]", said))
    yield from (
        (names[start], names[end]) for start, end in re.findall(r"(id\d+) --> (id\d+)", said)
    )


def draw(arrows: Iterator[tuple[str, str]], title: str) -> str:
    """Return a directed graph as SVG, sources on top; an arrow that others imply is left out."""
    graph = nx.transitive_reduction(
        nx.DiGraph(sorted(pair for pair in set(arrows) if pair[0] != pair[1]))
    )
    places = _places(graph)
    left = min(x - _width(name) / 2 for name, (x, _) in places.items()) - GAP
    right = max(x + _width(name) / 2 for name, (x, _) in places.items()) + GAP
    bottom = max(y for _, y in places.values()) + HEIGHT / 2 + GAP
    box = f"{left:.0f} {-HEIGHT / 2 - GAP:.0f} {right - left:.0f} {bottom + HEIGHT / 2 + GAP:.0f}"
    size = f'width="{right - left:.0f}" height="{bottom + HEIGHT / 2 + GAP:.0f}"'
    back = f'<rect x="{left:.0f}" y="{-HEIGHT / 2 - GAP:.0f}" width="100%" height="100%" rx="8" fill="#fff"/>'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="{box}" {size}>']
    lines += [f"<title>{escape(title)}</title>", f"<defs>{TIP}</defs><style>{STYLE}</style>", back]
    lines += [_arrow(start, end, places) for start, end in sorted(graph.edges)]
    lines += [_box(name, *places[name]) for name in sorted(places)]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _width(name: str) -> float:
    return LETTER * len(name) + 22


def _places(graph: nx.DiGraph) -> dict[str, tuple[float, float]]:
    """Place every node below its predecessors, in rows without overlaps."""
    places: dict[str, tuple[float, float]] = {}
    for row, names in enumerate(nx.topological_generations(graph)):
        wanted = {
            name: mean(places[before][0] for before in graph.predecessors(name)) if row else 0
            for name in names
        }
        order = sorted(names, key=lambda name: (wanted[name], name))
        offsets = [0.0]
        for before, name in pairwise(order):
            offsets.append(offsets[-1] + (_width(before) + _width(name)) / 2 + GAP)
        shift = mean(wanted.values()) - mean(offsets)
        places |= {name: (shift + offset, float(row * ROW)) for name, offset in zip(order, offsets)}
    return places


def _arrow(start: str, end: str, places: dict[str, tuple[float, float]]) -> str:
    (x1, y1), (x2, y2) = places[start], places[end]
    y1, y2 = y1 + HEIGHT / 2, y2 - HEIGHT / 2
    bend = f"C{x1:.1f},{y2 - 16:.1f} {x2:.1f},{y1 + 16:.1f} {x2:.1f},{y2:.1f}"
    return f'<path id="{start}--{end}" d="M{x1:.1f},{y1:.1f} {bend}"/>'


def _box(name: str, x: float, y: float) -> str:
    corner = f'x="{x - _width(name) / 2:.1f}" y="{y - HEIGHT / 2:.1f}" width="{_width(name):.1f}" height="{HEIGHT}"'
    return f'<rect class="box" {corner} rx="6"/><text x="{x:.1f}" y="{y + 5:.1f}">{escape(name)}</text>'


def made() -> Iterator[tuple[Path, str]]:
    """Yield both."""
    yield (
        FOLDER / "rooms.svg",
        draw(imports(), "Rooms of the library: an arrow goes to what is imported"),
    )
    title = "Rules of the workflow: an arrow is a file that goes on to the next rule"
    yield FOLDER / "rules.svg", draw(rules(), title)
