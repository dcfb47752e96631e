"""Documents say what the code says: tables that are generated from it, and a card for every
diagnostic.
"""

import re
import runpy

import pytest
from projects import ROOT, python
from test_golden import audits_in

from fa_audit.protocol.audit import Audit
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.evidence import DiagnosticThresholds, State
from fa_audit.results.tidy import layers_table, runs_table
from fa_audit.training.trajectory import TRAJECTORY_COLUMNS

PROTOCOL = (ROOT / "docs/protocol.md").read_text()


TOOLS = runpy.run_path(str(ROOT / "tools/documents.py"))["TOOLS"]


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_nothing_that_is_generated_is_stale(tool):
    done = python(ROOT, ROOT / "tools/documents.py", "--check", tool)
    assert done.returncode == 0, done.stderr


WORDS = 15_200


def words(text):
    """A page's words in sentences, lists and headings: no tables, no code, no comments, no
    addresses of links.
    """
    text = re.sub(
        r"^```.*?^```$|<!--.*?-->|(?<=\])\([^)]*\)", "", text, flags=re.MULTILINE | re.DOTALL
    )
    return [word for line in text.splitlines() if not line.startswith("|") for word in line.split()]


def test_the_documentation_is_short():
    """Of the pages that people write; a tool writes docs/command_line.md and the folders but
    docs/api.
    """
    names = ("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/api/*.md")
    pages = [page for name in names for page in ROOT.glob(name)]
    counted = {
        str(page.relative_to(ROOT)): len(words(page.read_text()))
        for page in pages
        if page.name != "command_line.md"
    }
    assert sum(counted.values()) <= WORDS, counted


def places():
    """What is in backquotes in the table that says where every card's numbers are in the files."""
    table = PROTOCOL.partition("| card | unit, range |")[2].partition("\n\n")[0]
    return table, set(re.findall(r"`([^`]+)`", table))


def test_every_card_says_where_it_misleads_and_has_a_place_in_the_files():
    cards = PROTOCOL.split("\n### ")[1:]
    assert all("**Equation:**" in card and "**Pitfall:**" in card for card in cards)
    assert places()[0].count("\n") - 1 == len(cards)


def test_every_number_of_an_audit_has_its_place_in_the_table_and_every_place_a_number(tmp_path):
    found = [*audits_in(tmp_path).values()]
    numbers = {f"checks.{name}" for name in CHECKS} | {"layers[].grad_norm_position_mean"}
    numbers |= {f"layers[].{name}" for name in State.model_fields if name != "layer"}
    for audit in found:
        numbers |= {f"credit[].{name}" for block in audit.credit for name in block}
        numbers |= {f"deep.{name}" for name in audit.deep}
    columns = {*runs_table(found), *layers_table(found), *TRAJECTORY_COLUMNS, "untrue"}
    columns |= {*Audit.model_fields, "runs", "layers", "trajectories"}
    _, named = places()
    assert numbers | {"first_flags.first_scale_flag", "first_flags.first_reference_flag"} <= named
    assert {"finite", "feature_drift", "stopped_after", "rho_random_std"} <= named
    measured = {place for place in named if re.match(r"(checks|credit|layers|deep)\b.*\.", place)}
    assert measured <= numbers
    assert {name for name in named if re.fullmatch(r"\w+", name)} <= columns


def test_the_limits_are_the_defaults_of_the_code():
    stated = re.findall(
        r"`(growth|reference|stability|depth_margin|saturation)` = ([\d.e-]+\d)", PROTOCOL
    )
    assert {name for name, _ in stated} == set(DiagnosticThresholds().limits)
    assert all(float(value) == DiagnosticThresholds().limits[name] for name, value in stated)
