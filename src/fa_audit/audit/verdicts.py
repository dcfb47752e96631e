"""Turn evidence into verdicts by the paper's three-check and four-check rules. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from fa_audit.core.intervals import FEWEST, Interval, paired_difference, unpaired_difference
from fa_audit.core.thresholds import (
    CHECK_LABELS,
    FLOOR_SAMPLES,
    NON_FINITE,
    DiagnosticThresholds,
    depth_margin,
    distance,
    fires,
    floor_for,
)

if TYPE_CHECKING:
    from fa_audit.audit.diagnostics import Diagnostics
    from fa_audit.audit.frequencies import Frequencies

UNTRUE = "the model's backward pass is not the derivative of its forward pass there"


@dataclass(frozen=True)
class Check:
    """The outcome of one check.

    Attributes:
        name: what the check is about.
        value: the number that decides; None where it could not be measured.
        threshold: its limit, for this network's evaluation batch.
        fires: True is a finding against the network; None means not evaluated, which is never a pass.
        note: why it was not evaluated, or how to read the value.
        interval: of 95 % around the value; None where there is none.
        interval_note: how it was formed, or why there is none.
        distance: from value to limit, positive where the check does not fire: see `fa_audit.core.thresholds.distance`.
        threshold_note: for which batch size the limit is meant, where it depends on that.
    """

    name: str
    value: float | None
    threshold: float
    fires: bool | None
    note: str = ""
    interval: Interval | None = None
    interval_note: str = ""
    distance: float | None = None
    threshold_note: str = ""

    @property
    def borderline(self) -> bool:
        """Return whether the interval contains the limit, so that other samples might have decided otherwise."""
        return self.interval is not None and self.interval[0] <= self.threshold <= self.interval[1]

    def to_dict(self) -> dict[str, Any]:
        """Return every attribute, and whether the check is borderline."""
        return asdict(self) | {"borderline": self.borderline}


@dataclass(frozen=True)
class Checks:
    """Every check of both protocols on one network; D1, D2, D3 are (a), (b), (d)."""

    scale: Check
    reference: Check
    stability: Check
    depth: Check
    depth_strict: Check
    finite: bool


@dataclass(frozen=True)
class Baselines:
    """Accuracies of frozen networks of the same architecture, data, budget and seed, as fractions.

    Attributes:
        own: blocks frozen, embedding trained by the method's own credit. D3 uses this one.
        own_name: how to name it in a verdict.
        bp: blocks frozen, embedding trained by backpropagation. D3-strict uses this one.
        test_samples: samples of the test set on which all accuracies were taken; None if unknown.
        paired: test samples that only the audited network, and only its own baseline, classifies correctly; None if
            unknown.
    """

    own: float | None = None
    own_name: str = "own frozen baseline"
    bp: float | None = None
    test_samples: int | None = None
    paired: tuple[int, int] | None = None


def check(
    evidence: Diagnostics, headline_acc: float | None, baselines: Baselines, thresholds: DiagnosticThresholds
) -> Checks:
    """Evaluate every check.

    Args:
        headline_acc: accuracy of the last epoch on the whole test set, as a fraction, or None if unknown.
    """
    limit, samples, paired = thresholds.limits["depth_margin"], baselines.test_samples, baselines.paired
    return Checks(
        scale=_scale(evidence, thresholds),
        reference=_reference(evidence, thresholds),
        stability=_stability(evidence, thresholds),
        depth=_depth("depth utility", headline_acc, baselines.own, baselines.own_name, limit, samples, paired),
        depth_strict=_depth("margin over bp+frozen", headline_acc, baselines.bp, "bp+frozen", limit, samples),
        finite=evidence.finite,
    )


def _scale(evidence: Diagnostics, thresholds: DiagnosticThresholds) -> Check:
    growths = [layer.growth for layer in evidence.layers if layer.growth is not None]
    if not growths:
        return Check("scale stability", None, thresholds.h_norm_explosion_ratio, None, "the network has no blocks")
    if any(map(math.isnan, growths)):
        return Check("scale stability", None, thresholds.h_norm_explosion_ratio, None, "a state norm is NaN")
    around = _over_samples(evidence, evidence.growth_interval)
    return _evaluated("growth", "scale stability", max(growths), thresholds.h_norm_explosion_ratio, "", *around)


def _reference(evidence: Diagnostics, thresholds: DiagnosticThresholds) -> Check:
    last, floor = evidence.layers[-1], floor_for(thresholds.g_norm_floor, evidence.samples)
    meant = f"for batches of {FLOOR_SAMPLES} samples"
    if evidence.samples != FLOOR_SAMPLES:
        meant = f"{thresholds.g_norm_floor:g} {meant}, scaled to {evidence.samples}"
    if not math.isfinite(last.grad_norm):
        untrue = last.layer in evidence.untrue
        note = "the backward pass does not tell the gradient at h_L" if untrue else "the gradient at h_L is not finite"
        return Check("reference validity", None, floor, None, note, threshold_note=meant)
    low = [str(layer.layer) for layer in evidence.layers[:-1] if fires("reference", layer.grad_norm, floor)]
    others = f"below the limit at state {', '.join(low)}" if low else ""
    cause = "saturated loss" if last.scale_free < thresholds.loss_saturation else "collapsed reference"
    note = cause if fires("reference", last.grad_norm, floor) else others
    around = _over_samples(evidence, evidence.gradient_interval)
    found = _evaluated("reference", "reference validity", last.grad_norm, floor, note, *around)
    return replace(found, threshold_note=meant)


def _over_samples(evidence: Diagnostics, interval: Interval | None) -> tuple[Interval | None, str]:
    if interval is None:
        return None, f"none: needs {FEWEST} samples, all of finite norm; found {evidence.samples} samples"
    return interval, f"bootstrap over {evidence.samples} samples"


def _stability(evidence: Diagnostics, thresholds: DiagnosticThresholds) -> Check:
    measured, interval = evidence.stability, evidence.stability_interval
    name, ceiling = "cross-batch stability", thresholds.stability_drift_ceiling
    few = f"{measured.n_valid} batches with a mean gradient; the check is calibrated for {FEWEST} or more"
    if measured.value is None or measured.n_valid < FEWEST:
        return Check(name, None, ceiling, None, measured.reason or few)
    around = interval, f"jackknife over {measured.n_valid} batches" if interval else ""
    return _evaluated("stability", name, measured.value, ceiling, _bias(evidence.frequencies), *around)


def _bias(found: Frequencies | None) -> str:
    """Say how far mean predictions are from class frequencies, and what (c) is without that."""
    if found is None:
        return ""
    largest = max(range(len(found.gaps)), key=lambda label: abs(found.gaps[label]))
    again = found.refitted.reason if found.refitted.value is None else f"{found.refitted.value:.3g}"
    return (
        f"mean(p) - mean(y) is up to {found.gaps[largest]:+.3g}, of class {largest}; with the head's bias refitted"
        f" on half of the batches, (c) is {again} on the others"
    )


def _depth(
    name: str,
    accuracy: float | None,
    frozen: float | None,
    baseline: str,
    limit: float,
    samples: int | None,
    paired: tuple[int, int] | None = None,
) -> Check:
    missing = "no headline accuracy" if accuracy is None else f"no {baseline}" if frozen is None else ""
    if accuracy is None or frozen is None:
        return Check(name, None, limit, None, missing)
    around = _margin_interval(accuracy, frozen, samples, paired)
    return _evaluated("depth_margin", name, depth_margin(accuracy, frozen), limit, f"against {baseline}", *around)


def _margin_interval(
    accuracy: float, frozen: float, samples: int | None, paired: tuple[int, int] | None
) -> tuple[Interval | None, str]:
    """Return the interval of a depth margin, and how it was formed or why there is none."""
    if not samples:
        return None, "none: the number of test samples was not given (test_samples)"
    if paired:
        return paired_difference(*paired, samples), f"paired, over {samples} test samples"
    interval = unpaired_difference(accuracy, frozen, samples)
    return interval, f"two accuracies of {samples} test samples each, taken as independent"


def _evaluated(
    check: str, name: str, value: float, limit: float, note: str, interval: Interval | None, interval_note: str
) -> Check:
    """Return a check whose value was measured; `check` as in `fires`."""
    fired, far = fires(check, value, limit), distance(check, value, limit)
    return Check(name, value, limit, fired, note, interval, interval_note, far)


def three_check_verdict(checks: Checks) -> str:
    """Return ``FAIL(...)`` if (D1 and D2) or D3 or anything is not finite, naming what fired; else ``PASS``.

    Without a failure, an unevaluated check makes it ``INCOMPLETE(...)``: it never counts as a pass.

    >>> fired, passed, unknown = (Check("", None, 0.0, outcome) for outcome in (True, False, None))
    >>> three_check_verdict(Checks(fired, fired, passed, passed, passed, finite=True))
    'FAIL(D1+D2)'
    >>> three_check_verdict(Checks(fired, passed, passed, unknown, unknown, finite=True))
    'INCOMPLETE(D3 not evaluated)'
    """
    named = {"D1": checks.scale, "D2": checks.reference, "D3": checks.depth}
    fired = _fired(named, checks.finite)
    if {"D1", "D2"} <= set(fired) or {"D3", NON_FINITE} & set(fired):
        return f"FAIL({'+'.join(fired)})"
    unknown = _not_evaluated(named)
    return f"INCOMPLETE({'+'.join(unknown)} not evaluated)" if unknown else "PASS"


def four_check_verdict(checks: Checks) -> str:
    """Return ``needs walk-back (...)`` naming what fired of a to d, ``trustworthy``, or ``incomplete (...)``.

    >>> fired, passed = (Check("", None, 0.0, outcome) for outcome in (True, False))
    >>> four_check_verdict(Checks(fired, passed, passed, fired, passed, finite=True))
    'needs walk-back (a, d)'
    >>> four_check_verdict(Checks(passed, passed, passed, passed, fired, finite=True))
    'trustworthy'
    """
    named = {"a": checks.scale, "b": checks.reference, "c": checks.stability, "d": checks.depth}
    if fired := _fired(named, checks.finite):
        return f"needs walk-back ({', '.join(fired)})"
    unknown = _not_evaluated(named)
    return f"incomplete ({', '.join(unknown)} not evaluated)" if unknown else "trustworthy"


def flags(checks: Checks) -> list[str]:
    """List every check that fired, whether or not it decides a verdict, with its cause where there is one.

    >>> fired, passed = Check("", None, 0.0, True, "saturated loss"), Check("", None, 0.0, False)
    >>> flags(Checks(passed, fired, passed, passed, passed, finite=False))
    ['D2 (saturated loss)', 'non-finite']
    """
    fired = {name: entry for name, entry in _by_flag(checks).items() if entry.fires}
    noted = [f"{name} ({entry.note})" if entry.note and name != "c" else name for name, entry in fired.items()]
    return noted + ([] if checks.finite else [NON_FINITE])


def borderline(checks: Checks) -> list[str]:
    """List every check, as `flags` names them, whose interval contains its limit."""
    return [name for name, entry in _by_flag(checks).items() if entry.borderline]


def is_borderline(rule: Callable[[Checks], str], checks: Checks) -> bool:
    """Return whether another outcome of the borderline checks would change a verdict, its list of reasons aside.

    A verdict of walk-back for a check that fires clearly is none, whatever else is borderline.

    Args:
        rule: `three_check_verdict` or `four_check_verdict`.
    """
    names = [name for name in CHECK_LABELS if getattr(checks, name).borderline]
    outcomes = set()
    for fired in product((True, False), repeat=len(names)):
        changed = {name: replace(getattr(checks, name), fires=outcome) for name, outcome in zip(names, fired)}
        outcomes.add(rule(replace(checks, **changed)).partition("(")[0])
    return len(outcomes) > 1


def outcomes(checks: Checks, baseline: str) -> dict[str, Any]:
    """Return what an audit's JSON has of the checks: each of them, both verdicts, flags, and what is borderline.

    Args:
        baseline: the name of the method's own frozen baseline.
    """
    rules = {"three_check": three_check_verdict, "four_check": four_check_verdict}
    return {
        "verdict": {name: rule(checks) for name, rule in rules.items()} | {"baseline": baseline},
        "flags": flags(checks),
        "borderline": {"checks": borderline(checks)}
        | {name: is_borderline(rule, checks) for name, rule in rules.items()},
        "checks": {name: getattr(checks, name).to_dict() for name in CHECK_LABELS},
    }


def _by_flag(checks: Checks) -> dict[str, Check]:
    named = {"D1": checks.scale, "D2": checks.reference, "c": checks.stability}
    return named | {"D3": checks.depth, "D3-strict": checks.depth_strict}


def _fired(named: dict[str, Check], finite: bool) -> list[str]:
    return [name for name, entry in named.items() if entry.fires] + ([] if finite else [NON_FINITE])


def _not_evaluated(named: dict[str, Check]) -> list[str]:
    return [name for name, entry in named.items() if entry.fires is None]
