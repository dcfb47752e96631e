"""The reporting template as LaTeX, at the command line, and from damaged files."""

import copy
import json
import re
import subprocess
import sys

import pytest
from hypothesis import given
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


def test_a_wrong_entry_is_named_with_its_place(real, tmp_path, capsys):
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(damaged(real, ("layers", 1, "hidden_norm"), "much")))
    assert main(["report", str(path)]) == 1
    words = f"{path}: layers.1.hidden_norm: found 'much'; expected a number, null, 'nan', 'inf' or '-inf'."
    assert capsys.readouterr().err == f"fa-audit: {words}\n"


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["inf", "nan", 10**400]),
    lambda children: st.lists(children, max_size=2) | st.dictionaries(st.text(max_size=3), children, max_size=2),
    max_leaves=3,
)


def places(value, place=()):
    """Every place in nested lists and mappings."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*place, key)
        yield from places(child, (*place, key))


def damaged(audit, place, junk, how="replaced"):
    """The audit with one entry lost, replaced, or with another beside it."""
    audit = copy.deepcopy(audit)
    *way, last = place
    parent = audit
    for key in way:
        parent = parent[key]
    if how == "lost":
        del parent[last]
    elif how == "beside" and isinstance(parent, dict):
        parent["extra"] = junk
    else:
        parent[last] = junk
    return audit


@given(data=st.data(), junk=JUNK, how=st.sampled_from(["lost", "replaced", "beside"]))
def test_no_damage_gives_a_traceback_or_broken_latex(real, tmp_path_factory, data, junk, how):
    place = data.draw(st.sampled_from([place for place in places(real) if place[0] != "feature_drift"]))
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_text(json.dumps(damaged(real, place, junk, how)))
    try:
        document = report(read_seed_group([path]))
        check_latex(to_latex(document))
        to_markdown(document).encode()
    except AuditError as error:
        assert str(error).startswith(f"{path}: ") and len(str(error).splitlines()) == 1
