"""Documents say what the code says: tables that are generated from it, and a card for every diagnostic."""

import re
import subprocess
import sys

import pytest
from projects import ROOT

from fa_audit.audit.record import CREDITS, DEEP, State
from fa_audit.audit.run_audit import audit
from fa_audit.core.checks import CHECKS
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.tidy import layers_table, runs_table
from fa_audit.training.loop import train
from fa_audit.training.trajectory import TRAJECTORY_COLUMNS

PROTOCOL = (ROOT / "docs/protocol.md").read_text()


TOOLS = {"methods_table", "command_line", "pictures", "readme", "notebook"}


@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_what_documents_show_of_the_code_is_fresh(tool):
    done = subprocess.run([sys.executable, ROOT / f"tools/{tool}.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def places():
    """What is in backquotes in the table that says where every card's numbers are in the files."""
    table = PROTOCOL.partition("| card | unit, range |")[2].partition("\n\n")[0]
    return set(re.findall(r"`([^`]+)`", table))


def test_every_card_says_where_it_misleads_and_has_a_place_in_the_files():
    cards = PROTOCOL.split("\n### ")[1:]
    assert all("**Equation:**" in card and "**Pitfall:**" in card for card in cards)
    assert PROTOCOL.partition("| card | unit, range |")[2].partition("\n\n")[0].count("\n") - 1 == len(cards)


def test_every_check_layer_and_credit_of_an_audit_has_its_place_in_the_table():
    expected = {f"checks.{name}" for name in CHECKS} | {f"credit[].{name}" for name in CREDITS}
    expected |= {f"layers[].{name}" for name in State.model_fields if name != "layer"} | {
        f"deep.{name}" for name in DEEP
    }
    expected |= {"finite", "feature_drift", "first_flags.first_scale_flag", "first_flags.first_reference_flag"}
    assert expected <= places()
    assert not {place for place in places() - expected if re.match(r"(checks|credit\[\]|layers\[\]|deep)\.", place)}


def test_what_the_cards_name_is_in_a_real_audit_and_its_tables(make_spec, dataset):
    spec = make_spec("dfa", epochs=1)
    trained = train(spec, dataset)
    audited = audit(trained.learner, dataset, trained.accuracy, trajectory=trained.history).to_dict()
    about = {"setting": "tiny", "run": "dfa", "seed": 3, "spec": spec.to_dict(), "baseline_runs": {}}
    about |= dict.fromkeys(("stopped_after", "digest", "seconds", "device", "commit"))
    columns = {*runs_table([audited | about]), *layers_table([audited | about]), *TRAJECTORY_COLUMNS}
    words = {name for name in places() if re.fullmatch(r"\w+", name)}
    assert words <= columns | set(audited) | {"runs", "layers", "trajectories"}
    assert {"max_growth", "grad_norm_last", "fresh_b_std", "rho_random_std", "stopped_after"} <= words


def test_the_limits_are_the_defaults_of_the_code():
    stated = re.findall(r"`(growth|reference|stability|depth_margin|saturation)` = ([\d.e-]+\d)", PROTOCOL)
    assert {name for name, _ in stated} == set(DiagnosticThresholds().limits)
    assert all(float(value) == DiagnosticThresholds().limits[name] for name, value in stated)


def test_the_reproduction_and_the_findings_are_what_the_measured_tables_say():
    done = subprocess.run([sys.executable, ROOT / "tools/reproduction.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
