"""The table of checks: a fifth one is an entry and a function, and reports, tables, figures and the
page have it.
"""

import json

import pytest
from made_up_runs import EXPLODED, several, tidy_of
from printed_audits import printed_audits

from fa_audit.audit.record import outcomes_of
from fa_audit.cli import main
from fa_audit.core.registry import load
from fa_audit.protocol import verdicts
from fa_audit.protocol.checks import CHECKS, Check
from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.protocol.over_seeds import verdict_over_seeds
from fa_audit.results.figures import FIGURES
from fa_audit.results.page.runs import read_runs
from fa_audit.results.tidy import runs_table

FIFTH = Check(
    label="D4 / (e)", letter="e", paper="D4", limit="states", side="above", unit="cosine", column="number_of_states",
    title="number of states", short="States", quantity="states", formula="L + 1", axis="number of states",
    source="made up", fine="there are few states", finding="there are many states", advice={"": "Take fewer blocks."},
    default=2.0,
)  # fmt: skip


@pytest.fixture
def fifth(monkeypatch):
    def states(given):
        return verdicts._evaluated(
            "states", len(given.evidence.layers), given.thresholds.limits["states"], "", None, ""
        )

    for (
        kind
    ) in FIGURES:  # imported under the fixture, they would keep the fifth check for later tests
        load("figure", FIGURES, kind)
    monkeypatch.setitem(CHECKS, "states", FIFTH)
    monkeypatch.setitem(verdicts.EVALUATE, "states", states)


def test_a_fifth_check_is_one_entry_and_one_function(fifth, tmp_path, capsys):
    (audit,) = printed_audits(tmp_path, [0])
    assert audit["checks"]["states"]["value"] == 3 and "e" in audit["verdict"]["four_check"]
    assert "D4" in audit["flags"] and "D4" in audit["verdict"]["three_check"]
    assert outcomes_of(audit)["checks"] == audit["checks"]
    (tmp_path / "audit.json").write_text(json.dumps(audit), encoding="utf-8")
    assert main(["report", str(tmp_path / "audit.json")]) == 0
    assert "D4 / (e) number of states" in capsys.readouterr().out
    (shown,) = read_runs([tmp_path / "audit.json"])
    assert ("D4", "fires", False) in shown.checks
    key = {
        "setting": "main",
        "run": "dfa",
        "seed": 0,
        "stopped_after": None,
        "baseline_runs": {},
        "digest": "",
    }
    row = runs_table([audit | key]).iloc[0]
    assert row["number_of_states"] == 3 and row["states_fires"] and row["states_distance"] == -1
    assert "e" in verdict_over_seeds([row.to_dict()]).verdict


@pytest.mark.parametrize("kind", ["audit_overview", "threshold_sensitivity", "verdict_matrix"])
def test_figures_have_a_fifth_check(fifth, kind):
    tidy = tidy_of(
        several(
            {"bp": {"number_of_states": 1}, "dfa": EXPLODED | {"number_of_states": 3, "fires": "e"}}
        )
    )
    figure = load("figure", FIGURES, kind)(
        tidy, title="A title", labels={}, thresholds=DiagnosticThresholds()
    )
    texts = [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]
    assert any(text == "e" or "(e)" in text or "\ne\n" in text for text in texts), texts
