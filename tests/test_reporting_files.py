"""The reporting template as LaTeX, at the command line, and from damaged files."""

import json
import re
import subprocess
import sys

import pytest
from damage import damaged, replaced
from hypothesis import given, settings
from hypothesis import strategies as st
from printed_audits import printed_audits

from fa_audit.audit.audit_file import read_seed_group
from fa_audit.cli import main
from fa_audit.core.errors import AuditError
from fa_audit.results.reporting import report, to_latex, to_markdown

STRANGE = r"50%_&#1 ^~{a}\b $ <x>|y ü"


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A short run, audited at the command line."""
    return printed_audits(tmp_path_factory.mktemp("reports"), [3])[0]


@pytest.fixture
def paths(real, tmp_path):
    """Two files of one cell."""
    found = [tmp_path / f"audit{seed}.json" for seed in (3, 7)]
    for path, seed in zip(found, (3, 7)):
        path.write_text(json.dumps(real | {"spec": real["spec"] | {"seed": seed}}))
    return found


# --- LaTeX ---------------------------------------------------------------------------------------------------------

TOKEN = re.compile(r"\\(begin|end)\{(\w+\*?)\}|\\([a-zA-Z]+|.)|([{}$&#~^_])")


def check_latex(text):
    """Braces, mathematics and environments are balanced, special characters stand where they may, rows are full."""
    depth, math, open_environments = 0, False, []
    for line in text.splitlines():
        if line.startswith("%"):
            continue
        assert not re.search(r"(?<!\\)(\\\\)*%", line.removesuffix("%"))  # at its end it hides the line break
        for kind, environment, _, special in TOKEN.findall(line):
            if kind == "begin":
                open_environments.append(environment)
            elif kind == "end":
                assert open_environments.pop() == environment
            depth += {"{": 1, "}": -1}.get(special, 0)
            math ^= special == "$"
            assert depth >= 0 and special not in ("#", "~") and (math or special not in ("^", "_"))
            assert special != "&" or open_environments[-1:] == ["tabular"]
        assert not math
    assert not open_environments and depth == 0
    text = re.sub(r"\\begin\{tabular\}\[[tb]\].*?\\end\{tabular\}", "a cell of several lines", text)
    for body in re.findall(r"\\begin\{tabular\}\{@\{\}(\w+)@\{\}\}(.*?)\\end\{tabular\}", text, flags=re.DOTALL):
        lines = [line for line in body[1].splitlines() if line.endswith(r"\\")]
        assert len(lines) > 1 and {len(re.findall(r"(?<!\\)&", line)) + 1 for line in lines} == {len(body[0])}


@pytest.mark.parametrize("broken", ["a_b", "50% of", "{", r"\begin{x}", "$x", "a & b", "#", r"\textbf{x}}"])
def test_the_check_of_latex_notices(broken):
    check_latex(r"\item 50\% a\_b $x_1$ \textbf{x}")
    with pytest.raises((AssertionError, IndexError)):
        check_latex(rf"\item {broken}")


def test_latex_is_escaped_balanced_and_full(real, tmp_path):
    audit = real | {
        "run": STRANGE,
        "setting": STRANGE,
        "notes": f"{STRANGE}\n\n{STRANGE}\x00",
        "flags": [f"{STRANGE}\n\n\x00"],
    }
    audit |= {"verdict": dict.fromkeys(real["verdict"], STRANGE)}
    (tmp_path / "strange.json").write_text(json.dumps(audit))
    text = to_latex(report(read_seed_group([tmp_path / "strange.json"])))
    check_latex(text)
    assert text.count(r"\toprule") == text.count(r"\begin{tabular}{") == 7
    assert all(line.isprintable() for line in text.splitlines())
    assert r"\subsection*{Audit report: 50\%\_\&\#1 \textasciicircum{}\textasciitilde{}\{a\}" in text


# --- the command line, and damaged files ---------------------------------------------------------------------------


def test_the_command_prints_or_writes_whole_files(paths, capsys, tmp_path):
    paths = [str(path) for path in paths]
    assert main(["report", *paths]) == 0
    markdown = capsys.readouterr().out
    assert markdown == to_markdown(report(read_seed_group(paths)))
    assert main(["report", *paths, "--format", "latex", "--output", str(tmp_path / "new/a.tex")]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "new/a.tex").read_text() == to_latex(report(read_seed_group(paths)))


def test_a_report_needs_no_torch(paths):
    program = "import sys; from fa_audit.cli import main; main(sys.argv[1:]); print('torch' in sys.modules)"
    arguments = [sys.executable, "-c", program, "report", *map(str, paths)]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.stdout.startswith("## Audit report: dfa") and done.stdout.endswith("\nFalse\n"), done.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "found an empty file; expected an audit's JSON: results/audits/"),
        ("{", "found no JSON (Expecting property name"),
        ("[" * 100_000, "found no JSON (maximum recursion"),
        ("[1, 2]", "found [1, 2]; expected an audit's JSON"),
        ('{"spec": {}, "accuracy": 0.5}', "missing method, verdict, flags"),
        (None, "No such file or directory; expected an audit's JSON"),
    ],
)
def test_what_is_no_audit_is_told_in_one_line(tmp_path, capsys, content, words):
    path = tmp_path / "bad.json"
    if content is not None:
        path.write_text(content)
    assert main(["report", str(path)]) == 1
    message = capsys.readouterr().err
    assert message.startswith(f"fa-audit: {path}: {words}") and len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("layers", 1, "hidden_norm"), "much", "found 'much'; expected a number, null, 'nan', 'inf' or '-inf'."),
        (("layers",), [], "found []; expected a non-empty list of states."),
        (("deep", "rho"), None, "found None; expected a measured value: a mapping with value, n and n_valid."),
        (("checks", "depth", "value"), 2, "found 2; expected a number from -1 to 1, or null."),
        (
            ("checks", "scale"),
            {},
            "missing name, value, threshold, fires, note; expected a check: a mapping with name,",
        ),
        (("samples",), True, "found True; expected an integer >= 0."),
        (("spec", "seed"), 1.0, "found 1.0; expected an integer 0..2147483647."),
        (("provenance", "commit"), 1, "found 1; expected a text."),
    ],
)
def test_a_wrong_entry_is_named_with_its_place(real, tmp_path, capsys, place, value, words):
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(replaced(real, place, value)))
    assert main(["report", str(path)]) == 1
    assert capsys.readouterr().err.startswith(f"fa-audit: {path}: {'.'.join(map(str, place))}: {words}")


@settings(max_examples=60)
@given(data=st.data())
def test_no_damage_gives_a_traceback_or_broken_latex(real, tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_text(json.dumps(data.draw(damaged(real))))
    try:
        document = report(read_seed_group([path]))
        check_latex(to_latex(document))
        to_markdown(document).encode()
    except AuditError as error:
        assert str(error).startswith(f"{path}: ") and len(str(error).splitlines()) == 1
