"""Which sentences an audit supports: none that should not be, whatever else holds, and with the
audit's own numbers.
"""

import copy
import json
from itertools import product
from statistics import mean, stdev

import pytest
import torch
from printed_audits import printed_audits, put

from fa_audit import Description, diagnose
from fa_audit.audit.record import outcomes_of
from fa_audit.cli import main
from fa_audit.core.files import signed
from fa_audit.protocol.checks import CHECKS, CREDITS
from fa_audit.protocol.intervals import student_t
from fa_audit.protocol.sentences import Facts, facts_of, sentences
from fa_audit.protocol.verdicts import Checks, Outcome

FINE, FIRES, BORDERLINE, OPEN = "fine", "fires", "borderline", "open"
OUTCOMES = (FINE, FIRES, BORDERLINE, OPEN)


def outcome(kind, said, cause="collapsed reference"):
    fires = {FINE: False, OPEN: None}.get(said, True)
    value = {FINE: 0.1, FIRES: -0.1, BORDERLINE: 0.02, OPEN: None}[said]  # of a margin
    note = cause if kind is CHECKS["reference"] and fires else ""
    return Outcome(
        kind.label, value, 0.02, fires, note, (0.02, 0.02) if said == BORDERLINE else None
    )


def facts(said, cause="collapsed reference", **others):
    """Made-up facts: outcomes by name; credits beyond chance, unless said otherwise."""
    checks = {name: outcome(kind, said.get(name, FINE), cause) for name, kind in CHECKS.items()}
    credits = {name: outcome(kind, said.get(name, FINE)) for name, kind in CREDITS.items()}
    frozen = {"depth": 0.5, "depth_strict": 0.5}
    finite = others.pop("finite", True)
    return Facts(
        Checks(checks, finite), **{"accuracy": 0.5, "frozen": frozen, "credits": credits} | others
    )


def written(*seeds):
    """The supported sentences as one text, in lower case."""
    return " ".join(sentences(seeds)[0]).lower()


@pytest.mark.parametrize("seeds", [1, 2])
def test_no_combination_of_outcomes_supports_a_sentence_that_it_should_not(seeds):
    for *said, cause in product(*[OUTCOMES] * len(CHECKS), CHECKS["reference"].advice):
        found = dict(zip(CHECKS, said))
        may, may_not = sentences([facts(found, cause)] * seeds)
        text, denied = " ".join(may).lower(), " ".join(may_not)
        assert ("align" in text) == ("credits" in text) == (found["reference"] == FINE), found
        assert (
            "deep" not in text
            and "deep block" in denied
            and ("trained blocks help" in text) == (said[3] == FINE)
        )
        for name, kind in CHECKS.items():
            claims = [claim in text for claim in (kind.finding, *kind.causes.values())]
            assert (kind.fine in text) == (found[name] == FINE) and sum(claims) == (
                found[name] == FIRES
            ), found
            assert (kind.fine in denied or kind.finding in denied) == (found[name] != FINE), found
        assert ("it is one network" in denied) == (seeds == 1)


@pytest.mark.parametrize("name", CHECKS)
def test_a_seed_that_differs_takes_the_sentence_of_a_check_away(name):
    for said in (FIRES, OPEN):
        text = written(facts({}), facts({}), facts({name: said}))
        claims = (CHECKS[name].fine, CHECKS[name].finding)
        assert not any(claim in text for claim in claims) and ("align" in text) == (
            name != "reference"
        )


def test_a_saturated_loss_is_not_a_collapse_and_seeds_that_differ_in_it_decide_nothing():
    saturated, collapsed = (
        facts({"reference": FIRES}, cause) for cause in ("saturated loss", "collapsed reference")
    )
    assert "not a collapse" in written(saturated) and "has vanished" not in written(saturated)
    assert (
        "has vanished" in sentences([saturated])[1][0]
        and "because of the saturated loss" in sentences([saturated])[1][0]
    )
    text = written(saturated, collapsed)
    assert "collapse" not in text and "vanished" not in text and "align" not in text
    assert saturated.checks.quoted == "PASS, and D2 (saturated loss) fires"


@pytest.mark.parametrize(
    ("changed", "absent"),
    [
        ({"closed": "no credits were audited"}, ["align", "credits"]),
        ({"doubted": True}, ["trained blocks help", "beats frozen"]),
    ],
)
def test_nothing_is_written_of_credits_that_are_closed_or_of_accuracies_in_doubt(changed, absent):
    text, denied = written(facts({}, **changed)), " ".join(sentences([facts({}, **changed)])[1])
    assert not any(words in text for words in absent) and "blocks keep the size" in text
    assert ("credits align" if "closed" in changed else "in doubt (see the warnings)") in denied


def test_of_a_network_that_is_not_finite_nothing_else_is_written():
    may, may_not = sentences([facts({}), facts({}, finite=False)])
    assert len(may) == len(may_not) == 1 and "NaN or infinite" in may[0]


@pytest.mark.parametrize(
    ("fires", "quoted"),
    [
        ({}, "PASS"),
        ({"stability": FIRES}, "PASS, and (c) fires"),
        ({"scale": FIRES, "depth_strict": FIRES}, "PASS, and D1 and D3-strict fire"),
        ({"depth": FIRES, "depth_strict": FIRES, "stability": FIRES}, "FAIL(D3), and (c) fires"),
        ({"depth": BORDERLINE}, "FAIL(D3) (borderline)"),
        ({"depth": OPEN, "scale": FIRES}, "INCOMPLETE(D3 not evaluated), and D1 fires"),
    ],
)
def test_the_verdict_to_quote_is_the_three_check_verdict_and_whatever_else_fires(fires, quoted):
    assert facts(fires).checks.quoted == quoted


# --- of real audits --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    return printed_audits(tmp_path_factory.mktemp("sentences"), (3, 7))


CLEAR = {
    "credit.1.rho_random.interval": [-0.03, 0.03],
    "deep.rho.value": 0.3,
    "deep.rho_bp.value": 0.98,
}
CLEAR |= {
    "deep.nudging.value": -0.01,
    "deep.cosine.value": 0.2,
    "deep.fresh_b_null.interval": [-0.1, 0.1],
}


def changed(audit, changes):
    audit = copy.deepcopy(audit)
    put(audit, CLEAR)
    put(audit, changes)
    return audit | outcomes_of(audit)


ABSENT = {"value": None, "n": 9, "n_valid": 0, "reason": "not drawn"}


@pytest.mark.parametrize(
    ("changes", "cosine", "rho", "nudging"),
    [
        ({}, "align with the gradient more than", "better than random", "lowers the loss"),
        (
            {"deep.cosine.value": 0.05},
            "align with the gradient no more than",
            "better than random",
            "lowers the loss",
        ),
        (
            {"deep.nudging.value": 0.01},
            "align with the gradient more than",
            "better than",
            "does not lower the loss",
        ),
        (
            {"deep.rho.value": 0.02},
            "align with the gradient more than",
            "no better than random",
            "",
        ),
        ({"deep.rho_bp.value": 0.01}, "align with the gradient more than", "", ""),
        ({"deep.fresh_b_null": ABSENT}, "", "better than random", "lowers the loss"),
        ({"credit.1.rho_random": ABSENT}, "align with the gradient more than", "", ""),
        ({"layers.-1.grad_norm": 1e-9}, "", "", ""),
        ({"untrue": [1]}, "", "", ""),
        ({"credit": []}, "", "", ""),
    ],
)
def test_credits_have_sentences_only_with_a_reference_their_null_and_a_true_backward_pass(
    real, changes, cosine, rho, nudging
):
    text = written(facts_of(changed(real[0], changes)))
    for words, topic in ((cosine, "align"), (rho, "predict how"), (nudging, "small step")):
        assert words in text if words else topic not in text


def test_a_lower_state_without_a_gradient_closes_the_credits_of_three_blocks(real):
    audit = changed(real[0], {})
    audit["layers"].insert(2, copy.deepcopy(audit["layers"][1]) | {"grad_norm": 1e-9})
    assert "align" not in written(facts_of(audit)) and "has not vanished" in written(
        facts_of(audit)
    )


def test_numbers_over_seeds_are_those_of_the_files(real, tmp_path, capsys):
    given = [{"headline_acc": 0.9 + step, "baselines.own": 0.6, "hits": None} for step in (0, 0.01)]
    audits = list(map(changed, real, given))
    paths = [tmp_path / f"{index}.json" for index in range(2)]
    for path, audit in zip(paths, audits):
        path.write_text(json.dumps(signed(audit)))
    assert main(["report", *map(str, paths)]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[2] == f"Verdict to quote: {facts_of(audits[0]).checks.quoted}."
    assert (
        text.index("### You may write")
        < text.index("### You may not write")
        < text.index("### Identification")
    )
    margins = [100 * (audit["headline_acc"] - audit["baselines"]["own"]) for audit in audits]
    half = student_t(1) * stdev(margins) / 2**0.5
    accuracy, frozen = (100 * mean(values) for values in ([0.9, 0.91], [0.6]))
    assert (
        f"Trained blocks help: the accuracy of {accuracy:.1f} % is {mean(margins):.1f} points above the {frozen:.1f} %"
        f" of the same network with frozen blocks (means of 2 seeds; 95 % interval {mean(margins) - half:.3g} to"
        f" {mean(margins) + half:.3g}; limit 2 points)."
    ) in text
    growth = [max(float(state["growth"]) for state in audit["layers"][:-1]) for audit in audits]
    ends = " to ".join(dict.fromkeys(f"{end:.3g}" for end in (min(growth), max(growth))))
    assert f"the largest growth of the states in one block is {ends} (2 seeds; limit 50)." in text
    norms = [f"{audit['layers'][-1]['grad_norm']:.3g}" for audit in audits]
    assert (
        f"the median norm of the last gradient is {' to '.join(sorted(norms, key=float))} (2 seeds; limit 1e-07"
        in text
    )
    assert (
        "gradient in the blocks after the first is 0.2 (2 seeds; fresh feedback: up to 0.1)."
        in text
    )


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    layers = [torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()) for _ in range(2)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(4, 3))
    return model, [(torch.randn(16, 4), torch.randint(3, (16,))) for _ in range(8)]


def test_a_report_begins_with_the_verdict_and_has_the_numbers_of_its_record(network):
    report = diagnose(
        *network, 0.4, 0.3, test_samples=900, description=Description(["0", "1"], "all features")
    )
    text, record = " ".join(str(report).split()), report.to_dict()
    assert text.startswith(f"Audit of method: {report.checks.quoted}. 2 states, 0 to 1, ")
    assert text.index("You may write") < text.index("You may not write")
    low, high = (f"{100 * end:.3g}" for end in record["checks"]["depth"]["interval"])
    assert (
        "the accuracy of 40.0 % is 10.0 points above the 30.0 % of the same network with frozen blocks (one network;"
        f" 95 % interval {low} to {high}; limit 2 points; against own frozen baseline)"
    ) in text
    assert "no credits were audited" in text and "it is one network" in text


def test_an_accuracy_that_the_batches_contradict_supports_no_margin(network):
    report = diagnose(*network, 0.99, 0.3, description=Description(["0", "1"], "all features"))
    text = str(report)
    assert "Trained blocks help" not in text and "D3 / (d) is not evaluated" in " ".join(
        text.split()
    )
