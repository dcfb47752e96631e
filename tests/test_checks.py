"""Adding to what is audited, as CONTRIBUTING.md describes it: in a copy of the sources a check is an
edit of two files and a number of three, and every writer has them.
"""

import os
import shutil

import pytest
from projects import ROOT, python

CHECK = {
    "protocol/evidence.py": {
        "    loss_saturation: float = 1e-2\n": "    most_states: float = 1.5\n",
        '    "saturation": "loss_saturation",\n': '    "states": "most_states",\n',
    },
    "protocol/checks.py": {
        "# --- the credits": """


def _states(evidence: Evidence) -> Outcome:
    limit = evidence.thresholds.most_states
    return CHECKS["states"].judge(float(len(evidence.layers)), limit)


CHECKS["states"] = Check(
    evaluate=_states,
    label="D4",
    three=True,
    four=True,
    limit="states",
    side="above",
    unit="cosine",
    column="number_of_states",
    short="States",
    quantity="states",
    axis="number of states",
    fine="there are few states",
    finding="there are many states",
)

#""",
    },
}
NUMBER = {
    "protocol/evidence.py": {
        "    scale_free: Number\n": "    smallest_norm: Number | None = None\n",
    },
    "audit/diagnostics.py": {
        "                grad_norm=gradient,\n": """\
                smallest_norm=sample_norms(truth.states[layer]).min().item(),
""",
    },
    "protocol/report.py": {
        '    "growth": "growth",\n': '    "smallest": "smallest_norm",\n',
    },
}
SCRIPTS = {
    "check": """
from made_up_runs import EXPLODED, several, tidy_of
from test_protocol import report_of
from fa_audit import DiagnosticReport, DiagnosticThresholds
from fa_audit.protocol.judge import THREE
from fa_audit.protocol.report import document
from fa_audit.core.registry import load
from fa_audit.documents.document import to_text
from fa_audit.results.figures import FIGURES
from fa_audit.results.page.runs import read_runs
from fa_audit.results.tidy import runs_table

report = report_of(growth=1.0).replace(setting="s", run="dfa", seed=0)
assert report.checks["states"].value == 2 and report.flags == ["D4"]
assert (report.three_check_verdict, report.verdict) == ("FAIL(D4)", "needs walk-back (D4)")
assert report_of(thresholds=DiagnosticThresholds.of({"states": 3})).three_check_verdict == "PASS"
assert "D4 states" in to_text(document(report.judgement))
assert "There are many states: states 2" in str(report)
report.write("audit.json")
assert DiagnosticReport.read("audit.json") == report.replace(path="audit.json")
(run,) = read_runs(["audit.json"])
assert {one.kind.label: one.outcome for one in run.checks}["D4"] == "fires"
assert run.judgement.verdict(THREE) == "FAIL(D4)"
row = runs_table([report]).iloc[0]
assert row["number_of_states"] == 2 and row["states_fires"] and row["states_distance"] == -0.5
fires = EXPLODED | {"number_of_states": 3, "fires": "abcde"}
tidy = tidy_of(several({"bp": {"number_of_states": 1}, "dfa": fires}))
for kind in ("audit_overview", "threshold_sensitivity", "verdict_matrix"):
    draw = load("figure", FIGURES, kind)
    figure = draw(tidy, title="A title", labels={}, thresholds=DiagnosticThresholds())
    texts = [text.get_text() for text in figure.findobj(lambda one: hasattr(one, "get_text"))]
    assert any("D4" in text for text in texts), (kind, texts)
""",
    "number": """
from test_protocol import batches, network
from fa_audit import diagnose
from fa_audit.results.tidy import layers_table

model, data = network(), batches()
report = diagnose(model, data, None)
smallest = model(data[0][0], return_hidden=True)[1][0].double().norm(dim=1).min().item()
assert abs(report.layers[0].smallest_norm / smallest - 1) < 1e-6
assert type(report).from_dict(report.to_dict()).layers == report.layers
assert layers_table([report])["smallest_norm"][0] == report.layers[0].smallest_norm
assert f"{smallest:.3g}" in report.details()
""",
}


@pytest.mark.parametrize(("added", "edits"), [("check", CHECK), ("number", NUMBER)])
def test_an_addition_is_an_edit_of_few_files(added, edits, tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("provided"))
    for file, additions in edits.items():
        path = tmp_path / "src/fa_audit" / file
        text = path.read_text()
        for before, new in additions.items():
            assert text.count(before) == 1, before
            text = text.replace(before, before + new)
        path.write_text(text)
    folders = os.pathsep.join([str(tmp_path / "src"), str(ROOT / "tests")])
    done = python(tmp_path, "-c", SCRIPTS[added], PYTHONPATH=folders)
    assert done.returncode == 0, done.stderr
