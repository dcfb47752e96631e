"""The table of checks: a fifth one is one entry with its function, and verdicts, reports, tables,
figures and the page have it.
"""

from dataclasses import replace

import pytest
from made_up_runs import EXPLODED, several, tidy_of
from test_protocol import report_of

from fa_audit.audit.rendering import document
from fa_audit.core.registry import load
from fa_audit.documents.document import to_text
from fa_audit.protocol import judge as judging
from fa_audit.protocol.checks import CHECKS, Outcome
from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.results.figures import FIGURES
from fa_audit.results.page.runs import read_runs
from fa_audit.results.tidy import judged, runs_table


def few_states(evidence):
    """Fire where there are more states than the limit of growth."""
    count, limit = float(len(evidence.layers)), evidence.thresholds.limits["growth"]
    far = FIFTH.distance(count, limit)
    return Outcome(count, limit, FIFTH.fires(count, limit), distance=far)


FIFTH = replace(
    CHECKS["scale"], evaluate=few_states, label="D4", unit="cosine", column="number_of_states",
    short="States", quantity="states", axis="number of states", fine="there are few states",
    finding="there are many states", causes={},
)  # fmt: skip
MANY = DiagnosticThresholds(h_norm_explosion_ratio=1.5)


@pytest.fixture
def fifth(monkeypatch):
    for kind in FIGURES:  # imported under the fixture, they would keep the check for later tests
        load("figure", FIGURES, kind)
    monkeypatch.setitem(CHECKS, "states", FIFTH)
    for name in ("THREE", "FOUR"):
        rule = getattr(judging, name)
        object.__setattr__(rule, "checks", (*rule.checks, "states"))
    yield
    for name in ("THREE", "FOUR"):
        rule = getattr(judging, name)
        object.__setattr__(rule, "checks", rule.checks[:-1])


def test_a_fifth_check_is_one_entry(fifth):
    report = report_of(growth=1.0, thresholds=MANY).replace(setting="s", run="dfa", seed=0)
    assert report.checks["states"].value == 2 and report.flags == ["D4"]
    assert (report.three_check_verdict, report.verdict) == ("FAIL(D4)", "needs walk-back (D4)")
    assert "D4 states" in to_text(document(report.judgement))
    assert "There are many states: states 2" in str(report)
    row = runs_table([report]).iloc[0]
    assert row["number_of_states"] == 2 and row["states_fires"] and row["states_distance"] == -0.5
    assert judged([row.to_dict()]).fires == report.judgement.fires


@pytest.mark.parametrize("kind", ["audit_overview", "threshold_sensitivity", "verdict_matrix"])
def test_figures_have_a_fifth_check(fifth, kind):
    fires = EXPLODED | {"number_of_states": 3, "fires": "e"}
    tidy = tidy_of(several({"bp": {"number_of_states": 1}, "dfa": fires}))
    draw = load("figure", FIGURES, kind)
    figure = draw(tidy, title="A title", labels={}, thresholds=DiagnosticThresholds())
    texts = [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]
    assert any("D4" in text for text in texts), texts


def test_the_page_has_a_fifth_check(fifth, tmp_path):
    path = tmp_path / "audit.json"
    report_of(growth=1.0, thresholds=MANY).write(path)
    (run,) = read_runs([path])
    assert ("D4", "fires", False) in run.checks and run.verdict == "FAIL(D4)"
