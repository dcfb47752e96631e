"""The leaderboard, compare and draw: ranks by accuracy, nearest runs by hand, figures readable."""

import json
import math
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from drawing import assert_readable, drawn, lines, markers
from made_up_runs import cells, run, tidy_of
from printed_audits import printed_audits
from projects import ROOT

from fa_audit.cli import main
from fa_audit.core.files import signed
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.read_grid import read_grid
from fa_audit.experiments.spec import parse_run
from fa_audit.methods import METHODS
from fa_audit.results.compare import differences, distances, signatures
from fa_audit.results.kinds import KINDS
from fa_audit.results.standings import with_margins
from fa_audit.results.tables.claims import claims, claims_of_sources
from fa_audit.results.tables.leaderboard import leaderboard

sys.path.insert(0, str(ROOT / "tools"))
from evidence import chosen_runs

MEASURED = ROOT / "reference/measured"


def board(*rows):
    tidy = tidy_of(*rows)
    busy = tidy.work.assign(beside_other_work=tidy.work["run"].isin(["fa", "dfa+random_targets"]))
    busy["times_bp"] = busy["run"].map({"fa": 2.5})
    table = leaderboard(replace(tidy, work=busy), title="Title", labels={})
    return {row["run"]: row for row in cells(table)}, table


def test_runs_are_sorted_by_accuracy_and_are_called_what_they_are():
    flat = {
        "depth_distance": [0.03, -0.01, 0.02]
    }  # mean 0.0133, half width 4.3027 * 0.0208 / sqrt(3) = 0.0517
    rows, table = board(
        run("bp", accuracy=[0.62, 0.60, 0.61], own_frozen_acc=0.59, seconds=[10, 20, 30], **flat),
        run("fa", accuracy=[0.50, 0.52, 0.54], own_frozen_acc=0.40, seconds=30, fires="a"),
        run("dfa+penalty1e-2", 1, own_frozen_acc=0.585, depth_distance=-0.005, depth_borderline=True,
            depth_interval_low=0.01, depth_interval_high=0.03, fires="d", seconds=5, device="gpu"),
        run("dfa+random_targets", own_frozen_acc=0.7, random_targets=True, depth_fires=None),
        run("dfa+frozen", accuracy=0.9, own_frozen_acc=None, frozen_blocks=4),
    )  # fmt: skip
    order = ["dfa+frozen", "bp", "dfa+penalty1e-2", "dfa+random\\_targets", "fa"]
    assert list(rows) == order
    kinds = ["frozen baseline", "method", "penalty 1e-2", "random targets", "method"]
    assert [row["what it is"] for row in rows.values()] == kinds
    assert (
        rows["fa"]["margin, points [95 %]"] == "+12.0 \\[+7.0, +17.0\\]"
    )  # half width 4.3027 * 2 / sqrt(3)
    assert "a FIRES -1.00 (-1.00 to -1.00); b ok +1.00" in rows["fa"]["checks"]
    assert rows["bp"]["checks"].endswith("d ok, borderline +1.3 (-3.8 to +6.5)")
    assert rows["dfa+penalty1e-2"]["checks"].endswith(
        "d FIRES, borderline -0.5 (-1.0 to +1.0)"
    )  # its own interval
    assert rows["dfa+random\\_targets"]["checks"].endswith("d not evaluated")
    shown = [
        (rows[name]["n"], rows[name]["seconds (x bp)"]) for name in ("bp", "fa", "dfa+penalty1e-2")
    ]
    assert shown == [("3", "20 (1.00)"), ("3", "≤ 30 (2.50)"), ("1", "5")]  # 5 s on another device
    assert (
        re.fullmatch(r"≤ \d+", rows["dfa+random\\_targets"]["seconds (x bp)"])
        and "upper bounds" in table.caption
    )
    assert "share one learning rate (1e-3): none was tuned" in table.caption
    rates = [run("bp", lr=1e-3), run("fa", lr=3e-3)]
    assert "Learning rates differ in main (bp 1e-3, fa 3e-3)." in board(*rates)[1].caption


def ranks(**accuracies):
    """The rank of every run, given its accuracies by seed."""
    rows, _ = board(
        *(run(name, len(values), accuracy=values) for name, values in accuracies.items())
    )
    return {name: row["rank"] for name, row in rows.items()}


def test_runs_that_no_paired_test_tells_apart_share_a_rank():
    base = [
        0.50,
        0.54,
        0.52,
    ]  # differences of .02, .021 and .019: t = 34.6, p = .00083; of .02, .04 and .03: p = .035
    assert ranks(bp=[a + d for a, d in zip(base, (0.02, 0.021, 0.019))], fa=base) == {
        "bp": "1",
        "fa": "2",
    }
    near = [a + d for a, d in zip(base, (0.02, 0.04, 0.03))]
    assert ranks(bp=near, fa=base) == {"bp": "1", "fa": "2"}
    # With a third run there are three pairs, and .035 is above .05 / 3.
    assert ranks(bp=near, fa=base, ep=[0.54, 0.54, 0.54]) == {"bp": "1", "fa": "1", "ep": "1"}
    assert ranks(bp=[0.7] * 3, fa=[0.5] * 3) == {
        "bp": "1",
        "fa": "2",
    }  # the same difference on every seed
    assert ranks(bp=[0.7], fa=[0.5]) == {"bp": "1", "fa": "1"}  # one seed tells nothing


def test_the_figure_has_a_row_for_every_rule_and_a_panel_for_every_network():
    given = {name: {"accuracy": [0.4 + rank / 50, 0.41 + rank / 50, 0.42 + rank / 50], "own_frozen_acc": 0.3}
             for rank, name in enumerate(METHODS)}  # fmt: skip
    wide = [run(name, setting="wide", width=512, **values) for name, values in given.items()]
    figure = drawn("leaderboard", tidy_of(run("bp", accuracy=0.9, own_frozen_acc=None), *wide))
    assert_readable(figure)
    first, second = figure.axes
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["main", "wide"]
    names = [tick.get_text() for tick in first.get_yticklabels()]
    best_first = ["bp", *reversed([name for name in METHODS if name != "bp"])]
    assert names == best_first and first.get_ylim()[0] > first.get_ylim()[1]
    for row, name in enumerate(best_first):
        ((x, y),) = lines(second, f"{name} trained")[0]
        assert (x, y) == (pytest.approx(0.41 + list(METHODS).index(name) / 50), row)
        assert lines(second, f"{name} frozen")[0].tolist() == [[0.3, row]]
    assert (
        len(lines(first, "bp trained")) == 1 and lines(first, "bp frozen") == []
    )  # which has no frozen baseline


def test_claims_stand_beside_what_trained_blocks_add_here():
    rows = cells(claims(tidy_of(
        run("pepita", accuracy=0.3, own_frozen_acc=0.4, fires="d"), run("bp", accuracy=0.9),
        run("local_pred", own_frozen_acc=None, depth_fires=None), run("dfa", depth_distance=[-0.02, 0.01, 0.0]),
        run("dfa+penalty1e-2"), run("bp+frozen", frozen_blocks=4),
    ), title="Claims", labels={}))  # fmt: skip
    assert {row["run"] for row in rows} == {"bp", "dfa", "pepita", "local\\_pred"}
    said = {row["run"]: row["claim"] for row in rows}
    assert said["bp"] == "none" and said["pepita"].startswith(
        "Dellaferrera, Kreiman 2022: accuracy 52.57 % (BP 55.27), MLP of one hidden layer of 1024, CIFAR-10"
    )
    entries = claims_of_sources()
    assert {"bp", *entries} == {*METHODS}
    for entry in entries.values():
        figures = len({"error", "accuracy"} & entry.keys())
        assert {"source", "where"} <= entry.keys() and ({"data", "network"} <= entry.keys()) == (
            figures == 1
        )


@pytest.mark.parametrize(
    ("config", "tables"),
    [("configs/field_digits.yaml", "reference/field"), ("config.yaml", "reference/field_cifar10")],
)
def test_the_field_has_what_its_search_chose(config, tables):
    found, line_of = load_config(ROOT / config)
    grid, folder = read_grid(found, KINDS, line_of), ROOT / tables
    search = [
        name
        for name in grid.named(["field_search", "field_search_rates"])
        if (folder / name).exists()
    ]
    assert set(grid.settings["field"].runs) == set(chosen_runs(folder, search))
    searched = {parse_run(run).method for run in grid.settings["field"].runs}
    assert searched <= {*METHODS}


def test_the_nearest_run_is_that_of_the_smallest_distance_by_hand():
    same = {"hidden_norm_last": 1.0, "scale_free_last": 1.0, "deep_rho": None}
    tidy = with_margins(tidy_of(
        run("mine", max_growth=[10.0, 10.0, 1000.0], deep_cosine=0.1, **same),  # log10: mean 5 / 3
        run("near", max_growth=100.0, deep_cosine=0.3, **same),  # (1 / 3, 0, 0, 0, 1) units
        run("far", max_growth=10 ** (5 / 3), own_frozen_acc=0.2, stability=None, deep_cosine=None, **same),  # 4 units
        run("nothing", **dict.fromkeys(("accuracy", "max_growth", "stability", "deep_cosine", *same), math.nan)),
    ))  # fmt: skip
    units = differences(signatures(tidy), ("main", "mine")).loc["main"]
    far = distances(units)
    assert far[["near", "far"]].tolist() == pytest.approx(
        [math.sqrt((1 / 9 + 1) / 5), math.sqrt(16 / 3)]
    )
    assert far.isna()["nothing"] and units.count()[["deep cosine", "deep rho"]].tolist() == [2, 0]
    assert set(units.columns[units.loc["near"] > 0]) == {"log10 max growth", "deep cosine"}


def test_audits_of_ones_own_are_placed_and_written_whether_or_not_they_have_a_specification(
    tmp_path, capsys
):
    audits = printed_audits(tmp_path, (3, 7))
    foreign = {
        key: value
        for key, value in audits[0].items()
        if key not in ("spec", "seed", "digest", "commit")
    }
    for path, audit in zip("abc", [*audits, signed(foreign | {"method": "mine"})]):
        (tmp_path / f"{path}.json").write_text(json.dumps(audit))
    own = [str(tmp_path / f"{path}.json") for path in "abc"]
    tables = tmp_path / "tables"
    for setting in ("main_audit", "no_residual", "penalty_sweep"):
        shutil.copytree(MEASURED / setting, tables / setting)
    assert main(["compare", "--from", str(tables), *own[:2]]) == 0
    other = capsys.readouterr().out
    assert "dfa (yours): no place: nothing is measured on this network and budget" in other
    assert (
        "Nearest measured run: " in other and "margin over frozen " not in other
    )  # which compares within one only
    spec = audits[0]["spec"]
    same = {name: spec[name] for name in ("dataset", "architecture", "epochs")} | {
        "width": 16,
        "depth": 2,
    }
    path = tables / "main_audit/runs.csv"
    pd.read_csv(path).assign(**same).to_csv(path, index=False)
    assert main(["compare", "--from", str(tables), *own]) == 0
    pooled, alone = capsys.readouterr().out.split("\n\nmine (yours)")
    assert "dfa (yours): place " in pooled and re.search(
        "Nearest measured run: .* in main_audit, seeds", pooled
    )
    assert "margin over frozen " in pooled
    assert re.search(r"(?m)^> .* dfa \(yours\) +\d+ +method +2 ", pooled)
    assert ": no place: nothing is measured on this network and budget" in alone
    assert not re.search(r"\bplace \d", alone) and re.search(
        r"log10 max growth +\S+  \S+ to \S+", alone
    )
    assert re.search("external model +1 ", alone) and "(unknown of mine (yours))" in alone
    assert (
        main(["leaderboard", *own, "--from", str(tables), "--output", str(tmp_path / "out")]) == 0
    )
    assert len(list((tmp_path / "out").glob("leaderboard.*"))) == 6
    values = pd.read_csv(tmp_path / "out/leaderboard.csv").set_index(
        ["run", "quantity", "statistic"]
    )["value"]
    assert (
        values["dfa (yours)", "accuracy", "mean"].item()
        == sum(audit["headline_acc"] for audit in audits) / 2
    )
    assert main(["compare", own[0], "--from", str(tmp_path)]) == 1
    assert "found no tables SETTING/runs.csv" in capsys.readouterr().err


@pytest.mark.slow
def test_audits_of_ones_own_are_drawn_without_measured_runs(tmp_path, capsys):
    (audit,) = printed_audits(tmp_path, (3,))
    bare = {
        key: value
        for key, value in audit.items()
        if key not in ("spec", "seed", "digest", "commit", "trajectory")
    }
    paths = {}
    for name, changes in {"mine": {}, "plain": {"credit": [], "deep": {}}}.items():
        paths[name] = str(tmp_path / f"{name}.json")
        Path(paths[name]).write_text(
            json.dumps(signed(bare | {"method": name} | changes)), encoding="utf-8"
        )
    (tmp_path / "dfa.json").write_text(json.dumps(audit))
    draw = ["draw", "--output", str(tmp_path / "all")]
    assert (
        main([*draw, *paths.values(), str(tmp_path / "dfa.json"), "--only", "mine", "plain"]) == 0
    )
    out, err = capsys.readouterr()
    assert {path.rpartition("/")[2] for path in out.split()} == {
        *(f"{name}.{end}" for name in ("audit_overview", "layers", "accuracy_frozen") for end in ("pdf", "png", "svg")),
        *(f"audits.{end}" for end in ("csv", "md", "tex", "html")),
    } and not err  # fmt: skip
    latex = (tmp_path / "all/audits.tex").read_text()
    assert r"\toprule" in latex and re.findall(r"(?m)^(\w+) & .* \\\\$", latex) == [
        "run",
        "mine",
        "plain",
    ]
    assert main(["draw", paths["plain"], "--output", str(tmp_path / "plain"), "--wide"]) == 0
    assert "no audit has credits: the cosine by layer is not drawn" in capsys.readouterr().err
    width, height = (
        int.from_bytes((tmp_path / "plain/layers.png").read_bytes()[i : i + 4]) for i in (16, 20)
    )
    assert width == 2100 and height < 2100
    assert main([*draw, *paths.values(), str(tmp_path / "dfa.json")]) == 0
    assert (tmp_path / "all/layers_other-models.pdf").exists()


def test_growth_gradient_and_cosine_of_every_layer_are_drawn():
    values = {
        "growth": [2.0, 3.0, 4.0, None],
        "grad_norm": [1.0, 0.1, 1e-8, 1e-8],
        "cosine": [0.0, 0.3, 0.6, None],
    }
    tidy = tidy_of(run("mine", 1))
    table = pd.DataFrame(values).assign(
        setting="main", run="mine", seed=tidy.runs["seed"][0], layer=range(4)
    )
    panels = dict(zip(values, drawn("layers", replace(tidy, layers=table)).axes))
    for name, ax in panels.items():
        measured = [value for value in values[name] if value is not None]
        assert [y for _, y, _ in markers(ax, "mine")] == pytest.approx(measured)
    assert [hollow for *_, hollow in markers(panels["grad_norm"], "mine")] == [
        False,
        False,
        True,
        True,
    ]
    assert [hollow for *_, hollow in markers(panels["cosine"], "mine")] == [False, True, True]
    assert len(drawn("layers", replace(tidy, layers=table.drop(columns="cosine"))).axes) == 2


def test_draw_makes_what_it_can_and_names_the_setting_that_is_missing(tmp_path, capsys):
    network = {
        "dataset": "cifar10",
        "architecture": {"name": "resmlp"},
        "seeds": [42],
        "runs": ["bp"],
    }
    shown = {name: {"settings": [name], "title": "Title"} for name in ("main_audit", "absent")}
    tables_of = {
        "main_audit": shown["main_audit"],
        **dict.fromkeys(("leaderboard", "inventory"), shown["absent"]),
    }
    figures = dict.fromkeys(("leaderboard", "trajectories"), shown["main_audit"])
    config = {"settings": dict.fromkeys(shown, network), "figures": figures, "tables": tables_of}
    (tmp_path / "my.json").write_text(json.dumps(config))
    arguments = {
        "--configfile": tmp_path / "my.json",
        "--from": MEASURED,
        "--output": tmp_path / "out",
    }
    words = [str(word) for argument in arguments.items() for word in argument]
    assert main(["draw", *words]) == 1
    out, err = capsys.readouterr()
    assert [path.rpartition("/")[2] for path in out.split()] == [
        "leaderboard",
        "trajectories",
        "main_audit",
    ]
    assert [
        len(list((tmp_path / "out" / section).iterdir())) for section in ("figures", "tables")
    ] == [6, 5]
    (line,) = (
        line for line in err.splitlines() if " left" not in line
    )  # of progress, where drawing takes long
    assert "not drawn: tables/leaderboard, tables/inventory: setting 'absent': no " in line
    assert (
        main(["draw", *words, "--only", "bp"]) == 0
    )  # not every board has the rows that are chosen
    assert main(["draw", *words, "--only", "nothing"]) == 1
