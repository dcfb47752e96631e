"""Write, or check, every picture, table and number of the documentation that comes from code or
measured runs.

python tools/documents.py [--check] [TOOL ...]

A tool is a module of this folder. Its ``made()`` yields the path and the new content of every file
that it writes. It may have a function ``alike(old, new)``, which says whether two contents show the
same although their bytes differ.
"""

from __future__ import annotations

import argparse
import operator
import os
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TOOLS = (  # later ones read what earlier ones wrote
    "methods_table",
    "schemas",
    "command_line",
    "reproduction",
    "readme",
    "notebook",
)


def main() -> None:
    """Rewrite the files that differ; with --check only name them, and exit with status 1."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument(
        "tools", nargs="*", metavar="TOOL", help=f"by default all: {', '.join(TOOLS)}"
    )
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # networks this small are slower on several threads
    stale = []
    for tool in map(import_module, options.tools or TOOLS):
        alike = getattr(tool, "alike", operator.eq)
        for path, content in tool.made():
            new = content.encode() if isinstance(content, str) else content
            # Write a file if any byte differs, but a PNG picture only if it looks different.
            same = alike if options.check or path.suffix == ".png" else operator.eq
            if not path.exists() or not same(path.read_bytes(), new):
                stale.append(str(path.relative_to(ROOT)))
                if not options.check:
                    path.parent.mkdir(exist_ok=True)
                    path.write_bytes(new)
    if stale and options.check:
        raise SystemExit(f"stale: {', '.join(stale)}; run make documents")
    print(f"fa-audit: {', '.join(stale) or 'no document'} {'written' if stale else 'is stale'}")


if __name__ == "__main__":
    main()
