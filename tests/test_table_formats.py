"""Tables as csv, markdown, LaTeX and HTML: digits, escapes, and that every format reads back as the
same table.
"""

import math
import re
from dataclasses import replace
from html import unescape

import pytest
from latex import check_latex, compile_latex
from made_up_runs import EXPLODED, LONG, run, several, tidy_of

from fa_audit.core.registry import load
from fa_audit.documents.formats import Number, Table, to_html, to_markdown
from fa_audit.documents.latex import escape_latex, to_latex
from fa_audit.methods import METHODS
from fa_audit.results.tables import TABLES, TABLES_OF_ONE

ODD = "50% & [a](b) ep_x^2 #1 ~ {c}\\d $ <e> | é Ω\n* two"


def table_of(kind):
    """A table with a label full of special characters, missing values, and a verdict that differs."""
    absent = ("own_frozen_acc", "fresh_b_mean", "fresh_b_std")
    runs = [
        run("bp", max_growth=math.inf, deep_rho=math.nan, **dict.fromkeys(absent)),
        run("dfa+penalty1e-2", 2, stopped_after=[3, None], three_check=["PASS", "FAIL(D1+D2)"]),
    ]
    labels = {"bp": ODD, "main": ODD}
    return load("table", TABLES, kind)(tidy_of(*runs), labels=labels, title="A_B & 100%\n[x]")


@pytest.mark.parametrize(
    ("number", "markdown", "latex"),
    [
        (Number(12345.0), "1.2e4", r"$1.2\times10^{4}$"),
        (Number(-math.inf), "-inf", r"$-\infty$"),
        (Number(-0.04, decimals=1, signed=True), "0.0", "$0.0$"),
        (Number(0.5, decimals=2, deviation=0.125), "0.50 ± 0.12", r"$0.50 \pm 0.12$"),
        (
            Number(0.5, decimals=1, signed=True, interval=(-1.0, 2.0)),
            r"+0.5 \[-1.0, +2.0\]",
            "$+0.5$ {[}$-1.0, +2.0$]",
        ),
        (Number(3.0, decimals=0, measured=2, of=3), "3 (2/3)", "$3$ (2/3)"),
        (Number(math.nan), "–", "--"),  # noqa: RUF001 the en dash is meant
        (Number(None, measured=0, of=3, absent="never_"), r"never\_", r"never\_"),
    ],
)
def test_numbers(number, markdown, latex):
    table = Table("", ("x",), ((number,),))
    assert to_markdown(table).splitlines()[-1] == f"| {markdown} |"
    assert f"\\midrule\n{latex} \\\\\n" in to_latex(table)


def test_latex_escapes_what_it_would_take_for_its_own():
    assert escape_latex("a|b <c> ||h_L||") == r"a\textbar{}b \textless{}c\textgreater{} $\|h_L\|$"
    escaped = r"50\% \& \#1 \textasciitilde{} \{a\}\textbackslash{}b \textasciicircum{} \$ {[}x]{*}"
    assert escape_latex(r"50% & #1 ~ {a}\b ^ $ [x]*") == escaped
    assert escape_latex("dfa+penalty1e-2, -4.2e-07 at l >= 1") == (
        r"dfa+penalty$10^{-2}$, $-$$4.2\times10^{-7}$ at l $\ge$ 1"
    )
    norms = r"$\|h_{l+1}\|$ $\pm$ 1, commit 1e38497, a\_l"
    assert escape_latex("||h_l+1|| ± 1, commit 1e38497, a_l") == norms


@pytest.mark.parametrize("kind", TABLES)
def test_every_format_reads_back_as_the_same_table(kind):
    table = table_of(kind)
    html = to_html(table)
    cells = [unescape(cell) for cell in re.findall(r"<td>(.*?)</td>", html, re.DOTALL)]
    shown = [cell for row in table.rows for cell in row]
    assert len(cells) == len(shown) and "<e>" not in html
    texts = [pair for pair in zip(cells, shown) if isinstance(pair[1], str)]
    assert all(cell == " ".join(text.split()) for cell, text in texts)
    caption, empty, *lines = to_markdown(table).splitlines()
    assert caption.startswith(r"A\_B \& 100% \[x\]. ") and empty == ""
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {len(table.columns) + 1}
    assert any(r"\[a\](b) ep\_x^2 #1 \~ {c}\\d \$ \<e> \| é Ω \* two" in line for line in lines)
    text = to_latex(replace(table, name="x", origin="commit 1; spec 2"))
    check_latex(text)
    assert text.startswith("% commit 1\n% spec 2\n") and r"\toprule" in text
    assert text.count(r"\caption{A\_B \& 100\% {[}x].}\label{tab:x}") == 1


def test_an_abbreviation_does_not_end_the_caption():
    text = to_latex(Table("FA vs. DFA, e.g. on digits. Accuracy: a mean. n: 3.", ("x",), ()))
    assert r"\caption{FA vs. DFA, e.g. on digits.}" in text
    assert r"\footnotesize Accuracy: a mean. n: 3.}" in text


def test_every_table_compiles_in_a_column_of_a_paper(tmp_path):
    runs = dict.fromkeys([*[*METHODS][:10], LONG], EXPLODED)
    rows = [several(runs, setting=name, depth=depth) for name, depth in (("a", 4), ("b_2", 12))]
    texts = []
    for kind in TABLES:
        tidy = tidy_of(*rows[: 1 if kind in TABLES_OF_ONE else 2])
        table = load("table", TABLES, kind)(tidy, labels={}, title="A title")
        texts.append(to_latex(replace(table, name=kind)))
        check_latex(texts[-1])
    assert not compile_latex(tmp_path, *texts)
