"""The reporting template: its numbers, what it discloses, LaTeX that compiles, one clear error for what is no audit."""

import copy
import json
import re
import subprocess
import sys

import pytest
from damage import damaged, replaced
from hypothesis import given, settings
from hypothesis import strategies as st
from latex import check_latex
from printed_audits import consistent, printed_audits, put

from fa_audit.audit.audit_file import read_seed_group
from fa_audit.cli import main
from fa_audit.core.errors import AuditError
from fa_audit.results.reporting import report, to_latex, to_markdown

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
def written(tmp_path):
    """Write audits to files of their own."""

    def write(audits):
        paths = [tmp_path / f"audit{index}.json" for index in range(len(audits))]
        for path, audit in zip(paths, audits):
            path.write_text(json.dumps(consistent(audit)))
        return paths

    return write


@pytest.fixture
def render(written):
    """The markdown report of some audits."""
    return lambda audits: to_markdown(report(read_seed_group(written(audits))))


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
    return re.search(rf"^- \*\*{term}:\*\* (.*)$", text, flags=re.MULTILINE)[1]


def set_accuracies(audits, accuracies, own):
    for audit, accuracy, frozen in zip(audits, accuracies, own, strict=True):
        audit["headline_acc"], audit["baselines"]["own"] = accuracy, frozen


def three(audits):
    """A third seed."""
    third = copy.deepcopy(audits[0])
    third["spec"]["seed"] = 11
    return [*audits, third]


# --- numbers -------------------------------------------------------------------------------------------------------


def test_the_numbers_of_every_seed_are_those_of_its_file(audits, render):
    found = table(render(audits), "Headline numbers")
    assert list(found) == ["3", "7"]
    for seed, audit in zip(map(str, SEEDS), audits):
        assert found[seed]["accuracy (%)"] == f"{100 * audit['headline_acc']:.2f}"
        assert found[seed]["own frozen (%)"] == f"{100 * audit['baselines']['own']:.2f}"
        assert found[seed]["margin (points)"] == f"{100 * audit['checks']['depth']['value']:z.2f}"
        assert found[seed]["bp+frozen (%)"] == found[seed]["strict margin (points)"] == "–"  # noqa: RUF001
        assert found[seed]["max growth"] == f"{audit['checks']['scale']['value']:.3g}"
    checks = rows(render(audits), "Every check")
    assert ["(c) cross-batch stability", "> 0.3", "3", f"{audits[0]['checks']['stability']['value']:.3g}"] in [
        row[:4] for row in checks
    ]
    outcomes = {(row[0], row[2]): row[4] for row in checks[1:]}
    names = {True: "fires", False: "ok", None: "not evaluated"}
    for seed, audit in zip(map(str, SEEDS), audits):
        assert outcomes["D3 / (d) depth utility", seed] == names[audit["checks"]["depth"]["fires"]]
        assert outcomes["D3-strict margin over bp+frozen", seed] == "not evaluated"
        verdict = table(render(audits), "Verdicts of")[seed]
        assert verdict["three-check"] == audit["verdict"]["three_check"] and verdict["frozen baseline"] == "dfa+frozen"


def test_statistics_by_hand(audits, render):
    audits = three(audits)
    set_accuracies(audits, [0.40, 0.44, 0.48], [0.35, 0.36, 0.46])
    found = table(render(audits), "Mean ±")
    # Divisor n would give 3.27; 44 - 4.3027 * 4 / sqrt(3) = 34.06.
    assert list(found["accuracy (%)"].values())[1:] == ["3", "44.00 ± 4.00", "34.06", "53.94", "40.00", "48.00"]
    assert found["margin (points)"]["mean"] == "5.00 ± 3.00"  # of 5, 8 and 2, seed by seed
    assert "reaches 2.48 deviations" in said(render(audits), "Spread")  # 4.3027 / sqrt(3)


def test_one_seed_has_no_spread_and_a_seed_without_a_baseline_is_counted(audits, render):
    set_accuracies(audits, [0.4, 0.5], [0.3, None])
    found = table(render(audits[:1]), "Mean ±")["accuracy (%)"]
    assert list(found.values())[1:] == ["1", "40.00", "–", "–", "40.00", "40.00"]  # noqa: RUF001
    assert said(render(audits[:1]), "Spread").startswith("one seed: no deviation")
    audits[1]["checks"]["depth"]["note"] = "no own frozen baseline"
    text = render(audits)
    assert list(table(text, "Mean ±")["margin (points)"].values())[1:3] == ["1", "10.00"]
    assert "seed 7: not evaluated (no own frozen baseline)" in said(text, "Baseline of D3")
    assert "seed 3: dfa+frozen. " in said(text, "Baseline of D3")
    assert "no own frozen baseline: check D3 / (d) (1 of 2)" in said(text, "Missing values")


def test_layers_are_means_over_the_seeds_that_have_a_value(audits, render):
    for audit, norm, growth, cosine, nudging in zip(audits, (2.0, 4.0), (3.0, "inf"), (0.5, None), (-1.5, -0.5)):
        audit["layers"][1] |= {"hidden_norm": norm, "growth": growth}
        audit["credit"][1]["cosine"] = {"value": cosine, "n": 128, "n_valid": 0, "reason": "no angle"}
        audit["credit"][1]["nudging"]["value"] = nudging
        audit["credit"][1]["rho"]["value"] = "nan"
    text = render(audits)
    state, block = table(text, "Means over seeds")["1"], table(text, "Credits, means")["1"]
    assert (state["\\|\\|h\\_l\\|\\|"], state["growth"]) == ("3.00", "inf")
    assert (block["cosine"], block["nudging (nats)"], block["rho"]) == ("0.500 (1/2)", "-1.00", "–")  # noqa: RUF001
    drift = [audit["credit"][0]["feature_drift"]["value"] for audit in audits]
    assert table(text, "Credits, means")["0"]["drift"] == f"{sum(drift) / 2:.3g}"
    assert "bridge residual" not in block  # without any value
    assert "no angle: cosine (1 of 4)" in said(text, "Missing values")


def test_the_run_is_identified(audits, render):
    for audit in audits:
        audit["provenance"]["commit"] = "v2"
    audits[1] |= {"commit": "v1-3-gabc", "device": "cpu (other)"}
    audits[0] |= {"setting": "main", "run": "dfa", "commit": "v1-3-gabc"}
    text = render(audits[::-1])
    assert text.startswith("## Audit report: dfa in main\n") and said(text, "Seeds") == "3, 7"
    assert said(text, "Network").startswith("resmlp (depth 2, ") and said(text, "Data") == "digits"
    assert said(text, "Training") == "1 epochs, batch size 64, learning rate 0.001, weight decay 0.01"
    assert said(text, "Digest") == f"seed 3: {audits[0]['digest']}; seed 7: {audits[1]['digest']}"
    assert said(text, "Trained by commit") == "v1-3-gabc" and "seed 7: cpu (other)" in said(text, "Trained on")
    assert said(text, "Audited by commit") == "v2" and said(text, "Audited on").startswith("cpu (")
    for audit in audits:
        audit["spec"] |= {"penalty": 0.01, "frozen_blocks": 1, "random_targets": True}
    assert said(render(audits), "Options") == "residual penalty 0.01, first 1 blocks at initialisation, random targets"


# --- disclosures ---------------------------------------------------------------------------------------------------


FIRED = {"layers.-1.grad_norm": 1e-9, "layers.-1.scale_free": 0.5}
NEARLY = {"layers.-1.scale_free": 1e-3}
INSIDE = {"deep.cosine.value": 0.2, "deep.fresh_b_null.n_valid": 20, "deep.fresh_b_null.interval": [-0.1, 0.3]}
OUTSIDE = INSIDE | {"deep.fresh_b_null.interval": [-0.1, 0.1]}
CHANCE = {"credit.0.rho.value": 0.5, "credit.1.rho.value": 0.01}
CHANCE |= {f"credit.{block}.rho_random.interval": [-0.03, 0.03] for block in (0, 1)}
CLAMPED = {"credit.0.cosine.value": 0.75, "credit.0.cosine.n_valid": 120, "credit.0.clamped_cosine.value": 0.25}
CLAMPED |= {"credit.1.cosine.value": 0.5, "credit.1.clamped_cosine.value": 0.5}
PRECISION = {"layers.1.float32_error.value": 0.125, "layers.0.float32_cosine.value": 0.5}
NOTE = "checks.reference.note"


@pytest.mark.parametrize(
    ("changes", "term", "words"),
    [
        (FIRED | {NOTE: "saturated loss"}, "Reference gradient", r"saturated loss: \|\|g\_L\|\| is below 1e-07, "),
        (FIRED | {NOTE: "collapsed reference"}, "Reference gradient", "collapsed reference: "),
        (NEARLY, "Reference gradient", r"nearly saturated: B \|\|h\_L\|\| \|\|g\_L\|\| = 0.001"),
        ({"samples": 64}, "Gradient norms", "of N = 64 samples, hence N times smaller than"),
        ({"samples": 64}, "Gradient norms", "is meant for N = 128"),
        (PRECISION, "float32 agreement", "median relative error 0.125, 1st percentile of cosines 0.5"),
        (CLAMPED, "Cosines", "is at most 0.5 away from it; samples without an angle: 8 at most"),
        (CHANCE, "Perturbation correlation", "at chance (where random credits lie) in blocks 1; "),
        (INSIDE, "Fresh feedback", "inside the 95 % interval of 20 fresh draws"),
        (OUTSIDE, "Fresh feedback", "outside the 95 % interval"),
        ({"stopped_after": 4}, "Budget", "stopped early, by the monitor after epoch 4"),
        ({"finite": False}, "Non-finite values", "is NaN or infinite"),
        ({"commit": "abc-dirty"}, "Code", "uncommitted changes"),
        ({"commit": "unknown"}, "Code", "commit is not known"),
        ({"provenance.commit": "v2-dirty"}, "Code", "uncommitted changes"),
        ({"thresholds.growth": 9.0}, "Limits", "growth 9 (default 50)"),
        ({"first_flags": {}}, "Over training", "no trajectory"),
        ({"first_flags.first_scale_flag": 5}, "Over training", "D1 fired first at epoch 5"),
        ({"batches": 2}, "Cross-batch stability", "over 2 batches (the paper takes 10)"),
        ({"notes": "50% | x"}, "Remarks", r"50% \| x."),
    ],
)
def test_what_makes_a_number_lie_is_disclosed(audits, render, changes, term, words):
    for audit in audits:
        put(audit, changes)
    text = said(render(audits), term)
    assert words in text and not text.startswith("seed")  # once for both seeds


def test_nothing_is_said_of_what_does_not_apply(audits, render):
    for audit in audits:
        audit["provenance"]["commit"] = "v2"
        audit |= {"commit": "abc", "credit": [], "deep": {}, "feature_drift": {}, "stopped_after": None}
    text = render(audits)
    for term in ("Budget", "Cosines", "Perturbation correlation", "Fresh feedback", "Non-finite values", "Code"):
        assert f"**{term}:**" not in text
    assert "Credits" not in text


# --- one cell ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda audit: audit["spec"].update(epochs=9), r"it differs in spec\.epochs \(9, not 1\)"),
        (lambda audit: put(audit, {"spec.architecture_options.width": 8}), r"architecture_options\.width \(8,"),
        (lambda audit: audit["thresholds"].update(growth=5.0), r"thresholds\.growth \(5\.0, not 50\.0\)"),
        (lambda audit: audit["layers"].pop(), r"number of states \(2, not 3\)"),
        (lambda audit: audit.pop("spec"), r"spec\.dataset \('absent', not 'digits'\).* and \d+ more"),
        (lambda audit: audit["spec"].update(seed=3), r"seed 3 once more, after .*audit0.json"),
    ],
)
def test_a_report_is_about_one_cell(audits, written, change, words):
    change(audits[1])
    with pytest.raises(AuditError, match=rf"audit1\.json: .*{words}"):
        read_seed_group(written(audits))


def test_networks_without_a_specification_are_numbered_and_told_apart_by_their_file(audits, render):
    for audit in audits:
        for key in ("spec", "digest", "seconds", "device"):
            audit.pop(key)
    text = render(audits)
    assert list(table(text, "Headline numbers")) == ["1", "2"]
    assert "no specification was recorded" in said(text, "Spread")
    assert said(text, "Network") == said(text, "Digest") == "not recorded" and "file 2: " in said(text, "Files")
    audits[0]["entry"] = {"model": "a:b", "frozen_accuracy": 0.4, "weights": None}
    audits[1]["entry"] = {"model": "a:b", "frozen_accuracy": 0.5, "weights": "w.safetensors"}
    assert said(render(audits), "Network") == "frozen\\_accuracy 0.4, model a:b"


# --- LaTeX ---------------------------------------------------------------------------------------------------------


def test_latex_is_escaped_balanced_and_full(real, written):
    check_latex(r"\item 50\% a\_b $x_1$ \textbf{x}")
    for broken in ("a_b", "50% of", "{", r"\begin{x}", "$x", "a & b", "#", r"\textbf{x}}"):
        with pytest.raises((AssertionError, IndexError)):
            check_latex(rf"\item {broken}")
    audit = copy.deepcopy(real[0]) | {"run": STRANGE, "setting": STRANGE, "notes": f"{STRANGE}\n\n{STRANGE}\x00"}
    audit["baselines"]["own_name"] = STRANGE
    text = to_latex(report(read_seed_group(written([audit]))))
    check_latex(text)
    assert text.count(r"\toprule") == text.count(r"\begin{tabular}{") == 7
    assert all(line.isprintable() for line in text.splitlines())
    assert r"\subsection*{Audit report: 50\%\_\&\#1 \textasciicircum{}\textasciitilde{}\{a\}" in text


# --- the command line, and damaged files ---------------------------------------------------------------------------


def test_the_command_prints_or_writes_whole_files_and_needs_no_torch(audits, written, capsys, tmp_path):
    paths = list(map(str, written(audits)))
    program = "import sys; from fa_audit.cli import main; main(sys.argv[1:]); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, "report", *paths], capture_output=True, text=True)
    assert done.stdout == to_markdown(report(read_seed_group(paths))) + "False\n", done.stderr
    assert main(["report", *paths, "--format", "latex", "--output", str(tmp_path / "new/a.tex")]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "new/a.tex").read_text() == to_latex(report(read_seed_group(paths)))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "found an empty file; expected an audit's JSON: results/audits/"),
        ("{", "found no JSON (Expecting property name"),
        ("[" * 100_000, "found no JSON (maximum recursion"),
        ("[1, 2]", "found [1, 2]; expected an audit's JSON"),
        ('{"spec": {}, "accuracy": 0.5}', "missing method, verdict, flags"),
        (None, "No such file or directory; expected an audit's JSON"),
        ("wrong", "layers.1.hidden_norm: found 'much'; expected a number, null, 'nan', 'inf' or '-inf'."),
    ],
)
def test_what_is_no_audit_is_one_line_with_its_place(real, tmp_path, capsys, content, words):
    path = tmp_path / "bad.json"
    if content is not None:
        wrong = replaced(real[0], ("layers", 1, "hidden_norm"), "much")
        path.write_text(json.dumps(wrong) if content == "wrong" else content)
    assert main(["report", str(path)]) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"fa-audit: {path}: {words}") and len(message.splitlines()) == 1


EDITED = {
    "verdict.three_check": "PASS", "verdict.four_check": "trustworthy", "flags": [], "checks.depth.fires": None,
    "checks.depth.value": 0.5, "checks.scale.threshold": 1e9, "checks.stability.value": 0.0, "headline_acc": 0.999,
}  # fmt: skip


@pytest.mark.parametrize("place", EDITED)
def test_an_audit_that_contradicts_itself_is_refused(audits, written, place):
    paths = written(audits)
    put(audits[0], {place: EDITED[place]})
    paths[0].write_text(json.dumps(audits[0]))
    with pytest.raises(AuditError, match=r"audit0.json: (checks|verdict|flags).*the rest of the audit gives .*altered"):
        read_seed_group(paths[:1])


@settings(max_examples=40)
@given(data=st.data())
def test_no_damage_gives_a_traceback_or_broken_latex(real, tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_text(json.dumps(data.draw(damaged(real[0]))))
    try:
        document = report(read_seed_group([path]))
        check_latex(to_latex(document))
        to_markdown(document).encode()
    except AuditError as error:
        assert str(error).startswith(f"{path}: ") and len(str(error).splitlines()) == 1
