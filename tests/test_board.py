"""The board and `draw`: ranks with ties, margins, claims, the figure, the search's choices."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from drawing import assert_readable, drawn, lines
from made_up_runs import cells, run, tidy_of
from printed_audits import printed_audits, written
from projects import ROOT
from test_tables import MISSING
from tuned import choices, name_of, network_of, search_of

from fa_audit.cli import main
from fa_audit.core.errors import AuditError
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.read_grid import read_grid
from fa_audit.experiments.spec import parse_run
from fa_audit.methods import METHODS
from fa_audit.results.artefacts import KINDS
from fa_audit.results.standings import with_standings
from fa_audit.results.tables import board as board_module
from fa_audit.results.tables.board import board, claims_of_sources
from fa_audit.results.tidy import read_packed, write_packed

MEASURED = ROOT / "reference/measured"
OURS = ("spec", "seed", "digest", "commit")  # of an audit of a run
NETWORK = ("dataset", "architecture", "architecture_options", "epochs", "batch_size")


def board_of(*rows, **options):
    table = board(tidy_of(*rows), title="Title", labels={}, **options)
    return {row["run"]: row for row in cells(table)}


def ranks(**accuracies):
    """The rank of every run, given its accuracies by seed."""
    rows = [run(name, len(values), accuracy=values) for name, values in accuracies.items()]
    return {name: row["rank"] for name, row in board_of(*rows).items()}


def test_runs_that_no_paired_test_tells_apart_share_a_rank():
    base = [0.50, 0.54, 0.52]
    # Differences of .02, .021 and .019: t = 34.6, p = .00083; of .02, .04 and .03: p = .035.
    clear, near = [0.52, 0.561, 0.539], [0.52, 0.58, 0.55]
    assert ranks(bp=clear, fa=base) == {"bp": "1", "fa": "2"}
    assert ranks(bp=near, fa=base) == {"bp": "1", "fa": "2"}
    # With a third run there are three pairs, and .035 is above .05 / 3.
    assert ranks(bp=near, fa=base, ep=[0.54] * 3) == {"bp": "1", "fa": "1", "ep": "1"}
    assert ranks(bp=[0.7] * 3, fa=[0.5] * 3) == {"bp": "1", "fa": "2"}
    assert ranks(bp=[0.7, 0.71], fa=[0.5, 0.52]) == {"bp": "1", "fa": "2"}
    one_seed = ranks(bp=[0.7, 0.71], dfa=[0.6], fa=[0.5, 0.52])  # tells nothing
    assert one_seed == {"bp": "1", "dfa": "\u2013", "fa": "2"}


def test_runs_with_fewer_than_two_seeds_in_common_are_compared_by_welch_s_test():
    for accuracies, rank in (
        ([0.66, 0.67, 0.68], "2"),  # p = .032
        ([0.68, 0.69, 0.70], "1"),  # p = .104; as pairs of seeds .035
    ):
        others = [row | {"seed": row["seed"] + 1000} for row in run("fa", accuracy=accuracies)]
        rows = board_of(*run("bp", accuracy=[0.70, 0.72, 0.74]), *others)
        assert rows["fa"]["rank"] == rank


def test_a_seed_that_is_not_finite_and_borderline_checks_are_named():
    lost = run("dfa", finite=[True, True, False])
    near = run("fa", depth_distance=[0.03, -0.02, 0.03])
    rows = board_of(*lost, *near, narrow=True)
    assert [rows[name]["fires"] for name in ("dfa", "fa")] == ["non-finite", "D3?"]
    assert "non-finite" in board_of(*lost)["dfa"]["checks"]


def test_ranks_follow_the_order_of_accuracies_where_a_noisy_run_ties_with_all():
    high, low, noisy = [0.7] * 3, [0.5] * 3, [0.2, 0.4, 0.6]
    assert ranks(bp=high, fa=low, ep=noisy) == {"bp": "1", "fa": "2", "ep": "2"}
    # Between the two: of the first rank the last one is tied with it only.
    between = [0.5, 0.6, 0.7]
    assert ranks(bp=high, ep=between, fa=low) == {"bp": "1", "ep": "1", "fa": "3"}


def test_pairs_with_equal_means_count_among_the_tests():
    same = [0.53, 0.53, 0.54]
    # Twice p = 0.0198, which is below 0.05 / 2, but not below 0.05 / 3.
    assert set(ranks(bp=same, fa=same, ep=[0.50, 0.51, 0.52]).values()) == {"1"}


def test_rows_are_sorted_by_accuracy_and_have_margins_checks_and_costs():
    rows = board_of(
        run("fa", accuracy=[0.50, 0.52, 0.54], fires="a"),
        run("bp", accuracy=0.61, depth_strict_fires=False),
        run("dfa", 1, own_frozen_acc=None, depth_fires=None, fires="c"),
        run("dfa+random_targets", accuracy=0.1),
    )
    assert list(rows) == ["bp", "dfa", "fa", "dfa+random\\_targets"]
    # Half width 4.3027 * 2 / sqrt(3).
    assert rows["fa"]["margin"] == "+12.0 \\[+7.0, +17.0\\]"
    assert rows["bp"]["over bp+frozen"] == "+22.0 \\[+22.0, +22.0\\]"
    assert rows["dfa"]["margin"] == rows["dfa"]["own frozen (%)"] == MISSING
    assert rows["fa"]["checks"].startswith("D1 fires -1.00 \\[-1.00, -1.00\\] (fires in 3/3); D2")
    assert "D3 not evaluated" in rows["dfa"]["checks"]
    measured = json.loads((ROOT / "benchmarks/methods.json").read_text())["methods"]
    for name in ("bp", "fa", "dfa"):
        assert rows[name]["cost (x bp)"] == f"{measured[name]['relative_to_bp']:.1f}"
    assert board_of(run("fa", fires="ad"), narrow=True)["fa"]["fires"] == "D1 D3"


def test_frozen_runs_with_a_rate_of_their_own_are_the_baselines():
    frozen = {"frozen_blocks": 4, "own_frozen_acc": None}
    rows = board_of(
        run("bp+lr1e-3", accuracy=0.6),
        run("dfa+lr1e-2", accuracy=0.5, own_frozen_acc=0.1),
        run("bp+lr3e-4+frozen", accuracy=0.3, **frozen),
        run("dfa+lr3e-4+frozen", accuracy=0.45, **frozen),
        run("dfa+lr1e-3+frozen", accuracy=0.4, **frozen),
        run("dfa+epoch1", accuracy=0.2, own_frozen_acc=0.15),
        run("dfa+frozen+epoch1", accuracy=0.9, **frozen),
        run("bp+shallow", accuracy=0.3, shallow=True),
        run("fa", accuracy=0.5, own_frozen_acc=0.7),
        run("fa+frozen", accuracy=0.2, **frozen),
        run("drtp", accuracy=0.3, own_frozen_acc=0.2, stopped_after=2),
        run("drtp+frozen", accuracy=0.4, **frozen),
    )
    stopped = "drtp (stopped early 3/3)"
    assert list(rows) == ["bp", "dfa", "fa", stopped, "dfa+epoch1"]
    assert rows["fa"]["margin"].startswith("-20.0")  # its audit's own baseline is better
    assert rows[stopped]["margin"].startswith("+10.0")  # that of the epoch at which it stopped
    assert rows["dfa+epoch1"]["own frozen (%)"] == "15.0"  # after the same epoch
    with pytest.raises(AuditError, match="found baselines only"):
        board_of(run("bp+frozen", **frozen))
    assert rows["dfa"]["own frozen (%)"] == "45.0"  # the best of both
    assert rows["dfa"]["margin"].startswith("+5.0")
    assert rows["dfa"]["over bp+frozen"].startswith("+20.0")


def test_claims_are_those_of_sources_and_say_whether_they_are_reached(monkeypatch):
    entries = claims_of_sources()
    assert {"bp", *entries} == {*METHODS}
    for entry in entries.values():
        has_figure = len({"error", "accuracy"} & entry.keys())
        assert {"source", "where"} <= entry.keys()
        assert ({"data", "network"} <= entry.keys()) == (has_figure == 1)
    named = {entry["setting"] for entry in entries.values() if "setting" in entry}
    files = (load_config(ROOT / f"configs/{name}.yaml")[0] for name in ("board", "sources"))
    assert named <= {setting for file in files for setting in file["settings"]}
    known = {name: entries[name] | {"setting": "source"} for name in ("pepita", "dfa")}
    known["drtp"] = entries["drtp"]
    monkeypatch.setattr(board_module, "claims_of_sources", lambda: known)
    rows = board_of(
        *(run(name) for name in ("pepita", "dfa", "drtp")),
        run("pepita", 1, setting="source", accuracy=0.518),  # 52.57 within a point
        run("bp", 1, setting="source", accuracy=0.54),
        run("bp+frozen", 1, setting="source", accuracy=0.38),
        run("dfa", 1, setting="source", accuracy=0.9),  # an error of 1.45
    )
    reached = {name: row["reaches it"].partition(":")[0] for name, row in rows.items()}
    assert reached == {"pepita": "yes", "dfa": "no", "drtp": "not checked against its source"}
    assert rows["pepita"]["reaches it"] == "yes: 51.8 % (BP 54.0) here, 52.57 % claimed"
    assert "accuracy 52.57 % (BP 55.27), MLP of one hidden layer" in rows["pepita"]["claim"]


def test_the_figure_has_a_row_for_every_rule_and_a_panel_for_every_network():
    wide = []
    for place, name in enumerate(METHODS):
        accuracies = [0.40 + place / 50, 0.41 + place / 50, 0.42 + place / 50]
        wide.append(run(f"{name}+lr3e-3", setting="wide", accuracy=accuracies, own_frozen_acc=0.3))
    first_network = run("bp+lr1e-3", accuracy=0.9, own_frozen_acc=None, depth_fires=None)
    figure = drawn("board", tidy_of(first_network, *wide))
    assert_readable(figure)
    first, second = figure.axes
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["main", "wide"]
    names = [tick.get_text() for tick in first.get_yticklabels()]
    assert names == ["bp", *reversed([name for name in METHODS if name != "bp"])]
    assert first.get_ylim()[0] > first.get_ylim()[1]
    for row, name in enumerate(names):
        mean = pytest.approx(0.41 + list(METHODS).index(name) / 50)
        assert lines(second, f"{name} trained")[0].tolist() == [[mean, row]]
        assert lines(second, f"{name} frozen")[0].tolist() == [[0.3, row]]
    ((x, _),) = lines(first, "bp frozen")[0]
    assert len(lines(first, "bp trained")) == 1 and math.isnan(x)  # which matplotlib leaves out
    # Texts have 9 pixels on a telephone of 360.
    texts = [*first.get_yticklabels(), *figure.legends[0].get_texts()]
    assert min(text.get_fontsize() for text in texts) * 360 / figure.get_figwidth() / 72 >= 9


def test_the_figure_has_a_rule_of_the_right_network_below_its_variants_on_the_left():
    left = [("bp", 0.9), ("dfa+lr1e-2", 0.5), ("dfa+lr1e-3", 0.4), ("fa", 0.3)]
    rows = [run(name, accuracy=accuracy) for name, accuracy in left]
    right = [("dfa", 0.9), ("drtp", 0.8), ("my_file:StrongFA", 0.7)]
    rows += [run(name, setting="wide", accuracy=accuracy) for name, accuracy in right]
    labels = {"fa": "FA", "my_file:StrongFA": "FA, strong"}
    axis = drawn("board", tidy_of(*rows), labels=labels).axes[0]
    names = [tick.get_text() for tick in axis.get_yticklabels()]
    assert names == ["bp", "dfa+lr1e-2", "dfa+lr1e-3", "dfa", "FA", "FA, strong", "drtp"]


def test_rules_meet_in_a_row_whatever_they_chose_unless_a_network_has_two_of_one():
    rows = [run(name) for name in ("dfa+lr3e-3+unnormalised", "fa+lr1e-3", "fa+lr3e-3")]
    rows += [run(name, setting="other") for name in ("dfa", "fa (yours)", "dfa+penalty1e-2")]
    rules = with_standings(tidy_of(*rows)).runs.groupby("setting")["rule"].unique()
    assert {*rules["main"]} == {"dfa", "fa+lr1e-3", "fa+lr3e-3"}
    assert {*rules["other"]} == {"dfa", "fa (yours)", "dfa+penalty1e-2"}


def searched_on(network):
    tried = pd.read_csv(ROOT / "reference/board_search.csv")
    return tried[tried["network"].str.startswith(network)]


@pytest.mark.parametrize(
    "setting, network, rules",
    [
        ("field", "resmlp, ", 47),
        ("field_mlp", "mlp, activation relu, depth 2, ", 57),
        ("source_pepita", "mlp, activation relu, depth 1, ", 2),
        ("source_kolen_pollack", "mlp, activation sigmoid, depth 1, ", 3),
    ],
)
def test_the_field_has_what_its_search_chose(setting, network, rules):
    config, line_of = load_config(ROOT / "configs/board.yaml")
    field = read_grid(config, KINDS, line_of).settings[setting]
    runs = [*field.runs, *field.baselines]
    if setting == "field":
        runs.remove("dfa+lr1e-3+unnormalised")  # the second best, which the board has, too
    found = {str(parse_run(run).untuned): run for run in runs}
    search = choices(searched_on(network)).set_index("run")
    searched = found.keys() & search.index
    assert len(searched) == rules
    for rule in searched:
        choice = search.loc[rule]
        assert found[rule] == name_of(rule, float(choice["lr"]), choice["normalise"])


def test_every_training_of_the_search_can_be_asked_for_by_name():
    config, line_of = load_config(ROOT / "configs/board.yaml")
    asked = set()
    for name, setting in read_grid(config, KINDS, line_of).settings.items():
        if not name.startswith("board_"):
            continue
        for rule in (*setting.runs, *setting.baselines):
            spec = setting.spec(rule, setting.seeds[0])
            asked.add((network_of(spec.to_dict()), rule, spec.lr, spec.normalise, spec.seed))
    tried = searched_on("").drop(columns="validation_acc")
    assert set(tried.itertuples(index=False, name=None)) <= asked


def test_what_the_page_says_of_the_search_is_so():
    page = " ".join((ROOT / "docs/board.md").read_text().split())
    tried = searched_on("resmlp, ")
    search = tried.set_index("run")["validation_acc"]
    first, second = search["dfa"].nlargest(2)
    assert (
        first - second == pytest.approx(0.010, abs=5e-4)
        and "leads the next, 1e-3, by 1.0 points" in page
        and tried.query("run == 'dfa' and validation_acc == @second")["lr"].tolist() == [1e-3]
    )
    assert "by more than a standard error, 0.7 points. Two were replaced, both on" in page
    constants = {
        "pepita": "PEPITA",
        "local_predsim": "LocalPredSim",
        "weight_mirror": "WeightMirror",
        "dual_propagation": "DualPropagation",
        "dtp": "DTP",
        "dtp_drl": "DTPDRL",
        "ep_symmetric": "SymmetricEP",
    }
    for rule, other in constants.items():
        names = search.index[search.index.str.endswith(other)].unique()
        assert len(names) == 2 and all(search[n].max() < search[rule].max() + 0.007 for n in names)
    plain = searched_on("mlp, activation relu, depth 2, ").set_index("run")["validation_acc"]
    constants |= {
        "state_bridge": "StateBridge",
        "credit_bridge": "CreditBridge",
        "predictive_coding": "PredictiveCoding",
        "ep": ("WeakEP", "StrongEP"),
    }
    replaced = {"local_predsim": 0.0284, "predictive_coding": 0.0254}
    for rule, other in constants.items():
        best = plain[plain.index.str.endswith(other)].max() - plain[rule].max()
        expected = replaced.get(rule)
        assert best == pytest.approx(expected, abs=5e-4) if expected else best < 0.007
    assert (
        "the plain MLP: local predsim has beta 0.5, not 0.99 (better by 2.8 points), predictive"
        " coding alpha 0.07, not 0.2 (2.5)." in page
    )
    every = searched_on("")
    assert set(every["seed"]) == {7} and "with seed 7, which the board does not use" in page
    of_rules = choices(every[~every["run"].str.contains("configs")])
    assert not of_rules["at_edge"].any()


def test_what_the_page_says_of_low_rates_on_the_plain_mlp_is_so():
    page = " ".join((ROOT / "docs/board.md").read_text().split())
    plain, bounded = (
        searched_on(f"mlp, activation {name}, depth 2, ").groupby("run")
        for name in ("relu", "tanh")
    )
    values = [searched["validation_acc"].max() for searched in (bounded, plain)]
    found = [f"{best[rule]:.1%}" for rule in ("drtp", "drtp+frozen") for best in values]
    assert "finds {} with tanh and {} with ReLU; with frozen blocks {} and {}.".format(
        *found
    ) in page.replace(" %", "%")
    assert (
        "DRTP, PEPITA and the state bridge, worse in the search than any of their frozen baselines,"
        " also tried 1e-5 and 3e-5." in page
    )
    for rule in ("drtp", "pepita", "state_bridge"):
        assert {1e-5, 3e-5} < {*plain.get_group(rule)["lr"]}
        highest = plain.get_group(rule)["validation_acc"].max()
        assert highest < plain.get_group(f"{rule}+frozen")["validation_acc"].min()


def test_a_search_chooses_by_validation_accuracy_and_tells_the_edge(tmp_path):
    tried = {("dfa", 1e-3): 0.3, ("dfa", 1e-2): 0.4, ("dfa+frozen", 1e-3): 0.2, ("dfa+frozen", 1e-2): 0.3,
             ("dfa+frozen", 1e-1): 0.1, ("dfa", 1e-4): 0.4}  # fmt: skip
    for (name, lr), accuracy in tried.items():
        path = tmp_path / f"checkpoints/search_{lr}/{name}/seed7.json"
        path.parent.mkdir(parents=True)
        spec = {
            "architecture": "mlp",
            "architecture_options": {"depth": 2},
            "epochs": 5,
            "lr": lr,
            "seed": 7,
        }
        accuracies = {"validation_accuracy": accuracy, "accuracy": 1 - accuracy}
        path.write_text(json.dumps(accuracies | {"spec": spec}))
    found = choices(search_of(tmp_path)).set_index("run")
    # Of equal ones the smallest rate.
    assert found["lr"].to_dict() == {"dfa": 1e-4, "dfa+frozen": 1e-2}
    assert found["at_edge"].to_dict() == {"dfa": True, "dfa+frozen": False}
    assert found["tried"].to_dict() == {"dfa": 3, "dfa+frozen": 3}
    assert name_of("dfa+frozen", 3e-3, False) == "dfa+lr3e-3+unnormalised+frozen"


def packed(folder, setting, audits):
    """A folder of measured runs in which a setting has audits."""
    (folder / "tables" / setting).mkdir(parents=True)
    write_packed(folder / "tables" / setting / "audits.json", audits)
    return str(folder / "tables")


def test_user_audits_are_rows_of_the_board(tmp_path, capsys):
    audits = printed_audits(tmp_path, (3, 7))
    foreign = {key: value for key, value in audits[0].items() if key not in OURS}
    paths = written(tmp_path, [*audits, foreign | {"method": "=mine()"}])
    network = {name: audits[0]["spec"][name] for name in NETWORK}
    found = read_packed(MEASURED / "main_audit/audits.json")
    same = [audit.replace(spec=audit.spec | network) for audit in found]
    tables = packed(tmp_path, "main_audit", same)
    command = ["board", *paths, "--from", tables]
    assert main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    (pooled,) = (line.split() for line in lines if " dfa (yours)" in line)
    assert pooled[0] == "main_audit" and pooled[3] == "2"  # both seeds, in the measured network
    assert main([*command, "--output", str(tmp_path / "out")]) == 0
    assert len(list((tmp_path / "out").iterdir())) == 7
    values = pd.read_csv(tmp_path / "out/board.csv").set_index("run")
    mean = sum(audit["headline_acc"] for audit in audits) / 2
    assert values.loc["dfa (yours)", "accuracy_mean"] == mean
    assert "'=mine() (yours)" in values.index  # no formula of a stranger
    options = network["architecture_options"] | {"residual": False}
    spec = audits[0]["spec"] | {"architecture_options": options}
    (other,) = written(tmp_path, [audits[0] | {"spec": spec}])
    assert main(["board", other, "--from", tables]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "(yours)" in line)
    assert "main_audit" not in row  # without skips it is another network
    assert main(["board", paths[0], "--from", str(tmp_path)]) == 1
    assert "found no audits SETTING/audits.json" in capsys.readouterr().err


def test_a_user_audit_on_a_source_s_network_has_a_row(tmp_path, capsys):
    (audit,) = printed_audits(tmp_path, (3,))
    network = {name: audit["spec"][name] for name in NETWORK}
    source = read_packed(ROOT / "reference/field/source_pepita/audits.json")
    same = [each.replace(spec=each.spec | network) for each in source]
    packed(tmp_path, "source_pepita", same)
    tables = packed(tmp_path, "main_audit", read_packed(MEASURED / "main_audit/audits.json"))
    assert main(["board", *written(tmp_path, [audit]), "--from", tables]) == 0
    assert " dfa (yours)" in capsys.readouterr().out
    assert main(["board", "--only", "DFA"]) == 1 and main(["board", "--only", "dfa"]) == 0
    assert capsys.readouterr().out.count(" DFA") == 5  # the residual networks have two rates


def test_audits_without_a_seed_are_no_pairs(tmp_path):
    (audit,) = printed_audits(tmp_path, (3,))
    foreign = {key: value for key, value in audit.items() if key not in OURS}
    audits = []
    for name, accuracies in ((r"$\ours$", (0.70, 0.72, 0.74)), ("other", (0.68, 0.69, 0.70))):
        audits += [foreign | {"method": name, "headline_acc": value} for value in accuracies]
    paths = written(tmp_path, audits)
    for order in (paths, paths[::-1], [*paths[:3], paths[5], paths[3], paths[4]]):
        assert main(["board", *order, "--only", "bp", "--output", str(tmp_path / "out")]) == 0
        values = pd.read_csv(tmp_path / "out/board.csv").set_index("run")
        assert values.loc[[r"$\ours$ (yours)", "other (yours)"], "rank_mean"].tolist() == [1, 1]


def test_a_user_s_baseline_is_no_row_and_changes_no_measured_row(tmp_path, capsys):
    (audit,) = printed_audits(tmp_path, (3,))
    frozen = {"frozen_blocks": audit["spec"]["architecture_options"]["depth"]}
    (path,) = written(tmp_path, [audit | {"spec": audit["spec"] | frozen, "run": ""}])
    assert main(["board", path]) == 1 and path in capsys.readouterr().err


@pytest.mark.slow
def test_user_audits_are_drawn_without_measured_runs(tmp_path, capsys):
    (audit,) = printed_audits(tmp_path, (3,))
    bare = {key: value for key, value in audit.items() if key not in (*OURS, "trajectory")}
    plain = bare | {"method": "plain", "credit": [], "deep": {}}
    paths = written(tmp_path, [audit, bare, plain])
    assert main(["draw", paths[2], "--output", str(tmp_path / "plain"), "--wide"]) == 0
    out, err = capsys.readouterr()
    figures = {Path(path).stem for path in out.split() if path.endswith("pdf")}
    assert figures == {"audit_overview", "layers", "board"} and "no audit has credits" in err
    header = (tmp_path / "plain/layers.png").read_bytes()
    assert int.from_bytes(header[16:20]) == 2100  # pixels across
    assert main(["draw", *paths, "--output", str(tmp_path / "all")]) == 0
    assert (tmp_path / "all/layers_other-models.pdf").exists()


def test_what_is_there_is_drawn_and_what_is_absent_is_named(tmp_path, capsys):
    shown = {"settings": ["main_audit", "absent"], "title": "Over training"}
    network = {"dataset": "cifar10", "architecture": {"name": "resmlp"}, "seeds": [42]}
    config = {
        "settings": dict.fromkeys(shown["settings"], network | {"runs": ["bp"]}),
        "figures": {"trajectories": shown},
        "tables": {
            "comparison": shown,
            "cross": shown | {"kind": "comparison", "settings": ["absent"]},
        },
        "labels": {"absent": "ViT-Mini"},
    }
    (tmp_path / "my.json").write_text(json.dumps(config))
    words = ["draw", "--configfile", str(tmp_path / "my.json"), "--from", str(MEASURED)]
    words += ["--output", str(tmp_path / "out")]
    assert main(words) == 1
    assert "tables/cross" in capsys.readouterr().err
    assert len(list((tmp_path / "out/figures").iterdir())) == 4
    table = (tmp_path / "out/tables/comparison.md").read_text()
    assert table.startswith("Over training; not run: ViT-Mini. ")
    # Not every figure has the rows that are chosen.
    assert main([*words, "--only", "bp"]) == 0
    assert main([*words, "--only", "nothing"]) == 1


@pytest.mark.slow
def test_measured_runs_have_something_for_every_figure_and_table_of_the_paper(tmp_path):
    words = ["draw", "--configfile", str(ROOT / "config.yaml"), "--from", str(MEASURED)]
    assert main([*words, "--output", str(tmp_path)]) == 0
    config, _ = load_config(ROOT / "config.yaml")
    shown = {path.stem for path in tmp_path.glob("*/*.pdf")}
    assert {*config["figures"]} - {"scorecard"} <= shown
    assert {path.stem for path in (tmp_path / "tables").glob("*.tex")} == {*config["tables"]}


def test_titles_name_the_runs_that_are_absent(tmp_path):
    config, _ = load_config(ROOT / "config.yaml")
    config["figures"] = {}
    config["tables"] = {"cross_architecture": config["tables"]["cross_architecture"]}
    (tmp_path / "my.json").write_text(json.dumps(config))
    words = ["draw", "--configfile", str(tmp_path / "my.json"), "--from", str(MEASURED)]
    assert main([*words, "--output", str(tmp_path)]) == 0
    title = (tmp_path / "tables/cross_architecture.md").read_text().partition(". ")[0]
    assert "d=256 (uSF, brSF, frSF, DRTP, Kolen-Pollack)" in title and "Student" not in title
    assert "d=512 (clipped), " in title and "ViT-Mini, " in title
