"""Every kind of table: its rows in order, its numbers by hand, what is missing or off the scale."""

import io
import math

import pandas as pd
import pytest
from made_up_runs import backwards, cells, run, tidy_of

from fa_audit.core.registry import load
from fa_audit.documents.formats import to_csv
from fa_audit.documents.latex import to_latex
from fa_audit.results.tables import TABLES
from fa_audit.results.tables.rows import STATISTICS

MISSING = "–"  # noqa: RUF001 the en dash is meant
LABELS = {"bp": "BP", "dfa": "DFA", "vit": "ViT-Mini"}
NAN = math.nan
KEPT = ("run", "setting", "seed", "digest", "width", "depth", "epochs", "penalty", "cosines", "losses",
        "method", "shallow", "frozen_blocks")  # fmt: skip


def build(kind, *runs):
    return load("table", TABLES, kind)(tidy_of(*runs), labels=LABELS, title="Title")


def rows_of(kind, *runs):
    return cells(build(kind, *runs))


def column(rows, *headings):
    return [tuple(row[heading] for heading in headings) for row in rows]


def test_main_audit_by_hand():
    three = [
        run("dfa", accuracy=[0.30, 0.31, 0.35], max_growth=[1e4, 12345.0, 2e3], grad_norm_last=[1e-9, 2e-9, 9e-9],
            three_check="FAIL(D3)"),
        run("bp", accuracy=[0.55, 0.57, 0.59], own_frozen_acc=0.39),
        run("fa", accuracy=[0.40, 0.36, 0.41]),
    ]  # fmt: skip
    found = {row["run"]: row for row in rows_of("main_audit", *three)}
    assert list(found) == ["BP", "fa", "DFA"]  # by mean accuracy
    assert found["BP"] == {
        "run": "BP", "n": "3", "accuracy (%)": "57.0 ± 2.0",  # 55, 57, 59 with divisor n - 1; n would give 1.6
        "own frozen (%)": "39.0", "margin (points)": "+18.0", "bp+frozen (%)": "39.0", "max growth": "1.50",
        "median ||g_L||": "1.0e-3", "three-check": "PASS 3/3", "four-check": "trustworthy 3/3",
    }  # fmt: skip
    assert found["DFA"]["accuracy (%)"] == "32.0 ± 2.6"
    assert found["DFA"]["margin (points)"] == "-8.0"
    assert found["DFA"]["max growth"] == "1.2e4"  # the largest, not the mean
    assert found["DFA"]["median ||g_L||"] == "2.0e-9"  # the median, not the mean 4e-9


def test_comparison_by_hand():
    flags = {"first_scale_flag": [7, 9, 11], "first_reference_flag": [4, None, 3]}
    rows = rows_of(
        "comparison", run("dfa", setting="vit", **flags), run("bp", setting="vit", accuracy=0.2),
        run("dfa", setting="cnn", accuracy=0.3), run("bp", setting="cnn", accuracy=0.9, first_scale_flag=NAN),
    )  # fmt: skip
    order = [("ViT-Mini", "DFA"), ("ViT-Mini", "BP"), ("cnn", "BP"), ("cnn", "DFA")]
    assert column(rows, "setting", "run") == order
    assert column(rows[:1], "D1 from epoch", "D2 from epoch") == [("9.0 ± 2.0", "3.5 ± 0.7 (2/3)")]
    assert rows[2]["D1 from epoch"] == "never"
    assert "setting" not in rows_of("comparison", run("dfa"))[0]


def test_variation_by_hand():
    deep = []
    for depth in (12, 2, 8):
        for name, accuracy in (("dfa", 0.3), ("bp", 0.6)):
            deep.append(run(name, setting=f"depth{depth}", depth=depth, accuracy=accuracy))
    rows = rows_of("variation", *deep)
    order = [(name, depth) for name in ("BP", "DFA") for depth in ("2", "8", "12")]
    assert column(rows, "run", "depth") == order
    # Two settings that no column tells apart keep their names.
    alike = [run("dfa", setting=name) for name in "ab"] + [run("dfa", setting="c", depth=8)]
    assert column(rows_of("variation", *alike), "setting") == [("a",), ("b",), ("c",)]


def test_penalty_by_hand():
    names = ["dfa+penalty1e-1", "dfa", "bp+penalty1e-4", "bp", "bp+penalty2.5e-3"]
    rows = rows_of("penalty", *(run(name, accuracy=0.9 if "bp" in name else 0.3) for name in names))
    order = ["BP, 0", "BP, 1e-4", "BP, 2.5e-3", "DFA, 0", "DFA, 1e-1"]
    assert [row["method, penalty"] for row in rows] == order
    (row,) = rows_of("penalty", run(
        "dfa+penalty1e-2", fresh_b_mean=[0.001, 0.002, 0.006], fresh_b_std=[0.02, 0.021, 0.025],
        deep_rho=[0.07, 0.08, 0.09], deep_nudging=[-4e-5, -5e-5, -6e-5], hidden_norm_last=[3e4, 4e4, 9e4],
    ))  # fmt: skip
    headings = ("fresh-B null", "null deviation", "deep rho", "nudging (nats)", "median ||h_L||")
    shown = ("0.003", "0.022", "0.080 ± 0.010", "-5.0e-5", "4.0e4")
    assert column([row], *headings) == [shown]


def test_z_is_the_distance_from_the_null_seed_by_seed():
    draws = {
        "deep_cosine": [0.16, 0.10, 0.05],
        "fresh_b_mean": [0.0, 0.02, 0.01],
        "fresh_b_std": [0.02, 0.04, 0.02],
    }
    (row,) = rows_of("null_calibration", run("dfa", **draws))
    assert row["z"] == "+4.0 ± 3.5"  # 8, 2 and 2; of the means it would be 0.0933 / 0.0267 = 3.5
    # Float32 credits against float64 draws: the difference is rounding alone.
    rounding = [0.0, 1e-17, 2e-8]
    rows = rows_of(
        "null_calibration",
        run("fa", deep_cosine=0.5, fresh_b_mean=0.5 - 1e-8, fresh_b_std=rounding, accuracy=0.4),
        run("ep", deep_cosine=0.1, fresh_b_mean=[0.2, 0.2, None], fresh_b_std=0.05, accuracy=0.3),
        run("bp", fresh_b_mean=None, fresh_b_std=None, deep_cosine=0.8, accuracy=0.2),
    )
    assert column(rows, "null mean", "z") == [
        ("0.500 ± 0.000", MISSING), ("0.200 ± 0.000 (2/3)", "-2.0 ± 0.0 (2/3)"), (MISSING, MISSING),
    ]  # fmt: skip


def test_missing_numbers_are_counted():
    (row,) = rows_of("main_audit", run("fa", 2, accuracy=[0.3, 0.4], own_frozen_acc=[0.2, None]))
    assert (row["n"], row["accuracy (%)"]) == ("2", "35.0 ± 7.1")
    # Seed by seed.
    assert (row["margin (points)"], row["own frozen (%)"]) == ("+10.0 (1/2)", "20.0 (1/2)")


def test_csv_holds_every_statistic_in_full_precision():
    accuracies = [1 / 3, 2 / 7, 0.1 + 0.2]
    rows = [run("bp", accuracy=accuracies, fires="d"), run("@cmd", 1, own_frozen_acc=None)]
    # pandas itself may miss the last bit of a number that it reads.
    exact = {"accuracy_median": str}
    found = pd.read_csv(io.StringIO(to_csv(build("main_audit", *rows))), dtype=exact)
    # What a spreadsheet would run is a text.
    one, other = found.set_index("run").loc["bp"], found.set_index("run").loc["'@cmd"]
    assert {f"accuracy_{name}" for name in STATISTICS} <= set(found)
    assert one["accuracy_mean"] == pytest.approx(sum(accuracies) / 3)
    assert (float(one["accuracy_median"]), one["accuracy_n"]) == (0.1 + 0.2, 3)
    assert other["own_frozen_acc_n"] == 0 and math.isnan(other["own_frozen_acc_mean"])


COUNTED = ("n", "rank", "cost (x bp)")  # do not depend on what a run measured


@pytest.mark.parametrize("kind", TABLES)
def test_stopped_empty_and_infinite_runs_are_shown_as_such(kind):
    (row,) = rows_of(kind, run("dfa", stopped_after=[3, None, 5]))
    assert "(stopped early 2/3)" in next(iter(row.values()))
    empty = [row | dict.fromkeys(set(row) - {*KEPT}, NAN) for row in run("dfa")]
    (row,) = rows_of(kind, empty)
    of_runs = {name: text for name, text in row.items() if name not in COUNTED}
    assert not any(text[:1].isdigit() for text in of_runs.values())
    runs = run("dfa", max_growth=[math.inf, 2.0, 3.0], grad_norm_last=[math.inf, math.inf, 1.0])
    (row,) = rows_of(kind, runs)
    assert row.get("max growth", "inf") == "inf"
    if "median ||g_L||" in row:
        assert row["median ||g_L||"] == "inf" and r"$\infty$" in to_latex(build(kind, runs))


@pytest.mark.parametrize("kind", TABLES)
def test_values_do_not_depend_on_the_order_of_the_input(kind):
    tidy = tidy_of(run("dfa"), run("bp", accuracy=0.7), run("fa+penalty1e-2", 1))
    make = load("table", TABLES, kind)
    one, other = (make(part, labels=LABELS, title="Title") for part in (tidy, backwards(tidy)))
    pd.testing.assert_frame_equal(one.values, other.values)
    assert one.rows == other.rows and one.caption == other.caption
