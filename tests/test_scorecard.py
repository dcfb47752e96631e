"""The scorecard's rules against cases worked out by hand, its rows, claims, texts, figure, command."""

import io
import json
import math
import shutil

import numpy as np
import pandas as pd
import pytest
import yaml
from drawing import assert_readable, markers
from projects import EXPERIMENT, ROOT, read_published
from test_protocol import report_of

from fa_audit.cli import main
from fa_audit.experiments.paths import RunKey
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.results.figures.scorecard_figure import EDGE, draw
from fa_audit.results.judging import compare
from fa_audit.results.scorecard import (
    claims,
    counted,
    scorecard,
    sum_of,
    with_seeds,
)
from fa_audit.results.tidy import KEY, Tidy, runs_table

HIT, MISS, ABSENT = "agrees", "differs", "not run"
REST = {"setting": "tiny", "n": 3, "source": "a paper", "seeds": [1, 2]}
RULES = {
    "value": {"quantity": "stability", "value": 0.36, "deviation": None, "tolerance": 0.02},
    "magnitude": {"quantity": "max_growth", "value": 3e-4, "deviation": None},
    "bound": {"quantity": "margin", "above": 0.0},
    "verdict": {"quantity": "scale_fires", "value": True},
    "order": {"quantity": "accuracy", "run": ["bp", "fa", "dfa", "ep"]},
}
SCRIPTS = {"new": {}, "old": {"clip_groups": 1.0}}
OWN = {"script": "new", "reason": "its date"}


def body(kind, **given):
    """An entry of the file."""
    return {"run": "bp", "kind": kind} | REST | RULES[kind] | given


def published_of(*bodies, claims=(), **experiment):
    names = {each["setting"] for each in bodies}
    settings = dict.fromkeys(names, EXPERIMENT | OWN | experiment)
    file = {"scripts": SCRIPTS, "released": "new", "settings": settings, "entries": [*bodies]}
    return read_published(file | {"claims": dict(claims)})


def judged(given, **by_run):
    """The judgement on values by run, seeds counted from 0."""
    measured = {run: dict(enumerate(found)) for run, found in by_run.items()}
    return compare(published_of(given).entries[0], measured)


@pytest.mark.parametrize(
    ("given", "own", "verdict", "reproduced"),
    [
        (body("value"), [0.38], HIT, 0.38),  # the border is within
        (body("value"), [0.3399], MISS, 0.3399),
        # One seed on either side: the tolerance.
        (body("value", deviation=5.0), [0.335], MISS, 0.335),
        (body("value", deviation=5.0, n=1), [0.1, 0.57], MISS, 0.335),
        (body("magnitude"), [6e-4], HIT, 6e-4), (body("magnitude"), [1.5e-4], HIT, 1.5e-4),
        (body("magnitude"), [6.01e-4], MISS, 6.01e-4), (body("magnitude"), [1.49e-4], MISS, 1.49e-4),
        (body("magnitude"), [1e-4, 9e-4], HIT, 3e-4),  # the geometric mean
        (body("magnitude"), [3e-4, -3e-4], MISS, 0.0),
        (body("magnitude", value=-5e-5), [-1e-5, -25e-5], HIT, -5e-5),
        (body("bound"), [0.1, 1e-9], HIT, 0.05), (body("bound"), [0.5, 0.0], MISS, 0.25),  # strictly, every seed
        (body("bound", above=None, below=0.349), [0.1, 0.349], MISS, 0.2245),
        (body("verdict"), ["true", "true"], HIT, "true"),
        (body("verdict"), ["true", "true", "none"], MISS, "true 2/3, none 1/3"),
        (body("order"), {"bp": [0.5, 0.7], "fa": [0.9, 0.2], "dfa": [.5, .5], "ep": [0, 0]}, HIT, "bp > fa > dfa > ep"),
        (body("order"), {"bp": [0.6], "fa": [0.2, 0.9], "dfa": [0.2, 0.1], "ep": [0.1]}, MISS, "bp > fa = dfa > ep"),
    ],
)  # fmt: skip
def test_every_kind_agrees_by_its_own_rule(given, own, verdict, reproduced):
    found = judged(given, **(own if isinstance(own, dict) else {"bp": own}))
    assert (found.verdict, found.reproduced) == (verdict, pytest.approx(reproduced))


@pytest.mark.parametrize(
    ("own", "deviation", "n", "pooled"),
    [
        # Squares 0.02 of one degree of freedom, 0.01 of another.
        ([0.1, 0.3], 0.1, 2, math.sqrt((0.02 + 0.01) / 2)),
        ([0.1, 0.2, 0.3], 0.4, 10, math.sqrt((2 * 0.01 + 9 * 0.16) / 11)),
    ],
)
def test_means_over_seeds_may_differ_by_two_pooled_deviations(own, deviation, n, pooled):
    for beyond, verdict in ((0.999, HIT), (-0.999, HIT), (1.001, MISS), (-1.001, MISS)):
        entry = body(
            "value", value=0.2 - 2 * beyond * pooled, deviation=deviation, n=n, tolerance=9.0
        )
        found = judged(entry, bp=own)
        assert (found.verdict, found.distance) == (verdict, pytest.approx(beyond))


def test_differences_and_ratios_are_taken_seed_by_seed():
    own = {"dfa": [0.30, 0.34, 0.9], "bp": [0.25, 0.26]}
    less = judged(body("value", run="dfa", minus="bp", value=0.065, tolerance=1e-6), **own)
    assert (less.verdict, less.summary.n, less.distance) == (HIT, 2, pytest.approx(0, abs=1e-6))
    times = judged(body("magnitude", run="dfa", over="bp", value=4.0), **own)
    ratio = math.sqrt(0.30 / 0.25 * 0.34 / 0.26)
    assert times.reproduced == pytest.approx(ratio) and times.verdict == MISS
    assert times.distance == pytest.approx(math.log(ratio / 4) / math.log(2))
    assert judged(body("value", run="dfa", minus="bp"), dfa=[0.3], bp=[]).verdict == ABSENT


def test_without_audits_nothing_was_run():
    for kind in RULES:
        found = judged(body(kind), bp=[], fa=[], dfa=[0.3], ep=[0.1])
        assert (found.verdict, found.reproduced) == (ABSENT, None)


@pytest.mark.parametrize("strange", [math.nan, -math.inf])
def test_what_is_no_number_differs(strange):
    for kind in ("value", "magnitude", "bound"):
        found = judged(body(kind), bp=[0.316, strange, 0.316])
        assert (found.verdict, found.reproduced, found.summary) == (MISS, None, None)
        assert judged(body(kind), bp=[math.nan]).reproduced == "none"
    assert judged(body("order"), bp=[0.6], fa=[0.4], dfa=[0.3], ep=[strange]).verdict == MISS


TINY = published_of(*[body("value", run=run, setting="tiny") for run in ("bp", "dfa")]).experiments[
    "new"
]
LIMITS = DiagnosticThresholds().limits
COLUMNS = runs_table([report_of()]).columns


def tables(*runs):
    """Tidy tables of runs ``(run, seed, columns)`` as published; norms of three states, and two
    epochs.

    The column ``setting`` names another setting than the published one, ``spec`` changes the
    specification.
    """
    rows, layers, epochs = [], [], []
    for run, seed, given in runs:
        key = {"setting": given.get("setting", "tiny"), "run": run, "seed": seed}
        spec = TINY.spec(RunKey("tiny", "bp", 1)).to_dict() | {"method": run, "seed": seed}
        spec |= given.get("spec", {})
        limits = LIMITS | {"saturation": 0.5} | given.get("thresholds", {})
        own = dict.fromkeys(COLUMNS) | {
            "accuracy": 0.5,
            "own_frozen_acc": 0.4,
            "bp_frozen_acc": 0.4,
        }
        own |= given
        if given.get("own_frozen_acc", 0.4) is not None:
            own["margin"] = own["accuracy"] - own["own_frozen_acc"]
        own |= key | {"spec": json.dumps(spec), "thresholds": json.dumps(limits)}
        rows.append(own)
        norms = [given.get("norm", 1.0) * norm for norm in (1.0, 2.0, 0.01)]
        for layer, norm in enumerate(norms):
            layers.append(key | {"layer": layer, "grad_norm": seed * norm, "cosine_at_input": 0.5})
        last = own["accuracy"] if isinstance(own["accuracy"], float) else 0.5
        epochs += [key | {"epoch": e, "layer": 0, "test_accuracy": last * e / 2} for e in (1, 2)]
    work = [{name: row[name] for name in KEY} | {"commit": "abc", "device": "cpu"} for row in rows]
    return Tidy(("tiny",), *map(pd.DataFrame, (rows, layers, epochs, work)))


OPTIONS = TINY.spec(RunKey("tiny", "bp", 1)).to_dict()["architecture_options"]


@pytest.mark.parametrize("samples", [256, 1024])
def test_never_is_a_flag_that_was_followed(samples):
    flag = {"quantity": "first_reference_flag", "value": "never", "samples": samples}
    published = published_of(body("verdict", **flag, seeds=[1]))
    tidy = tables(("bp", 1, {"finite": True}))
    assert scorecard(published, tidy).iloc[0]["reproduced"] == "none"  # no norms of gradients
    # Brought to the samples, they are 1.25e-7 and 1.125e-7.
    tidy.trajectories["grad_norm"] = [1.25e-7 * samples / 128, 1.125e-7 * samples / 128]
    assert scorecard(published, tidy).iloc[0]["verdict"] == HIT
    tidy.trajectories[f"grad_norm_{samples}"] = [None, 9e-8]
    assert scorecard(published, tidy).iloc[0]["reproduced"] == "2"


def test_never_is_a_flag_of_a_network_of_finite_norms():
    published = published_of(body("verdict", quantity="first_scale_flag", value="never"))
    for finite, verdict in ((True, HIT), (False, MISS)):
        runs = tables(("bp", 1, {"first_scale_flag": None, "finite": finite}))
        assert scorecard(published, runs)["verdict"].item() == verdict


STRANGER = ("bp", 1, {"setting": "wrong", "spec": {"epochs": 3}, "norm": 1e9})
CLIPPED = {"setting": "any", "spec": {"clip_groups": 1.0}}


NEW, OLD = ("bp", 1, {"stability": 0.36}), ("bp", 1, CLIPPED | {"stability": 0.36})  # which agree
NEW_OFF, OLD_OFF = ("bp", 1, {"stability": 0.9}), ("bp", 1, CLIPPED | {"stability": 0.9})
BY_DATE = "no: by date alone"


@pytest.mark.parametrize(
    ("runs", "judged", "verdict", "released", "decides"),
    [
        ([NEW, OLD_OFF], "new", HIT, HIT, "yes"),
        ([NEW, OLD], "new", HIT, HIT, BY_DATE),
        ([NEW_OFF, OLD], "new", MISS, MISS, BY_DATE),  # of its own script, however it came out
        ([OLD], "old", HIT, ABSENT, BY_DATE),  # nothing that was measured is shown as not run
        ([NEW], "new", HIT, HIT, ABSENT),
        ([], "", ABSENT, ABSENT, ABSENT),
    ],
)
def test_a_number_is_judged_by_its_own_script_s_runs_or_else_by_another_s(
    runs, judged, verdict, released, decides
):
    """And it decides between the scripts only if it agrees with its own alone."""
    published = published_of(body("value", decides=True, seeds=[1]))
    row = scorecard(published, tables(STRANGER, *runs)).iloc[0]
    found = row[["judged_script", "verdict", "released_verdict", "decides"]].tolist()
    assert found == [judged, verdict, released, decides]


def test_the_headline_counts_every_number_once_and_three_seeds_on_both_sides_of_trained_networks():
    seeds = {"seeds": [1, 2, 3]}
    entries = [
        body("value", **seeds),  # agrees, with seeds
        body("bound", **seeds),  # agrees, with seeds
        body("value", quantity="deep_rho_at_input", n=1, **seeds),  # differs
        body("value", repeats="the first", **seeds),
        body("value", run="dfa", **seeds),  # differs, on two seeds
        body("value", run="bp+epoch0", **seeds),  # untrained
        body("value", run="ep", **seeds),
    ]
    untrained = {"stability": 0.36, "spec": {"method": "bp", "snapshot": 0}}
    runs = [("dfa", seed, {"stability": 0.9}) for seed in (1, 2)]
    for seed in (1, 2, 3):
        runs.append(("bp", seed, {"stability": 0.36, "deep_rho_at_input": 0.9}))
        runs.append(("bp+epoch0", seed, untrained))
    rows = scorecard(published_of(*entries), tables(*runs))
    assert sum_of(counted(rows)) == (6, 5, 3) and sum_of(with_seeds(counted(rows))) == (2, 2, 2)
    excluded = scorecard(published_of(*entries, excluded="its data are ours"), tables(*runs))
    assert sum_of(counted(excluded)) == (0, 0, 0)


ENTRIES = [
    body("value", quantity="accuracy", value=0.6, deviation=0.01, values={1: 0.59, 2: 0.61}, claim="learns"),
    *(body("magnitude", quantity="grad_norm", layer=i, value=10.0**-i, note="one | other") for i in range(3)),
    body("verdict", quantity="four_check", run="dfa", value="needs walk-back", claim="fails"),
    body("order", run=["bp", "dfa", "fa", "ep"], claim="ranks"),
    body("value", quantity="test_accuracy", epoch=2, value=0.6, setting="tiny", repeats="accuracy"),
    body("value", quantity="first_scale_flag", run="dfa", value=9.0, tolerance=3, setting="other"),
]  # fmt: skip
CLAIMS = {"learns": "BP learns", "fails": "DFA fails", "ranks": "BP is best"}
PUBLISHED = published_of(*ENTRIES, claims=CLAIMS)
RUNS = [
    ("bp", 2, {"accuracy": 0.63}),
    ("bp", 1, {"accuracy": 0.59}),
    STRANGER,
]  # the last of another experiment


@pytest.fixture
def rows():
    return scorecard(PUBLISHED, tables(*RUNS), {"tiny bp grad_norm layer 1": "a wider batch"})


def test_rows_have_both_numbers_with_their_spread_and_why_some_differ(rows):
    assert rows["verdict"].tolist() == [HIT, HIT, MISS, HIT, ABSENT, ABSENT, HIT, ABSENT]
    assert rows["explanation"].tolist() == ["", "", "a wider batch", *[""] * 5]
    row = rows.iloc[0]
    assert row[["published", "published_deviation", "n"]].tolist() == [0.6, 0.01, 2]
    assert (row["published_values"], row["values"]) == ("1: 0.59, 2: 0.61", "1: 0.59, 2: 0.63")
    half = 12.7062047 * 0.02  # t of one degree of freedom; 0.04 / sqrt(2) / sqrt(2)
    found = row[["reproduced", "deviation", "interval_low", "interval_high"]].tolist()
    assert found == pytest.approx([0.61, 0.04 / math.sqrt(2), 0.61 - half, 0.61 + half])
    allowed = 2 * math.sqrt((0.0008 + 2e-4) / 3)
    assert row["distance"] == pytest.approx(0.01 / allowed)
    norms = rows[rows["quantity"] == "grad_norm"]["reproduced"].tolist()
    assert norms == pytest.approx([math.sqrt(2), 2 * math.sqrt(2), math.sqrt(2) / 100])


def test_numbers_of_more_samples_are_those_measured_there_and_gradients_else_brought_to_them():
    wide = published_of(body("magnitude", quantity="grad_norm", layer=OPTIONS["depth"], samples=1024, value=0.2),
                        body("value", quantity="hidden_norm", layer=OPTIONS["depth"], samples=256, value=7.0),
                        body("value", quantity="first_reference_flag", samples=1024, value=2))  # fmt: skip
    tidy, last = tables(("bp", 1, {"grad_norm_last": 0.01})), OPTIONS["depth"]
    tidy.layers["layer"] += last - 2
    assert scorecard(wide, tidy)["reproduced"][0] == pytest.approx(0.01 * 128 / 1024)
    tidy.layers["grad_norm_1024"], tidy.layers["hidden_norm_256"] = [5.0, 6.0, 0.3], [1.0, 2.0, 7.0]
    tidy.trajectories["grad_norm_1024"] = [2e-7, 9e-8]
    rows = scorecard(wide, tidy)
    assert rows["reproduced"].tolist() == pytest.approx([0.3, 7.0, 2.0])
    assert rows["samples"].tolist() == [1024, 256, 1024]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"spec": {"epochs": 3}}, 1), ({"thresholds": {"growth": 10.0}}, 1),
        ({"spec": {"monitor": {"D1": 50.0}}, "stopped_after": 1}, 1),
        ({"spec": {"monitor": {"D1": 50.0}}}, 2),  # which did not stop it
        ({"setting": "another name"}, 2),
    ],
)  # fmt: skip
def test_a_run_counts_by_its_specification_whatever_its_setting_is_called(change, found):
    other = ("bp", 1, {"accuracy": 0.6} | change)
    row = scorecard(PUBLISHED, tables(other, ("bp", 2, {"accuracy": 0.6}))).iloc[0]
    assert (row["verdict"], row["n"]) == (HIT, found)
    assert scorecard(PUBLISHED, tables(other)).iloc[0]["verdict"] == (ABSENT if found == 1 else HIT)


@pytest.mark.parametrize("name", ["a name before", "zz a name after"])
def test_of_two_runs_of_a_seed_the_one_with_exactly_the_published_specification_counts(name):
    monitored = ("bp", 1, {"accuracy": 0.9, "spec": {"monitor": {"D1": 50.0}}})
    tidy = tables(monitored, ("bp", 1, {"accuracy": 0.6, "setting": name}))
    assert scorecard(PUBLISHED, tidy).iloc[0]["reproduced"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("margins", "growth", "verdict"),  # bounds of seeds 1 to 3; a number that says nothing beside them
    [([0.1, 0.1], 9.0, "holds"), ([0.1, -0.1], 3e-4, "holds in part"), ([-0.1, -0.1], 3e-4, "does not hold"),
     ([None, 0.1], 9.0, "holds on one seed"), ([None, None, 0.1], 9.0, "holds in part"), ([], 3e-4, "holds"),
     ([None], 3e-4, "not run"), ([], 2e-3, "does not hold")],
)  # fmt: skip
def test_a_claim_is_decided_by_its_qualitative_entries_and_without_any_by_its_numbers(
    margins, growth, verdict
):
    bounds = [body("bound", seeds=[seed], claim="claim") for seed, _ in enumerate(margins, 1)]
    number = body("magnitude", seeds=[9], claim="claim")
    runs = [("bp", 9, {"max_growth": growth})]
    for seed, margin in enumerate(margins, 1):
        if margin is not None:
            runs.append(("bp", seed, {"own_frozen_acc": 0.5 - margin}))
    assert claim_on(tables(*runs), number, *bounds)["verdict"] == verdict


def claim_on(tidy, *entries):
    """The row of the only claim."""
    published = published_of(*entries, claims={"claim": "So"})
    return claims(published, scorecard(published, tidy)).iloc[0]


def test_the_figure_shows_distances_of_what_was_run_and_counts_the_rest(rows):
    back = pd.read_csv(io.StringIO(rows.to_csv(index=False)))
    back.loc[:3, "distance"] = [0.5, EDGE + 1, -np.inf, np.nan]  # off the axis on both sides; none
    figure = draw(back, title="Scorecard")
    (ax,) = figure.axes
    shown = {label: [x for x, _, _ in markers(ax, label)] for label in (HIT, MISS)}
    assert shown == {HIT: [0.5, EDGE], MISS: [-EDGE]}
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert [name.partition(":")[0] for name in names] == ["tiny", "other"]


def test_the_whole_scorecard_is_readable():
    published = read_published(yaml.safe_load((ROOT / "reference/published.yaml").read_text()))
    assert_readable(draw(scorecard(published, tables(STRANGER)), title="Scorecard"))


def test_the_command_writes_it_and_neither_overwrites_what_it_reads_nor_explains_what_is_not_there(
    tmp_path, capsys
):
    source = shutil.copytree(ROOT / "reference/measured", tmp_path / "measured")
    command = ["scorecard", "--from", str(source)]
    assert main([*command, "--output", f"{tmp_path}/new"]) == 0
    shipped = ROOT / "docs/reproduction/scorecard.csv"
    assert (tmp_path / "new/scorecard.csv").read_bytes() == shipped.read_bytes()
    assert main([*command, "--output", str(source)]) == 1
    for text in ("tiny bp grad_nrm: why", "main_audit dfa grad_norm layer 1:"):
        (source / "explanations.yaml").write_text(f"{text}\n")
        assert main(command) == 1 and "explanations.yaml" in capsys.readouterr().err


def test_a_list_of_one_s_own_is_compared_with_the_shipped_runs(tmp_path):
    network = {"name": "resmlp", "width": 256, "depth": 4}
    setting = OWN | {"dataset": "cifar10", "architecture": network, "epochs": 100}
    entry = body("value", quantity="accuracy", value=0.61, setting="mine", seeds=[42, 123, 456])
    file = {"scripts": {"new": {}}, "settings": {"mine": setting}, "entries": [entry]}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(file))
    measured = str(ROOT / "reference/measured")
    command = ["scorecard", "--published", f"{tmp_path}/mine.yaml", "--from", measured]
    assert main([*command, "--output", f"{tmp_path}/new"]) == 0
    (row,) = pd.read_csv(tmp_path / "new/scorecard.csv").itertuples()
    assert (row.verdict, row.n, round(row.reproduced, 2)) == (HIT, 3, 0.61)
