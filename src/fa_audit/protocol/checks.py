"""The checks of the protocol, and how each follows from the evidence. Imports no torch.

`CHECKS` is the only list of checks. To add a check, write its function, an entry in `CHECKS` and a
limit in `fa_audit.protocol.evidence`, as ``tests/test_checks.py`` does. Verdicts, sentences,
reports, tables and figures then include the check.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fa_audit.core.measured import Interval
from fa_audit.protocol.evidence import (
    FLOOR_SAMPLES,
    Evidence,
    Metrics,
    depth_margin,
    floor_for,
    value_of,
)
from fa_audit.protocol.intervals import FEWEST, paired_difference, unpaired_difference

LEAST_LIKELY = 1e-6  # less probable hits in the batches contradict the accuracy
# Codes for the reason of an outcome; sentences and advice depend on them.
Cause = Literal[
    "",
    "vanished state",
    "saturated loss",
    "collapsed reference",
    "untrue gradient",
    "contradicted accuracy",
]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one check on one network.

    Attributes:
        value: the number that decides; None if it could not be measured.
        threshold: its limit, for this network's evaluation batch.
        fires: True is a finding against the network; None means not evaluated, never a pass.
        distance: distance of the value from its limit, positive if the check passes.
        cause: a code for the reason of the outcome, if programs need it.
        note: the reason of the outcome and how to read the value, in words.
        interval: the 95 % interval of the value, or None.
        interval_note: how the interval was formed, or why there is none.
        threshold_note: the batch size for which the limit is meant, if it depends on that.
    """

    value: float | None
    threshold: float
    fires: bool | None
    distance: float | None = None
    cause: Cause = ""
    note: str = ""
    interval: Interval | None = None
    interval_note: str = ""
    threshold_note: str = ""


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """A number with a limit, and the sentence that each outcome supports.

    Attributes:
        label: the criterion's name in reports.
        side: the side of the limit on which the criterion fires.
        unit: unit of the value.
        quantity: what sentences call the value; for a margin, what they call the baseline.
        fine, finding: the sentence that an author may write if it passes, and if it fires.
        below_zero: replaces `finding` for a negative value.
        causes: by cause, a sentence that replaces `finding`.
        advice: by cause, what to do if it fires; ``""`` is for every other cause.
        when_open: what to do if it was not evaluated.
        bound, verb: the words for its limit and for "fires" in sentences.
        baseline: for a margin, the field of `Baselines` that is subtracted.
        rank: sorts the sentences; the one that authors want most has the lowest.
    """

    label: str
    side: Literal["above", "below"]
    unit: Literal["factor", "cosine", "nats", "points"]
    quantity: str
    fine: str
    finding: str
    below_zero: str = ""
    causes: Mapping[str, str] = field(default_factory=dict)
    advice: Mapping[str, str] = field(default_factory=dict)
    when_open: str = ""
    bound: str = "limit"
    verb: str = "fires"
    baseline: Literal["", "own", "bp"] = ""
    rank: int = 3

    @property
    def sign(self) -> str:
        """Return ``>`` or ``<``: how the value compares with the limit if the check fires."""
        return ">" if self.side == "above" else "<"

    @property
    def scale(self) -> int:
        """Return the factor for printing: 100 for margins (percentage points), else 1."""
        return 100 if self.unit == "points" else 1

    def fires(self, value: Any, limit: Any) -> Any:
        """Return whether a value is strictly on the wrong side of its limit. NaN never fires.

        Args:
            value, limit: numbers, or arrays of shapes that numpy broadcasts.

        >>> CHECKS["scale"].fires(51.0, 50.0), CHECKS["depth"].fires(0.02, 0.02)
        (True, False)
        """
        return value > limit if self.side == "above" else value < limit

    def distance(self, value: float, limit: float) -> float:
        """Return the distance of a value from its limit: positive if the check passes.

        For the unit ``factor`` it is their ratio in decades (``log10``), else their difference.

        >>> CHECKS["scale"].distance(0.5, 50.0), CHECKS["depth"].distance(0.5, 0.25)
        (2.0, 0.25)
        """
        # Two infinities, or the logarithms of two zeros, would differ by NaN.
        if value == limit:
            return 0.0
        beyond = value - limit
        if self.unit == "factor":
            beyond = _decades(value) - _decades(limit)
        return -beyond if self.side == "above" else beyond

    def at(self, distance: float, limit: float) -> float:
        """Return the value that lies at `distance` from `limit`: the inverse of the method
        `distance`. The check passes at a positive distance. Cosines are cut off at -1 and 1.

        D1 passes two decades below its limit of 50:

        >>> CHECKS["scale"].at(2.0, 50.0)
        0.5
        """
        beyond = -distance if self.side == "above" else distance
        if self.unit == "cosine":
            return min(1.0, max(-1.0, limit + beyond))
        if self.unit != "factor":
            return limit + beyond
        # 10.0**309 raises an OverflowError.
        return math.inf if beyond >= 300 else limit * 10**beyond

    def remedy(self, cause: str) -> str:
        """Return what to do if the criterion fires with this cause."""
        return self.advice.get(cause, self.advice.get("", ""))

    def judge(self, value: float, limit: float, **how: Any) -> Outcome:
        """Return the outcome of a measured value.

        Args:
            how: the other fields of the `Outcome`.
        """
        fires = bool(self.fires(value, limit))
        return Outcome(value, limit, fires, self.distance(value, limit), **how)


def _decades(value: float) -> float:
    return math.log10(value) if value > 0 else -math.inf


@dataclass(frozen=True, kw_only=True)
class Check(Criterion):
    """A check of the protocol.

    Attributes:
        evaluate: returns its outcome.
        limit: its limit's name in a configuration, see `fa_audit.protocol.evidence.FIELDS`.
        column: the column with its value in the tidy table of runs.
        short, axis: its name and the label of its axis in figures.
        three, four: whether it decides the three-check and the four-check verdict.
        joint: whether it decides the three-check verdict only if another `three` check fires.
    """

    evaluate: Callable[[Evidence], Outcome]
    limit: str
    column: str
    short: str
    axis: str
    three: bool = False
    four: bool = False
    joint: bool = False

    @property
    def title(self) -> str:
        """Return the label with the name, such as ``D1 growth``."""
        return f"{self.label} {self.short.lower()}"


# --- evaluation -----------------------------------------------------------------------------------


def _scale(evidence: Evidence) -> Outcome:
    limit = evidence.thresholds.h_norm_explosion_ratio
    growths = [state.growth for state in evidence.layers if state.growth is not None]
    if not growths:
        return Outcome(None, limit, None, note="the network has no blocks")
    if any(map(math.isnan, growths)):
        return Outcome(None, limit, None, note="a state norm is NaN")
    largest = max(growths)
    # Growth from a state of length 0 is infinite, which is not an explosion.
    cause: Cause = "vanished state" if evidence.finite and math.isinf(largest) else ""
    around = _over_samples(evidence, evidence.growth_interval)
    return CHECKS["scale"].judge(largest, limit, cause=cause, note=cause, **around)


def _reference(evidence: Evidence) -> Outcome:
    check, thresholds, last = CHECKS["reference"], evidence.thresholds, evidence.layers[-1]
    floor = floor_for(thresholds.g_norm_floor, evidence.samples)
    meant = f"for batches of {FLOOR_SAMPLES} samples"
    if evidence.samples != FLOOR_SAMPLES:
        meant = f"{thresholds.g_norm_floor:g} {meant}, scaled to {evidence.samples}"
    if not math.isfinite(last.grad_norm):
        return Outcome(None, floor, None, note=_why_unknown(evidence), threshold_note=meant)
    cause: Cause = ""
    low = [str(state.layer) for state in evidence.layers if check.fires(state.grad_norm, floor)]
    note = f"below the limit at state {', '.join(low)}" if low else ""
    if check.fires(last.grad_norm, floor):
        # If the head's weights are zeros, `scale_free` is small even for a large loss; `at_logits`
        # is not.
        product = max(last.scale_free, evidence.at_logits or 0)
        saturated = product < thresholds.loss_saturation
        note = cause = "saturated loss" if saturated else "collapsed reference"
    around = _over_samples(evidence, evidence.gradient_interval)
    return check.judge(
        last.grad_norm, floor, cause=cause, note=note, threshold_note=meant, **around
    )


def _why_unknown(evidence: Evidence) -> str:
    """Say why the norm of the gradient at the last state is not known."""
    if evidence.layers[-1].layer in evidence.untrue:
        return "the backward pass does not give the gradient at h_L"
    if evidence.finite:
        return (
            "the gradient at h_L was not verified: a custom backward pass could not be compared"
            " with the forward pass, or float64 is too coarse to compare them"
        )
    return "the gradient at h_L is not finite"


def _over_samples(evidence: Evidence, interval: Interval | None) -> dict[str, Any]:
    formed = f"bootstrap over {evidence.samples} samples"
    if interval is None:
        formed = (
            f"none: fewer than {FEWEST} samples (found {evidence.samples}), or some norms are"
            " NaN, infinite or only estimated"
        )
    return {"interval": interval, "interval_note": formed}


def _stability(evidence: Evidence) -> Outcome:
    measured, ceiling = evidence.stability, evidence.thresholds.stability_drift_ceiling
    note = measured.reason
    if measured.value is not None and math.isnan(measured.value):
        note = "the mean cosine is NaN"
    # `n_valid` is None, and so not in the range, if it was not recorded.
    elif measured.value is not None and measured.n_valid in range(FEWEST):
        note = f"needs {FEWEST} batches with a non-zero mean gradient; found {measured.n_valid}"
    if measured.value is None or note:
        cause: Cause = "untrue gradient" if measured.layer in evidence.untrue else ""
        return Outcome(None, ceiling, None, cause=cause, note=note)
    return CHECKS["stability"].judge(
        measured.value,
        ceiling,
        note=_bias(evidence),
        interval=measured.jackknife,
        interval_note=f"jackknife over {measured.n_valid} batches" * bool(measured.jackknife),
    )


def _bias(evidence: Evidence) -> str:
    """Say how far mean predictions are from class frequencies, and give C with a refitted bias."""
    found = evidence.frequencies
    if found is None:
        return ""
    largest = max(found.gaps, key=abs)
    again = found.refitted.reason
    if found.refitted.value is not None:
        again = f"{found.refitted.value:.3g}"
    return (
        f"largest gap mean(p) - mean(y): {largest:+.3g}, for class {found.gaps.index(largest)};"
        f" C on half of the batches, with the head's bias refitted on the other half: {again}"
    )


def chance(hits: tuple[int, int] | None, accuracy: float | None) -> float:
    """Bound the probability of so extreme a number of hits by ``exp(-n KL(hits / n || accuracy))``.

    Args:
        hits: numbers of correctly classified samples and of all samples; if unknown, the bound is
            1.
        accuracy: a fraction, taken to be at least 0.001 away from 0 and 1.

    >>> chance((50, 100), 0.5), chance((85, 800), 0.9) < 1e-300
    (1.0, True)
    """
    if hits is None or accuracy is None or not hits[1]:
        return 1.0
    found = hits[0] / hits[1]
    divergence = 0.0
    for p, q in ((found, accuracy), (1 - found, 1 - accuracy)):
        # p log p goes to 0 with p, so skip p = 0.
        if p:
            divergence += p * math.log(p / max(q, 1e-3))
    return math.exp(-hits[1] * max(divergence, 0))


def _depth(evidence: Evidence) -> Outcome:
    found = evidence.baselines
    return _margin(evidence, "depth", found.own, found.own_name, found.paired)


def _depth_strict(evidence: Evidence) -> Outcome:
    return _margin(evidence, "depth_strict", evidence.baselines.bp, "bp+frozen")


def _margin(
    evidence: Evidence,
    name: str,
    frozen: float | None,
    against: str,
    pairs: tuple[int, int] | None = None,
) -> Outcome:
    """Judge the margin over a frozen baseline, with a paired interval if `pairs` is known."""
    accuracy, limit = evidence.headline_acc, evidence.thresholds.limits["depth_margin"]
    if accuracy is None:
        return Outcome(None, limit, None, note="no headline accuracy")
    if frozen is None:
        return Outcome(None, limit, None, note=f"no {against}")
    if chance(evidence.hits, accuracy) < LEAST_LIKELY:
        note = "the batches contradict the accuracy that was given"
        return Outcome(None, limit, None, cause="contradicted accuracy", note=note)
    samples = evidence.baselines.test_samples
    interval, formed = None, "none: the number of test samples was not given (test_samples)"
    if samples and pairs:
        interval = paired_difference(*pairs, samples)
        formed = f"paired, over {samples} test samples"
    elif samples:
        interval = unpaired_difference(accuracy, frozen, samples)
        formed = f"two accuracies of {samples} test samples each, taken as independent"
    margin, note = depth_margin(accuracy, frozen), f"against {against}"
    return CHECKS[name].judge(margin, limit, note=note, interval=interval, interval_note=formed)


# --- the checks -----------------------------------------------------------------------------------

CHECKS: dict[str, Check] = {  # by their names in an audit's JSON
    "scale": Check(
        evaluate=_scale,
        label="D1",
        three=True,
        joint=True,
        four=True,
        # The paper's limit; any limit from 12 to 693 would decide alike on the paper's networks.
        limit="growth",
        side="above",
        unit="factor",
        column="max_growth",
        short="Growth",
        quantity="largest growth in a block",
        axis="growth of median $\\|h_l\\|$ in a block",
        fine="the blocks keep the size of the states",
        finding="a block inflates the states",
        causes={"vanished state": "a state has length 0, so the growth from it is infinite"},
        advice={
            "vanished state": "Look for dead units, or blocks that output 0, before that state.",
            "": "Retrain with a residual penalty: add lambda times the mean of ||f_l||^2 to the"
            " loss of every block, where f_l is what block l adds to the state (in a"
            " configuration: dfa+penalty1e-2).",
        },
    ),
    "reference": Check(
        evaluate=_reference,
        label="D2",
        three=True,
        joint=True,
        four=True,
        # The paper's limit; any from 4.2e-9 to 1.0e-4 would decide alike on the paper's networks.
        limit="reference",
        side="below",
        unit="factor",
        column="grad_norm_last",
        short="Reference",
        quantity="median norm",
        axis="median $\\|g_L\\|$",
        fine="the true gradient at the last state has not vanished",
        finding="the true gradient at the last state has vanished",
        causes={
            "saturated loss": "the loss is almost zero, and so is the true gradient; this is not a"
            " collapse"
        },
        advice={
            "collapsed reference": "The true gradient is only rounding noise."
            " Quote no cosine with it.",
            "saturated loss": "Audit an earlier epoch.",
        },
    ),
    "stability": Check(
        evaluate=_stability,
        label="C",
        four=True,
        # The paper's limit. No limit would separate the paper's healthy networks from the others.
        limit="stability",
        side="above",
        unit="cosine",
        column="stability",
        short="Stability",
        quantity="mean cosine",
        axis="mean cosine of batch gradients",
        fine="the mean gradients of batches differ",
        finding="the mean gradients of all batches share a direction",
        advice={
            "": "Do not report alignment with the gradient as evidence of learning. C can also"
            " fire for a healthy network, if mean predictions differ from class frequencies."
        },
        when_open="Audit with 8 or more batches whose mean gradient is not 0.",
    ),
    "depth": Check(
        evaluate=_depth,
        label="D3",
        three=True,
        four=True,
        # The paper's limit, and the least robust one by the paper's own account.
        limit="depth_margin",
        side="below",
        unit="points",
        column="margin",
        short="Depth",
        quantity="frozen blocks",
        baseline="own",
        rank=0,
        axis="margin, points",
        fine="trained blocks help",
        finding="training the blocks adds less than {limit}",
        below_zero="training the blocks lowers the accuracy",
        when_open="Train the same network with its blocks frozen at initialisation, and give its"
        " accuracy and that of your network, on the whole test set.",
    ),
    "depth_strict": Check(
        evaluate=_depth_strict,
        label="D3-strict",
        # This check is not in the paper. It has the limit of D3, and decides no verdict.
        limit="depth_margin",
        side="below",
        unit="points",
        column="margin_strict",
        short="Strict margin",
        quantity="bp+frozen",
        baseline="bp",
        rank=2,
        axis="strict margin, points",
        fine="the network beats backpropagation with frozen blocks",
        finding="backpropagation with frozen blocks does about as well or better",
    ),
}


# --- the credits ----------------------------------------------------------------------------------

CREDITS: dict[str, Criterion] = {  # by their names among the credit metrics of an audit
    "cosine": Criterion(
        side="below",
        unit="cosine",
        rank=1,
        label="the cosine",
        quantity="mean cosine in the blocks after the first",
        fine="the credits align with the gradient more than fresh feedback does",
        finding="the credits align with the gradient no more than fresh feedback does",
        bound="fresh feedback up to",
        verb="is not above what fresh feedback reaches",
    ),
    "rho": Criterion(
        side="below",
        unit="cosine",
        rank=1,
        label="rho",
        quantity="mean rho in the blocks after the first",
        fine="the credits predict how the loss changes, better than random ones",
        finding="asked to predict how the loss changes, the credits do no better than random ones",
        bound="random credits up to",
        verb="is not above what random credits reach",
    ),
    "nudging": Criterion(
        side="above",
        unit="nats",
        rank=1,
        label="nudging",
        quantity="mean change of the loss in nats, in the blocks after the first",
        fine="a small step against the credits lowers the loss",
        finding="a small step against the credits does not lower the loss",
        verb="is not negative",
    ),
}


def evaluate_credits(evidence: Evidence) -> dict[str, Outcome]:
    """Judge the credits of the blocks after the first; a metric fires if the credits do not beat
    chance.

    The cosine's chance level is the upper end of the interval of cosines under fresh feedback. For
    rho, random credits give an interval at every block; the chance level is the largest upper end.
    Nudging must be below 0, and counts only if rho beats chance.
    """
    deep = evidence.deep
    highest = _highest([deep], "fresh_b_null")
    cosine = _beyond("cosine", deep, highest, "no two draws of fresh feedback differ")
    highest = _highest(evidence.credit[1:], "rho_random")
    rho = _beyond("rho", deep, highest, "random credits were not drawn")
    # If the loss is flat, or changes only by rounding, rho says nothing about credits.
    ceiling = value_of(deep, "rho_bp")
    if rho.fires is not None and (ceiling is None or ceiling <= rho.threshold):
        note = "not even the true gradient predicts how the loss changes"
        rho = replace(rho, fires=None, note=note)
    nudging = _beyond("nudging", deep, 0.0, "")
    if rho.fires is not False:
        nudging = replace(nudging, fires=None, note="rho was not shown to beat chance")
    return {"cosine": cosine, "rho": rho, "nudging": nudging}


def _highest(blocks: Sequence[Metrics], name: str) -> float | None:
    """Return the largest upper end of a metric's interval in any block; None without intervals."""
    ends = []
    for block in blocks:
        drawn = block.get(name)
        if drawn is not None and drawn.interval is not None:
            ends.append(drawn.interval[1])
    return max(ends, default=None)


def _beyond(name: str, deep: Metrics, chance: float | None, why: str) -> Outcome:
    """Compare a mean over blocks with its chance level; an equal value fires, too.

    Args:
        why: the note if there is no chance level.
    """
    value = value_of(deep, name)
    if value is None or chance is None:
        absent = deep[name].reason if name in deep else "not measured"
        return Outcome(value, 0.0, None, note=absent or why)
    found = CREDITS[name].judge(value, chance)
    return replace(found, fires=found.fires or value == chance)
