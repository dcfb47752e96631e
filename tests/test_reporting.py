"""The report of audits: numbers of its seeds, what it identifies, LaTeX that compiles, one clear
error for what is no audit.
"""

import re
import sys

import pytest
from damage import replaced
from latex import check_latex, compile_latex
from printed_audits import printed_audits, written
from test_protocol import report_of

from fa_audit.cli import main
from fa_audit.core.errors import AuditError
from fa_audit.core.files import signed
from fa_audit.core.measured import Measured
from fa_audit.protocol.audit import Audit, AuditWarning
from fa_audit.protocol.judge import THREE

SEEDS = (3, 7)
STRANGE = r"50%_&#1 ^~{a}\b $ <x>|y ü"


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Two seeds of a short run, as the command line prints their audits."""
    return printed_audits(tmp_path_factory.mktemp("reports"), SEEDS)


@pytest.fixture(scope="module")
def real(printed):
    """The same as audits."""
    return [Audit.from_dict(found) for found in printed]


@pytest.fixture
def render(tmp_path, capsys):
    """Write audits to files; return what `fa-audit report` prints of them: the report, or why there
    is none.
    """

    def render(audits, *options):
        paths = []
        for place, audit in enumerate(audits):
            paths.append(str(tmp_path / f"audit{place}.json"))
            audit.write(paths[-1])
        status = main(["report", *paths, *options])
        said, refusal = capsys.readouterr()
        assert status == bool(refusal) and len(refusal.splitlines()) == status
        return said + refusal

    return render


def rows(text, heading):
    """The rows, as lists of cells, of the table under a heading."""
    part = text[text.index(f"### {heading}") :]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    cells = [line[2:-2].split(" | ") for line in (lines[0], *lines[2:])]
    return [row for row in cells if len(row) == len(cells[0])]


def said(text, term):
    """The text of one entry."""
    return re.search(rf"^- \*\*{term}[:?]\*\* (.*)$", text, flags=re.MULTILINE)[1]


def test_the_numbers_of_every_seed_are_those_of_its_audit(real, render):
    heading, *found = rows(render(real), "Every seed")[:3]
    assert [row[0] for row in found] == ["3", "7"]
    for row, audit in zip(found, real):
        cells = dict(zip(heading, row, strict=True))
        assert cells["accuracy"] == f"{100 * audit.headline_acc:.3g}"
        assert cells["frozen"] == f"{100 * audit.baselines.own:.3g}"
        assert cells["D1"] == f"{audit.checks['scale'].value:.3g}" and cells["D3-strict"] == "-"
        assert cells["verdict"] == audit.judgement.text(THREE)


def test_states_and_blocks_are_means_over_the_seeds_that_have_a_value(real, render):
    hidden = [audit.layers[1].hidden_norm for audit in real]
    absent = real[0].credit[0] | {"rho": Measured(None, 9, 0, "why")}
    changed = [real[0].replace(credit=(absent, *real[0].credit[1:])), real[1]]
    text = render(changed)
    assert rows(text, "Evidence at every state")[2][1] == f"{sum(hidden) / 2:.3g}"
    assert rows(text, "Credits at every block")[1][2] == f"{real[1].credit[0]['rho'].value:.3g}"


def test_the_run_is_identified(real, render):
    text = render(real)
    spec = real[0].spec
    assert said(text, "Method") == "dfa" and said(text, "Seeds") == "3, 7"
    assert spec["architecture"] in said(text, "Network") and spec["dataset"] == said(text, "Data")
    assert said(text, "Training").startswith(
        r"batch\_size 64, epochs 1, frozen\_blocks 0, lr 0.001"
    )
    assert said(text, "Digest") == f"seed 3: {real[0].digest}; seed 7: {real[1].digest}"


def test_a_diverged_run_is_not_said_to_have_passed_every_epoch(real, render):
    flags = {"scale": 2, "reference": None}
    firsts = []
    for finite in (True, False):
        text = render([audit.replace(first_flags=flags, finite=finite) for audit in real])
        firsts.append(said(text, "first fired"))
    assert "2" in firsts[0] and "2" in firsts[1] and firsts[0] != firsts[1]


def test_warnings_and_doubt_are_said_once_with_their_seeds(real, render):
    assert "in doubt" not in render(real) and "### Warnings" not in render(real)
    both = AuditWarning(code="narrow type", text="A first.")
    weak = AuditWarning(code="weak baseline", text="The baseline is at chance.")
    changed = [real[0].replace(warnings=(both,), notes="50% | x")]
    changed.append(real[1].replace(warnings=(both, weak), notes="50% | x"))
    text = render(changed)
    lines = text[text.index("### Warnings") :].split("\n\n")[1].splitlines()
    assert lines == ["- A first.", "- seed 7: The baseline is at chance."]
    assert text.count(r"50% \| x") == 1
    assert "in doubt" in text.split("\n\n")[1]


@pytest.fixture
def foreign(real):
    """Audits of networks that were not trained here, without credits."""
    audits = []
    for number, audit in enumerate(real):
        gone = dict.fromkeys(("spec", "digest", "seconds", "device", "seed"))
        entry = {"model": "a:b", "frozen_accuracy": 0.4 + number / 10, "weights": None}
        audits.append(audit.replace(**gone, credit=(), deep={}, entry=entry))
    return audits


def test_networks_that_were_not_trained_here_are_numbered(foreign, render):
    text = render(foreign)
    assert [row[0] for row in rows(text, "Every file")[1:3]] == ["1", "2"]
    assert "Credits at" not in text and "### Credit" not in text
    assert said(text, "Digest") == "not recorded"
    assert said(text, "Network") == r"frozen\_accuracy 0.4, model a:b"


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("about.model", "another"),
        ("about.share", 0.5),
        ("about.loss", "another"),
        ("baselines.own_name", "another"),
        ("stability.layer", 0),
    ],
)
def test_networks_that_were_not_audited_alike_are_not_averaged(foreign, render, place, value):
    record = replaced(foreign[1].to_dict(), place.split("."), value)
    refusal = render([foreign[0], Audit.from_dict(signed(record))])
    assert "audit1.json: " in refusal and len(refusal.splitlines()) == 1


def test_seeds_that_stopped_after_different_epochs_are_one_run(real, render):
    stopped = []
    for epoch, audit in enumerate(real):
        name = f"frozen baseline of {epoch} epochs"
        baselines = audit.baselines.replace(own=None, own_name=name)
        stopped.append(audit.replace(baselines=baselines, stopped_after=epoch))
    assert "Every seed" in render(stopped)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("layers", 1, "hidden_norm"), "much", r"layers\.1\.hidden_norm"),
        (("headline_acc",), 70, "headline_acc"),
        (("deep", "cosine", "value"), 7.0, "cosines from -1 to 1"),
        (("spec", "epochs"), 9, r"it differs in spec\.epochs \(9, not 1\)"),
        (("spec", "seed"), 3, r"seed 3 also in .*audit0.json"),
    ],
)
def test_what_is_no_audit_or_one_of_another_run_is_refused_in_one_line(
    printed, place, value, words, tmp_path, capsys
):
    paths = written(tmp_path, replaced(printed, (1, *place), value))
    assert main(["report", *paths]) == 1
    refusal = capsys.readouterr().err
    assert re.search(rf"audit1\.json: .*{words}", refusal) and len(refusal.splitlines()) == 1


def test_an_audit_that_changed_since_it_was_written_is_refused_and_stored_outcomes_are_not_believed(
    printed,
):
    record = replaced(printed[0], ("verdict", "three_check"), "PASS") | {"flags": []}
    record = replaced(record, ("checks", "depth", "fires"), False)
    with pytest.raises(AuditError, match="another SHA-256 than when it was written"):
        Audit.from_dict(record)
    again = Audit.from_dict(signed(record))
    assert again.judgement.to_dict() == Audit.from_dict(printed[0]).judgement.to_dict()


def test_a_report_of_an_audit_without_trouble_is_short():
    text = str(report_of(0.6, 0.1, bp=0.2))
    lines = text.splitlines()
    assert len(lines) <= 25 and max(map(len, lines)) <= 80
    assert text.count("\n  - ") - text[text.index("You may not") :].count("\n  - ") <= 5


OWN_METHODS = r"""
from fa_audit.methods.dfa import DFA


class Mine(DFA):
    latex = r"a_l = e\,M"
    feedback = "M fresh, N(0, 4)"
    scale = 3
"""


def test_a_method_states_its_credit_and_its_feedback(real, render, tmp_path, monkeypatch):
    text = render(real)
    assert said(text, "Formula of the credit").startswith("`a_l = (p - y) B_l^T` (Nokland 2016). ")
    (tmp_path / "own_method.py").write_text(OWN_METHODS)
    monkeypatch.syspath_prepend(tmp_path)
    own = [audit.replace(spec=audit.spec | {"method": "own_method:Mine"}) for audit in real]
    assert said(render(own), "Formula of the credit") == "not stated by the method."
    assert "own_method" not in sys.modules  # a file imports nothing
    assert "$a_l = e\\,M$ " in render(own, "--format", "latex", "--method", "own_method:Mine")
    assert "M fresh, N(0, 4)" in said(render(own), "Feedback")


def test_latex_is_escaped_and_balanced_and_compiles_in_a_column_of_a_paper(
    real, foreign, render, tmp_path
):
    own = real[0].baselines.replace(own_name=STRANGE)
    strange = real[0].replace(run=STRANGE, notes=f"{STRANGE}\n\n{STRANGE}\x00", baselines=own)
    text = render([strange], "--format", "latex")
    check_latex(text)
    assert render([strange], "--format", "latex", "--output", str(tmp_path / "new/a.tex")) == ""
    assert (tmp_path / "new/a.tex").read_text() == text
    plain = real[0].replace(run=STRANGE.replace("ü", ""), notes=30 * "results/models/a_long_name ")
    groups = [real, [plain], foreign]
    assert not compile_latex(tmp_path, *(render(group, "--format", "latex") for group in groups))
