"""One judge for one network and for several, and the same outcome through every writer."""

import json
import math

import pytest
from scipy import stats
from test_protocol import report_of

from fa_audit.cli import main
from fa_audit.documents.document import to_text
from fa_audit.experiments.paths import evidence_files
from fa_audit.experiments.spec import RunSpec
from fa_audit.protocol.audit import Audit
from fa_audit.protocol.checks import CHECKS, CREDITS, Outcome
from fa_audit.protocol.evidence import Baselines, Stability
from fa_audit.protocol.judge import FOUR, OUTCOMES, THREE, Finding, Judgement
from fa_audit.protocol.report import document
from fa_audit.protocol.sentences import sentences
from fa_audit.results.own_audits import read_own, user_audits
from fa_audit.results.page.render import headline
from fa_audit.results.page.runs import read_runs
from fa_audit.results.reporting import report
from fa_audit.results.tables.audits import main_audit
from fa_audit.results.tidy import judged, read_tidy, tidy_of, write_packed
from fa_audit.results.verdict_summary import verdict_lines

MARGINS = (0.03, 0.01, 0.03)  # over the frozen baseline; the limit is 0.02


def seed(number, margin=0.03, stability=0.1, finite=True):
    """An audit of one seed, healthy but for what is given."""
    spec = RunSpec(dataset="digits", architecture="resmlp", method="dfa", seed=number)
    found = report_of(0.5, 0.5 - margin, growth=2.0 + number, finite=finite)
    values = {"value": stability + number / 1e6, "n": 10, "n_valid": 10, "layer": 1}
    facts = {"setting": "main", "run": "dfa", "seed": number, "spec": spec.to_dict()}
    roles = {"own": {"accuracy": 0.5 - margin}}
    return found.replace(stability=Stability(**values), baseline_runs=roles, **facts)


def judged_of(**varied):
    """The judgement of seeds that differ in one thing."""
    [(name, values)] = varied.items()
    return Judgement([seed(number, **{name: value}) for number, value in enumerate(values)])


def half(values):
    """Half of the t-interval of a mean."""
    count = len(values)
    return stats.t.ppf(0.975, count - 1) * stats.tstd(values) / math.sqrt(count)


def test_the_mean_distance_decides_and_its_interval_says_what_is_borderline():
    found = judged_of(margin=MARGINS)
    depth = found["depth"]
    around = (1 / 300 - half(MARGINS), 1 / 300 + half(MARGINS))
    assert depth.distance == pytest.approx(1 / 300) and depth.around == pytest.approx(around)
    assert depth.value == pytest.approx(7 / 300)
    assert (depth.fires, depth.borderline, depth.count, depth.evaluated) == (False, True, 1, 3)
    assert found.text(THREE) == "PASS 2/3 (borderline)"
    assert found.text(FOUR) == "trustworthy 2/3 (borderline)"
    may, may_not = sentences(found)
    assert "Trained blocks help" not in " ".join(may) and "D3 is borderline" in " ".join(may_not)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_credits_with_chance_levels_of_their_own_have_the_means_of_values_and_levels(order):
    values, levels = (0.9, 0.6, 0.3), (0.1, 0.2, 0.4)
    kind = CREDITS["cosine"]
    outcomes = tuple(kind.judge(values[place], levels[place]) for place in order)
    found = Finding(kind, (*outcomes, Outcome(0.5, 0.0, None)))
    assert [found.value, found.threshold] == pytest.approx([0.6, 0.7 / 3])
    width = half([0.8, 0.4, -0.1])
    assert found.interval == pytest.approx((0.6 - width, 1.0)) and 0.6 + width > 1
    assert (found.evaluated, found.count) == (3, 1)
    assert Finding(kind, outcomes).borderline
    # The fourth network may change the outcome, whatever the interval of three says.
    assert found.fires is None and found.outcome == OUTCOMES[None] and not found.borderline


def test_with_floors_of_their_own_gradients_have_the_geometric_mean_of_their_floors():
    kind = CHECKS["reference"]
    found = Finding(kind, (kind.judge(1e-3, 1e-7), kind.judge(1e-5, 4e-7)))
    assert [found.value, found.threshold] == pytest.approx([1e-4, 2e-7])


def test_only_checks_of_a_borderline_verdict_have_to_be_settled():
    margins, strict = (0.03, 0.01, 0.03), (0.021, 0.0199, 0.0205)
    audits = []
    for number, (own, over_bp) in enumerate(zip(margins, strict, strict=True)):
        audit = seed(number, margin=own)
        audits.append(audit.replace(baselines=Baselines(own=0.5 - own, bp=0.5 - over_bp)))
    found = Judgement(audits)
    assert found.borderline == ["D3", "D3-strict"]
    assert found.settling.startswith("D3 borderline")


def test_a_check_that_fires_in_one_of_three_counts_by_its_mean():
    stability = judged_of(stability=(0.1, 0.1, 0.35))["stability"]
    assert stability.value == pytest.approx(0.55 / 3, abs=1e-4)
    assert (stability.fires, stability.count, stability.borderline) == (False, 1, True)
    assert judged_of(stability=(0.1, 0.1, 2.9)).verdict(FOUR) == "needs walk-back (C)"


def test_one_seed_that_is_not_finite_fails_the_run():
    found = judged_of(finite=(True, False, True))
    assert found.text(THREE) == "FAIL(non-finite) 1/3"
    assert found.text(FOUR) == "needs walk-back (non-finite) 1/3"


def test_a_stability_that_is_nan_is_not_evaluated_anywhere():
    audit = seed(0, stability=math.nan)
    assert Judgement([audit])["stability"].fires is None
    assert judged(tidy_of([audit]).runs).verdict(FOUR) == Judgement([audit]).verdict(FOUR)


def test_margins_that_are_the_limit_on_average_do_not_fire():
    assert judged_of(margin=(0.01, 0.03))["depth"].fires is False


def test_infinities_on_both_sides_of_a_limit_have_no_mean_and_fire():
    found = Judgement([report_of(growth=growth) for growth in (0.0, math.inf)])
    scale = found["scale"]
    assert scale.distances == [math.inf, -math.inf]
    assert (scale.fires, scale.value, scale.distance, scale.interval) == (True, None, None, None)
    assert "nan" not in to_text(document(found))


@pytest.mark.parametrize("margins", [MARGINS, (-0.01, 0.0, -0.012), (0.03,)])
def test_every_writer_says_the_same(margins, tmp_path, monkeypatch, capsys):
    audits = [seed(number, margin) for number, margin in enumerate(margins)]
    paths = []
    for audit in audits:
        paths.append(str(tmp_path / f"{audit.seed}.json"))
        audit.write(paths[-1])
        assert Audit.read(paths[-1]).to_dict() == audit.to_dict()
    found = Judgement(audits)
    told = json.loads(json.dumps(found.to_dict()))
    assert told["verdict"]["three_check"] == found.verdict(THREE)
    assert main(["report", *paths]) == 0
    printed = capsys.readouterr().out.replace("\\", "")
    assert found.text(THREE) in printed and found["depth"].outcome in printed
    assert found.text(FOUR) in to_text(document(found)).replace("\n", " ")
    for sentence in sentences(found)[0][:5]:
        assert sentence in report(found).sections[1].items
    tidy = user_audits(read_own(paths))
    assert judged(tidy.runs).to_dict()["verdict"] == told["verdict"]
    monkeypatch.chdir(tmp_path)
    (packed,) = [path for path in evidence_files(["main"]) if path.endswith("json")]
    write_packed(packed, audits)
    assert judged(read_tidy([packed]).runs).to_dict() == found.to_dict()
    lines = "\n".join(verdict_lines(["main"]))
    assert f"{found.text(THREE)}; {found.text(FOUR)}" in lines and found.settling in lines
    (page,) = read_runs(paths)
    assert page.judgement.to_dict() == found.to_dict() and found.text(THREE) in headline([page])
    shown = {one.kind.label: one.outcome for one in page.checks}
    assert (
        shown["D3"] == OUTCOMES[found["depth"].fires] + ", borderline" * found["depth"].borderline
    )
    table = main_audit(tidy, title="t", labels={})
    cells = dict(zip(table.columns, table.rows[0]))
    assert cells["four-check"].partition(";")[0] == found.text(FOUR)
