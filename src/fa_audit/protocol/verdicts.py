"""Verdicts from evidence, by the paper's three-check and four-check rules. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from fa_audit.protocol.checks import CHECKS, CONTRADICTED, UNVERIFIED
from fa_audit.protocol.intervals import FEWEST, Interval, paired_difference, unpaired_difference
from fa_audit.protocol.limits import (
    FLOOR_SAMPLES,
    DiagnosticThresholds,
    depth_margin,
    distance,
    fires,
    floor_for,
)
from fa_audit.protocol.rules import NON_FINITE, RULES, THREE, Rule

Diagnostics = Frequencies = Any
LEAST_LIKELY = 1e-6  # chance of the hits of the batches below which an accuracy is contradicted


@dataclass(frozen=True)
class Outcome:
    """The outcome of one check.

    Attributes:
        name: the subject of the check.
        value: the number that decides; None where it could not be measured.
        threshold: its limit, for this network's evaluation batch.
        fires: True is a finding against the network; None means not evaluated, which is never a
            pass.
        note: why it was not evaluated, or how to read the value.
        interval: the 95 % interval around the value, or None.
        interval_note: how it was formed, or why there is none.
        distance: from value to limit, positive where the check does not fire: see
            `fa_audit.protocol.limits.distance`.
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
        """Return whether the interval contains the limit, so that other samples might have decided
        otherwise.
        """
        return self.interval is not None and self.interval[0] <= self.threshold <= self.interval[1]

    def to_dict(self) -> dict[str, Any]:
        """Return every attribute, and whether the check is borderline."""
        return asdict(self) | {"borderline": self.borderline}


@dataclass(frozen=True)
class Checks:
    """The outcome of every check of `fa_audit.protocol.checks` on one network, by name:
    ``checks["depth"]``.

    Attributes:
        finite: False where a state, gradient or logit is NaN or infinite.
    """

    outcomes: Mapping[str, Outcome]
    finite: bool

    def __getitem__(self, name: str) -> Outcome:
        return self.outcomes[name]

    def __getattr__(self, name: str) -> Outcome:
        if name.startswith("_") or name not in self.outcomes:
            raise AttributeError(name)
        return self.outcomes[name]

    def verdict(self, rule: Rule) -> str:
        """Return the verdict of a rule, with its reasons."""
        return rule.text(self.fires, self.finite)

    def is_borderline(self, rule: Rule) -> bool:
        """Return whether other outcomes of the borderline checks would change the verdict of a
        rule.
        """
        return rule.depends(self.fires, self.near, self.finite)

    @property
    def fires(self) -> dict[str, bool | None]:
        """Return which checks fire; None where one was not evaluated."""
        return {name: found.fires for name, found in self.outcomes.items()}

    @property
    def near(self) -> list[str]:
        """Return the names of the borderline checks."""
        return [name for name, found in self.outcomes.items() if found.borderline]

    @property
    def flags(self) -> list[str]:
        """List every check that fired, whether or not it decides a verdict, with its cause where
        there is one.

        >>> outcomes = {name: Outcome("", None, 0.0, name == "reference", "saturated loss") for name in CHECKS}
        >>> Checks(outcomes, finite=False).flags
        ['D2 (saturated loss)', 'non-finite']
        """
        fired = {CHECKS[name].flag: entry for name, entry in self.outcomes.items() if entry.fires}
        noted = [
            f"{name} ({entry.note})" if entry.note and name != "c" else name
            for name, entry in fired.items()
        ]
        return noted + ([] if self.finite else [NON_FINITE])

    @property
    def borderline(self) -> list[str]:
        """List every check, as `flags` names them, whose interval contains its limit."""
        return [CHECKS[name].flag for name in self.near]

    @property
    def quoted(self) -> str:
        """Return the verdict to quote: the three-check verdict, and the checks of other limits that
        fire beside it.
        """
        against, beside = THREE.decides(self.fires, self.finite), []
        named = {CHECKS[name].limit for name in THREE.checks if self.fires[name] and against}
        for name, kind in CHECKS.items():
            if self[name].fires and kind.limit not in named:
                why = [self[name].note] * (self[name].note in kind.causes) + ["borderline"] * self[
                    name
                ].borderline
                beside.append((kind.paper or kind.label) + f" ({', '.join(why)})" * bool(why))
        text = self.verdict(THREE) + " (borderline)" * self.is_borderline(THREE)
        return (
            f"{text}, and {' and '.join(beside)} fire{'s' * (len(beside) == 1)}" if beside else text
        )


@dataclass(frozen=True)
class Baselines:
    """Accuracies of frozen networks of the same architecture, data, budget and seed, as fractions.

    Attributes:
        own: blocks frozen, embedding trained by the method's own credit. D3 uses this one.
        own_name: how to name it in a verdict.
        bp: blocks frozen, embedding trained by backpropagation. D3-strict uses this one.
        test_samples: samples of the test set on which all accuracies were taken; None if unknown.
        paired: test samples that only the audited network, and only its own baseline, classifies
            correctly; None if unknown.
    """

    own: float | None = None
    own_name: str = "own frozen baseline"
    bp: float | None = None
    test_samples: int | None = None
    paired: tuple[int, int] | None = None


@dataclass(frozen=True)
class Given:
    """All that a check may look at.

    Attributes:
        headline_acc: accuracy of the last epoch on the whole test set, as a fraction, or None if
            unknown.
        hits: samples of the batches that are classified correctly, and all samples; None if
            unknown.
    """

    evidence: Diagnostics
    headline_acc: float | None
    baselines: Baselines
    thresholds: DiagnosticThresholds
    hits: tuple[int, int] | None = None


def check(given: Given) -> Checks:
    """Evaluate every check."""
    return Checks({name: EVALUATE[name](given) for name in CHECKS}, given.evidence.finite)


def _scale(given: Given) -> Outcome:
    evidence, limit = given.evidence, given.thresholds.h_norm_explosion_ratio
    growths = [layer.growth for layer in evidence.layers if layer.growth is not None]
    if not growths:
        return _open("scale", limit, "the network has no blocks")
    if any(map(math.isnan, growths)):
        return _open("scale", limit, "a state norm is NaN")
    note = "vanished state" if evidence.finite and math.isinf(max(growths)) else ""
    return _evaluated(
        "scale", max(growths), limit, note, *_over_samples(evidence, evidence.growth_interval)
    )


def _reference(given: Given) -> Outcome:
    evidence, thresholds = given.evidence, given.thresholds
    last, floor = evidence.layers[-1], floor_for(thresholds.g_norm_floor, evidence.samples)
    meant = f"for batches of {FLOOR_SAMPLES} samples"
    if evidence.samples != FLOOR_SAMPLES:
        meant = f"{thresholds.g_norm_floor:g} {meant}, scaled to {evidence.samples}"
    if not math.isfinite(last.grad_norm):
        note = UNVERIFIED if evidence.finite else "the gradient at h_L is not finite"
        if last.layer in evidence.untrue:
            note = "the backward pass does not give the gradient at h_L"
        return replace(_open("reference", floor, note), threshold_note=meant)
    low = [
        str(layer.layer)
        for layer in evidence.layers[:-1]
        if fires("reference", layer.grad_norm, floor)
    ]
    others = f"below the limit at state {', '.join(low)}" if low else ""
    products = (
        last.scale_free,
        evidence.at_logits or 0,
    )  # a head of zeros makes the first one small, too
    cause = (
        "saturated loss" if max(products) < thresholds.loss_saturation else "collapsed reference"
    )
    note = cause if fires("reference", last.grad_norm, floor) else others
    around = _over_samples(evidence, evidence.gradient_interval)
    return replace(
        _evaluated("reference", last.grad_norm, floor, note, *around), threshold_note=meant
    )


def _over_samples(evidence: Diagnostics, interval: Interval | None) -> tuple[Interval | None, str]:
    if interval is None:
        return (
            None,
            f"none: needs {FEWEST} samples, all of finite norm; found {evidence.samples} samples",
        )
    return interval, f"bootstrap over {evidence.samples} samples"


def stability_fires(evidence: Diagnostics, ceiling: float) -> bool | None:
    """Return whether (c) fires; None where it is not evaluated."""
    measured = evidence.stability
    if measured.value is None or measured.n_valid < FEWEST:
        return None
    return bool(fires("stability", measured.value, ceiling))


def _stability(given: Given) -> Outcome:
    evidence, ceiling = given.evidence, given.thresholds.stability_drift_ceiling
    measured, interval = evidence.stability, evidence.stability_interval
    few = f"{measured.n_valid} batches with a mean gradient; the check is calibrated for {FEWEST} or more"
    if measured.value is None or stability_fires(evidence, ceiling) is None:
        return _open("stability", ceiling, measured.reason or few)
    around = interval, f"jackknife over {measured.n_valid} batches" if interval else ""
    return _evaluated("stability", measured.value, ceiling, _bias(evidence.frequencies), *around)


def _bias(found: Frequencies | None) -> str:
    """Say how far mean predictions are from class frequencies, and (c) without that difference."""
    if found is None:
        return ""
    largest = max(range(len(found.gaps)), key=lambda label: abs(found.gaps[label]))
    again = found.refitted.reason if found.refitted.value is None else f"{found.refitted.value:.3g}"
    return (
        f"mean(p) - mean(y) is up to {found.gaps[largest]:+.3g}, of class {largest}; with the head's bias refitted"
        f" on half of the batches, (c) is {again} on the others"
    )


def chance(hits: tuple[int, int] | None, accuracy: float | None) -> float:
    """Bound the probability of a number of hits at least this extreme: ``exp(-n KL(hits / n ||
    accuracy))``.

    Args:
        hits: samples that are classified correctly, and all samples; where it is unknown the bound
            is 1.
        accuracy: a fraction, taken to be at least 0.001 away from 0 and 1.

    >>> chance((50, 100), 0.5), chance((85, 800), 0.9) < 1e-300
    (1.0, True)
    """
    if hits is None or accuracy is None or not hits[1]:
        return 1.0
    found = hits[0] / hits[1]
    terms = ((found, accuracy), (1 - found, 1 - accuracy))
    divergence = sum(p * math.log(p / max(q, 1e-3)) for p, q in terms if p)
    return math.exp(-hits[1] * max(divergence, 0))


def _margin(name: str, given: Given, frozen: float | None, baseline: str) -> Outcome:
    accuracy, limit = given.headline_acc, given.thresholds.limits["depth_margin"]
    if accuracy is None or frozen is None:
        return _open(name, limit, "no headline accuracy" if accuracy is None else f"no {baseline}")
    if chance(given.hits, accuracy) < LEAST_LIKELY:
        return _open(name, limit, CONTRADICTED)
    around: tuple[Interval | None, str] = (
        None,
        "none: the number of test samples was not given (test_samples)",
    )
    if (samples := given.baselines.test_samples) and given.baselines.paired and name == "depth":
        around = (
            paired_difference(*given.baselines.paired, samples),
            f"paired, over {samples} test samples",
        )
    elif samples:
        formed = f"two accuracies of {samples} test samples each, taken as independent"
        around = unpaired_difference(accuracy, frozen, samples), formed
    return _evaluated(name, depth_margin(accuracy, frozen), limit, f"against {baseline}", *around)


def _evaluated(
    name: str, value: float, limit: float, note: str, interval: Interval | None, interval_note: str
) -> Outcome:
    """Return the outcome of a check whose value was measured."""
    kind = CHECKS[name]
    fired, far = fires(kind.limit, value, limit), distance(kind.limit, value, limit)
    return Outcome(kind.title, value, limit, fired, note, interval, interval_note, far)


def _open(name: str, limit: float, why: str) -> Outcome:
    """Return the outcome of a check that could not be evaluated."""
    return Outcome(CHECKS[name].title, None, limit, None, why)


EVALUATE: dict[str, Callable[[Given], Outcome]] = {
    "scale": _scale,
    "reference": _reference,
    "stability": _stability,
    "depth": lambda given: _margin("depth", given, given.baselines.own, given.baselines.own_name),
    "depth_strict": lambda given: _margin("depth_strict", given, given.baselines.bp, "bp+frozen"),
}


def outcomes(checks: Checks, baseline: str) -> dict[str, Any]:
    """Return the entries of an audit's JSON about the checks: each outcome, both verdicts, flags,
    what is borderline.

    Args:
        baseline: the name of the method's own frozen baseline.
    """
    return {
        "verdict": {name: checks.verdict(rule) for name, rule in RULES.items()}
        | {"baseline": baseline},
        "flags": checks.flags,
        "borderline": {"checks": checks.borderline}
        | {name: checks.is_borderline(rule) for name, rule in RULES.items()},
        "checks": {name: entry.to_dict() for name, entry in checks.outcomes.items()},
    }
