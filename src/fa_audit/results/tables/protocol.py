"""Tables about the protocol itself: its limits and what they separate, and what was validated on
the same networks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from fa_audit.documents.formats import PLAIN, Number, Table, render
from fa_audit.experiments.paths import AT_INPUT
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.results.calibration import calibrate, deciding_values, untrained
from fa_audit.results.outcomes import fails, near_limit
from fa_audit.results.tables.rows import seeds_text
from fa_audit.results.tidy import KEY, Tidy, side_of

# The paper's calibration: its public draft of April 2026
# (protocol/examples/threshold_sensitivity.py), largest of BP and EP against smallest of DFA and the
# bridges.
SATURATION = replace(
    CHECKS["reference"],
    label="cause of D2",
    letter="",
    limit="saturation",
    column="scale_free_last",
    formula="B median ||h_L|| median ||g_L||",
    source="ours; separates the two causes of D2",
)
LIMITS = CHECKS | {"saturation": SATURATION}
THRESHOLD_COLUMNS = (
    "check",
    "quantity",
    "fires",
    "source",
    "networks that fire",
    "trusted",
    "failing",
    "limits alike",
)
THRESHOLDS_NOTE = (
    "Fires: the limit of these audits. Networks that fire: of those for which the check was evaluated, and how many of"
    " all are borderline. Trusted: the value nearest to firing of bp and ep, trained on true targets; failing: that"
    " farthest from firing of the other networks that the three-check protocol fails, for (d) those that D3 fails, for"
    " the others those of its regime (D1 and D2). Limits alike: every limit between the two fires on all failing and no"
    " trusted networks; 'none' where they overlap. The failing are chosen by the limits themselves."
)


def thresholds(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return one row per limit: what it limits, where it comes from, and what it and others
    separate here.

    ``values`` has one row per limit, its columns as below; margins are fractions.
    """
    values = pd.DataFrame([_limit(tidy.runs, check) for check in LIMITS])
    rows = tuple(_limit_row(found) for found in values.to_dict("records"))
    return Table(
        f"{title}. {THRESHOLDS_NOTE} {_networks(tidy, labels)}", THRESHOLD_COLUMNS, rows, values
    )


def _limit(runs: pd.DataFrame, check: str) -> dict[str, Any]:
    """Return what is known of a check's limit; one that a row does not record is the default."""
    kind, default = LIMITS[check], DiagnosticThresholds().limits
    recorded = runs.get("thresholds", pd.Series(dtype=str)).dropna().unique()
    used = sorted({(default | json.loads(text))[kind.limit] for text in recorded}) or [
        default[kind.limit]
    ]
    if check in CHECKS:
        fires, near = runs[f"{check}_fires"].astype("boolean"), near_limit(runs, check).sum()
    else:
        fires, near = runs.get(kind.column, pd.Series(dtype=float)).astype(float) < used[0], 0
    found = {"check": check, "limit": used[0], "other_limits": len(used[1:]), "source": kind.source}
    found |= {"evaluated": int(fires.count()), "fires": int(fires.sum()), "borderline": int(near)}
    if not kind.letter:
        return found
    calibration = calibrate(kind.limit, runs, deciding_values(runs)[kind.limit])
    low, high = calibration.gap(kind.limit) or (None, None)
    return found | {
        "trusted": calibration.trusted,
        "failing": calibration.failing,
        "from": low,
        "to": high,
    }


def _limit_row(found: Mapping[str, Any]) -> tuple[str | Number, ...]:
    kind = LIMITS[found["check"]]

    def number(end: str) -> Number:
        value = found[end]
        return Number(
            None if pd.isna(value) else kind.scale * value, decimals=1 if kind.scale > 1 else None
        )

    separates = "n/a" if pd.isna(found["trusted"]) or pd.isna(found["failing"]) else "none"
    if not pd.isna(found["from"]):
        separates = " to ".join(render(number(end), PLAIN) for end in ("from", "to"))
    near = f", {found['borderline']} borderline" if found["borderline"] else ""
    return (
        kind.label,
        kind.formula,
        f"{kind.sign} {kind.scale * found['limit']:g}"
        + (", others" if found["other_limits"] else ""),
        found["source"],
        f"{found['fires']}/{found['evaluated']}{near}" if found["evaluated"] else "not evaluated",
        number("trusted"),
        number("failing"),
        separates,
    )


def _networks(tidy: Tidy, labels: Mapping[str, str]) -> str:
    counts = tidy.runs.groupby("setting").size().loc[list(tidy.settings)]
    return seeds_text(counts.to_dict(), labels).replace("Seeds", "Networks")


@dataclass(frozen=True)
class Validation:
    """Something that must hold if the numbers are to be believed, with the values by which that is
    decided.
    """

    name: str
    demand: str
    places: str
    values: Callable[[Tidy], pd.Series]  # a value for each place; places without one are left out
    least: float = -math.inf  # the range in which each of them must lie
    most: float = math.inf
    shown: bool = True  # the worst value: nearest to the end of the range or farthest beyond


def _layers(tidy: Tidy, column: str, of: pd.Series | None = None) -> pd.Series:
    """Return a column of the layers, of all runs or of those that a boolean column of the runs
    chooses.
    """
    table = (
        tidy.layers if of is None else tidy.layers.merge(tidy.runs.loc[of, list(KEY)], on=list(KEY))
    )
    return table.get(column, pd.Series(dtype=float))


def _credits(tidy: Tidy, name: str) -> pd.Series:
    """Return a credit metric of every block, at the side of the blocks at which all have it."""
    return _layers(tidy, f"{name}{side_of(tidy.layers, name)}")


def _headline(tidy: Tidy) -> pd.Series:
    """Return the distance of every headline accuracy from its trajectory's last epoch."""
    history = tidy.trajectories.reindex(columns=[*KEY, "epoch", "test_accuracy"]).sort_values(
        "epoch"
    )
    last = history.groupby(list(KEY))["test_accuracy"].last()
    return (tidy.runs.set_index(list(KEY))["accuracy"].astype(float) - last).abs()


def _compared(runs: pd.DataFrame) -> pd.Series:
    """Choose the runs that have baselines: those that are not baselines, and were not stopped."""
    baseline = runs["run"].str.contains(r"\+(?:frozen|shallow)(?:\+|$)")
    return ~baseline & runs["stopped_after"].isna()


def _bp_does_not_fail(tidy: Tidy) -> pd.Series:
    runs = tidy.runs
    bp = (runs["method"] == "bp") & ~runs["random_targets"].astype(bool) & ~untrained(runs)
    return (~fails(runs).fillna(False))[bp & _compared(runs)]


VALIDATIONS = (
    Validation("float32 gradients", "within 1 % of those in float64 (median over samples)", "states",
               lambda tidy: _layers(tidy, "float32_error"), most=0.01),
    Validation("float32 directions", "cosine with float64 >= 0.99 (1st percentile)", "states",
               lambda tidy: _layers(tidy, "float32_cosine"), least=0.99),
    Validation("rho, ceiling", "true gradient's rho >= 0.99 (paper: 0.997)", "blocks",
               lambda tidy: _credits(tidy, "rho_bp"), least=0.99),
    Validation("rho, floor", "random credits' rho within ±0.05 (paper: 0.006)", "blocks",
               lambda tidy: _credits(tidy, "rho_random").astype(float).abs(), most=0.05),
    Validation("BP's own credit", "cosine with the gradient at the block's output is 1, within 1e-6", "blocks",
               lambda tidy: _layers(tidy, "cosine", tidy.runs["method"] == "bp"), least=1 - 1e-6),
    Validation("torch's clamp", "clamped cosine within 0.01 of that without epsilon", "blocks",
               lambda tidy: (_layers(tidy, f"clamped_cosine{AT_INPUT}") - _layers(tidy, f"cosine{AT_INPUT}")).abs(),
               most=0.01),
    Validation("fresh feedback", "mean deep cosine of fresh draws within ±0.05 (FA: its last block sees the gradient)",
               "networks",
               lambda tidy: tidy.runs[f"fresh_b_mean{side_of(tidy.runs, 'fresh_b_mean')}"].astype(float).abs(),
               most=0.05),
    Validation("baselines are there", "own and bp+frozen accuracy known", "networks",
               lambda tidy: tidy.runs[["own_frozen_acc", "bp_frozen_acc"]].notna().all(axis=1)[_compared(tidy.runs)],
               least=1, shown=False),
    Validation("frozen blocks", "no weight of them differs from its initialisation", "blocks",
               lambda tidy: _layers(tidy, "feature_drift", tidy.runs["frozen_blocks"] == tidy.runs["depth"].where(
                   tidy.runs["depth"] > 0)), most=0),
    Validation("frozen and shallow", "bp+frozen within 2 points of no blocks at all", "networks",
               lambda tidy: 100 * (tidy.runs["bp_frozen_acc"].astype(float) - tidy.runs["shallow_acc"]).abs()[
                   _compared(tidy.runs)], most=2),
    Validation("headline accuracy", "that of the trajectory's last epoch", "networks", _headline, most=0),
    Validation("finite", "no NaN or infinity in states, gradients and logits", "networks",
               lambda tidy: tidy.runs["finite"], least=1, shown=False),
    Validation("control: BP", "trained on true targets it does not FAIL", "networks",
               _bp_does_not_fail, least=1, shown=False),
    Validation("control: untrained", "before training D1 and D2 are silent", "networks",
               lambda tidy: ~tidy.runs[["scale_fires", "reference_fires"]].eq(True).any(axis=1)[untrained(tidy.runs)],
               least=1, shown=False),
    Validation("control: random targets", "no better than frozen blocks on true ones: D3 fires", "networks",
               lambda tidy: tidy.runs["depth_fires"].astype("boolean")[tidy.runs["random_targets"].astype(bool)],
               least=1, shown=False),
)  # fmt: skip
VALIDATIONS_NOTE = (
    "What must hold for the protocol's numbers to be believed, computed from the same audits. Holds: in how many of the"
    " places that have a value; worst: the value nearest to failing, or farthest beyond. A failure is a finding about"
    " these networks (a reference that float32 does not resolve, say), to be read with their verdicts."
)
VALIDATION_COLUMNS = ("validation", "what must hold", "holds in", "worst")


def validations(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return one row per validation: what must hold, in how many places it does, and the worst
    value.

    ``values`` has one row per validation: ``holds`` of ``n`` places, and ``worst``.
    """
    values = pd.DataFrame([_validated(validation, tidy) for validation in VALIDATIONS])
    places = (
        f"{row.holds}/{row.n} {row.places}" if row.n else "not measured"
        for row in values.itertuples()
    )
    worst = (Number(None if pd.isna(value) else value) for value in values["worst"])
    rows = tuple(
        (v.name, v.demand, place, value)
        for v, place, value in zip(VALIDATIONS, places, worst, strict=True)
    )
    return Table(
        f"{title}. {VALIDATIONS_NOTE} {_networks(tidy, labels)}", VALIDATION_COLUMNS, rows, values
    )


def _validated(validation: Validation, tidy: Tidy) -> dict[str, Any]:
    found = validation.values(tidy).dropna().astype(float)
    holds = int(found.between(validation.least, validation.most).sum())
    worst = (
        (found.min() if math.isinf(validation.most) else found.max())
        if validation.shown
        else math.nan
    )
    return {
        "validation": validation.name,
        "places": validation.places,
        "n": len(found),
        "holds": holds,
        "worst": worst,
    }
