"""The scorecard's rules against cases worked out by hand, its rows, its texts, its figure and its command."""

import io
import json
import math

import numpy as np
import pandas as pd
import pytest
import yaml
from drawing import assert_readable, words
from projects import EXPERIMENT, ROOT

from fa_audit.cli import main
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.published import Entry, read_published
from fa_audit.results.figures.scorecard_figure import REACH, draw
from fa_audit.results.scorecard import COLUMNS, judge, scorecard, summary_line

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


def test_the_margin_is_the_tolerance_or_three_standard_errors_and_distances_are_in_its_units():
    found = judged(EP, 0.20, 0.25, 0.30)  # deviation 0.05, margin 3 sqrt((0.001369 + 0.0025) / 3)
    assert found.verdict == HIT and found.reproduced == pytest.approx(0.25) and found.summary.n == 3
    assert found.distance == pytest.approx(-0.066 / 0.107736, abs=1e-5)
    assert found.rule == "|mean - 0.316| <= max(0.02, 3 sqrt(0.037^2/3 + s^2/n)): 0.066 <= 0.108"
    alone = judged(EP, 0.25)  # the same mean, but the deviation of one seed counts 0
    assert alone.verdict == MISS and alone.summary.interval is None and alone.rule.endswith(": 0.066 > 0.0641")
    unknown = entry("value", 0.42, deviation=None, tolerance=0.1)
    assert judged(unknown, 0.47).distance == pytest.approx(0.5)
    assert judged(unknown, 0.1, 0.5).distance == pytest.approx(-0.12 / 0.6)
    found = judged(entry("magnitude", 2.0), 60.0)
    assert found.distance == pytest.approx(math.log10(30)) and found.rule == "mean within a factor of 10 of 2: 30 times"
    assert judged(entry("magnitude", 2.0), 0.0).distance is judged(entry("magnitude", 2.0), -2.0).distance is None


@pytest.mark.parametrize(
    ("kind", "value", "own", "verdict", "reproduced"),
    [
        ("value", 0.615, [0.635], HIT, 0.635), ("value", 0.615, [0.5949], MISS, 0.5949),  # the border is within,
        ("value", 0.36, [0.34], HIT, 0.34), ("value", 0.0, [-0.0201], MISS, -0.0201),  # whatever binary fractions are
        ("magnitude", 3.7e-4, [3.7e-3], HIT, 3.7e-3), ("magnitude", 3.7e-4, [3.71e-3], MISS, 3.71e-3),
        ("magnitude", 3.7e-4, [3.7e-5], HIT, 3.7e-5), ("magnitude", 3.7e-4, [3.69e-5], MISS, 3.69e-5),
        ("magnitude", 1.1, [0.0], MISS, 0.0), ("magnitude", -5e-5, [5e-5], MISS, 5e-5),
        ("magnitude", -5e-5, [-1e-5, -9e-5], HIT, -5e-5), ("magnitude", 1.0, [5e-324], MISS, 5e-324),
        ("verdict", True, [True, True], HIT, "true"), ("verdict", False, [True, True], MISS, "true"),
        ("verdict", True, [True, True, False], MISS, "true 2/3, false 1/3"),
        ("verdict", True, [True, None], MISS, "true 1/2, none 1/2"),
        ("verdict", "needs walk-back", ["needs walk-back"], HIT, "needs walk-back"),
        ("order", None, {"bp": [0.5, 0.7], "fa": [0.9, 0.2], "dfa": [0.5, 0.4]}, HIT, "bp > fa > dfa"),  # of means
        ("order", None, {"bp": [0.6], "fa": [0.3], "dfa": [0.4]}, MISS, "bp > dfa > fa"),
        ("order", None, {"bp": [0.6], "fa": [0.1, 0.2, 0.3], "dfa": [0.2]}, MISS, "bp > fa = dfa"),  # but for a bit
    ],
)  # fmt: skip
def test_every_kind_is_reproduced_by_its_own_rule(kind, value, own, verdict, reproduced):
    published = ORDER if kind == "order" else entry(kind, value, deviation=None, tolerance=0.02)
    found = judged(published, **(own if kind == "order" else {"bp": own}))
    assert (found.verdict, found.reproduced) == (verdict, pytest.approx(reproduced))


@pytest.mark.parametrize("strange", [None, "nan", "-inf"])
def test_without_audits_nothing_was_run_and_what_is_no_number_is_not_reproduced(strange):
    for published in (EP, entry("magnitude", 1.0), entry("verdict", True), ORDER):
        found = judge(published, {})
        assert (found.verdict, found.reproduced, found.remark) == (ABSENT, None, "") and found.rule
    partly = judged(ORDER, bp=[0.6], fa=[], dfa=[0.3])
    assert (partly.verdict, partly.remark) == (ABSENT, "no audit of fa")
    for published in (EP, entry("magnitude", 1.0)):
        found = judged(published, 0.316, strange, 0.316)
        assert (found.verdict, found.reproduced, found.summary) == (MISS, None, None)
        assert found.remark == f"no finite number: bp seed 1 has {'-inf' if strange == '-inf' else 'none'}"
    assert judged(ORDER, bp=[0.6], fa=[0.4], dfa=[strange]).verdict == MISS


# --- rows

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
PUBLISHED = read_published(RAW)


def audit_of(run, seed, accuracy):
    spec = PUBLISHED.experiments.setting("tiny").spec(run, seed).to_dict()
    limits = {"growth": 50.0, "reference": 1e-7, "stability": 0.3, "depth_margin": 0.02, "saturation": 0.5}
    fires = {name: {"fires": name == "scale"} for name in ("scale", "reference", "stability", "depth")}
    return {
        "setting": "tiny", "run": run, "seed": seed, "spec": spec, "stopped_after": None, "headline_acc": accuracy,
        "layers": [{"grad_norm": norm * seed} for norm in (1.0, 2.0, 0.01)], "checks": fires, "finite": True,
        "thresholds": limits, "commit": "abc", "device": "cpu",
    }  # fmt: skip


@pytest.fixture
def rows():
    return scorecard(PUBLISHED, [audit_of("bp", 2, 0.63), audit_of("bp", 1, 0.59)])


def test_rows_have_both_numbers_with_spread_and_source_and_what_was_not_run_is_never_counted(rows):
    assert tuple(rows.columns) == COLUMNS and len(rows) == len(ENTRIES)
    row = rows.iloc[0]
    assert (row["published"], row["published_deviation"], row["published_n"], row["n"]) == (0.6, 0.01, 3, 2)
    half = 12.7062047 * 0.02  # t of one degree of freedom; 0.04 / sqrt(2) / sqrt(2)
    found = row[["reproduced", "deviation", "interval_low", "interval_high"]].tolist()
    assert found == pytest.approx([0.61, 0.04 / math.sqrt(2), 0.61 - half, 0.61 + half])
    assert (row["verdict"], row["source"], row["note"]) == (HIT, "a paper", "")
    assert rows[rows["quantity"] == "grad_norm"]["reproduced"].tolist() == [1.5, 3.0, 0.015]  # 1.5, 30, 1.5 times
    assert rows["verdict"].tolist() == [HIT, HIT, MISS, HIT, ABSENT, ABSENT, ABSENT]
    assert rows["n"].tolist() == [2, 2, 2, 2, 0, 0, 0] and rows["reproduced"].isna().sum() == 3
    assert summary_line(rows) == "3 of 7 reproduced, 1 not reproduced, 3 not run; of those that were run: 3/4"
    fewer = scorecard(PUBLISHED, [audit_of("bp", 1, 0.59), audit_of("dfa", 2, 0.3)])
    assert fewer["n"].tolist() == [1, 1, 1, 1, 1, 1, 0] and pd.isna(fewer.iloc[0]["deviation"])
    assert fewer["note"].str.startswith("1 of 2 seeds").tolist() == [True] * 6 + [False]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"spec": {"epochs": 3}}, "epochs 3 instead of 2"),
        ({"thresholds": {"growth": 10.0}}, "growth 10.0 instead of 50.0"),
        ({"spec": {"monitor": {"D1": 50.0}}, "stopped_after": 1}, "stopped after epoch 1"),
        ({"spec": {"monitor": {"D1": 50.0}}}, ""),  # which did not stop it
    ],
)
def test_an_audit_of_another_experiment_is_left_out_and_named(change, why):
    other = audit_of("bp", 1, 0.6)
    other |= {key: other[key] | value if isinstance(value, dict) else value for key, value in change.items()}
    row = scorecard(PUBLISHED, [other, audit_of("bp", 2, 0.6)]).iloc[0]
    assert (row["verdict"], row["n"]) == ((HIT, 1) if why else (HIT, 2))
    assert row["note"] == (f"1 of 2 seeds; left out: bp seed 1, {why}" if why else "")
    assert scorecard(PUBLISHED, [other]).iloc[0]["verdict"] == (ABSENT if why else HIT)


# --- texts, figure, command


def marks(figure):
    """The marks of the figure in the order of the rows."""
    return [line for ax in figure.axes for line in ax.lines if line.get_label() in (HIT, MISS)]


def test_the_figure_shows_distances_in_the_order_of_the_rows(rows):
    back = pd.read_csv(io.StringIO(rows.to_csv(index=False)))
    figure = draw(back, title="Scorecard")
    places = np.array([line.get_xydata()[0] for line in marks(figure)])
    assert places[:, 0].tolist() == pytest.approx(rows["distance"][:4].tolist()) and places[0, 1] == 1.5
    assert (np.diff(places[:, 1]) > 0).all()
    shown = words(figure)
    assert {"tiny", "other", "accuracy, bp", "accuracy, order of 2 runs", "yes (n = 2)", "2/3 (n = 2)"} <= set(shown)
    assert shown.count(ABSENT) == 3 and any("3 of 7 reproduced, 1 not" in text for text in shown)
    back.loc[:3, "distance"] = [REACH + 1, -np.inf, np.nan, 0.5]  # off the axis on both sides; none
    back.loc[:3, "verdict"] = [MISS, MISS, HIT, HIT]
    figure = draw(back, title="Scorecard")
    assert [line.get_marker() for line in marks(figure)] == [">", "<", "o", "o"]
    right, left, beside, plain = (line.get_xydata()[0, 0] for line in marks(figure))
    assert 3 < right < REACH and -REACH < left < -3 and plain == 0.5
    assert marks(figure)[2].get_transform() == figure.axes[0].get_yaxis_transform() and beside > 1  # beyond its end


def test_the_whole_scorecard_is_readable():
    rows = scorecard(read_published(yaml.safe_load((ROOT / "reference/published.yaml").read_text())), [])
    assert_readable(draw(rows, title="Scorecard"))
    rows["verdict"], rows["n"], rows["distance"] = MISS, 3, 2.0
    assert_readable(draw(rows[rows["setting"] == "penalty_sweep"], title="Scorecard"))


def test_the_command_builds_it_from_the_audits_that_exist(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fa_audit.results.tidy.read_audit", lambda path: json.loads(path.read_text()))
    (tmp_path / "published.yaml").write_text(json.dumps(RAW))
    for run, seed, accuracy in (("bp", 1, 0.59), ("bp", 2, 0.63), ("fa", 1, 0.5)):
        path = tmp_path / RunKey("tiny", run, seed).path("audits", "json")
        path.parent.mkdir(parents=True, exist_ok=True)
        audit = audit_of("bp", seed, accuracy) | {"run": run}
        path.write_text(json.dumps(audit | {"digest": "0", "baseline_runs": {}, "seconds": 1}))
    command = ["scorecard", "--results", f"{tmp_path}/results", "--published", f"{tmp_path}/published.yaml"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert text.startswith("3 of 7 reproduced, 1 not reproduced, 3 not run")
    assert text.split("\n\n")[1] == "Audits of networks: 2 trained by commit abc on cpu."
    assert "\n## tiny: 3 of 6 reproduced, 1 not reproduced, 2 not run; of those that were run: 3/4\n" in text
    assert "\n## other: 0 of 1 reproduced" in text
    body = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(body) == 2 * 2 + len(ENTRIES) and {line.replace(r"\|", "").count("|") for line in body} == {9}
    assert "| accuracy | bp | 0.6 ± 0.01 (n = 3) | 0.61 ± 0.028 (n = 2) | 0.3559 to 0.8641 |" in text
    assert r"| grad\_norm (layer 1) | bp | 0.1 (n = 3) | 3 ± 1.4 (n = 2) |" in text
    assert main([*command, "--output", f"{tmp_path}/new"]) == 0
    written = {path.suffix: path.read_text() for path in (tmp_path / "new").iterdir()}
    assert set(written) == {".csv", ".html", ".md"} and written[".md"] == text
    assert written[".html"].count("<tr>") == len(ENTRIES) + 1 and "bp &gt; dfa" in written[".html"]
    assert main([*command, "--output", f"{tmp_path}/results"]) == 1  # that would pass for the workflow's own
    assert not list((tmp_path / "results").glob("scorecard*"))
