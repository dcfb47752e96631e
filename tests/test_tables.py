"""Every kind of table: its rows in order, its numbers by hand, what is missing or off the scale,
its tidy values.
"""

import io
import json
import math

import pandas as pd
import pytest
from made_up_runs import SEEDS, backwards, cells, run, tidy_of

from fa_audit.core.errors import AuditError
from fa_audit.core.registry import load
from fa_audit.documents.formats import to_csv
from fa_audit.documents.latex import to_latex
from fa_audit.results.tables import TABLES
from fa_audit.results.tables.rows import STATISTICS

MISSING = "–"  # noqa: RUF001 the en dash is meant
LABELS = {"bp": "BP", "dfa": "DFA", "vit": "ViT-Mini"}
OTHERS = {"claims", "inventory", "leaderboard", "tuned", "thresholds", "validations"}
OF_RUNS = sorted(set(TABLES) - OTHERS)
NAN = math.nan


def build(kind, *runs, labels=LABELS):
    return load("table", TABLES, kind)(tidy_of(*runs), labels=labels, title="Title")


def rows_of(kind, *runs, labels=LABELS):
    return cells(build(kind, *runs, labels=labels))


def column(rows, *headings):
    return [tuple(row[heading] for heading in headings) for row in rows]


def test_main_audit_by_hand():
    three = [
        run("dfa", accuracy=[0.30, 0.31, 0.35], max_growth=[1e4, 12345.0, 2e3], grad_norm_last=[1e-9, 2e-9, 9e-9],
            three_check="FAIL(D3)"),
        run("bp", accuracy=[0.55, 0.57, 0.59], own_frozen_acc=0.39),
        run("fa", accuracy=[0.40, 0.36, 0.41], three_check=["PASS", "FAIL(D3)", "PASS"]),
    ]  # fmt: skip
    found = {row["run"]: row for row in rows_of("main_audit", *three)}
    assert list(found) == ["BP", "fa", "DFA"]  # by mean accuracy
    assert found["BP"] == {
        "run": "BP", "accuracy (%)": "57.0 ± 2.0",  # 55, 57, 59 with divisor n - 1; divisor n would give 1.6
        "own frozen (%)": "39.0", "margin (points)": "+18.0", "bp+frozen (%)": "39.0", "max growth": "1.50",
        "median ||g_L||": "1.0e-3", "three-check": "PASS", "four-check": "trustworthy 3/3",
    }  # fmt: skip
    assert (
        found["DFA"]["accuracy (%)"] == "32.0 ± 2.6" and found["DFA"]["margin (points)"] == "-8.0"
    )
    assert found["DFA"]["max growth"] == "1.2e4"  # the largest, not the mean
    assert found["DFA"]["median ||g_L||"] == "2.0e-9"  # the median, not the mean 4e-9
    assert column(found.values(), "three-check") == [
        ("PASS",),
        ("PASS 2/3, FAIL(D3) 1/3",),
        ("FAIL(D3)",),
    ]


def test_comparison_by_hand():
    flags = {"first_scale_flag": [7, 9, 11], "first_reference_flag": [4, None, 3]}
    rows = rows_of(
        "comparison", run("dfa", setting="vit", **flags), run("bp", setting="vit", accuracy=0.2),
        run("dfa", setting="cnn", accuracy=0.3), run("bp", setting="cnn", accuracy=0.9, first_scale_flag=NAN),
    )  # fmt: skip
    assert column(rows, "setting", "run") == [
        ("ViT-Mini", "DFA"),
        ("ViT-Mini", "BP"),
        ("cnn", "BP"),
        ("cnn", "DFA"),
    ]
    assert column(rows[:1], "D1 from epoch", "D2 from epoch") == [("9.0 ± 2.0", "3.5 ± 0.7 (2/3)")]
    assert rows[2]["D1 from epoch"] == "never"
    assert (
        next(iter(rows_of("comparison", run("dfa"))[0])) == "run"
    )  # a setting alone has no column


def test_variation_by_hand():
    names = [("dfa", 0.3), ("bp", 0.6)]
    deep = [run(name, setting=f"depth{depth}", depth=depth, accuracy=accuracy)
            for depth in (12, 2, 8) for name, accuracy in names]  # fmt: skip
    rows = rows_of("variation", *deep)
    assert column(rows, "run", "depth") == [
        (run, depth) for run in ("BP", "DFA") for depth in ("2", "8", "12")
    ]
    assert "setting" not in rows[0] and "width" not in rows[0]
    alike = rows_of(
        "variation",
        run("dfa", setting="a"),
        run("dfa", setting="b"),
        run("dfa", setting="c", depth=8),
    )
    assert column(alike, "setting", "run") == [("a", "DFA"), ("b", "DFA"), ("c", "DFA")]
    values = {"deep_cosine": [0.10, -0.02, 0.04], "max_growth": [2.0, 75.0, 3.0]}
    both = [run("dfa", setting=f"{w}x{e}", width=w, epochs=e, first_scale_flag=[2, 3, 3] if e > 2 else None, **values)
            for w in (512, 2048) for e in (1, 5)]  # fmt: skip
    rows = rows_of("variation", *both)
    assert column(rows, "width", "epochs") == [
        ("512", "1"),
        ("512", "5"),
        ("2048", "1"),
        ("2048", "5"),
    ]
    assert column(rows[:2], "D1 from epoch") == [("never",), ("2.7 ± 0.6",)]
    assert (rows[0]["deep cosine"], rows[0]["max growth"]) == (
        "0.040 ± 0.060",
        "75.0",
    )  # 0.06, -0.06, 0 from the mean


def test_tuned_chooses_by_mean_validation_accuracy_whatever_the_test_accuracy_and_ranks_beside_the_untuned():
    tried = {  # setting, lr, normalise: validation and test accuracies of bp, dfa and fa
        ("first", 3e-4, True): [(0.5, 0.99), ([0.9, 0.1, 0.2], 0.99), (0.4, 0.3)],
        ("paper", 1e-3, True): [(0.7, 0.6), (0.3, 0.5), (0.3, [0.1, 0.2, 0.3])],
        ("last", 1e-3, False): [(0.7, 0.9), (0.5, 0.65), (0.2, 0.99)],
    }
    found = [
        run(
            name,
            setting=setting,
            lr=lr,
            normalise=normalise,
            validation_acc=validation,
            accuracy=accuracy,
        )
        for (setting, lr, normalise), of_runs in tried.items()
        for name, (validation, accuracy) in zip(("bp", "dfa", "fa"), of_runs)
    ]
    rates = [  # a search of its own, of learning rates alone
        run("ep", setting=f"rates {lr}", lr=lr, validation_acc=v, accuracy=a)
        for lr, v, a in ((3e-4, 0.6, 0.62), (1e-3, 0.5, 0.8))
    ]
    rows = rows_of("tuned", *found, *rates)
    options = column(rows, "run", "lr", "normalise", "rank (untuned)")
    assert options == [
        ("DFA", "1.0e-3", "no", "1 (3)"), ("ep", "3.0e-4", "never", "2 (1)"), ("BP", "1.0e-3", "never", "3 (2)"),
        ("fa", "3.0e-4", "yes", "4 (4)"),
    ]  # fmt: skip
    shown = ("validation (%)", "accuracy (%)", "untuned validation (%)", "untuned (%)")
    assert column(rows[3:], *shown) == [("40.0 ± 0.0", "30.0 ± 0.0", "30.0 ± 0.0", "20.0 ± 10.0")]
    for wrong, words in (
        (
            [*found[:-1], *rates],
            "no validation accuracy of fa in last; expected every run in every setting",
        ),
        (
            [*found, *rates, run("bp", setting="rates 0.0003", validation_acc=0.1)],
            "no .* ep in first and 3",
        ),
        (
            [*found[:3], *found[6:], *rates],
            "no setting of bp, dfa, fa has lr 0.001, .*normalise True",
        ),
    ):
        with pytest.raises(AuditError, match=f"tuned: {words}"):
            build("tuned", *wrong)


def test_penalty_by_hand():
    names = [
        "dfa+penalty1e-1",
        "dfa",
        "bp+penalty1e-4",
        "dfa+penalty1e-4",
        "bp",
        "dfa+frozen1",
        "bp+penalty2.5e-3",
    ]
    rows = rows_of("penalty", *(run(name, accuracy=0.9 if "bp" in name else 0.3) for name in names))
    assert [row["method, penalty"] for row in rows] == [
        "BP, 0", "BP, 1e-4", "BP, 2.5e-3", "DFA, 0", "DFA, 1e-4", "DFA, 1e-1", "dfa+frozen1, 0",
    ]  # fmt: skip
    rows = rows_of("penalty", run(
        "dfa+penalty1e-2", accuracy=[0.358, 0.36, 0.362], deep_cosine=[0.12, 0.15, 0.18],
        fresh_b_mean=[0.001, 0.002, 0.006], fresh_b_std=[0.02, 0.021, 0.025], deep_rho=[0.07, 0.08, 0.09],
        deep_nudging=[-4e-5, -5e-5, -6e-5], hidden_norm_last=[3e4, 4e4, 9e4], max_growth=[1.2, 1.3, 1.1],
        grad_norm_last=[1e-6, 9e-7, 8e-7], four_check="needs walk-back (c)", fires="c",
    ))  # fmt: skip
    assert rows == [{
        "method, penalty": "DFA, 1e-2", "accuracy (%)": "36.0 ± 0.2", "deep cosine": "0.150 ± 0.030",
        "fresh-B null": "0.003 ± 0.022",  # ± of the draws, the mean of 0.02, 0.021 and 0.025
        "deep rho": "0.080 ± 0.010", "nudging (nats)": "-5.0e-5", "max growth": "1.30", "median ||h_L||": "4.0e4",
        "median ||g_L||": "9.0e-7", "three-check": "PASS",
    }]  # fmt: skip


def test_z_is_the_distance_from_the_null_seed_by_seed():
    draws = {
        "deep_cosine": [0.16, 0.10, 0.05],
        "fresh_b_mean": [0.0, 0.02, 0.01],
        "fresh_b_std": [0.02, 0.04, 0.02],
    }
    (row,) = rows_of(
        "null_calibration", run("dfa", **draws, deep_clamped_cosine=[0.15, 0.09, 0.03])
    )
    assert row["z"] == "+4.0 ± 3.5"  # 8, 2 and 2; of the means it would be 0.0933 / 0.0267 = 3.5
    assert (row["null mean"], row["null deviation"]) == ("0.010 ± 0.010", "0.027")
    assert (row["deep cosine"], row["clamped cosine"]) == ("0.103 ± 0.055", "0.090 ± 0.060")
    rounding = [
        0.0,
        1e-17,
        2e-8,
    ]  # float32 credits against float64 draws: the difference is rounding alone
    rows = rows_of(
        "null_calibration",
        run("fa", deep_cosine=0.5, fresh_b_mean=0.5 - 1e-8, fresh_b_std=rounding, accuracy=0.4),
        run("ep", deep_cosine=0.1, fresh_b_mean=[0.2, 0.2, None], fresh_b_std=0.05, accuracy=0.3),
        run("bp", fresh_b_mean=None, fresh_b_std=None, deep_cosine=0.8, accuracy=0.2),
    )
    assert column(rows, "run", "null mean", "z") == [
        ("fa", "0.500 ± 0.000", MISSING), ("ep", "0.200 ± 0.000 (2/3)", "-2.0 ± 0.0 (2/3)"), ("BP", MISSING, MISSING),
    ]  # fmt: skip


def test_inventory_by_hand():
    vit = {"setting": "vit", "architecture": "vit_mini", "width": 128, "epochs": 60}
    table = build(
        "inventory",
        run("bp", **vit, seconds=[3600, 1800, 900], commit=["b2", "a1", "b2"]),
        run(
            "dfa",
            **vit,
            seconds=[7200, 3600, 900],
            device=["cuda (H200)", "cpu (x86_64)", "cpu (x86_64)"],
        ),
        run("dfa", 1, seconds=0.5),
    )
    first, second = cells(table)
    assert first == {
        "setting": "ViT-Mini", "data set": "cifar10", "network (d, L)": r"vit\_mini (128, 4)", "epochs": "60",
        "runs": "2", "seeds": "42, 123, 456", "networks": "6", "hours": "5.00",
        "devices": r"cpu (x86\_64), cuda (H200)", "commits": "4a1641f, a1, b2",
    }  # fmt: skip
    assert (second["setting"], second["seeds"], second["networks"], second["hours"]) == (
        "main",
        "42",
        "1",
        "0.00",
    )
    assert "In all, what settings share counted once: 7 networks; 5.00 hours." in table.caption
    values = table.values[table.values["setting"] == "vit"].set_index(["quantity", "statistic"])
    assert values.loc[("hours", "seed"), "value"].tolist() == [1.0, 0.5, 0.25, 2.0, 1.0, 0.25]
    assert values.loc[("hours", "sum"), ["n", "value"]].tolist() == [6, 5.0]
    shared = [
        run("dfa", setting=name, seconds=[3600, 3600, 1800], digest=["x", "y", "z"])
        for name in ("main", "null")
    ]
    table = build("inventory", *shared, run("bp", 1, setting="null", seconds=None))
    assert [row["hours"] for row in cells(table)] == ["2.50", "2.50 (3/4)"]
    assert (
        "counted once: 4 networks; 2.50 hours (of 3 of them)." in table.caption
        and "snapshots" not in table.caption
    )
    table = build(
        "inventory",
        run("dfa", seconds=[3600] * 3),
        run("dfa+epoch1", 1, seconds=1800),
        run("bp", seconds=0),
    )
    assert cells(table)[0]["hours"] == "3.00" and "goes on from its snapshots" in table.caption


def test_findings_by_hand():
    bp = run("bp", accuracy=[0.50, 0.52, 0.54], max_growth=[10.0, 100.0, 1000.0], hidden_norm_last=[400.0, 40.0, 4.0],
             deep_rho_at_input=0.5)  # fmt: skip
    row, single = rows_of(
        "tools.findings_tables:findings", bp, run("dfa", 1, accuracy=0.3, cosines=(0.4, -0.2))
    )
    assert row["accuracy (%)"] == r"52.0 \[47.0, 57.0\]"  # 2 t(.975, 2) / sqrt(3) = 4.97
    assert row["margin over own frozen (points)"] == r"+12.0 \[+7.0, +17.0\]"
    assert row["log10 max growth"] == r"2.00 \[-0.48, 4.48\]"
    assert row["log10 ||h_L|| / ||h_0||"] == r"1.00 \[-1.48, 3.48\]"
    assert row["deep rho, float32"] == r"0.400 \[0.400, 0.400\]"
    assert (single["accuracy (%)"], single["deep rho, float32"]) == ("30.0 (1/3)", "-0.100 (1/3)")


def test_which_check_decides_by_hand():
    found = build(
        "tools.findings_tables:deciding_checks", run("bp", fires="c"), run("dfa", fires="bc")
    ).values.set_index("check")
    assert found[["fires", "alone"]].to_dict("index") == {
        "scale": {"fires": 0, "alone": 0}, "reference": {"fires": 3, "alone": 0},
        "stability": {"fires": 6, "alone": 3}, "depth": {"fires": 0, "alone": 0},
    }  # fmt: skip


def test_limits_and_what_they_separate():
    rows = [
        run("bp", max_growth=[1.5, 3.0, 2.0]),
        run("dfa", fires="abd", max_growth=[600, 900, 700], accuracy=0.39),
    ]
    limits = json.dumps({"growth": 40.0})
    table = build(
        "thresholds", *rows, *[run("ep", 1, thresholds=limits, scale_borderline=True, accuracy=0.7)]
    )
    found = {row["check"]: row for row in cells(table)}
    growth, margin = found["D1 / (a)"], found["D3 / (d)"]
    assert growth["fires"] == "> 40" and growth["networks that fire"] == "3/7, 1 borderline"
    assert (growth["trusted"], growth["failing"], growth["limits alike"]) == (
        "3.00",
        "600",
        "3.00 to 600",
    )
    assert (margin["trusted"], margin["failing"], margin["limits alike"]) == (
        "20.0",
        "-1.0",
        "-1.0 to 20.0",
    )
    assert found["(c)"]["failing"] == "0.0500" and found["(c)"]["limits alike"] == "none"
    assert found["D3-strict"]["networks that fire"] == "not evaluated"


def test_validations_count_where_what_must_hold_does():
    odd = {
        "finite": [True, False, True],
        "fresh_b_mean": [0.01, -0.2, None],
        "shallow_acc": [0.38, 0.36, 0.38],
    }
    targets = run("dfa+random_targets", fires="d", random_targets=True, **odd)
    tidy = tidy_of(run("bp"), run("bp+frozen", frozen_blocks=4), targets)
    tidy.layers["float32_error"] = [0.5, *[1e-6] * (len(tidy.layers) - 1)]
    tidy.layers["feature_drift"] = (tidy.layers["run"] != "bp+frozen").astype(float)
    tidy.trajectories.loc[tidy.trajectories.index[-1], "test_accuracy"] += 0.1
    table = load("table", TABLES, "validations")(tidy, labels={}, title="Title")
    holds = {row["validation"]: (row["holds in"], row["worst"]) for row in cells(table)}
    assert holds["float32 gradients"] == ("26/27 states", "0.500")
    assert holds["frozen blocks"] == ("9/9 blocks", "0") and holds["finite"][0] == "8/9 networks"
    assert holds["fresh feedback"] == ("7/8 networks", "0.200")
    assert (
        holds["frozen and shallow"] == ("5/6 networks", "3.00")
        and holds["control: BP"][0] == "3/3 networks"
    )
    assert (
        holds["headline accuracy"][0] == "8/9 networks"
        and holds["control: random targets"][0] == "3/3 networks"
    )
    assert holds["control: untrained"][0] == holds["rho, ceiling"][0] == "not measured"


def test_missing_seeds_are_counted():
    table = build("main_audit", run("bp"), run("fa", 2, accuracy=[0.3, 0.4], own_frozen_acc=[0.2, None],
                                               three_check=["PASS", None]),
                  run("dfa", 2, three_check="FAIL(D3)"))  # fmt: skip
    whole, row = cells(table)[1:]
    assert whole["three-check"] == "FAIL(D3) 2/3"
    assert row["accuracy (%)"] == "35.0 ± 7.1 (2/3)" and row["max growth"] == "1.50 (2/3)"
    assert (row["margin (points)"], row["own frozen (%)"]) == (
        "+10.0 (1/3)",
        "20.0 (1/3)",
    )  # seed by seed
    assert (row["three-check"], row["four-check"]) == (
        "PASS 1/3, no verdict 1/3",
        "trustworthy 2/3",
    )
    assert "Seeds: n = 3." in table.caption
    one = build("main_audit", run("bp", 1))
    assert cells(one)[0]["accuracy (%)"] == "60.0" and "Seeds: n = 1." in one.caption
    several = build(
        "comparison",
        run("dfa", setting="vit"),
        run("dfa", 1, setting="cnn"),
        run("dfa", setting="net"),
    )
    assert "Seeds: n = 3 in ViT-Mini, net; n = 1 in cnn." in several.caption


def test_csv_holds_every_seed_and_statistic_in_full_precision():
    accuracies = [1 / 3, 2 / 7, 0.1 + 0.2]
    table = build(
        "main_audit", run("bp", accuracy=accuracies), run("dfa+penalty1e-2", 1, own_frozen_acc=None)
    )
    values = pd.read_csv(io.StringIO(to_csv(table)), dtype={"value": str})
    values["value"] = values["value"].map(float)  # read_csv itself may miss the last bit
    bp = values[(values["run"] == "bp") & (values["quantity"] == "accuracy")].set_index("statistic")
    assert bp.loc["seed", "value"].tolist() == accuracies and bp.loc[
        "seed", "seed"
    ].tolist() == list(SEEDS)
    half = (
        4.302652729911275 * bp.loc["deviation", "value"] / math.sqrt(3)
    )  # of Student's t, 2 degrees of freedom
    assert bp.loc["interval_high", "value"] == pytest.approx(sum(accuracies) / 3 + half)
    assert (bp.loc["median", "value"], bp.loc["mean", "n"]) == (0.1 + 0.2, 3)
    assert set(values["statistic"]) == {"seed", "over_seeds", "seeds_to_settle", *STATISTICS}
    assert values.loc[values["quantity"] == "three_check", "verdict"].notna().all()
    assert (
        "main,dfa+penalty1e-2,dfa+penalty1e-2,256,4,100,0.01,accuracy,deviation,,1,,\n"
        in to_csv(table)
    )
    assert (
        "main,dfa+penalty1e-2,dfa+penalty1e-2,256,4,100,0.01,own_frozen_acc,mean,,0,,\n"
        in to_csv(table)
    )


@pytest.mark.parametrize("kind", OF_RUNS)
def test_stopped_empty_and_infinite_runs_are_shown_as_such(kind):
    rows = rows_of(kind, run("dfa", stopped_after=[3, None, 5]))
    assert "(stopped early 2/3)" in next(iter(rows[0].values()))
    kept = (
        "run",
        "setting",
        "seed",
        "digest",
        "width",
        "depth",
        "epochs",
        "penalty",
        "cosines",
        "losses",
    )
    empty = [row | dict.fromkeys(set(row) - {*kept}, NAN) for row in run("dfa")]
    found = list(rows_of(kind, empty)[0].values())[1:]
    assert set(found) <= {MISSING, "never", "no verdict", "incomplete (a, b, c, d not evaluated) 3/3",
                          "none (a b c d not evaluated)"}  # fmt: skip
    runs = run("dfa", max_growth=[math.inf, 2.0, 3.0], grad_norm_last=[math.inf, math.inf, 1.0])
    (row,) = rows_of(kind, runs)
    assert row.get("max growth", "inf") == "inf" and row["median ||g_L||"] == "inf"
    assert r"$\infty$" in to_latex(build(kind, runs), "spec 12")


@pytest.mark.parametrize("kind", TABLES)
def test_values_do_not_depend_on_the_order_of_the_input(kind):
    tidy = tidy_of(run("dfa"), run("bp", accuracy=0.7), run("fa+penalty1e-2", 1))
    make = load("table", TABLES, kind)
    one, other = (make(part, labels=LABELS, title="Title") for part in (tidy, backwards(tidy)))
    pd.testing.assert_frame_equal(one.values, other.values)
    assert one.rows == other.rows and one.caption == other.caption
