"""The main audit table, and what all tables of runs share: rows, statistics over seeds, verdicts, tidy values."""

import io
import math

import pandas as pd
import pytest
from made_up_runs import SEEDS, cells, run, statistics, tidy_of
from projects import ROOT

from fa_audit.core.registry import load
from fa_audit.results.tables import TABLES, TABLES_OF_ONE
from fa_audit.results.tables.formats import to_csv, to_latex
from fa_audit.results.tables.main_audit import build as build_from
from fa_audit.results.tables.rows import STATISTICS, summary_of

LABELS = {"bp": "BP"}
MISSING = "–"  # noqa: RUF001 the en dash is meant
THREE = [
    run("dfa", accuracy=[0.30, 0.31, 0.35], max_growth=[1e4, 12345.0, 2e3], grad_norm_last=[1e-9, 2e-9, 9e-9],
        three_check="FAIL(D3)"),
    run("bp", accuracy=[0.55, 0.57, 0.59], own_frozen_acc=0.39),
    run("fa", accuracy=[0.40, 0.36, 0.41], three_check=["PASS", "FAIL(D3)", "PASS"]),
]  # fmt: skip


def build(*runs, labels=LABELS):
    return build_from(tidy_of(*runs), labels=labels, title="Main audit")


def named(table):
    return {row["run"]: row for row in cells(table)}


def test_registry_leads_to_the_tables():
    assert load("table", TABLES, "main_audit") is build_from
    assert all(callable(load("table", TABLES, kind)) for kind in TABLES)
    assert set(TABLES) >= TABLES_OF_ONE


@pytest.mark.parametrize("kind", TABLES)
def test_every_kind_has_a_caption_for_the_report(kind):
    assert (ROOT / f"report/captions/{kind}.rst").read_text().endswith(".\n")


def test_rows_by_mean_accuracy_with_labels():
    assert [row[0] for row in build(*THREE).rows] == ["BP", "fa", "dfa"]


def test_a_run_that_the_monitor_stopped_says_for_how_many_of_its_seeds():
    stopped = run("dfa", accuracy=0.3, stopped_after=[None, 2, None])
    assert [row[0] for row in build(stopped, run("bp"), labels={"dfa": "DFA"}).rows] == [
        "bp",
        "DFA (stopped early 1/3)",
    ]


def test_numbers_by_hand():
    row = named(build(*THREE))["BP"]
    assert row["accuracy (%)"] == "57.0 ± 2.0"  # 55, 57, 59 with divisor n - 1; divisor n would give 1.6
    assert (row["own frozen (%)"], row["margin (points)"], row["bp+frozen (%)"]) == ("39.0", "+18.0", "39.0")
    row = named(build(*THREE))["dfa"]
    assert row["accuracy (%)"] == "32.0 ± 2.6"
    assert row["margin (points)"] == "-3.0"
    assert row["max growth"] == "1.2e4"  # the largest, not the mean
    assert row["median ||g_L||"] == "2.0e-9"  # the median, not the mean 4e-9


def test_statistics_by_hand():
    # Student's t for 95 %, two-sided: 12.706 with 1 degree of freedom, 4.303 with 2 (any printed table).
    three = summary_of(pd.Series([0.55, 0.57, 0.59]))
    half = 4.303 * 0.02 / math.sqrt(3)
    assert three == pytest.approx(
        {"n": 3, "mean": 0.57, "deviation": 0.02, "interval_low": 0.57 - half, "interval_high": 0.57 + half,
         "median": 0.57, "max": 0.59}, abs=1e-5)  # fmt: skip
    two = summary_of(pd.Series([1.0, None, 3.0], dtype=object))
    assert two["interval_high"] == pytest.approx(2 + 12.706 * math.sqrt(2) / math.sqrt(2), abs=1e-3)
    assert (two["n"], two["deviation"]) == (2, pytest.approx(math.sqrt(2)))


def test_statistics_that_do_not_exist_are_none():
    assert summary_of(pd.Series([math.nan])) == {"n": 0} | dict.fromkeys(STATISTICS)
    one = summary_of(pd.Series([2.0]))
    assert (one["mean"], one["deviation"], one["interval_low"]) == (2.0, None, None)


def test_infinite_values_leave_the_statistics_that_they_do_not_spoil():
    found = summary_of(pd.Series([1.0, 2.0, math.inf]))
    assert (found["mean"], found["median"], found["max"]) == (math.inf, 2.0, math.inf)
    assert (found["deviation"], found["interval_high"]) == (None, None)
    assert math.isnan(summary_of(pd.Series([-math.inf, math.inf]))["mean"])


def test_margin_pairs_seed_with_seed():
    table = build(run("fa", 2, accuracy=[0.5, 0.6], own_frozen_acc=[0.4, None]))
    assert named(table)["fa"]["margin (points)"] == "+10.0 (1/2)"
    assert named(table)["fa"]["own frozen (%)"] == "40.0 (1/2)"


def test_verdicts_agree_or_are_counted():
    found = named(build(*THREE))
    assert found["dfa"]["three-check"] == "FAIL(D3)"
    assert found["fa"]["three-check"] == "PASS 2/3, FAIL(D3) 1/3"
    silent = build(run("bp", 2, three_check=["PASS", None]), labels={})
    assert named(silent)["bp"]["three-check"] == "PASS 1/2, no verdict 1/2"


def test_a_run_without_all_seeds_of_its_setting_says_how_many_it_has():
    row = named(build(run("bp"), run("fa", 2, accuracy=[0.3, 0.4])))["fa"]
    assert row["accuracy (%)"] == "35.0 ± 7.1 (2/3)"
    assert (row["max growth"], row["three-check"]) == ("2.00 (2/3)", "PASS 2/3")
    assert "Seeds: n = 3." in build(run("bp"), run("fa", 2)).caption


def test_one_seed_has_no_deviation():
    table = build(run("bp", 1))
    assert named(table)["BP"]["accuracy (%)"] == "50.0"
    assert "Seeds: n = 1." in table.caption


def test_missing_and_infinite_values_are_shown_as_such():
    table = build(run("dfa", 2, own_frozen_acc=None, max_growth=[2.0, math.inf], grad_norm_last=[0.0, math.nan]))
    row = named(table)["dfa"]
    assert (row["own frozen (%)"], row["margin (points)"]) == (MISSING, MISSING)
    assert row["max growth"] == "inf"
    assert row["median ||g_L||"] == "0 (1/2)"
    assert r"$\infty$" in to_latex(table, "spec 12")
    assert " & -- & -- & " in to_latex(table, "spec 12")


def test_csv_holds_every_seed_and_statistic_in_full_precision():
    accuracies = [1 / 3, 2 / 7, 0.1 + 0.2]
    table = build(run("bp", accuracy=accuracies), run("dfa+penalty1e-2"))
    values = pd.read_csv(io.StringIO(to_csv(table)), dtype={"value": str})
    values["value"] = values["value"].map(float)  # read_csv itself may miss the last bit
    assert list(values.columns) == [
        "setting", "run", "label", "width", "depth", "epochs", "penalty",
        "quantity", "statistic", "seed", "n", "value", "verdict",
    ]  # fmt: skip
    assert set(values.loc[values["run"] == "dfa+penalty1e-2", "penalty"]) == {0.01}
    bp = values[(values["run"] == "bp") & (values["quantity"] == "accuracy")].set_index("statistic")
    assert bp.loc["seed", "value"].tolist() == accuracies
    assert bp.loc["seed", "seed"].tolist() == list(SEEDS)
    assert bp.loc["mean", "value"] == pytest.approx(sum(accuracies) / 3, rel=1e-15)
    assert bp.loc["median", "value"] == 0.1 + 0.2
    assert bp.loc["mean", "n"] == 3
    assert set(values["quantity"]) == {
        "accuracy", "own_frozen_acc", "margin", "bp_frozen_acc", "max_growth", "grad_norm_last",
        "three_check", "four_check",
    }  # fmt: skip
    assert set(values["statistic"]) == {"seed", *STATISTICS}
    assert values.loc[values["quantity"] == "three_check", "verdict"].notna().all()


def test_csv_leaves_fields_of_absent_statistics_empty():
    table = build(run("bp", 1, own_frozen_acc=None), labels={})
    found = table.values.set_index(["quantity", "statistic"])
    assert math.isnan(found.loc[("accuracy", "deviation"), "value"])
    assert found.loc[("own_frozen_acc", "mean"), "n"] == 0
    assert statistics(table, "bp", "accuracy")["seeds"] == [0.5]
    assert "main,bp,bp,256,4,100,0.0,accuracy,deviation,,1,,\n" in to_csv(table)


def test_values_do_not_depend_on_the_order_of_the_input():
    backwards = tidy_of(*(part.iloc[::-1] for part in reversed(THREE)))
    again = build_from(backwards, labels=LABELS, title="Main audit")
    assert to_csv(again) == to_csv(build(*THREE))
