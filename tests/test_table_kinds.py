"""Every kind of table but the main audit: its rows in order, its numbers, what is missing or off the scale."""

import math
from dataclasses import replace

import pandas as pd
import pytest
from made_up_runs import cells, run, statistics, tidy_of

from fa_audit.results.tables import comparison, inventory, null_calibration, penalty, variation

MISSING = "–"  # noqa: RUF001 the en dash is meant
LABELS = {"bp": "BP", "dfa": "DFA", "vit": "ViT-Mini"}


def rows_of(kind, *runs, labels=LABELS):
    return cells(kind.build(tidy_of(*runs), labels=labels, title="Title"))


def column(rows, *headings):
    return [tuple(row[heading] for heading in headings) for row in rows]


# ---- comparison


def test_comparison_keeps_the_order_of_the_settings_and_ranks_the_runs_of_each():
    rows = rows_of(
        comparison,
        run("dfa", setting="vit", accuracy=0.6), run("bp", setting="vit", accuracy=0.5),
        run("dfa", setting="cnn", accuracy=0.3), run("bp", setting="cnn", accuracy=0.9),
    )  # fmt: skip
    expected = [("ViT-Mini", "DFA"), ("ViT-Mini", "BP"), ("cnn", "BP"), ("cnn", "DFA")]
    assert column(rows, "setting", "run") == expected


def test_comparison_numbers_by_hand():
    (row,) = rows_of(comparison, run("dfa", accuracy=[0.30, 0.31, 0.35], max_growth=[60.0, 900.0, 70.0],
                                     grad_norm_last=[1e-9, 2e-9, 9e-9], own_frozen_acc=[0.34, 0.35, 0.36],
                                     first_scale_flag=[7, 9, 11], first_reference_flag=[4, None, 3]))  # fmt: skip
    assert row == {
        "run": "DFA", "accuracy (%)": "32.0 ± 2.6", "own frozen (%)": "35.0", "max growth": "900",
        "median ||g_L||": "2.0e-9", "D1 from epoch": "9.0 ± 2.0", "D2 from epoch": "3.5 ± 0.7 (2/3)",
        "three-check": "PASS", "four-check": "trustworthy",
    }  # fmt: skip


def test_checks_that_never_fire_are_said_to():
    table = comparison.build(tidy_of(run("bp", first_scale_flag=math.nan)), labels={}, title="Title")
    assert column(cells(table), "D1 from epoch", "D2 from epoch") == [("never", "never")]
    assert table.values.set_index(["quantity", "statistic"]).loc[("first_scale_flag", "mean"), "n"] == 0


def test_settings_with_different_seeds_say_so():
    runs = run("dfa", setting="vit"), run("dfa", 1, setting="cnn"), run("dfa", setting="net")
    table = comparison.build(tidy_of(*runs), labels=LABELS, title="Title")
    assert "Seeds: n = 3 in ViT-Mini, net; n = 1 in cnn." in table.caption
    assert column(cells(table), "setting", "accuracy (%)") == [
        ("ViT-Mini", "50.0 ± 0.0"), ("cnn", "50.0"), ("net", "50.0 ± 0.0"),
    ]  # fmt: skip
    assert set(table.values["setting"]) == {"vit", "cnn", "net"}


def test_a_setting_alone_has_no_column_of_its_own():
    assert next(iter(rows_of(comparison, run("dfa"))[0])) == "run"


# ---- variation


def test_variation_goes_through_the_depths_of_every_run_rising():
    deep = [run(name, setting=f"depth{depth}", depth=depth, accuracy=accuracy)
            for depth in (12, 2, 8) for name, accuracy in (("dfa", 0.3), ("bp", 0.6))]  # fmt: skip
    rows = rows_of(variation, *deep)
    pairs = [("BP", "2"), ("BP", "8"), ("BP", "12"), ("DFA", "2"), ("DFA", "8"), ("DFA", "12")]
    assert column(rows, "run", "depth") == pairs
    assert "setting" not in rows[0] and "width" not in rows[0]


def test_variation_prints_every_size_that_differs():
    rows = rows_of(variation, *(run("dfa", setting=f"{w}x{e}", width=w, epochs=e) for w in (512, 2048) for e in (1, 5)))
    assert column(rows, "width", "epochs") == [("512", "1"), ("512", "5"), ("2048", "1"), ("2048", "5")]


def test_variation_names_settings_that_their_sizes_do_not_tell_apart():
    rows = rows_of(variation, run("dfa", setting="a"), run("dfa", setting="b"), run("dfa", setting="c", depth=8))
    assert column(rows, "setting", "run") == [("a", "DFA"), ("b", "DFA"), ("c", "DFA")]
    (row,) = rows_of(variation, run("dfa"))
    assert list(row)[:2] == ["run", "accuracy (%)"]


def test_variation_numbers_by_hand():
    both = {"deep_cosine": [0.10, -0.02, 0.04], "max_growth": [2.0, 75.0, 3.0]}
    first = {1: None, 3: [2, 3, 3]}
    runs = [run("dfa", setting=f"e{n}", epochs=n, first_scale_flag=flag, **both) for n, flag in first.items()]
    one, three = rows_of(variation, *runs)
    assert one["deep cosine"] == "0.040 ± 0.060"  # 0.06, -0.06, 0 from the mean
    assert (one["D1 from epoch"], three["D1 from epoch"]) == ("never", "2.7 ± 0.6")
    assert (one["max growth"], one["epochs"], three["epochs"]) == ("75.0", "1", "3")
    table = variation.build(tidy_of(*runs), labels={}, title="Title")
    found = statistics(table, "dfa", "deep_cosine", setting="e3")
    assert found["seeds"] == [0.10, -0.02, 0.04] and found["deviation"] == pytest.approx(0.06)
    half = 4.303 * 0.06 / math.sqrt(3)  # Student's t with 2 degrees of freedom, 95 %, two-sided
    assert found["interval_low"] == pytest.approx(0.04 - half, abs=1e-4)
    assert set(table.values.loc[table.values["setting"] == "e3", "epochs"]) == {3}


# ---- penalty


def test_penalty_groups_by_method_and_goes_through_its_penalties():
    names = ["dfa+penalty1e-1", "dfa", "bp+penalty1e-4", "dfa+penalty1e-4", "bp", "dfa+frozen1", "bp+penalty2.5e-3"]
    rows = rows_of(penalty, *(run(name, accuracy=0.9 if "bp" in name else 0.3) for name in names))
    assert [row["method, penalty"] for row in rows] == [
        "BP, 0", "BP, 1e-4", "BP, 2.5e-3", "DFA, 0", "DFA, 1e-4", "DFA, 1e-1", "dfa+frozen1, 0",
    ]  # fmt: skip


def test_penalty_numbers_by_hand():
    table = penalty.build(
        tidy_of(run("dfa+penalty1e-2", accuracy=[0.358, 0.36, 0.362], deep_cosine=[0.12, 0.15, 0.18],
                    fresh_b_mean=[0.001, 0.002, 0.006], fresh_b_std=[0.02, 0.021, 0.025], deep_rho=[0.07, 0.08, 0.09],
                    deep_nudging=[-4e-5, -5e-5, -6e-5], hidden_norm_last=[3e4, 4e4, 9e4], max_growth=[1.2, 1.3, 1.1],
                    grad_norm_last=[1e-6, 9e-7, 8e-7], four_check="needs walk-back (c)")),
        labels=LABELS, title="Title",
    )  # fmt: skip
    assert cells(table) == [{
        "method, penalty": "DFA, 1e-2", "accuracy (%)": "36.0 ± 0.2", "deep cosine": "0.150 ± 0.030",
        "fresh-B null": "0.003 ± 0.022",  # ± of the draws, the mean of 0.02, 0.021 and 0.025
        "deep rho": "0.080 ± 0.010", "nudging (nats)": "-5.0e-5", "max growth": "1.30", "median ||h_L||": "4.0e4",
        "median ||g_L||": "9.0e-7", "three-check": "PASS",
    }]  # fmt: skip
    assert statistics(table, "dfa+penalty1e-2", "fresh_b_std")["mean"] == pytest.approx(0.022)
    assert set(table.values["penalty"]) == {0.01}
    verdicts = table.values[table.values["quantity"] == "four_check"]
    assert verdicts["verdict"].tolist() == ["needs walk-back (c)"] * 3


def test_methods_without_random_feedback_have_no_null():
    (row,) = rows_of(penalty, run("bp", fresh_b_mean=None, fresh_b_std=None))
    assert row["fresh-B null"] == MISSING


# ---- null calibration


def test_z_is_the_distance_from_the_null_seed_by_seed():
    table = null_calibration.build(
        tidy_of(run("dfa", deep_cosine=[0.16, 0.10, 0.05], fresh_b_mean=[0.0, 0.02, 0.01],
                    fresh_b_std=[0.02, 0.04, 0.02], deep_clamped_cosine=[0.15, 0.09, 0.03])),
        labels=LABELS, title="Title",
    )  # fmt: skip
    (row,) = cells(table)
    assert row["z"] == "+4.0 ± 3.5"  # 8, 2 and 2; of the means it would be 0.0933 / 0.0267 = 3.5
    assert (row["null mean"], row["null deviation"]) == ("0.010 ± 0.010", "0.027")
    assert (row["deep cosine"], row["clamped cosine"]) == ("0.103 ± 0.055", "0.090 ± 0.060")
    assert statistics(table, "dfa", "z")["seeds"] == pytest.approx([8, 2, 2])


def test_a_null_without_spread_gives_no_z():
    rounding = [0.0, 1e-17, 2e-8]  # float32 credits against float64 draws: the difference is rounding alone
    (row,) = rows_of(null_calibration, run("fa", deep_cosine=0.5, fresh_b_mean=0.5 - 1e-8, fresh_b_std=rounding))
    assert (row["z"], row["null mean"]) == (MISSING, "0.500 ± 0.000")
    (row,) = rows_of(null_calibration, run("fa", deep_cosine=0.1, fresh_b_mean=[0.2, 0.2, None], fresh_b_std=0.05))
    assert row["z"] == "-2.0 ± 0.0 (2/3)"


def test_null_calibration_shows_runs_without_a_null():
    rows = rows_of(null_calibration, run("bp", fresh_b_mean=None, fresh_b_std=None, deep_cosine=0.8), run("dfa"))
    assert column(rows, "run", "deep cosine", "null mean", "null deviation", "z") == [
        ("BP", "0.800 ± 0.000", MISSING, MISSING, MISSING),
        ("DFA", "0.100 ± 0.000", "0.000 ± 0.000", "0.020", "+5.0 ± 0.0"),
    ]  # fmt: skip


# ---- inventory


def test_inventory_by_hand():
    vit = {"setting": "vit", "architecture": "vit_mini", "width": 128, "epochs": 60}
    table = inventory.build(
        tidy_of(
            run("bp", **vit, seconds=[3600, 1800, 900], commit=["b2", "a1", "b2"]),
            run("dfa", **vit, seconds=[7200, 3600, 900], device=["cuda (H200)", "cpu (x86_64)", "cpu (x86_64)"]),
            run("dfa", 1, seconds=0.5),
        ),
        labels=LABELS, title="Title",
    )  # fmt: skip
    first, second = cells(table)
    assert first == {
        "setting": "ViT-Mini", "data set": "cifar10", "network (d, L)": r"vit\_mini (128, 4)", "epochs": "60",
        "runs": "2", "seeds": "42, 123, 456", "networks": "6", "hours": "5.00",
        "devices": r"cpu (x86\_64), cuda (H200)", "commits": "4a1641f, a1, b2",
    }  # fmt: skip
    assert (second["setting"], second["seeds"], second["networks"], second["hours"]) == ("main", "42", "1", "0.00")
    assert "In all, what settings share counted once: 7 networks; 5.00 hours." in table.caption
    hours = table.values[(table.values["quantity"] == "hours") & (table.values["setting"] == "vit")]
    assert hours.loc[hours["statistic"] == "seed", "value"].tolist() == [1.0, 0.5, 0.25, 2.0, 1.0, 0.25]
    assert hours.loc[hours["statistic"] == "sum", ["n", "value"]].to_numpy().tolist() == [[6, 5.0]]
    counted = table.values[table.values["statistic"].isin(["count", "value"])].set_index(["setting", "quantity"])[
        "value"
    ]
    assert counted["vit"].to_dict() == {"runs": 2, "seeds": 3, "networks": 6, "width": 128, "depth": 4, "epochs": 60}


def test_networks_that_settings_share_count_once_in_all():
    shared = [run("dfa", setting=name, seconds=[3600, 3600, 1800], digest=["x", "y", "z"]) for name in ("main", "null")]
    table = inventory.build(tidy_of(*shared, run("bp", 1, setting="null", seconds=1800)), labels={}, title="Title")
    assert [row["hours"] for row in cells(table)] == ["2.50", "3.00"]
    assert "counted once: 4 networks; 3.00 hours." in table.caption


def test_times_that_are_not_known_are_said_to_be_missing():
    untimed = run("bp", seconds=None, device=None, commit=None)
    table = inventory.build(tidy_of(untimed), labels={}, title="Title")
    (row,) = cells(table)
    assert (row["hours"], row["devices"], row["commits"]) == (MISSING, "n/a", "n/a")
    assert "counted once: 3 networks." in table.caption
    sums = table.values[(table.values["quantity"] == "hours") & (table.values["statistic"] == "sum")]
    assert sums["n"].item() == 0 and math.isnan(sums["value"].item())
    table = inventory.build(tidy_of(untimed, run("dfa", 1, seconds=[7200])), labels={}, title="Title")
    assert cells(table)[0]["hours"] == "2.00 (1/4)"
    assert "counted once: 4 networks; 2.00 hours (of 1 of them)." in table.caption


# ---- all of them

OF_RUNS = [comparison, variation, penalty, null_calibration]


@pytest.mark.parametrize("kind", OF_RUNS)
def test_a_run_that_was_stopped_is_marked_in_every_table(kind):
    rows = rows_of(kind, run("dfa", stopped_after=[3, None, 5]))
    assert "(stopped early 2/3)" in next(iter(rows[0].values()))
    (row,) = rows_of(inventory, run("dfa", stopped_after=[3, None, 5]), run("bp"))
    assert row["setting"] == "main (stopped early 2/6)"


@pytest.mark.parametrize("kind", OF_RUNS)
def test_a_run_of_which_nothing_was_measured_keeps_its_row(kind):
    kept = ("run", "setting", "seed", "digest", "width", "depth", "epochs", "penalty")
    empty = run("dfa")
    empty = empty.assign(**{name: math.nan for name in empty.columns if name not in kept})
    *numbers, verdict = list(rows_of(kind, empty)[0].values())[1:]
    assert set(numbers) <= {MISSING, "never", "no verdict"} and verdict in (MISSING, "no verdict")


@pytest.mark.parametrize("kind", OF_RUNS)
def test_infinite_values_are_shown_as_such(kind):
    (row,) = rows_of(kind, run("dfa", max_growth=[math.inf, 2.0, 3.0], grad_norm_last=[math.inf, math.inf, 1.0]))
    assert row.get("max growth", "inf") == "inf" and row["median ||g_L||"] == "inf"


@pytest.mark.parametrize("kind", [*OF_RUNS, inventory])
def test_values_do_not_depend_on_the_order_of_the_input(kind):
    tidy = tidy_of(run("dfa"), run("bp", accuracy=0.7), run("fa+penalty1e-2", 1))
    backwards = replace(tidy, runs=tidy.runs.iloc[::-1], work=tidy.work.iloc[::-1])
    one, other = (kind.build(part, labels=LABELS, title="Title") for part in (tidy, backwards))
    pd.testing.assert_frame_equal(one.values, other.values)
    assert one.rows == other.rows and one.caption == other.caption
