"""Tables as csv, markdown, LaTeX and HTML: digits, escapes, and that every format reads back as the
same table.
"""

import math
import re
from html import unescape

import pandas as pd
import pytest
from latex import check_latex, compile_latex
from made_up_runs import EXPLODED, LONG, run, several, tidy_of

from fa_audit.core.registry import load
from fa_audit.documents.formats import Number, Table, escape_block, to_html, to_markdown
from fa_audit.documents.latex import escape_latex, to_latex
from fa_audit.methods import METHODS
from fa_audit.results.tables import TABLES, TABLES_OF_ONE

ODD = "50% & [a](b) ep_x^2 #1 ~ {c}\\d $ <e> | é Ω\n* two"
OF_NO_RUN = ("thresholds", "validations")  # kinds that print no labels of runs


def table_of(kind):
    """A table with a label full of special characters, missing values, and a verdict that differs."""
    runs = [
        run(
            "bp",
            own_frozen_acc=None,
            max_growth=math.inf,
            fresh_b_mean=None,
            fresh_b_std=None,
            deep_rho=math.nan,
        ),
        run("dfa+penalty1e-2", 2, stopped_after=[3, None], three_check=["PASS", "FAIL(D1+D2)"]),
        run("dfa", 2, four_check=math.nan, commit=None, seconds=None, first_scale_flag=[2, None]),
    ]
    labels = {"bp": ODD, "main": ODD}
    return load("table", TABLES, kind)(tidy_of(*runs), labels=labels, title="A_B & 100%\n[x]")


def html_cells(text):
    """The cells of an HTML table, row by row."""
    rows = re.findall(r"<tr>(.*?)</tr>", text, flags=re.DOTALL)
    return [
        [unescape(cell) for cell in re.findall(r"<t[dh]\b.*?>(.*?)</t[dh]>", row, re.DOTALL)]
        for row in rows
    ]


@pytest.mark.parametrize(
    ("number", "markdown", "latex"),
    [
        (Number(12345.0), "1.2e4", r"$1.2\times10^{4}$"),
        (Number(999.6), "1.0e3", r"$1.0\times10^{3}$"),
        (Number(1.8), "1.80", "$1.80$"),
        (Number(0.00999), "1.0e-2", r"$1.0\times10^{-2}$"),
        (Number(-math.inf), "-inf", r"$-\infty$"),
        (Number(-0.04, decimals=1, signed=True), "0.0", "$0.0$"),
        (Number(0.5, decimals=2, deviation=0.125), "0.50 ± 0.12", r"$0.50 \pm 0.12$"),
        (Number(3.0, decimals=0, measured=2, of=3), "3 (2/3)", "$3$ (2/3)"),
        (Number(math.nan), "–", "--"),  # noqa: RUF001 the en dash is meant
        (Number(None, measured=0, of=3, absent="never_"), r"never\_", r"never\_"),
    ],
)
def test_numbers(number, markdown, latex):
    table = Table("", ("x",), ((number,),), pd.DataFrame())
    assert to_markdown(table).splitlines()[-1] == f"| {markdown} |"
    assert f"\\midrule\n{latex} \\\\\n" in to_latex(table, "spec 12")


def test_latex_escapes_what_it_would_take_for_its_own_and_breaks_lines_where_a_text_does():
    assert escape_latex("a|b <c> ||h_L||") == r"a\textbar{}b \textless{}c\textgreater{} $\|h_L\|$"
    escaped = r"50\% \& \#1 \textasciitilde{} \{a\}\textbackslash{}b \textasciicircum{} \$ {[}x]{*}"
    assert escape_latex(r"50% & #1 ~ {a}\b ^ $ [x]*") == escaped
    assert escape_latex("dfa+penalty1e-2, -4.2e-07 at l >= 1") == (
        r"dfa+penalty$10^{-2}$, $-$$4.2\times10^{-7}$ at l $\ge$ 1"
    )
    assert (
        escape_latex("||h_l+1|| ± λ, commit 1e38497, a_l")
        == r"$\|h_{l+1}\|$ $\pm$ $\lambda$, commit 1e38497, $a_l$"
    )
    table = Table("one\n\ntwo. three", ("own frozen (%)",), (("a\nb",),), pd.DataFrame())
    assert to_markdown(table) == "one two. three\n\n| own frozen (%) |\n| --- |\n| a b |\n"
    marks = ("# a", "- b", "12. c", "> d", "-1 e", "#1 f")
    assert [escape_block(text)[:3] for text in marks] == [
        "\\# ",
        "\\- ",
        "12\\",
        "\\> ",
        "-1 ",
        "#1 ",
    ]
    text = to_latex(table, "x", name="it_1", title="one two")
    assert (
        "\\caption{one two.}\\label{tab:it_1}\\medskip\n" in text
        and "3em three\\end{minipage}" in text
    )
    assert r"\begin{tabular}[t]{@{}l@{}}a\\b\end{tabular} \\" in text
    assert r"\begin{tabular}[b]{@{}l@{}}own\\frozen\\(\%)\end{tabular} \\" in text


@pytest.mark.parametrize("kind", TABLES)
def test_html_and_markdown_read_back_as_the_same_table(kind):
    table = table_of(kind)
    heading, *rows = html_cells(to_html(table))
    assert heading == list(table.columns) and len(rows) == len(table.rows)
    for row, expected in zip(rows, table.rows):
        assert all(
            text == cell for text, cell in zip(row, expected, strict=True) if isinstance(cell, str)
        )
    caption, empty, *lines = to_markdown(table).splitlines()
    assert (
        caption.startswith(r"A\_B \& 100% \[x\]. ")
        and empty == ""
        and len(lines) == len(table.rows) + 2
    )
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {len(table.columns) + 1}
    assert (
        any(r"\[a\](b) ep\_x^2 #1 \~ {c}\\d \$ \<e> \| é Ω \* two" in line for line in lines)
        or kind in OF_NO_RUN
    )


@pytest.mark.parametrize("kind", TABLES)
def test_latex_says_what_it_needs_and_where_it_comes_from(kind):
    text = to_latex(table_of(kind), "commit 1; spec 2", name="x", title="A_B & 100%\n[x]")
    check_latex(text)
    assert text.startswith("% needs \\usepackage{booktabs,graphicx}\n% commit 1\n% spec 2\n")
    assert text.count(r"\caption{A\_B \& 100\% {[}x].}\label{tab:x}") == 1


@pytest.mark.parametrize("count", [3, 6, 11])
def test_every_table_compiles_in_a_column_of_a_paper(count, tmp_path):
    methods = [*METHODS][: count - 1]
    sizes = (("a", 4), ("b_2", 12))[: 1 + (count < 11)]
    rows = [
        several(dict.fromkeys([*methods, LONG], EXPLODED), setting=name, depth=depth)
        for name, depth in sizes
    ]
    found = {kind: tidy_of(*rows[: 1 if kind in TABLES_OF_ONE else 2]) for kind in TABLES}
    tables = {
        kind: load("table", TABLES, kind)(tidy, labels={}, title="A title")
        for kind, tidy in found.items()
    }
    texts = [to_latex(table, "spec", name=kind, title="A title") for kind, table in tables.items()]
    for text in texts:
        check_latex(text)
    problems = compile_latex(tmp_path, *texts)
    assert not problems


def test_latex_never_holds_back_more_floats_of_a_table_than_it_can():
    text = to_latex(Table("A caption.", ("run",), tuple((f"run{row}",) for row in range(2000))))
    held = [part.count(r"\begin{table*}") for part in text.split(r"\clearpage")]
    assert len(held) > 2 and max(held) < 18
