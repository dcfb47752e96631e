"""Which sentences a judgement supports: none that should not be, whatever else holds, and with the
audit's own numbers.
"""

from itertools import product
from types import SimpleNamespace

import pytest
from printed_audits import printed_audits
from test_protocol import report_of

from fa_audit.core.measured import Measured
from fa_audit.protocol.audit import Audit, AuditWarning
from fa_audit.protocol.checks import CHECKS, CREDITS, Outcome
from fa_audit.protocol.evidence import Baselines
from fa_audit.protocol.judge import Judgement
from fa_audit.protocol.sentences import sentences

FINE, FIRES, BORDERLINE, OPEN = "fine", "fires", "borderline", "open"
OUTCOMES = (FINE, FIRES, BORDERLINE, OPEN)


def outcome(kind, said, cause):
    """A made-up outcome, 0.1 from its limit on either side."""
    if said == OPEN:
        return Outcome(None, 0.02, None)
    far = {FINE: 0.1, FIRES: -0.1, BORDERLINE: -0.01}[said]
    if kind is not CHECKS["reference"] or said == FINE:
        cause = ""
    interval = None
    if said == BORDERLINE:
        interval = tuple(sorted([kind.at(-0.05, 0.02), kind.at(0.05, 0.02)]))
    how = {"cause": cause, "note": cause, "interval": interval}
    return Outcome(kind.at(far, 0.02), 0.02, far < 0, far, **how)


def network(said, cause="collapsed reference", finite=True, doubted=False):
    """A made-up audit: outcomes by name; credits beyond chance, unless said otherwise."""
    outcomes = {}
    for name, kind in (CHECKS | CREDITS).items():
        outcomes[name] = outcome(kind, said.get(name, FINE), cause)
    return SimpleNamespace(
        checks=outcomes,
        credits=outcomes,
        finite=finite,
        untrue=(),
        credit=("block",),
        layers=(),
        headline_acc=0.5,
        baselines=Baselines(own=0.4, bp=0.4),
        warned=lambda code: doubted and code == "weak baseline",
    )


def written(*networks):
    """The supported sentences as one text, in lower case."""
    return " ".join(sentences(Judgement(networks))[0]).lower()


@pytest.mark.parametrize("seeds", [1, 2])
def test_no_combination_of_outcomes_supports_a_sentence_that_it_should_not(seeds):
    for *said, cause in product(*[OUTCOMES] * len(CHECKS), CHECKS["reference"].advice):
        found = dict(zip(CHECKS, said))
        if seeds > 1 and BORDERLINE in said:
            continue  # equal distances have no interval over seeds
        may, may_not = sentences(Judgement([network(found, cause)] * seeds))
        text, denied = " ".join(may).lower(), " ".join(may_not)
        assert ("align" in text) == ("credits" in text) == (found["reference"] == FINE), found
        assert ("trained blocks help" in text) == (said[3] == FINE)
        for name, kind in CHECKS.items():
            finding = (kind.below_zero or kind.finding).format(limit="2 points")
            claims = [claim in text for claim in (finding, *kind.causes.values())]
            assert (kind.fine in text) == (found[name] == FINE), found
            assert sum(claims) == (found[name] == FIRES), found
            decides = kind.four or found[name] != OPEN
            is_denied = kind.fine in denied or kind.finding in denied
            assert is_denied == (found[name] != FINE and decides), found
        assert ("one network was audited" in denied) == (seeds == 1)


@pytest.mark.parametrize("name", CHECKS)
def test_a_seed_without_a_value_takes_the_sentence_of_a_check_away(name):
    text = written(network({}), network({}), network({name: OPEN}))
    assert CHECKS[name].fine not in text and ("align" in text) == (name != "reference")


def test_a_saturated_loss_is_not_a_collapse_and_seeds_that_differ_in_it_decide_nothing():
    fired = {"reference": FIRES}
    saturated, collapsed = network(fired, "saturated loss"), network(fired, "collapsed reference")
    assert "not a collapse" in written(saturated) and "has vanished" not in written(saturated)
    assert "because of the saturated loss" in " ".join(sentences(Judgement([saturated]))[1])
    text = written(saturated, collapsed)
    assert "collapse" not in text and "vanished" not in text and "align" not in text


def test_a_sentence_averages_what_was_evaluated():
    audits = [report_of(0.2, 0.3), report_of(0.9, None), report_of(0.4, 0.6)]
    (text,) = (line for line in sentences(Judgement(audits))[0] if "frozen" in line)
    assert "30.0" in text and "45.0" in text and "-15.0 points" in text and "mean of 2 of 3" in text


def test_nothing_is_written_of_accuracies_in_doubt():
    text = written(network({}, doubted=True))
    assert "trained blocks help" not in text and "beats" not in text
    assert "blocks keep the size" in text


def test_of_a_network_that_is_not_finite_nothing_else_is_written():
    may, may_not = sentences(Judgement([network({}), network({}, finite=False)]))
    assert len(may) == len(may_not) == 1 and "NaN or infinite" in may[0]


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ([0.6], "training the blocks lowers the accuracy"),
        ([0.49], "training the blocks adds less than 2 points"),
        ([0.3], "trained blocks help"),
        # -1, -0.5 and +0.5 points: the interval of their mean is -2.2 to 1.6.
        ([0.51, 0.505, 0.495], "training the blocks adds less than 2 points"),
    ],
)
def test_what_training_the_blocks_does_depends_on_the_margin(own, sentence):
    text = written(*(report_of(0.5, baseline) for baseline in own))
    assert sentence in text and "50.0" in text and f"{100 * sum(own) / len(own):.1f}" in text


# --- of real audits -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    (found,) = printed_audits(tmp_path_factory.mktemp("sentences"), (3,))
    audit = Audit.from_dict(found)
    clear = {"rho": 0.3, "rho_bp": 0.98, "nudging": -0.01, "cosine": 0.2}
    deep = audit.deep | {name: Measured(value, 9, 9) for name, value in clear.items()}
    deep["fresh_b_null"] = Measured(0.0, 20, 20, std=0.05)
    block = audit.credit[1] | {"rho_random": Measured(0.0, 20, 20, std=0.015)}
    return audit.replace(deep=deep, credit=(audit.credit[0], block))


@pytest.mark.parametrize(
    ("deep", "cosine", "rho", "nudging"),
    [
        ({}, "more than fresh", "better than random", "lowers the loss"),
        ({"cosine": 0.05}, "no more than", "better than random", "lowers the loss"),
        ({"nudging": 0.01}, "more than fresh", "better than", "does not lower the loss"),
        ({"rho": 0.02}, "more than fresh", "no better than random", ""),
        ({"rho_bp": 0.01}, "more than fresh", "", ""),
        ({"fresh_b_null": None}, "", "better than random", "lowers the loss"),
    ],
)
def test_credits_have_sentences_only_beyond_what_chance_reaches(real, deep, cosine, rho, nudging):
    changed = dict(real.deep)
    for name, value in deep.items():
        changed[name] = Measured(value, 9, 9, "not drawn" * (value is None))
    text = written(real.replace(deep=changed))
    for words, topic in ((cosine, "align"), (rho, "predict how"), (nudging, "small step")):
        assert words in text if words else topic not in text


def test_credits_need_a_true_gradient_at_every_state_and_a_comparison_of_the_backward_pass(real):
    assert "align" in written(real)
    last, lower = real.layers[-1], real.layers[1].replace(grad_norm=1e-9)
    warning = AuditWarning(code="gradient not compared", text="The backward pass was not compared")
    changes = [
        {"layers": (*real.layers[:-1], last.replace(grad_norm=1e-9))},
        {
            "layers": (*real.layers[:2], lower.replace(layer=2), last.replace(layer=3)),
            "credit": (*real.credit, real.credit[-1]),
        },
        {"missing": {1: "untrue"}},
        {"credit": ()},
        {"warnings": (warning,)},
    ]
    for change in changes:
        assert "align" not in written(real.replace(**change)), change
