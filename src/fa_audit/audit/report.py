"""Hold and render the result of an audit: evidence, checks and verdicts as an object, JSON, text or markdown."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from fa_audit.audit.diagnostics import Diagnostics
from fa_audit.audit.verdicts import (
    Baselines,
    Check,
    Checks,
    check,
    flags,
    four_check_verdict,
    three_check_verdict,
)
from fa_audit.core.metrics import Measured
from fa_audit.core.thresholds import CHECK_LABELS, DiagnosticThresholds, sign_of

CREDIT_COLUMNS = ("cosine", "rho", "nudging")


@dataclass(frozen=True)
class DiagnosticReport:
    """The result of an audit.

    Attributes:
        method_name: what was audited.
        evidence: everything measured.
        headline_acc: accuracy of the last epoch on the whole test set, as a fraction; None if unknown.
        baselines: frozen accuracies of the same cell.
        thresholds: limits of the checks.
        notes: the author's remarks.
        credit: per block, what the method's credits are worth; empty where only a network was audited.
        deep: the same over the blocks l >= 1.
        feature_drift: relative change of every parameter since initialisation, by name.
        first_flags: the first epoch at which the scale and the reference check fired, None where they never did; empty
            where the training was not followed.
        warnings: sentences about what may make the numbers mean something else than they say.
    """

    method_name: str
    evidence: Diagnostics
    headline_acc: float | None
    baselines: Baselines
    thresholds: DiagnosticThresholds
    notes: str = ""
    credit: tuple[dict[str, Measured], ...] = field(default=())
    deep: dict[str, Measured] = field(default_factory=dict)
    feature_drift: dict[str, Measured] = field(default_factory=dict)
    first_flags: dict[str, int | None] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def residual_norms(self) -> list[float]:
        """Return median ``||h_l||`` for l = 0..L."""
        return [layer.hidden_norm for layer in self.evidence.layers]

    @property
    def bp_grad_norms(self) -> list[float]:
        """Return median ``||g_l||`` of the batch-mean loss for l = 0..L."""
        return [layer.grad_norm for layer in self.evidence.layers]

    @property
    def stability_layer(self) -> int:
        """Return the index of the state at which the cross-batch stability was taken."""
        return self.evidence.stability_layer

    @property
    def cross_batch_stability(self) -> float | None:
        """Return the mean pairwise cosine of the batches' mean gradients, or None."""
        return self.evidence.stability.value

    @property
    def frozen_baseline_acc(self) -> float | None:
        """Return the accuracy of the frozen baseline that D3 / (d) uses."""
        return self.baselines.own

    @cached_property
    def checks(self) -> Checks:
        """Evaluate every check: value, threshold and outcome."""
        return check(self.evidence, self.headline_acc, self.baselines, self.thresholds)

    @property
    def verdict(self) -> str:
        """Return the four-check verdict."""
        return four_check_verdict(self.checks)

    @property
    def three_check_verdict(self) -> str:
        """Return the three-check verdict."""
        return three_check_verdict(self.checks)

    @property
    def flags(self) -> list[str]:
        """List every check that fired, with its cause."""
        return flags(self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON types; NaN and infinities become the strings 'nan', 'inf', '-inf'."""
        return _jsonable(
            {
                "method": self.method_name,
                "verdict": {
                    "three_check": self.three_check_verdict,
                    "four_check": self.verdict,
                    "baseline": self.baselines.own_name,
                },
                "flags": self.flags,
                "warnings": self.warnings,
                "first_flags": self.first_flags,
                "headline_acc": self.headline_acc,
                "baselines": asdict(self.baselines),
                "checks": {name: asdict(getattr(self.checks, name)) for name in CHECK_LABELS},
                "finite": self.evidence.finite,
                "layers": [layer.to_dict() for layer in self.evidence.layers],
                "credit": [_entries(block) for block in self.credit],
                "deep": _entries(self.deep),
                "feature_drift": _entries(self.feature_drift),
                "stability": {"layer": self.stability_layer} | self.evidence.stability.to_dict(),
                "samples": self.evidence.samples,
                "batches": self.evidence.batches,
                "thresholds": asdict(self.thresholds),
                "notes": self.notes,
            }
        )

    def __str__(self) -> str:
        facts = [f"  {name + ':':<20} {value}" for name, value in self._facts()]
        parts = ["\n".join([f"Audit of {self.method_name}", *facts]), *map(_columns, self._tables())]
        return "\n\n".join(parts + ([f"  notes: {self.notes}"] if self.notes else []))

    def to_markdown(self) -> str:
        """Return the report as a markdown section."""
        facts = [f"- {name}: {value}" for name, value in self._facts()]
        parts = [f"## Audit of {self.method_name}", "\n".join(facts), *map(_markdown, self._tables())]
        return "\n\n".join(parts + ([self.notes] if self.notes else [])) + "\n"

    def _facts(self) -> Iterator[tuple[str, str]]:
        yield "three-check verdict", self.three_check_verdict
        yield "four-check verdict", self.verdict
        yield "frozen baseline", self.baselines.own_name
        yield "flags", ", ".join(self.flags) or "none"
        if self.first_flags:
            epochs = ["never" if epoch is None else f"epoch {epoch}" for epoch in self.first_flags.values()]
            yield "first fired", "D1 {}, D2 {}".format(*epochs)

    def _tables(self) -> Iterator[list[list[str]]]:
        """Yield the tables of checks, states and credits; the first row of each is its header."""
        yield [["check", "value", "fires when", "outcome"], *self._check_rows()]
        yield [["layer", "||h||", "growth", "||g||", "B ||h|| ||g||", "float32 error"], *self._layer_rows()]
        if self.credit:
            yield [["block", *CREDIT_COLUMNS], *self._credit_rows()]

    def _check_rows(self) -> Iterator[list[str]]:
        for name, letter in CHECK_LABELS.items():
            entry: Check = getattr(self.checks, name)
            outcome = {True: "FIRES", False: "ok", None: "not evaluated"}[entry.fires]
            note = f" ({entry.note})" if entry.note else ""
            limit = f"{sign_of(name)} {entry.threshold:g}"
            yield [f"{letter} {entry.name}", _number(entry.value), limit, outcome + note]

    def _layer_rows(self) -> Iterator[list[str]]:
        for layer in self.evidence.layers:
            values = (layer.hidden_norm, layer.growth, layer.grad_norm, layer.scale_free, layer.float32_error.value)
            yield [str(layer.layer), *map(_number, values)]

    def _credit_rows(self) -> Iterator[list[str]]:
        for index, block in enumerate(self.credit):
            yield [str(index), *(_number(block[name].value) for name in CREDIT_COLUMNS)]


def summary(report: DiagnosticReport) -> dict[str, Any]:
    """Return the dictionary of the paper's submitted package: verdict, accuracy and the three checks."""
    checks, limits = report.checks, report.thresholds
    growths = [layer.growth for layer in report.evidence.layers if layer.growth is not None]
    return {
        "verdict": report.three_check_verdict,
        "test_acc": report.headline_acc,
        "diagnostics": {
            "D1_scale_growth": {
                "max_growth": checks.scale.value,
                "per_block_growth": growths,
                "hidden_norms": report.residual_norms,
                "threshold": limits.growth,
                "fires": checks.scale.fires,
            },
            "D2_ref_validity": {
                "g_L": report.bp_grad_norms[-1],
                "bp_grad_norms": report.bp_grad_norms,
                "floor": limits.reference,
                "fires": checks.reference.fires,
            },
            "D3_depth_utility": {
                "test_acc": report.headline_acc,
                "frozen_baseline_acc": report.frozen_baseline_acc,
                "margin": checks.depth.value,
                "margin_threshold": limits.depth_margin,
                "fires": checks.depth.fires,
            },
        },
    }


def _entries(measured: dict[str, Measured]) -> dict[str, Any]:
    return {name: entry.to_dict() for name, entry in measured.items()}


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _jsonable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(entry) for entry in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _columns(table: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*table)]
    return "\n".join("  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in table)


def _markdown(table: list[list[str]]) -> str:
    header, *rows = table
    lines = [[cell.replace("||", "‖") for cell in header], ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
