"""The report of the paper's three-check package: a dictionary, and the text that it prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fa_audit.core.checks import CHECKS

if TYPE_CHECKING:
    from fa_audit.audit.report import DiagnosticReport

# For every check: its key, its title, where its value and its limit are, and its name in `Checks`.
LINES = (
    ("D1_scale_growth", "D1 scale growth", "max_growth", "threshold", "scale"),
    ("D2_ref_validity", "D2 reference validity", "g_L", "floor", "reference"),
    ("D3_depth_utility", "D3 depth utility", "margin", "margin_threshold", "depth"),
)


def as_dictionary(report: DiagnosticReport) -> dict[str, Any]:
    """Return verdict, accuracy and the three checks, by the keys of the paper's package; accuracies are fractions."""
    checks, limits = report.checks, report.thresholds.limits
    growths = [layer.growth for layer in report.evidence.layers if layer.growth is not None]
    return {
        "verdict": report.three_check_verdict,
        "test_acc": report.headline_acc,
        "diagnostics": {
            "D1_scale_growth": {
                "max_growth": checks.scale.value,
                "per_block_growth": growths,
                "hidden_norms": report.residual_norms,
                "threshold": limits["growth"],
                "fires": checks.scale.fires,
            },
            "D2_ref_validity": {
                "g_L": report.bp_grad_norms[-1],
                "bp_grad_norms": report.bp_grad_norms,
                "floor": checks.reference.threshold,
                "floor_note": checks.reference.threshold_note,
                "fires": checks.reference.fires,
            },
            "D3_depth_utility": {
                "test_acc": report.headline_acc,
                "frozen_baseline_acc": report.frozen_baseline_acc,
                "margin": checks.depth.value,
                "margin_threshold": limits["depth_margin"],
                "fires": checks.depth.fires,
            },
        },
    }


def as_text(report: Mapping[str, Any], notes: Iterable[str] = ()) -> str:
    """Return a readable summary: verdict, test accuracy, one line for each check.

    Args:
        report: as `as_dictionary` makes it.
        notes: last lines.
    """
    accuracy = report["test_acc"]
    lines = [f"Verdict: {report['verdict']}", f"Test accuracy: {'unknown' if accuracy is None else f'{accuracy:.4f}'}"]
    for key, title, value, limit, check in LINES:
        entry = report["diagnostics"][key]
        outcome = {True: "FIRE", False: "pass", None: "not evaluated"}[entry["fires"]]
        number = "-" if entry[value] is None else f"{entry[value]:.3g}"
        fires = f"fires {CHECKS[check].sign} {limit} {entry[limit]:g}"
        meant = f"; {entry['floor_note']}" if "floor_note" in entry else ""
        lines.append(f"{title}: {value} {number} ({fires}{meant}): {outcome}")
    return "\n".join([*lines, *filter(None, notes)])
