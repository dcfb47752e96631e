"""The main audit table: its rows, its numbers, its three formats."""

import io
import math

import pandas as pd
import pytest

from fa_audit.registry import load
from fa_audit.tables import TABLES
from fa_audit.tables.formats import Number, Table, escape_latex, escape_markdown, to_csv, to_latex, to_markdown
from fa_audit.tables.main_audit import COLUMNS, QUANTITIES, STATISTICS
from fa_audit.tables.main_audit import build as build_from
from fa_audit.tidy import Tidy

SEEDS = (42, 123, 456)
LABELS = {"bp": "BP"}


def build(runs, *, labels, title="Main audit"):
    empty = pd.DataFrame()
    return build_from(Tidy(("main",), runs, empty, empty), labels=labels, title=title)


def run(name, accuracy, own=0.35, bp=0.39, growth=2.0, gradient=1e-3, three="PASS", four="trustworthy", stopped=None):
    """Rows of one run; every argument is one value for all seeds or one per seed."""
    columns = {"accuracy": accuracy, "own_frozen_acc": own, "bp_frozen_acc": bp, "max_growth": growth,
               "grad_norm_last": gradient, "three_check": three, "four_check": four,
               "stopped_after": stopped}  # fmt: skip
    n = len(accuracy)
    values = {key: value if isinstance(value, list) else [value] * n for key, value in columns.items()}
    return pd.DataFrame({"run": name, "seed": SEEDS[:n]} | values)


@pytest.fixture
def runs():
    return pd.concat(
        [
            run("dfa", [0.30, 0.31, 0.35], growth=[1e4, 12345.0, 2e3], gradient=[1e-9, 2e-9, 9e-9], three="FAIL(D3)"),
            run("bp", [0.55, 0.57, 0.59], own=0.39),
            run("fa", [0.40, 0.36, 0.41], three=["PASS", "FAIL(D3)", "PASS"]),
        ],
        ignore_index=True,
    )


def cells(table):
    """The markdown cells by label and heading."""
    lines = [line[2:-2].split(" | ") for line in to_markdown(table).splitlines() if line.startswith("| ")]
    return {line[0]: dict(zip(COLUMNS, line, strict=True)) for line in lines[2:]}


def test_registry_leads_to_the_table():
    assert load("table", TABLES, "main_audit") is build_from


def test_rows_by_mean_accuracy_with_labels(runs):
    assert [row[0] for row in build(runs, labels=LABELS).rows] == ["BP", "fa", "dfa"]


def test_a_run_that_the_monitor_stopped_says_for_how_many_of_its_seeds():
    stopped = run("dfa", [0.3, 0.3, 0.3], stopped=[None, 2, None])
    rows = build(pd.concat([stopped, run("bp", [0.5])], ignore_index=True), labels={"dfa": "DFA"}).rows
    assert [row[0] for row in rows] == ["bp", "DFA (stopped early 1/3)"]


def test_numbers_by_hand(runs):
    row = cells(build(runs, labels=LABELS))["BP"]
    assert row["seeds"] == "3"
    assert row["accuracy (%)"] == "57.0 ± 2.0"  # 55, 57, 59 with divisor n - 1; divisor n would give 1.6
    assert (row["own frozen (%)"], row["margin (points)"], row["bp+frozen (%)"]) == ("39.0", "+18.0", "39.0")
    row = cells(build(runs, labels=LABELS))["dfa"]
    assert row["accuracy (%)"] == "32.0 ± 2.6"
    assert row["margin (points)"] == "-3.0"
    assert row["max growth"] == "1.2e4"  # the largest, not the mean
    assert row["median ||g_L||"] == "2.0e-9"  # the median, not the mean 4e-9


def test_margin_pairs_seed_with_seed():
    table = build(run("fa", [0.5, 0.6], own=[0.4, math.nan]), labels={})
    assert cells(table)["fa"]["margin (points)"] == "+10.0 (1/2)"
    assert cells(table)["fa"]["own frozen (%)"] == "40.0 (1/2)"


def test_verdicts_agree_or_are_counted(runs):
    found = cells(build(runs, labels=LABELS))
    assert found["dfa"]["three-check"] == "FAIL(D3)"
    assert found["fa"]["three-check"] == "PASS 2/3, FAIL(D3) 1/3"
    silent = build(run("bp", [0.5, 0.6], three=["PASS", None]), labels={})
    assert cells(silent)["bp"]["three-check"] == "PASS 1/2, no verdict 1/2"


def test_one_seed_has_no_deviation():
    assert cells(build(run("bp", [0.5]), labels={}))["bp"]["accuracy (%)"] == "50.0"


def test_missing_and_infinite_values_are_shown_as_such():
    table = build(run("dfa", [0.1, 0.2], own=math.nan, growth=[2.0, math.inf], gradient=[0.0, math.nan]), labels={})
    row = cells(table)["dfa"]
    missing = "–"  # noqa: RUF001 the en dash is meant
    assert (row["own frozen (%)"], row["margin (points)"]) == (missing, missing)
    assert row["max growth"] == "inf"
    assert row["median ||g_L||"] == "0 (1/2)"
    assert r"$\infty$" in to_latex(table, "spec 12")
    assert " & -- & -- & " in to_latex(table, "spec 12")


def test_csv_holds_every_seed_and_statistic_in_full_precision(runs):
    accuracies = [1 / 3, 2 / 7, 0.1 + 0.2]
    runs.loc[runs["run"] == "bp", "accuracy"] = accuracies
    values = pd.read_csv(io.StringIO(to_csv(build(runs, labels=LABELS))), dtype={"value": str})
    values["value"] = values["value"].map(float)  # read_csv itself may miss the last bit
    assert list(values.columns) == ["run", "label", "quantity", "statistic", "seed", "n", "value", "verdict"]
    bp = values[(values["run"] == "bp") & (values["quantity"] == "accuracy")].set_index("statistic")
    assert bp.loc["seed", "value"].tolist() == accuracies
    assert bp.loc["seed", "seed"].tolist() == list(SEEDS)
    assert bp.loc["mean", "value"] == pytest.approx(sum(accuracies) / 3, rel=1e-15)
    assert bp.loc["median", "value"] == 0.1 + 0.2
    assert bp.loc["mean", "n"] == 3
    assert set(values["quantity"]) == {*QUANTITIES, "three_check", "four_check"}
    assert set(values["statistic"]) == {"seed", *STATISTICS}
    assert values.loc[values["quantity"] == "three_check", "verdict"].notna().all()


def test_csv_leaves_fields_of_absent_statistics_empty():
    values = build(run("bp", [0.5], own=math.nan), labels={}).values
    found = values.set_index(["quantity", "statistic"])
    assert math.isnan(found.loc[("accuracy", "deviation"), "value"])
    assert found.loc[("own_frozen_acc", "mean"), "n"] == 0
    assert "bp,bp,accuracy,deviation,,1,,\n" in to_csv(build(run("bp", [0.5]), labels={}))


def test_values_do_not_depend_on_the_order_of_the_input(runs):
    assert to_csv(build(runs.iloc[::-1], labels=LABELS)) == to_csv(build(runs, labels=LABELS))


def printed(number):
    """A number as markdown and LaTeX print it."""
    table = Table("", ("x",), ((number,),), pd.DataFrame())
    return to_markdown(table).splitlines()[-1][2:-2], to_latex(table, "spec 12").splitlines()[-4][:-3]


@pytest.mark.parametrize(
    ("number", "markdown", "latex"),
    [
        (Number(12345.0), "1.2e4", r"$1.2\times10^{4}$"),
        (Number(-2.5e-9), "-2.5e-9", r"$-2.5\times10^{-9}$"),
        (Number(999.6), "1.0e3", r"$1.0\times10^{3}$"),
        (Number(941.2), "941", "$941$"),
        (Number(0.05), "0.05", "$0.05$"),
        (Number(0.00999), "1.0e-2", r"$1.0\times10^{-2}$"),
        (Number(0.0), "0", "$0$"),
        (Number(-0.04, decimals=1, signed=True), "0.0", "$0.0$"),
        (Number(0.5, decimals=2, deviation=0.125), "0.50 ± 0.12", r"$0.50 \pm 0.12$"),
        (Number(3.0, decimals=0, measured=2, of=3), "3 (2/3)", "$3$ (2/3)"),
    ],
)
def test_numbers(number, markdown, latex):
    assert printed(number) == (markdown, latex)


def test_latex_is_escaped_and_ruled(runs):
    text = to_latex(build(runs, labels={"fa": r"50% & ep_x^2 #1 ~ {a}\b $"}, title="A_B"), "spec 12")
    assert r"50\% \& ep\_x\textasciicircum{}2 \#1 \textasciitilde{} \{a\}\textbackslash{}b \$ & $3$" in text
    assert r"\caption{A\_B. " in text
    assert r"median $\|g_L\|$ &" in text
    order = [text.index(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}")]
    assert order == sorted(order)
    assert {line.count(" & ") for line in text.splitlines() if line.endswith(r"\\")} == {len(COLUMNS) - 1}
    assert r"\begin{tabular}{@{}lrrrrrrrll@{}}" in text


def test_escapes():
    assert escape_latex("a|b <c> ||h_L||") == r"a\textbar{}b \textless{}c\textgreater{} $\|h_L\|$"
    assert escape_markdown(r"a|b*c_d\`<$") == r"a\|b\*c\_d\\\`\<\$"


def test_markdown_has_one_cell_per_column_whatever_the_label(runs):
    lines = to_markdown(build(runs, labels={"fa": "a | b"})).splitlines()[2:]
    assert {line.replace(r"\|", "").count("|") for line in lines} == {len(COLUMNS) + 1}
    assert lines[1].split(" | ")[:3] == ["| ---", "---:", "---:"]
