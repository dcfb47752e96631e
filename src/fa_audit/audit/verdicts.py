"""Turn evidence into verdicts by the paper's three-check and four-check rules. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fa_audit.core.thresholds import DiagnosticThresholds, depth_margin, fires

if TYPE_CHECKING:
    from fa_audit.audit.diagnostics import Diagnostics

NON_FINITE = "non-finite"


@dataclass(frozen=True)
class Check:
    """The outcome of one check.

    Attributes:
        name: what the check is about.
        value: the number that decides; None where it could not be measured.
        threshold: its limit.
        fires: True is a finding against the network; None means not evaluated, which is never a pass.
        note: why it was not evaluated, or how to read the value.
    """

    name: str
    value: float | None
    threshold: float
    fires: bool | None
    note: str = ""


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
    """Accuracies of frozen networks of the same cell (architecture, data, budget, seed), as fractions.

    Attributes:
        own: blocks frozen, embedding trained by the method's own credit. D3 uses this one.
        own_name: how to name it in a verdict.
        bp: blocks frozen, embedding trained by backpropagation. D3-strict uses this one.
    """

    own: float | None = None
    own_name: str = "own frozen baseline"
    bp: float | None = None


def check(
    evidence: Diagnostics, headline_acc: float | None, baselines: Baselines, thresholds: DiagnosticThresholds
) -> Checks:
    """Evaluate every check.

    Args:
        headline_acc: accuracy of the last epoch on the whole test set, as a fraction, or None if unknown.
    """
    return Checks(
        scale=_scale(evidence, thresholds),
        reference=_reference(evidence, thresholds),
        stability=_stability(evidence, thresholds),
        depth=_depth("depth utility", headline_acc, baselines.own, baselines.own_name, thresholds),
        depth_strict=_depth("margin over bp+frozen", headline_acc, baselines.bp, "bp+frozen", thresholds),
        finite=evidence.finite,
    )


def _scale(evidence: Diagnostics, thresholds: DiagnosticThresholds) -> Check:
    growths = [layer.growth for layer in evidence.layers if layer.growth is not None]
    if not growths:
        return Check("scale stability", None, thresholds.growth, None, "the network has no blocks")
    if any(map(math.isnan, growths)):
        return Check("scale stability", None, thresholds.growth, None, "a state norm is NaN")
    fired = fires("growth", max(growths), thresholds.growth)
    return Check("scale stability", max(growths), thresholds.growth, fired)


def _reference(evidence: Diagnostics, thresholds: DiagnosticThresholds) -> Check:
    last = evidence.layers[-1]
    if not math.isfinite(last.grad_norm):
        return Check("reference validity", None, thresholds.reference, None, "the gradient at h_L is not finite")
    fired = fires("reference", last.grad_norm, thresholds.reference)
    cause = "saturated loss" if last.scale_free < thresholds.saturation else "collapsed reference"
    return Check("reference validity", last.grad_norm, thresholds.reference, fired, cause if fired else "")


def _stability(evidence: Diagnostics, thresholds: DiagnosticThresholds) -> Check:
    measured = evidence.stability
    fired = None if measured.value is None else fires("stability", measured.value, thresholds.stability)
    return Check("cross-batch stability", measured.value, thresholds.stability, fired, measured.reason)


def _depth(
    name: str, accuracy: float | None, frozen: float | None, baseline: str, thresholds: DiagnosticThresholds
) -> Check:
    missing = "no headline accuracy" if accuracy is None else f"no {baseline}" if frozen is None else ""
    if accuracy is None or frozen is None:
        return Check(name, None, thresholds.depth_margin, None, missing)
    margin = depth_margin(accuracy, frozen)
    fired = fires("depth_margin", margin, thresholds.depth_margin)
    return Check(name, margin, thresholds.depth_margin, fired, f"against {baseline}")


def three_check_verdict(checks: Checks) -> str:
    """Return ``FAIL(...)`` if (D1 and D2) or D3 or anything is not finite, naming what fired; else ``PASS``.

    Without a failure, an unevaluated check makes it ``INCOMPLETE(...)``: it never counts as a pass.
    """
    named = {"D1": checks.scale, "D2": checks.reference, "D3": checks.depth}
    fired = _fired(named, checks.finite)
    if {"D1", "D2"} <= set(fired) or {"D3", NON_FINITE} & set(fired):
        return f"FAIL({'+'.join(fired)})"
    unknown = _not_evaluated(named)
    return f"INCOMPLETE({'+'.join(unknown)} not evaluated)" if unknown else "PASS"


def four_check_verdict(checks: Checks) -> str:
    """Return ``needs walk-back (...)`` naming what fired of a to d, ``trustworthy``, or ``incomplete (...)``."""
    named = {"a": checks.scale, "b": checks.reference, "c": checks.stability, "d": checks.depth}
    if fired := _fired(named, checks.finite):
        return f"needs walk-back ({', '.join(fired)})"
    unknown = _not_evaluated(named)
    return f"incomplete ({', '.join(unknown)} not evaluated)" if unknown else "trustworthy"


def flags(checks: Checks) -> list[str]:
    """List every check that fired, whether or not it decides a verdict, with its cause where there is one."""
    named = {"D1": checks.scale, "D2": checks.reference, "c": checks.stability}
    named |= {"D3": checks.depth, "D3-strict": checks.depth_strict}
    noted = [f"{name} ({entry.note})" if entry.note else name for name, entry in named.items() if entry.fires]
    return noted + ([] if checks.finite else [NON_FINITE])


def _fired(named: dict[str, Check], finite: bool) -> list[str]:
    return [name for name, entry in named.items() if entry.fires] + ([] if finite else [NON_FINITE])


def _not_evaluated(named: dict[str, Check]) -> list[str]:
    return [name for name, entry in named.items() if entry.fires is None]
