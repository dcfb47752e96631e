"""What the code derives of stored audits, against `tests/golden/expected.json`, written before the
redesign.

CHANGELOG lists every difference that was intended, with its reason. `python tests/test_golden.py`
writes the file anew.
"""

import json
import tarfile
import tempfile
from pathlib import Path

import pytest

from fa_audit.experiments.published import read_published_file
from fa_audit.protocol.audit import Audit
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.judge import FOUR, THREE
from fa_audit.results.measured import read_measured
from fa_audit.results.scorecard import scorecard

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests/golden"
FOLDERS = ("measured", "field")


def audits_in(folder):
    """The stored audits, unpacked into a folder, by name."""
    with tarfile.open(GOLDEN / "audits.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return {path.stem: Audit.read(path) for path in sorted(Path(folder).glob("*.json"))}


def outcomes(audit):
    """Verdicts, flags and outcomes of one audit, its numbers to nine digits."""
    checks = {}
    for name in CHECKS:
        found = audit.judgement[name]
        value = None if found.value is None else f"{found.value:.9g}"
        checks[name] = [value, found.fires, found.borderline]
    verdicts = [audit.judgement.verdict(rule) for rule in (THREE, FOUR)]
    return {"verdicts": verdicts, "flags": audit.judgement.flags, "checks": checks}


def board(folder):
    """Accuracy and margin of every network of a folder, and the checks that fire or are open."""
    runs = read_measured(ROOT / "reference" / folder).runs
    numbers = {}
    for row in runs.sort_values(["setting", "run", "seed"]).to_dict("records"):
        text = f"{row['accuracy']:.4g} {row['margin']:.4g} "
        for name in FOUR.checks:
            label = CHECKS[name].label
            mark = {True: label, False: "", None: f"({label})"}[row["audit"].checks[name].fires]
            text += mark + "?" * bool(row["audit"].judgement[name].borderline)
        numbers[f"{row['setting']}/{row['run']}/{row['seed']}"] = text
    return numbers


def counts():
    """How many published numbers of every setting agree, differ and were not run."""
    rows = scorecard(
        read_published_file(ROOT / "reference/published.yaml"),
        read_measured(ROOT / "reference/measured"),
    )
    table = rows.groupby(["setting", "verdict"]).size()
    return {f"{setting}: {verdict}": int(count) for (setting, verdict), count in table.items()}


PARTS = {
    "audits": lambda folder: {name: outcomes(audit) for name, audit in audits_in(folder).items()},
    "boards": lambda folder: {name: board(name) for name in FOLDERS},
    "scorecard": lambda folder: counts(),
}


@pytest.mark.parametrize("part", PARTS)
def test_the_code_derives_what_it_derived_before(part, tmp_path):
    expected = json.loads((GOLDEN / "expected.json").read_text())
    assert PARTS[part](tmp_path) == expected[part]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as unpacked:
        text = json.dumps({part: PARTS[part](unpacked) for part in PARTS}, indent=0, sort_keys=True)
    (GOLDEN / "expected.json").write_text(text + "\n")
