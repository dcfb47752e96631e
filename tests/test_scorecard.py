"""The scorecard's rules against cases worked out by hand, its rows, its texts, its figure and its command."""

import io
import json
import math

import numpy as np
import pandas as pd
import pytest
import yaml
from drawing import assert_readable, words
from projects import ROOT

from fa_audit.cli import main
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.published import Entry, read_published
from fa_audit.results.figures.scorecard_figure import REACH, draw
from fa_audit.results.scorecard import COLUMNS, judge, made_by, margin, scorecard, summary_line, to_html, to_markdown
from fa_audit.results.statistics import summarise

HIT, MISS, ABSENT = "reproduced", "not reproduced", "not run"


def entry(kind, value=None, run="bp", **fields):
    quantity = {"verdict": "scale_flag", "magnitude": "grad_norm_last"}.get(kind, "accuracy")
    fields = {"quantity": quantity, "setting": "tiny", "n": 3, "source": "a paper"} | fields
    return Entry(kind=kind, value=value, run=run, **fields)


def judged(published, *values, **by_run):
    """The judgement on values of one run, or of several by name, seeds counted from 0."""
    measured = {run: dict(enumerate(found)) for run, found in (by_run or {published.runs[0]: values}).items()}
    return judge(published, measured)


EP = entry("value", 0.316, deviation=0.037, tolerance=0.02)
ORDER = entry("order", run=["bp", "fa", "dfa"])


# --- the rules


def test_the_margin_is_the_tolerance_or_three_standard_errors_whichever_is_larger():
    own = summarise([0.20, 0.25, 0.30])  # deviation 0.05
    assert margin(EP, own) == pytest.approx(3 * math.sqrt((0.001369 + 0.0025) / 3)) == pytest.approx(0.107736, abs=1e-6)
    assert margin(EP, summarise([0.25])) == pytest.approx(0.0640859, abs=1e-7)  # one seed: its deviation counts 0
    unknown = entry("value", 0.42, deviation=None, tolerance=0.1)
    assert margin(unknown, own) == 0.1 and margin(unknown, summarise([0.1, 0.5])) == pytest.approx(0.6)
    twenty = entry("value", 0.002, deviation=0.022, n=20, tolerance=0.001)
    assert margin(twenty, summarise([0.1])) == pytest.approx(3 * 0.022 / math.sqrt(20))


def test_a_value_within_outside_and_with_one_seed():
    found = judged(EP, 0.20, 0.25, 0.30)  # 0.066 away, margin 0.1077
    assert found.verdict == HIT and found.reproduced == pytest.approx(0.25)
    assert found.distance == pytest.approx(-0.066 / 0.107736, abs=1e-5)
    assert found.rule == "|mean - 0.316| <= max(0.02, 3 sqrt(0.037^2/3 + s^2/n)): 0.066 <= 0.108"
    assert found.summary.deviation == pytest.approx(0.05) and found.summary.n == 3
    alone = judged(EP, 0.25)  # the same mean, margin 0.0641
    assert alone.verdict == MISS and alone.summary.interval is None and alone.rule.endswith(": 0.066 > 0.0641")
    assert alone.distance == pytest.approx(-0.066 / 0.0640859, abs=1e-5)


@pytest.mark.parametrize(
    ("value", "own", "verdict"),
    [(0.615, 0.635, HIT), (0.615, 0.595, HIT), (0.615, 0.6351, MISS), (0.615, 0.5949, MISS), (0.36, 0.34, HIT),
     (0.3, 0.32, HIT), (-0.02, 0.0, HIT), (0.0, -0.02, HIT), (0.0, -0.0201, MISS)],
)  # fmt: skip
def test_the_border_of_a_value_is_within(value, own, verdict):
    assert judged(entry("value", value, deviation=None, tolerance=0.02), own).verdict == verdict


@pytest.mark.parametrize(
    ("value", "own", "verdict"),
    [
        (3.7e-4, [3.7e-3], HIT), (3.7e-4, [3.7e-5], HIT), (3.7e-4, [3.71e-3], MISS), (3.7e-4, [3.69e-5], MISS),
        (4.5e8, [1e8, 2e8], HIT), (4.5e8, [1.0, 2.0], MISS), (1.1, [0.0], MISS), (1.1, [-1.1], MISS),
        (-5e-5, [5e-5], MISS), (-5e-5, [-1e-5, -9e-5], HIT), (-5e-5, [-6e-4], MISS), (-5e-5, [-1e-5, 1e-5], MISS),
        (1.0, [5e-324], MISS), (1e-9, [1e308], MISS),
    ],
)  # fmt: skip
def test_a_magnitude_has_the_sign_and_a_factor_of_ten(value, own, verdict):
    assert judged(entry("magnitude", value), *own).verdict == verdict


def test_the_distance_of_a_magnitude_is_a_logarithm_and_exists_for_equal_signs_only():
    found = judged(entry("magnitude", 2.0), 60.0)
    assert found.distance == pytest.approx(math.log10(30)) and found.rule == "mean within a factor of 10 of 2: 30 times"
    assert judged(entry("magnitude", 2.0), 0.0).distance is judged(entry("magnitude", 2.0), -2.0).distance is None


@pytest.mark.parametrize(
    ("value", "own", "verdict", "reproduced"),
    [
        (True, [True, True, True], HIT, "true"), (False, [False], HIT, "false"),
        (True, [True, True, False], MISS, "true 2/3, false 1/3"), (False, [True, True], MISS, "true"),
        (True, [True, None], MISS, "true 1/2, none 1/2"),
        ("needs walk-back", ["needs walk-back", "needs walk-back"], HIT, "needs walk-back"),
        ("needs walk-back", ["needs walk-back", "trustworthy"], MISS, "needs walk-back 1/2, trustworthy 1/2"),
    ],
)  # fmt: skip
def test_a_verdict_is_that_of_every_seed(value, own, verdict, reproduced):
    found = judged(entry("verdict", value), *own)
    assert (found.verdict, found.reproduced, found.distance) == (verdict, reproduced, None)


@pytest.mark.parametrize(
    ("bp", "fa", "dfa", "verdict", "reproduced"),
    [
        ([0.6], [0.4], [0.3], HIT, "bp > fa > dfa"),
        ([0.5, 0.7], [0.9, 0.2], [0.5, 0.4], HIT, "bp > fa > dfa"),  # on the mean, not for every seed
        ([0.6], [0.3], [0.4], MISS, "bp > dfa > fa"),
        ([0.6], [0.4], [0.4], MISS, "bp > fa = dfa"),
        ([0.6], [0.1, 0.2, 0.3], [0.2], MISS, "bp > fa = dfa"),  # 0.20000000000000004 is no better
        ([0.6], [], [0.3], ABSENT, None),
    ],
)
def test_an_order_is_strict_and_on_the_mean(bp, fa, dfa, verdict, reproduced):
    found = judged(ORDER, bp=bp, fa=fa, dfa=dfa)
    assert (found.verdict, found.reproduced) == (verdict, reproduced)
    assert found.remark == ("" if fa else "no audit of fa") and judge(ORDER, {}).remark == ""


def test_without_audits_nothing_was_run_and_what_is_no_number_is_not_reproduced():
    for published in (EP, entry("magnitude", 1.0), entry("verdict", True), ORDER):
        found = judge(published, {})
        assert found.verdict == ABSENT and found.rule and found.reproduced is None
    for strange in (None, "nan", "inf", "-inf", math.nan):
        has = "none" if strange in (None, "nan") or strange is math.nan else strange
        for published in (EP, entry("magnitude", 1.0)):
            found = judged(published, 0.316, strange, 0.316)
            assert found.verdict == MISS and found.reproduced is None and found.summary is None
            assert found.remark == f"no finite number: bp seed 1 has {has}"
        assert judged(ORDER, bp=[0.6], fa=[0.4], dfa=[strange]).verdict == MISS


# --- rows

EXPERIMENT = {"dataset": "digits", "architecture": {"name": "resmlp", "width": 16, "depth": 2}, "epochs": 2}
COMMON = {"setting": "tiny", "n": 3, "source": "a paper", "seeds": [1, 2]}
ENTRIES = [
    {"quantity": "accuracy", "run": "bp", "kind": "value", "value": 0.6, "deviation": 0.01, "tolerance": 0.02},
    *({"quantity": "grad_norm", "run": "bp", "layer": layer, "kind": "magnitude", "value": 10.0**-layer,
       "deviation": None, "note": "one | other"} for layer in range(3)),
    {"quantity": "four_check_verdict", "run": "dfa", "kind": "verdict", "value": "needs walk-back"},
    {"quantity": "accuracy", "run": ["bp", "dfa"], "kind": "order"},
    {"quantity": "first_scale_flag", "run": "dfa+penalty1e-2", "kind": "value", "value": 9.0, "deviation": 2.0,
     "tolerance": 3, "setting": "other"},
]  # fmt: skip
RAW = {"settings": {"tiny": EXPERIMENT, "other": EXPERIMENT}, "entries": [COMMON | body for body in ENTRIES]}


@pytest.fixture(scope="module")
def published():
    return read_published(RAW)


def audit_of(published, run, seed, accuracy, **changes):
    spec = published.experiments.setting("tiny").spec(run, seed).to_dict()
    limits = {"growth": 50.0, "reference": 1e-7, "stability": 0.3, "depth_margin": 0.02, "saturation": 0.5}
    fires = {name: {"fires": name == "scale"} for name in ("scale", "reference", "stability", "depth")}
    return {
        "setting": "tiny", "run": run, "seed": seed, "spec": spec, "stopped_after": None, "headline_acc": accuracy,
        "layers": [{"grad_norm": norm * seed} for norm in (1.0, 2.0, 0.01)], "checks": fires, "finite": True,
        "thresholds": limits, "commit": "abc", "device": "cpu",
    } | changes  # fmt: skip


@pytest.fixture
def rows(published):
    return scorecard(published, [audit_of(published, "bp", 2, 0.63), audit_of(published, "bp", 1, 0.59)])


def test_rows_have_both_numbers_with_spread_and_source_and_what_was_not_run_is_never_counted(rows, published):
    assert tuple(rows.columns) == COLUMNS and len(rows) == len(ENTRIES)
    row = rows.iloc[0]
    assert (row["published"], row["published_deviation"], row["published_n"], row["n"]) == (0.6, 0.01, 3, 2)
    assert row["reproduced"] == pytest.approx(0.61) and row["deviation"] == pytest.approx(0.04 / math.sqrt(2))
    half = 12.7062047 * 0.02  # t of one degree of freedom; 0.04 / sqrt(2) / sqrt(2)
    assert [row["interval_low"], row["interval_high"]] == pytest.approx([0.61 - half, 0.61 + half])
    assert (row["verdict"], row["source"], row["note"]) == (HIT, "a paper", "")
    layers = rows[rows["quantity"] == "grad_norm"]
    assert layers["layer"].tolist() == [0, 1, 2] and layers["reproduced"].tolist() == [1.5, 3.0, 0.015]
    assert rows["verdict"].tolist() == [HIT, HIT, MISS, HIT, ABSENT, ABSENT, ABSENT]  # 1.5, 30 and 1.5 times
    assert (
        rows["n"].tolist() == [2, 2, 2, 2, 0, 0, 0] and rows["reproduced"].isna().tolist() == [False] * 4 + [True] * 3
    )
    assert rows.iloc[5]["note"] == "no audit of dfa"
    assert summary_line(rows) == "3 of 7 reproduced, 1 not reproduced, 3 not run; of those that were run: 3/4"
    empty = scorecard(published, [])
    assert summary_line(empty) == "0 of 7 reproduced, 0 not reproduced, 7 not run; of those that were run: 0/0"


def test_fewer_seeds_than_published_are_counted_and_noted(published):
    rows = scorecard(published, [audit_of(published, "bp", 1, 0.59), audit_of(published, "dfa", 2, 0.3)])
    assert rows["n"].tolist() == [1, 1, 1, 1, 1, 1, 0]
    assert rows["note"].str.startswith("1 of 2 seeds").tolist() == [True] * 6 + [False]
    assert pd.isna(rows.iloc[0]["deviation"]) and rows["reproduced"][4] == "needs walk-back"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"spec": {"epochs": 3}}, "epochs 3 instead of 2"),
        ({"spec": {"penalty": 0.01}}, "penalty 0.01 instead of 0.0"),
        ({"thresholds": {"growth": 10.0}}, "growth 10.0 instead of 50.0"),
        ({"spec": {"monitor": {"D1": 50.0}}, "stopped_after": 1}, "stopped after epoch 1"),
        ({"spec": {"monitor": {"D1": 50.0}}}, ""),  # which did not stop it
    ],
)
def test_an_audit_of_another_experiment_is_left_out_and_named(published, change, why):
    other = audit_of(published, "bp", 1, 0.6)
    other |= {key: other[key] | value if isinstance(value, dict) else value for key, value in change.items()}
    row = scorecard(published, [other, audit_of(published, "bp", 2, 0.6)]).iloc[0]
    assert (row["verdict"], row["n"]) == ((HIT, 1) if why else (HIT, 2))
    assert row["note"] == (f"1 of 2 seeds; left out: bp seed 1, {why}" if why else "")
    assert scorecard(published, [other]).iloc[0]["verdict"] == (ABSENT if why else HIT)


# --- texts, figure, command


def test_the_texts_group_by_setting_and_hold_every_row(rows):
    text = to_markdown(rows, "Audits read: 2 of commit abc on cpu.")
    assert text.split("\n\n")[1] == "Audits read: 2 of commit abc on cpu."
    assert "\n## tiny: 3 of 6 reproduced, 1 not reproduced, 2 not run; of those that were run: 3/4\n" in text
    assert "\n## other: 0 of 1 reproduced" in text
    body = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(body) == 2 * 2 + len(ENTRIES)
    assert {line.replace(r"\|", "").count("|") for line in body} == {9}
    assert "| accuracy | bp | 0.6 ± 0.01 (n = 3) | 0.61 ± 0.028 (n = 2) | 0.3559 to 0.8641 |" in text
    assert r"| grad\_norm (layer 1) | bp | 0.1 (n = 3) | 3 ± 1.4 (n = 2) |" in text
    page = to_html(rows, "remark")
    assert page.count("<tr>") == len(ENTRIES) + 1 and "3 of 7 reproduced" in page and "bp &gt; dfa" in page
    audits = [{"commit": "a", "device": "cpu"}, {"commit": "b", "device": "cuda"}, {"commit": "a", "device": "cpu"}, {}]
    assert made_by(audits) == (
        "Audits of networks: 2 trained by commit a on cpu; 1 trained by commit b on cuda;"
        " 1 trained by commit unknown on unknown device."
    )
    assert made_by([]) == "Audits of networks: none."


def marks(figure, label):
    return [line.get_xydata()[0] for ax in figure.axes for line in ax.lines if line.get_label() == label]


def test_the_figure_shows_distances_in_the_order_of_the_rows(rows):
    back = pd.read_csv(io.StringIO(rows.to_csv(index=False)))
    figure = draw(back, title="Scorecard")
    hits, misses = marks(figure, HIT), marks(figure, MISS)
    assert [x for x, _ in hits] == pytest.approx(rows[rows["verdict"] == HIT]["distance"].tolist())
    assert [x for x, _ in misses] == pytest.approx([math.log10(30)])
    heights = [y for _, y in sorted([*hits, *misses], key=lambda mark: mark[1])]
    assert len(set(heights)) == 4 and heights[0] == 1.5  # below the heading
    shown = words(figure)
    assert {"tiny", "other", "accuracy, bp", "accuracy, order of 2 runs", "yes (n = 2)", "2/3 (n = 2)"} <= set(shown)
    assert shown.count(ABSENT) == 3 and any("3 of 7 reproduced, 1 not" in text for text in shown)


def test_marks_off_the_axis_and_without_a_distance(rows):
    rows.loc[:3, "distance"] = [REACH + 1, -np.inf, np.nan, 0.5]
    rows.loc[:3, "verdict"] = [MISS, MISS, HIT, HIT]
    figure = draw(rows, title="Scorecard")
    found = [line for ax in figure.axes for line in ax.lines if line.get_label() in (HIT, MISS)]
    assert [line.get_marker() for line in found] == [">", "<", "o", "o"]
    right, left, beside, plain = (line.get_xydata()[0, 0] for line in found)
    assert 3 < right < REACH and -REACH < left < -3 and plain == 0.5
    assert 1 < beside < 1.2  # a fraction of the axis, beyond its end
    assert found[2].get_transform() == figure.axes[0].get_yaxis_transform()


def test_the_whole_scorecard_is_readable():
    rows = scorecard(read_published(yaml.safe_load((ROOT / "reference/published.yaml").read_text())), [])
    assert_readable(draw(rows, title="Scorecard"))
    rows["verdict"], rows["n"], rows["distance"] = MISS, 3, 2.0
    assert_readable(draw(rows[rows["setting"] == "penalty_sweep"], title="Scorecard"))


def test_the_command_builds_it_from_the_audits_that_exist(published, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fa_audit.results.tidy.read_audit", lambda path: json.loads(path.read_text()))
    (tmp_path / "published.yaml").write_text(json.dumps(RAW))
    for run, seed, accuracy in (("bp", 1, 0.59), ("bp", 2, 0.63), ("fa", 1, 0.5)):
        path = tmp_path / RunKey("tiny", run, seed).path("audits", "json")
        path.parent.mkdir(parents=True, exist_ok=True)
        audit = audit_of(published, "bp", seed, accuracy) | {"run": run}
        path.write_text(json.dumps(audit | {"digest": "0", "baseline_runs": {}, "seconds": 1}))
    command = ["scorecard", "--results", f"{tmp_path}/results", "--published", f"{tmp_path}/published.yaml"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert text.startswith("3 of 7 reproduced, 1 not reproduced, 3 not run") and "Audits of networks: 2 trained" in text
    assert main([*command, "--output", f"{tmp_path}/new"]) == 0
    assert (tmp_path / "new/scorecard.md").read_text() == text
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        f"scorecard.{e}" for e in ("csv", "html", "md")
    ]
    assert main([*command, "--output", f"{tmp_path}/results"]) == 1  # that would pass for the workflow's own
    assert not list((tmp_path / "results").glob("scorecard*"))
