"""The depth-utility ladder and the functional triangulation: rungs, ranks, and what is drawn of them."""

import itertools
import math

import numpy as np
import pytest
from networks_of_tables import LONG, assert_panels_readable, crowd, network, tidy_of

from fa_audit.core.errors import AuditError
from fa_audit.results.figures import (
    decision_utility,
    depth_ladder,
    style,
    threshold_sensitivity,
    triangulation,
    verdict_matrix,
)
from fa_audit.results.figures.cells import wrap
from fa_audit.results.figures.triangulation import MEASURES, rank, seed_values

TITLE = "Residual MLP on CIFAR-10"
NAN = math.nan


def drawn(module, tidy, **options):
    return module.draw(tidy, **{"title": TITLE, "labels": {}} | options)


def ladder(methods=("bp", "dfa"), seeds=(1, 2), depth=3):
    """Every rung of some methods; accuracy 0.5, minus a tenth per frozen block, plus a hundredth per seed."""
    return [
        network(f"{method}+frozen{frozen}" if frozen else method, seed=seed, depth=depth, frozen_blocks=frozen,
                accuracy=0.5 - frozen / 10 + seed / 100 - rank / 5, own_frozen_acc=0.2 + seed / 100 - rank / 5)
        for rank, method in enumerate(methods) for seed, frozen in itertools.product(seeds, range(depth))
    ]  # fmt: skip


def points(figure, label):
    (line,) = (line for line in figure.axes[0].lines if line.get_label() == label)
    return line.get_xydata()


# ---- depth ladder


def test_rungs_go_from_the_frozen_baseline_to_the_whole_network():
    found = depth_ladder.rungs(tidy_of(ladder(("bp",))).runs)
    assert found.to_dict("list") == {
        "method": ["bp"] * 8,
        "k": [0, 0, 1, 1, 2, 2, 3, 3],
        "seed": [1, 2] * 4,
        "accuracy": pytest.approx([0.21, 0.22, 0.31, 0.32, 0.41, 0.42, 0.51, 0.52]),
    }


def test_only_plain_networks_stand_on_rungs():
    others = [
        network("bp+penalty1e-2", penalty=0.01, depth=3),
        network("bp+random_targets", random_targets=True, depth=3),
        network("bp+shallow", shallow=True, depth=3),
        network("bp+frozen", frozen_blocks=3, depth=3, own_frozen_acc=NAN),
    ]
    alone = depth_ladder.rungs(tidy_of(ladder(("bp",))).runs)
    assert depth_ladder.rungs(tidy_of([*ladder(("bp",)), *others]).runs).equals(alone)


def test_a_missing_accuracy_is_a_missing_rung():
    rows = ladder(("bp",), seeds=(1,))
    rows[0]["own_frozen_acc"], rows[1]["accuracy"] = NAN, NAN
    assert depth_ladder.rungs(tidy_of(rows).runs)["k"].tolist() == [1, 3]


def test_a_setting_without_a_rung_is_refused():
    with pytest.raises(AuditError, match=r"found dfa\+penalty1e-2; expected runs of a ladder"):
        drawn(depth_ladder, tidy_of([network("dfa+penalty1e-2", penalty=0.01)]))


def test_every_seed_is_a_point_and_the_line_goes_through_the_means():
    figure = drawn(depth_ladder, tidy_of(ladder()))
    for method, shift in (("bp", -0.06), ("dfa", 0.06)):
        below = 0.2 if method == "dfa" else 0
        assert points(figure, method)[:, 0] == pytest.approx(np.repeat(range(4), 2) + shift)
        expected = np.array([0.21, 0.22, 0.31, 0.32, 0.41, 0.42, 0.51, 0.52]) - below
        assert points(figure, method)[:, 1] == pytest.approx(expected)
        assert points(figure, f"{method} mean")[:, 0] == pytest.approx(np.arange(4) + shift)
        assert points(figure, f"{method} mean")[:, 1] == pytest.approx(np.array([0.215, 0.315, 0.415, 0.515]) - below)


def test_no_line_crosses_a_rung_that_was_not_measured():
    rows = [row for row in ladder(("bp",)) if row["frozen_blocks"] != 2]
    means = points(drawn(depth_ladder, tidy_of(rows)), "bp mean")
    assert np.isnan(means[:, 1]).tolist() == [False, True, False, False]


def test_the_legend_has_labels_and_counts_of_seeds_best_first():
    rows = [row for row in ladder() if not (row["run"] == "dfa+frozen1" and row["seed"] == 2)]
    legend = drawn(depth_ladder, tidy_of(rows), labels={"dfa": "DFA"}).legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["bp (n = 2)", "DFA (n = 1 to 2)"]


# ---- triangulation


def ranked(rows, measure):
    """``{run: (rank, place)}`` under one measure."""
    found = rank(seed_values(tidy_of(rows)))
    part = found[found["measure"] == measure]
    return {entry.run: (entry.rank, entry.place) for entry in part.itertuples()}


def three():
    """Networks that every measure ranks differently."""
    return [
        network("a", deep_cosine=0.9, deep_rho=0.1, deep_nudging=-0.3, losses=(2.0, 1.0)),
        network("b", deep_cosine=0.5, deep_rho=0.3, deep_nudging=-0.1, losses=(2.5, 2.4, 1.0)),
        network("c", deep_cosine=-0.2, deep_rho=0.2, deep_nudging=0.2, losses=(1.0, 1.2)),
    ]


def test_high_cosine_rho_and_loss_decrease_and_low_nudging_are_best():
    assert ranked(three(), "deep_cosine") == {"a": (1, 0), "b": (2, 1), "c": (3, 2)}
    assert ranked(three(), "deep_rho") == {"b": (1, 0), "c": (2, 1), "a": (3, 2)}
    assert ranked(three(), "deep_nudging") == {"a": (1, 0), "b": (2, 1), "c": (3, 2)}
    assert ranked(three(), "loss_decrease") == {"b": (1, 0), "a": (2, 1), "c": (3, 2)}


def test_the_loss_decreases_from_the_first_epoch_to_the_last():
    odd = {"d": (1.0,), "e": (3.0, 2.0, NAN), "f": (NAN, 1.0), "g": (2.0, math.inf)}
    rows = [*three(), *(network(run, losses=losses) for run, losses in odd.items())]
    found = seed_values(tidy_of(rows)).set_index("run")["loss_decrease"]
    assert found[["a", "b", "c", "g"]].tolist() == pytest.approx([1.0, 1.5, -0.2, -math.inf])
    assert found[["d", "e", "f"]].isna().all()


def test_ranks_follow_from_means_over_the_measured_seeds():
    rows = [network("a", seed=s, deep_rho=value) for s, value in enumerate([0.1, 0.3, NAN])]
    rows += [network("b", seed=0, deep_rho=0.25), network("b", seed=1, deep_rho=0.25), network("b", seed=2, deep_rho=0)]
    found = rank(seed_values(tidy_of(rows)))
    entry = found[(found["measure"] == "deep_rho") & (found["run"] == "a")].iloc[0]
    assert (entry["mean"], entry["measured"], entry["of"], entry["rank"]) == (pytest.approx(0.2), 2, 3, 1)


def test_equal_means_share_a_rank_and_stand_as_before():
    rows = [network("a", deep_cosine=0.2, deep_rho=0.5), network("b", deep_cosine=0.5, deep_rho=0.5)]
    rows.append(network("c", deep_cosine=0.1, deep_rho=0.1))
    assert ranked(rows, "deep_cosine") == {"b": (1, 0), "a": (2, 1), "c": (3, 2)}
    assert ranked(rows, "deep_rho") == {"b": (1, 0), "a": (1, 1), "c": (3, 2)}
    texts = [text.get_text() for text in drawn(triangulation, tidy_of(rows)).axes[0].texts]
    assert texts.count("1= 0.5") == 2 and texts.count("1. 0.5") == 1 and "3. 0.1" in texts


def test_a_run_without_a_value_has_no_rank_and_an_interrupted_line():
    rows = three()
    rows[0]["deep_rho"] = NAN
    found = ranked(rows, "deep_rho")
    assert found.pop("a")[1] == 2 and found == {"b": (1, 0), "c": (2, 1)}
    ax = drawn(triangulation, tidy_of(rows)).axes[0]
    ends = [line.get_ydata() for line in ax.lines if line.get_label() == "a"]
    assert [np.isnan(y).tolist() for y in ends] == [
        [False, False], [False, True], [True, False], [False, False], [False, False]
    ]  # fmt: skip
    (absent,) = (text for text in ax.texts if text.get_text() == "n/a")
    assert absent.get_position() == (1, 2)


def test_lines_go_from_place_to_place_and_texts_stand_there():
    figure = drawn(triangulation, tidy_of(three()), labels={"a": "A"})
    ax = figure.axes[0]
    places = {"a": [0, 2, 0, 1], "b": [1, 0, 1, 0], "c": [2, 1, 2, 2]}
    for run, expected in places.items():
        inner = [line for line in ax.lines if line.get_label() == run][1:-1]
        assert [line.get_ydata().tolist() for line in inner] == [list(pair) for pair in itertools.pairwise(expected)]
        assert [np.round(line.get_xdata().mean(), 6) for line in inner] == [0.5, 1.5, 2.5]
    printed = {text.get_position(): text.get_text() for text in ax.texts}
    assert [printed[0, 0], printed[1, 2], printed[2, 2]] == ["1. 0.9", "3. 0.1", "3. 0.2"]
    assert printed[2, 0] == "1. \N{MINUS SIGN}0.3" and printed[3, 0] == "1. 1.5"
    assert [label.get_text() for label in ax.get_yticklabels()] == ["A", "b", "c"]
    assert [label.get_text() for label in ax.child_axes[0].get_yticklabels()] == ["b", "A", "c"]
    assert [label.get_text().partition("\n")[0] for label in ax.get_xticklabels()] == [
        measure.heading.partition("\n")[0] for measure in MEASURES.values()
    ]


def test_missing_seeds_are_shown_with_their_number():
    rows = [network("a", seed=s, deep_nudging=NAN if s else -2.4e-4) for s in range(3)]
    texts = [text.get_text() for text in drawn(triangulation, tidy_of(rows)).axes[0].texts]
    assert "1. $-2.4{\\times}10^{-4}$\n1/3 seeds" in texts


# ---- both can be read


@pytest.mark.parametrize(
    "tidy",
    [
        tidy_of(ladder((*(f"my_method_with_a_long_name_{i}:Class" for i in range(10)), "bp"), depth=12)),
        tidy_of([network("bp")]),
        tidy_of(ladder((r"my_$\alpha$_50%_é", "bp"), seeds=(1,))),
    ],
    ids=["crowd", "one", "characters"],
)
def test_a_ladder_can_be_read(tidy):
    assert_panels_readable(drawn(depth_ladder, tidy, title=" ".join([TITLE] * 6)))


def missing(tidy):
    tidy.runs.loc[tidy.runs["seed"] == 42, ["deep_nudging", "deep_cosine"]] = NAN
    tidy.runs.loc[tidy.runs["run"] == "bp", "deep_cosine"] = NAN
    return tidy


@pytest.mark.parametrize(
    "tidy",
    [crowd(), missing(crowd(name="credit_bridge")), tidy_of([network(LONG)]), crowd(2, name=r"$\alpha$_50%_é")],
    ids=["crowd", "missing", "one", "characters"],
)
def test_a_triangulation_can_be_read(tidy):
    figure = drawn(triangulation, tidy, title=" ".join([TITLE] * 6))
    assert_panels_readable(figure)
    ax = figure.axes[0]
    for text in ax.texts:
        box = text.get_window_extent().transformed(ax.transData.inverted())
        x = text.get_position()[0]
        assert x - triangulation.SIDE < box.x0 and box.x1 < x + triangulation.SIDE, f"{text.get_text()!r} meets a line"


@pytest.mark.parametrize(
    ("label", "width", "lines"),
    [("DFA + penalty", 8, ["DFA", "+ penalty"]), ("dfa+penalty1e-2", 24, ["dfa+penalty1e-2"]), ("+", 4, ["+"]),
     (LONG, 24, ["credit_bridge", "+penalty1e-2", "+random_targets"]), ("", 4, [""]),
     ("no_terminal_norm", 12, ["no_terminal_", "norm"]),
     ("unbreakable", 4, ["unbreakable"]), ("Residual MLP, wide", 14, ["Residual MLP,", "wide"])],
)  # fmt: skip
def test_labels_break_where_words_end(label, width, lines):
    assert wrap(label, width) == "\n".join(lines)


# ---- these figures, and those of verdicts


@pytest.mark.parametrize(
    "module", [decision_utility, depth_ladder, threshold_sensitivity, triangulation, verdict_matrix]
)
def test_the_same_tables_in_another_order_give_the_same_file(module, tmp_path):
    tidy = crowd(2, seeds=(1, 2))
    tables = [getattr(tidy, name).iloc[::-1] for name in ("runs", "layers", "trajectories")]
    for name, given in (("a.pdf", tidy), ("b.pdf", type(tidy)(tidy.settings, *tables))):
        style.save(drawn(module, given), tmp_path / name, "spec 12")
    assert (tmp_path / "a.pdf").read_bytes() == (tmp_path / "b.pdf").read_bytes()
