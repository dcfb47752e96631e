"""The reporting template: its numbers, what it discloses, LaTeX that compiles, one clear error for
what is no audit.
"""

import contextlib
import copy
import json
import math
import re
import sys

import pytest
import torch
from latex import check_latex, compile_latex
from printed_audits import printed_audits, put

from fa_audit import Description, diagnose
from fa_audit.cli import main
from fa_audit.core.files import signed

SEEDS = (3, 7)
STRANGE = r"50%_&#1 ^~{a}\b $ <x>|y ü"


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Two seeds of a short run, audited at the command line."""
    return printed_audits(tmp_path_factory.mktemp("reports"), SEEDS)


@pytest.fixture
def audits(real):
    """Copies of them to spoil."""
    return copy.deepcopy(real)


@pytest.fixture
def render(tmp_path, capsys):
    """Write audits to files; return what `fa-audit report` prints of them: the report, or why there
    is none.
    """

    def render(audits, *options, as_it_is=False):
        paths = [tmp_path / f"audit{index}.json" for index in range(len(audits))]
        for path, audit in zip(paths, audits):
            with contextlib.suppress(
                KeyError, ValueError
            ):  # what is no audit has nothing that follows
                audit = audit if as_it_is else signed(audit)
            path.write_text(json.dumps(audit))
        status = main(["report", *map(str, paths), *options])
        said, refusal = capsys.readouterr()
        assert status == bool(refusal) and len(refusal.splitlines()) == status
        return said + refusal

    return render


def rows(text, beginning):
    """The rows, as lists of cells, of the table whose caption begins so."""
    lines = text[text.index(f"\n{beginning}") + 1 :].split("\n\n")[1].splitlines()
    return [line[2:-2].split(" | ") for line in (lines[0], *lines[2:])]


def table(text, beginning):
    """A table by the first cell of a row and the heading."""
    heading, *body = rows(text, beginning)
    return {row[0]: dict(zip(heading, row, strict=True)) for row in body}


def said(text, term):
    """The text of one entry."""
    return re.search(rf"^- \*\*{term}[:?]\*\* (.*)$", text, flags=re.MULTILINE)[1]


def set_accuracies(audits, accuracies, own):
    for audit, accuracy, frozen in zip(audits, accuracies, own, strict=True):
        audit |= {"headline_acc": accuracy, "hits": None}
        audit["baselines"]["own"] = frozen
        margin = None if frozen is None else accuracy - frozen
        put(
            audit,
            {
                "checks.depth.value": margin,
                "checks.depth.fires": None if margin is None else margin < 0.02,
            },
        )


def test_the_numbers_of_every_seed_are_those_of_its_file(audits, render):
    text = render(audits)
    found, verdicts = table(text, "Headline numbers"), table(text, "Verdicts of")
    checks = {
        (row[0], row[2]): [row[1], row[3], row[4].split(",")[0]]
        for row in rows(text, "Every check")
    }
    outcomes = {True: "fires", False: "ok", None: "not evaluated"}
    assert list(found) == ["3", "7"]
    for seed, audit in zip(found, audits):
        depth, stability = audit["checks"]["depth"], audit["checks"]["stability"]
        assert found[seed]["accuracy (%)"] == f"{100 * audit['headline_acc']:.2f}"
        assert found[seed]["own frozen (%)"] == f"{100 * audit['baselines']['own']:.2f}"
        assert found[seed]["margin (points)"] == f"{100 * depth['value']:z.2f}"
        assert found[seed]["bp+frozen (%)"] == found[seed]["strict margin (points)"] == "–"  # noqa: RUF001
        assert found[seed]["max growth"] == f"{audit['checks']['scale']['value']:.3g}"
        expected = ["> 0.3", f"{stability['value']:#.3g}", outcomes[stability["fires"]]]
        assert checks["(c) cross-batch stability", seed] == expected
        assert checks["D3 / (d) depth utility", seed][-1] == outcomes[depth["fires"]]
        assert verdicts[seed]["three-check"].startswith(audit["verdict"]["three_check"])
        assert verdicts[seed]["frozen baseline"] == "dfa+frozen"


def test_statistics_are_over_the_seeds_that_have_a_value(audits, render):
    third = copy.deepcopy(audits[0])
    third["spec"]["seed"] = 11
    three = [*audits, third]
    set_accuracies(three, [0.40, 0.44, 0.48], [0.35, 0.36, 0.46])
    found = table(render(three), "Mean ±")
    # Divisor n would give 3.27; 44 - 4.3027 * 4 / sqrt(3) = 34.06.
    assert list(found["accuracy (%)"].values())[1:] == [
        "3",
        "44.00 ± 4.00",
        "34.06",
        "53.94",
        "40.00",
        "48.00",
    ]
    assert found["margin (points)"]["mean"] == "5.00 ± 3.00"  # of 5, 8 and 2, seed by seed
    set_accuracies(audits, [0.4, 0.5], [0.3, None])
    found = table(render(audits[:1]), "Mean ±")["accuracy (%)"]
    assert list(found.values())[1:] == ["1", "40.00", "–", "–", "40.00", "40.00"]  # noqa: RUF001
    text = render(audits)
    assert list(table(text, "Mean ±")["margin (points)"].values())[1:3] == ["1", "10.00"]


def test_stored_outcomes_are_not_believed(audits, render):
    text = render(audits)
    for audit in audits:
        audit |= {
            "verdict": {"three_check": "PASS", "four_check": "trustworthy"},
            "flags": [],
            "borderline": {},
        }
        for check in audit["checks"].values():
            check |= {
                "value": 0.0,
                "fires": False,
                "threshold": 1.0,
                "note": "",
                "borderline": False,
            }
    assert render(audits) == text


def test_layers_are_means_over_the_seeds_that_have_a_value(audits, render):
    absent = {"value": None, "n": 128, "n_valid": 0, "reason": "no angle"}
    for audit, norm, cosine in zip(
        audits, (2.0, 0.0), (absent | {"value": 0.5, "reason": ""}, absent)
    ):
        put(
            audit, {"layers.1.hidden_norm": norm, "layers.1.growth": 6 / norm if norm else math.inf}
        )
        put(audit, {"layers.2.hidden_norm": 6.0, "deep.cosine": copy.copy(cosine)})
        put(audit, {"credit.1.cosine": cosine, "credit.1.rho": absent, "deep.rho": absent})
    text = render(audits)
    state, block = table(text, "Means over seeds")["1"], table(text, "Credits, means")["1"]
    assert (state["\\|\\|h\\_l\\|\\|"], state["growth"]) == ("1.00", "inf")
    assert (block["cosine"], block["rho"]) == ("0.500 (1/2)", "–")  # noqa: RUF001
    assert "bridge residual" not in block  # without any value


def test_the_run_is_identified(audits, render):
    for audit in audits:
        put(audit, {"provenance.commit": "v2", "spec.penalty": 0.01, "spec.frozen_blocks": 1})
    name = "dfa+penalty1e-2+frozen1"
    audits[1] |= {"commit": "v1-3-gabc", "device": "cpu (other)"}
    audits[0] |= {"setting": "main", "run": name, "commit": "v1-3-gabc"}
    text = render(audits[::-1])
    assert text.startswith(f"## Audit report: {name} in main\n") and said(text, "Seeds") == "3, 7"
    assert said(text, "Network").startswith("resmlp (depth 2, ") and said(text, "Data") == "digits"
    assert (
        said(text, "Training") == "1 epochs, batch size 64, learning rate 0.001, weight decay 0.01"
    )
    assert said(text, "Digest") == f"seed 3: {audits[0]['digest']}; seed 7: {audits[1]['digest']}"
    assert said(text, "Trained by commit") == "v1-3-gabc" and "seed 7: cpu (other)" in said(
        text, "Trained on"
    )
    assert said(text, "Audited by commit") == "v2" and said(text, "Audited on").startswith("cpu (")
    assert said(text, "Options") == "residual penalty 0.01, first 1 blocks at initialisation"


def test_the_verdict_to_quote_says_where_warnings_put_it_in_doubt(audits, render):
    assert "in doubt" not in render(audits)
    put(audits[1], {"warnings": ["The frozen baseline's accuracy is at chance."]})
    quoted = render(audits).split("\n\n")[1]
    assert quoted.count("in doubt (see the warnings)") == 1 and "seed 7: " in quoted


def test_networks_that_were_not_trained_here_are_numbered_and_nothing_is_said_of_what_they_lack(
    audits, render
):
    for audit in audits:
        audit |= {"credit": [], "deep": {}, "feature_drift": {}}
        for key in ("spec", "digest", "seconds", "device"):
            audit.pop(key)
    text = render(audits)
    assert list(table(text, "Headline numbers")) == ["1", "2"] and "Credits" not in text
    assert "file 2: " in said(text, "Files")
    assert said(text, "Network") == said(text, "Digest") == "not recorded"
    assert "### Credit" not in text and "### Warnings" not in text
    audits[0]["entry"] = {"model": "a:b", "frozen_accuracy": 0.4, "weights": None}
    audits[1]["entry"] = {"model": "a:b", "frozen_accuracy": 0.5, "weights": "w.safetensors"}
    assert said(render(audits), "Network") == "frozen\\_accuracy 0.4, model a:b"


def test_warnings_and_remarks_are_printed_once_with_the_seeds_that_have_them(audits, render):
    for audit in audits:
        audit |= {"warnings": ["A first."], "notes": "50% | x"}
    put(audits[1], {"warnings": ["A first.", "A second."]})
    text = render(audits)
    lines = text[text.index("### Warnings") :].split("\n\n")[1].splitlines()
    assert lines == ["- A first.", r"- Remark: 50% \| x", "- seed 7: A second."]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda audit: audit.pop("layers"), "layers: "),
        (
            lambda audit: put(audit, {"layers.1.hidden_norm": "much"}),
            r"layers\.1\.hidden_norm: .*'much'",
        ),
        (lambda audit: put(audit, {"spec.epochs": 9}), r"it differs in spec\.epochs \(9, not 1\)"),
        (
            lambda audit: put(audit, {"spec.architecture_options.width": 8}),
            r"architecture_options\.width \(8,",
        ),
        (lambda audit: audit["layers"].pop(), r"number of states \(2, not 3\)"),
        (
            lambda audit: audit.pop("spec"),
            r"spec\.dataset \('absent', not 'digits'\).* and \d+ more",
        ),
        (lambda audit: put(audit, {"spec.seed": 3}), r"seed 3 also in .*audit0.json"),
    ],
)
def test_what_is_no_audit_or_one_of_another_cell_is_refused_in_one_line(
    audits, render, change, words
):
    change(audits[1])
    assert re.search(rf"audit1\.json: .*{words}", render(audits))


def test_latex_is_escaped_balanced_full_and_written_as_it_would_be_printed(real, render, tmp_path):
    for broken in ("a_b", "50% of", "{", r"\begin{x}", "$x", "a & b", "#", r"\textbf{x}}"):
        with pytest.raises((AssertionError, IndexError)):
            check_latex(rf"\item {broken}")
    audit = copy.deepcopy(real[0]) | {
        "method": STRANGE,
        "setting": STRANGE,
        "notes": f"{STRANGE}\n\n{STRANGE}\x00",
    }
    audit["baselines"]["own_name"] = STRANGE
    text = render([audit], "--format", "latex")
    check_latex(text)
    assert text.count(r"\toprule") >= text.count(r"\label{tab:audit-") == 7
    title = r"\subsection*{Audit report: 50\%\_\&\#1 \textasciicircum{}\textasciitilde{}\{a\}"
    assert title in text.replace(r"\allowbreak{}", "")
    assert render([audit], "--format", "latex", "--output", str(tmp_path / "new/a.tex")) == ""
    assert (tmp_path / "new/a.tex").read_text() == text


OWN_METHODS = r"""
from fa_audit.methods.dfa import DFA


class Mine(DFA):
    latex = r"a_l = e\,M"
    drawn = "M fresh, N(0, 4)"
    scale = 3


class Silent(DFA):
    equation = ""
"""


def test_a_method_states_its_credit_and_its_feedback(audits, render, tmp_path, monkeypatch):
    text = render(audits)
    assert said(text, "Formula of the credit").startswith("`a_l = (p - y) B_l^T` (Nokland 2016). ")
    assert "entries N(0, 1/C), standard deviation 1/sqrt(C); drawn once" in said(text, "Feedback")
    (tmp_path / "own_method.py").write_text(OWN_METHODS)
    monkeypatch.syspath_prepend(tmp_path)
    for audit in audits:
        audit["spec"]["method"] = "own_method:Mine"
    assert said(render(audits), "Formula of the credit") == "not stated by the method."
    assert "own_method" not in sys.modules  # a file imports nothing
    assert "$a_l = e\\,M$ " in render(audits, "--format", "latex", "--method", "own_method:Mine")
    assert "M fresh, N(0, 4)" in said(render(audits), "Feedback")


@pytest.mark.parametrize(
    ("changes", "when"),
    [
        ({}, "after the last epoch"),
        ({"spec.snapshot": 3}, "after epoch 3 of 10, a snapshot"),
        ({"stopped_after": 4}, "after epoch 4 of 10, where the monitor stopped the training"),
    ],
)
def test_it_is_said_after_which_epoch_the_accuracy_was_measured(audits, render, changes, when):
    for audit in audits:
        put(audit, {"spec.epochs": 10} | changes)
    text = render(audits)
    assert f"Headline numbers of every seed: accuracy on the whole test set {when}." in text


@pytest.fixture(scope="module")
def external():
    """The audit of a described network, without credits and with those of a function."""
    torch.manual_seed(0)
    blocks = (torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()) for _ in range(2))
    model = torch.nn.Sequential(*blocks, torch.nn.Linear(4, 3))
    batches = [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(8)]
    about = {
        "description": Description(["input:0", "0", "1"], "all features"),
        "method_name": "mine",
    }
    given = diagnose(
        model,
        batches,
        0.5,
        0.4,
        credits=lambda model, x, y, states: [h**2 for h in states[:-1]],
        **about,
    )
    return [
        json.loads(json.dumps(report.to_dict()))
        for report in (diagnose(model, batches, 0.5, 0.4, **about), given)
    ]


def test_of_an_external_model_nothing_is_claimed_that_only_a_training_here_tells(
    external, real, render
):
    audit = copy.deepcopy(external[0]) | {"provenance": real[0]["provenance"]}
    text = render([audit])
    assert said(text, "Evaluation").startswith(
        "the first 16 samples that were given to the audit; stability"
    )
    assert "accuracy as it was given to the audit." in text and "last epoch" not in text


def test_the_report_compiles_in_a_column_of_a_paper(real, external, render, tmp_path):
    strange = copy.deepcopy(real[0]) | {
        "method": STRANGE.replace("ü", ""),
        "notes": 30 * "results/models/a_long_name ",
    }
    bp = copy.deepcopy(real[0]) | {"method": "a"}
    groups = [
        real,
        [strange],
        [bp | {"setting": "b"}],
        [external[0]],
        [external[1] | {"method": "given"}],
    ]
    assert not compile_latex(tmp_path, *(render(group, "--format", "latex") for group in groups))


EDITED = {
    "verdict.three_check": "PASS",
    "layers.1.hidden_norm": 9.0,
    "deep.cosine.value": 0.9,
    "spec.epochs": 9,
}


@pytest.mark.parametrize("place", EDITED)
def test_an_audit_that_changed_since_it_was_written_is_refused(audits, render, place):
    put(audits[0], {place: EDITED[place]})
    found = render(audits[:1], as_it_is=True)
    assert "audit0.json: its content has another SHA-256 than when it was written" in found
