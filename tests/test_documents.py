"""Documents say what the code says: tables that are generated from it, and a card for every
diagnostic.
"""

import re
import runpy
import shutil

import pytest
from projects import ROOT, python
from test_golden import audits_in

from fa_audit.audit.run_audit import audit
from fa_audit.protocol.audit import Audit
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.evidence import DiagnosticThresholds, State
from fa_audit.results.tidy import layers_table, read_packed, runs_table, write_packed
from fa_audit.training.loop import train
from fa_audit.training.trajectory import TRAJECTORY_COLUMNS

PROTOCOL = (ROOT / "docs/protocol.md").read_text()


TOOLS = runpy.run_path(str(ROOT / "tools/documents.py"))["TOOLS"]


def check(root, *tools):
    return python(root, root / "tools/documents.py", "--check", *tools)


MEASURING = (
    "reproduction",
    "readme",
    "notebook",
)  # they draw every measured run, or train what documents train
OTHERS = [tool for tool in TOOLS if tool not in MEASURING]


@pytest.mark.slow
@pytest.mark.parametrize("tools", [OTHERS, *([tool] for tool in MEASURING)])
def test_nothing_that_is_generated_is_stale(tools):
    done = check(ROOT, *tools)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_changed_measured_number_makes_texts_and_pictures_stale(tmp_path):
    """Of the reproduction alone, with one figure of its configuration: drawing all of them is what
    takes time.
    """
    for folder in ("tools", "docs", "configs", "reference"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "config.yaml", tmp_path)
    tool, config = tmp_path / "tools/reproduction.py", tmp_path / "configs/measured.yaml"
    tool.write_text(
        re.sub(r'\n    "findings": \[.*?\n}', "\n}", tool.read_text(), count=1, flags=re.DOTALL)
    )
    config.write_text(re.sub(r"(?<=\nfigures:\n)(.*\n)(?:  .*\n)*", r"\1", config.read_text()))
    packed = tmp_path / "reference/measured/main_audit/audits.json"
    audits = read_packed(packed)
    changed = [audit.replace(headline_acc=0.5) if audit.run == "dfa" else audit for audit in audits]
    write_packed(packed, changed)
    done = check(tmp_path, "reproduction")
    assert done.returncode == 1
    stale = set(re.search(r"stale: (.*); run make documents", done.stderr)[1].split(", "))
    changed = (".md", "/scorecard.csv", "/scorecard.png", "/audit_overview.png")
    assert stale >= {f"docs/reproduction{name}" for name in changed}


WORDS = 14_500


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
        page.name: len(words(page.read_text())) for page in pages if page.name != "command_line.md"
    }
    assert sum(counted.values()) <= WORDS, counted


def places():
    """What is in backquotes in the table that says where every card's numbers are in the files."""
    table = PROTOCOL.partition("| card | unit, range |")[2].partition("\n\n")[0]
    return set(re.findall(r"`([^`]+)`", table))


def test_every_card_says_where_it_misleads_and_has_a_place_in_the_files():
    cards = PROTOCOL.split("\n### ")[1:]
    assert all("**Equation:**" in card and "**Pitfall:**" in card for card in cards)
    assert PROTOCOL.partition("| card | unit, range |")[2].partition("\n\n")[0].count(
        "\n"
    ) - 1 == len(cards)


def test_every_check_layer_and_credit_of_an_audit_has_its_place_in_the_table(tmp_path):
    expected = {f"checks.{name}" for name in CHECKS} | {"layers[].grad_norm_position_mean"}
    expected |= {f"layers[].{name}" for name in State.model_fields if name != "layer"}
    for found in audits_in(tmp_path).values():
        expected |= {f"credit[].{name}" for block in found.credit for name in block}
        expected |= {f"deep.{name}" for name in found.deep}
    expected |= {
        "finite",
        "feature_drift",
        "first_flags.first_scale_flag",
        "first_flags.first_reference_flag",
    }
    assert expected <= places()
    assert not {
        place
        for place in places() - expected
        if re.match(r"(checks|credit\[\]|layers\[\]|deep)\.", place)
    }


def test_what_the_cards_name_is_in_a_real_audit_and_its_tables(make_spec, dataset):
    spec = make_spec("dfa", epochs=1)
    trained = train(spec, dataset)
    found = audit(trained.learner, dataset, trained.accuracy, trajectory=trained.history)
    found = found.replace(setting="tiny", run="dfa", seed=3, spec=spec.to_dict())
    columns = {*runs_table([found]), *layers_table([found]), *TRAJECTORY_COLUMNS}
    words = {name for name in places() if re.fullmatch(r"\w+", name)}
    assert words <= columns | {"untrue"} | set(Audit.model_fields) | {
        "runs",
        "layers",
        "trajectories",
    }
    assert {
        "max_growth",
        "grad_norm_last",
        "fresh_b_std",
        "rho_random_std",
        "stopped_after",
    } <= words


def test_the_limits_are_the_defaults_of_the_code():
    stated = re.findall(
        r"`(growth|reference|stability|depth_margin|saturation)` = ([\d.e-]+\d)", PROTOCOL
    )
    assert {name for name, _ in stated} == set(DiagnosticThresholds().limits)
    assert all(float(value) == DiagnosticThresholds().limits[name] for name, value in stated)
