"""The page: one file that holds its data, style, scripts, figures and tables, and asks no network
for anything.

Its content may come from strangers. The template escapes all of it, its data is JSON in which no
tag can end, and its policy lets the browser run only two scripts, known by their digests, and load
nothing.
"""

from __future__ import annotations

import base64
import hashlib
import platform
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fa_audit.core.errors import AuditError
from fa_audit.core.origin import origin_of, packages
from fa_audit.documents.formats import Table
from fa_audit.experiments.published import Published
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.rules import FOUR
from fa_audit.results.judging import NOT_RUN
from fa_audit.results.page.charts import PANELS, Look, data_of, looks, specification
from fa_audit.results.page.content import NOT_RECORDED, Audits, RunPage, pages_of, percent
from fa_audit.results.scorecard import FAILS, IN_PART, sum_of
from fa_audit.results.scorecard import claims as scorecard_claims
from fa_audit.results.scorecard_texts import numbers_table, summary_line
from fa_audit.results.tidy import Tidy

FOLDER = Path(__file__).parent
MEDIA = {".png": "image/png", ".pdf": "application/pdf", ".csv": "text/csv", ".tex": "text/plain"}
OUTCOMES = {"PASS": "good", "FAIL": "bad", "INCOMPLETE": "open"}  # of a run
CLAIMS = {IN_PART: "part", FAILS: "bad", NOT_RUN: "open"}  # all others hold, if on fewer seeds
ENVIRONMENT = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters["percent"] = percent
ENVIRONMENT.policies["json.dumps_kwargs"] = {
    "separators": (",", ":"),
    "allow_nan": False,
    "ensure_ascii": False,
}


@dataclass(frozen=True)
class Artefact:
    """A figure or a table of a configuration: what it is called and shows, and its files."""

    name: str
    title: str
    caption: str
    files: tuple[Path, ...]

    @property
    def anchor(self) -> str:
        """Return the name of its place in the page."""
        return f"{self.files[0].parent.name}-{self.name}"

    @property
    def text(self) -> str:
        """Return its caption without the marks of reStructuredText."""
        return re.sub(r"(\*{1,2}|`{1,2})(\S(?:[^*`]*\S)?)\1", r"\2", self.caption)

    @property
    def image(self) -> str:
        """Return its PNG as a data URI."""
        return data_uri(next(path for path in self.files if path.suffix == ".png"))

    @property
    def downloads(self) -> Iterator[tuple[str, str, str]]:
        """Yield name, ending and data URI of its files but the image, which is in the page already."""
        for path in self.files:
            if path.suffix in MEDIA and path.suffix != ".png":
                yield path.name, path.suffix[1:].upper(), data_uri(path)

    @property
    def tables(self) -> list[dict[str, Any]]:
        """Return the texts of the tables in its HTML: heading and rows."""
        return [
            _cells(table)
            for path in self.files
            if path.suffix == ".html"
            for table in _tables(path)
        ]


def data_uri(path: Path) -> str:
    """Return the content of a file as a data URI."""
    return f"data:{MEDIA[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"


def _tables(path: Path) -> Iterator[ElementTree.Element]:
    try:
        for text in re.findall(
            "<table>.*?</table>", path.read_text(encoding="utf-8"), flags=re.DOTALL
        ):
            yield ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise AuditError(
            f"{path}: found no table that can be read ({error}); delete it and make it again."
        ) from error


def _cells(table: ElementTree.Element) -> dict[str, Any]:
    head, *rows = (["".join(cell.itertext()) for cell in row] for row in table.iter("tr"))
    numbers = [
        "right" in cell.get("style", "") for row in list(table.iter("tr"))[1:2] for cell in row
    ]
    return {"head": head, "rows": rows, "numbers": numbers or [False] * len(head)}


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, whether it holds here, and the numbers that count for it."""

    sentence: str
    answer: str
    state: str  # good, part, bad or open: its colour
    numbers: str
    table: Table


def claims_of(published: Published, rows: pd.DataFrame) -> tuple[list[Claim], str]:
    """Return the claims, and the sum over a scorecard's rows in words; neither where no published
    number was run.
    """
    if not sum_of(rows).run:
        return [], ""
    found = []
    for claim in scorecard_claims(published, rows).itertuples():
        numbers = claim.told + (f"; n = {claim.n}" if claim.n else "")
        table = numbers_table(claim.sentence, rows[rows["claim"] == claim.claim])
        found.append(
            Claim(claim.sentence, claim.verdict, CLAIMS.get(claim.verdict, "good"), numbers, table)
        )
    return found, summary_line(rows)


def page(
    tidy: Tidy,
    inputs: Iterable[str | Path],
    *,
    audits: Audits | None = None,
    labels: Mapping[str, str] | None = None,
    claims: tuple[Sequence[Claim], str] = ((), ""),
    figures: Iterable[Artefact] = (),
    tables: Iterable[Artefact] = (),
) -> str:
    """Return the page of all runs in tidy tables as HTML.

    Args:
        tidy: all four tables.
        inputs: the files that the page is made from.
        audits: those that exist; they alone hold warnings, remarks and how intervals were formed.
        labels: how runs and settings are called.
        claims: of `claims_of`.
        figures, tables: of the configuration.
    """
    runs = pages_of(tidy, audits or {}, labels or {})
    styles, colours = looks(run.key[1] for run in runs)
    library = vega()
    style, script = (
        (FOLDER / f"page.{ending}").read_text(encoding="utf-8") for ending in ("css", "js")
    )
    return ENVIRONMENT.get_template("page.html").render(
        runs=runs,
        looks=styles,
        colours=colours,
        widest=max(
            [
                0.01,
                *(run.mean(name) or 0 for run in runs for name in ("accuracy", "own_frozen_acc")),
            ]
        ),
        headline=headline(runs),
        claims=claims[0],
        claims_sum=claims[1],
        filters=filters(runs),
        figures=list(figures),
        tables=list(tables),
        origin=origin_of({"kind": "page"}, tidy.runs["digest"].dropna(), inputs),
        versions={"python": platform.python_version()} | {k: v for k, v in packages().items() if v},
        trained=Counter(_trained(tidy)).most_common(),
        data={
            "panels": [asdict(panel) | {"spec": specification(panel)} for panel in PANELS],
            "runs": [_data(run, styles[run.key[1]]) for run in runs],
        },
        style=Markup(style),
        library=Markup(library),
        script=Markup(script),
        policy=policy(library, script),
        outcomes=OUTCOMES,
        checks=CHECKS.values(),
    )


@cache
def vega() -> str:
    """Return the script of Vega, Vega-Lite and Vega-Embed, in which no tag of the page can end."""
    return (
        str(vl_convert.javascript_bundle())
        .replace("</script", r"<\/script")
        .replace("<!--", r"<\!--")
    )


def policy(*scripts: str) -> str:
    """Return the Content-Security-Policy: no script but these, and nothing from a network.

    Vega compiles its expressions, hence ``unsafe-eval``; they come from the page's own
    specifications.
    """
    digests = (
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    )
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed} 'unsafe-eval';"
        " base-uri 'none'; form-action 'none'"
    )


def _data(run: RunPage, look: Look) -> dict[str, Any]:
    names = {"name": run.name, "setting": run.setting, "id": f"{run.key[0]}-{run.key[1]}"}
    return (
        names
        | {"colour": f"var({look.colour})", "shape": look.shape, "facts": run.facts}
        | data_of(run)
    )


def headline(runs: list[RunPage]) -> str:
    """Return the page's first line: what became of the runs."""
    if len(runs) == 1:
        return f"{runs[0].name}: {runs[0].quoted}"
    trained = [run for run in runs if not run.is_control] or runs
    found = Counter(run.result for run in trained)
    result = "FAIL" if found["FAIL"] else "PASS"
    return f"{found[result]} of {len(trained)} trained runs {result}"


def filters(runs: list[RunPage]) -> dict[str, list[str]]:
    """Return what every filter offers, in the order in which it occurs."""
    verdicts = dict.fromkeys(tag for run in runs for tag in run.tags)
    order = [*OUTCOMES, *FOUR.words.values(), "borderline"]
    return {
        "method": list(dict.fromkeys(run.method for run in runs)),
        "network": list(dict.fromkeys(run.network for run in runs)),
        "data": list(dict.fromkeys(run.dataset for run in runs)),
        "verdict": [tag for tag in order if tag in verdicts],
    }


def _trained(tidy: Tidy) -> Iterator[str]:
    known = tidy.work.reindex(columns=["commit", "device"]).astype(object)
    for row in known.fillna(NOT_RECORDED).itertuples(index=False):
        yield NOT_RECORDED if {*row} == {NOT_RECORDED} else f"commit {row.commit} on {row.device}"
