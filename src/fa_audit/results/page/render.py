"""Render the page as one HTML file that holds its style, script, figures and tables.

Names may come from untrusted files. The template therefore escapes all of them, and the page's
policy allows only the page's own script, by its digest.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fa_audit import __version__
from fa_audit.core.origin import commit
from fa_audit.documents.formats import PLAIN, Table, render, right_aligned
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.judge import FOUR, OUTCOMES, THREE
from fa_audit.results.page.runs import PageRun

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Artefact:
    """A figure (an SVG file) or a table (an HTML file) of a configuration."""

    title: str
    caption: str
    file: Path

    @property
    def anchor(self) -> str:
        """Return the fragment that links to this artefact within the page."""
        return f"{self.file.parent.name}-{self.file.stem}"

    @property
    def image(self) -> str:
        """Return the figure as a data URL; no script can run in an image."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.file.read_bytes()).decode()}"

    @property
    def table(self) -> Markup:
        """Return caption and table as HTML; the file's texts are already escaped."""
        text = self.file.read_text(encoding="utf-8")
        return Markup("".join(re.findall("<p>.*</table>", text, flags=re.DOTALL)))


def page(
    runs: Sequence[PageRun],
    *,
    claims: Table | None = None,
    figures: Sequence[Artefact] = (),
    tables: Sequence[Artefact] = (),
) -> str:
    """Return the page as HTML.

    Args:
        runs: the runs in the order in which the page shows them.
        claims: the paper's claims, and whether they hold here.
        figures, tables: the figures and tables of the configuration.
    """
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = lambda cell: render(cell, PLAIN)
    environment.filters["right_aligned"] = right_aligned
    style = (FOLDER / "page.css").read_text(encoding="utf-8")
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    return environment.get_template("page.html").render(
        headline=headline(runs),
        runs=runs,
        checks=[CHECKS[name] for name in FOUR.checks],
        three=THREE,
        outcomes=OUTCOMES,
        claims=claims,
        sections={"Figures": figures, "Tables": tables},
        version=__version__,
        commit=commit(),
        style=Markup(style),
        script=Markup(script),
        policy=_policy(script),
    )


def headline(runs: Sequence[PageRun]) -> str:
    """Return the page's first line: a single run's verdict, or how many runs have each verdict."""
    trained = [run for run in runs if not run.is_baseline] or runs
    if len(trained) == 1:
        return f"{trained[0].name}: {trained[0].judgement.text(THREE)}"
    counts = Counter(run.result for run in trained)
    found = [f"{count} {result}" for result, count in sorted(counts.items())]
    return f"{len(trained)} trained runs: {', '.join(found)}"


def _policy(script: str) -> str:
    """Return a Content-Security-Policy that allows only this script, and no network requests."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none';"
        f" form-action 'none'; script-src 'sha256-{digest}'"
    )
