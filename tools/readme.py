"""Write what three documents show from what their code prints, the scorecard and the plan; or check it.

    python tools/readme.py [--check]

A `python` block is run, all blocks of a document in one namespace; the `text` block after it is what it printed, up to
the line `...` if there is one. As other machines round otherwise, --check compares the words of that, not its numbers.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
from datetime import date
from pathlib import Path

import matplotlib
from methods_table import ROOT, filled

from fa_audit.cli import main as fa_audit

DOCUMENTS = (ROOT / "README.md", ROOT / "docs/tutorial.md", ROOT / "docs/monitor.md")
CODE = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<said>.*?)```)?", re.DOTALL)
NUMBER = re.compile(r"[-+]?\d[\d.,e+-]*")
PICTURES = ROOT / "docs/pictures"


def rerun(text: str) -> str:
    """Return a document's text with what its code prints now; pictures are drawn in this folder."""
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


def words(text: str) -> list[str]:
    """Return a text's words, with numbers made alike."""
    return NUMBER.sub("0", text).split()


def told(*command: str) -> str:
    """Return what `fa-audit` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        if fa_audit(command):
            raise SystemExit(f"fa-audit {command[0]} failed; see above.")
    return out.getvalue()


def facts(text: str) -> dict[str, str]:
    """Return the reproduced share, with the day on which it was new, and the hours of the paper's grid."""
    published = ("--published", str(ROOT / "reference/published.yaml"))
    lines = told("scorecard", "--from", str(ROOT / "reference/measured"), *published).splitlines()
    first, _, rest = lines[0].partition(". ")
    share = f"**{first}.** {rest.partition('. ')[0]}"
    devices = dict.fromkeys(re.findall(r" on (\w+) \(([^)]*)\)", lines[2].replace("\\", "")))
    machines = ", ".join(f"{name} {kind.upper()}" for kind, name in devices)
    day = re.search(re.escape(share.rstrip(".")) + r" \((\d{4}-\d\d-\d\d),", text)
    plan = told("plan", "--configfile", str(ROOT / "config.yaml")).splitlines()
    hours = {row[0]: row[-2:] for line in plan if len(row := line.replace("in all", "all").split()) > 6}
    cpu, gpu = hours["all"]
    counted = re.search(r"`config.yaml` ([\d.]+) hours", (ROOT / "docs/gpu.md").read_text(encoding="utf-8"))
    known = f"{gpu} GPU hours" if "?" not in gpu else f"of one GPU an estimated {float(counted[1]):.0f}, not measured"
    return {
        "sum": f"{share} ({day[1] if day else date.today()}, {machines}).".replace(". (", " ("),
        "hours": f"The full grid takes about {float(cpu):,.0f} hours of one CPU core, its main audit"
        f" {float(hours['main_audit'][0]):.0f}; {known}.",
    }


def new_text(document: Path) -> tuple[str, bool]:
    """Return a document's new text, and whether it says what the old one did."""
    old = document.read_text(encoding="utf-8")
    text = filled(old, facts(old), document) if "<!-- table: sum -->" in old else old
    new = rerun(text)
    return new, text == old and words(text) == words(new)


def main() -> None:
    """Rewrite the documents and the tutorial's picture; with --check exit with 1 if one is stale instead."""
    check, stale = "--check" in sys.argv[1:], []
    sys.path.insert(0, str(ROOT / "examples"))
    os.environ["SOURCE_DATE_EPOCH"] = "0"  # pictures without a date, and with the same names inside every time
    matplotlib.rcParams["svg.hashsalt"] = "fa-audit"
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("benchmarks").symlink_to(ROOT / "benchmarks")
        for document in DOCUMENTS:
            text, same = new_text(document)
            stale += [] if same else [str(document)]
            if not check:
                document.write_text(text, encoding="utf-8")
        for picture in () if check else Path().glob("*.svg"):
            shutil.copy(picture, PICTURES / picture.name)
    if check and stale:
        raise SystemExit(f"stale: {', '.join(stale)}; run make documents")


if __name__ == "__main__":
    main()
