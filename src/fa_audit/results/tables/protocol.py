"""Tables about the protocol itself: its limits and what they separate, and what was validated on the same networks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fa_audit.core.checks import CHECKS
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.documents.formats import PLAIN, Number, Table, render
from fa_audit.results.calibration import calibrate, deciding_values
from fa_audit.results.outcomes import fails
from fa_audit.results.tables.rows import seeds_text
from fa_audit.results.tidy import KEY, Tidy, side_of

# --- thresholds ----------------------------------------------------------------------------------------------------

# The paper's calibration: its public draft of April 2026 (protocol/examples/threshold_sensitivity.py), largest of BP
# and EP against smallest of DFA and the bridges.
SATURATION = ("B median ||h_L|| median ||g_L||", "ours; tells the two causes of D2 apart")
THRESHOLD_COLUMNS = ("check", "quantity", "fires", "source", "networks that fire", "trusted", "failing", "limits alike")
THRESHOLDS_NOTE = (
    "Fires: the limit of these audits. Networks that fire: of those for which the check was evaluated, and how many of"
    " all are borderline. Trusted: the value nearest to firing of bp and ep, trained on true targets; failing: that"
    " farthest from firing of the other networks that the three-check protocol fails, for (d) those that D3 fails, for"
    " the others those of its regime (D1 and D2). Limits alike: every limit between the two fires on all failing and no"
    " trusted networks; 'none' where they overlap. The failing are chosen by the limits themselves."
)


def thresholds(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return one row per limit: what it limits, where it comes from, and what it and others separate here.

    ``values`` has one row per limit, its columns as below; margins are fractions.
    """
    values = pd.DataFrame([_limit(tidy.runs, check) for check in (*CHECKS, "saturation")])
    rows = tuple(_limit_row(found) for found in values.to_dict("records"))
    return Table(f"{title}. {THRESHOLDS_NOTE} {_networks(tidy, labels)}", THRESHOLD_COLUMNS, rows, values)


def _limit(runs: pd.DataFrame, check: str) -> dict[str, Any]:
    """Return what is known of a check's limit."""
    kind = CHECKS.get(check)
    name = kind.limit if kind else check
    used = sorted({limits_of(text)[name] for text in runs.get("thresholds", pd.Series(dtype=str)).dropna()})
    found: dict[str, Any] = {"check": check, "limit": used[0] if used else DiagnosticThresholds().limits[name]}
    found |= {"other_limits": len(used[1:]), "source": kind.source if kind else SATURATION[1]}
    if kind is None:
        below = runs["scale_free_last"].astype(float) < found["limit"] if "scale_free_last" in runs else pd.Series()
        return found | {"evaluated": len(below), "fires": int(below.sum()), "borderline": 0}
    fires = runs[f"{check}_fires"].astype("boolean")
    near = runs.get(f"{check}_borderline", pd.Series(False, runs.index)).map({True: True}).fillna(False)
    found |= {"evaluated": int(fires.count()), "fires": int(fires.sum()), "borderline": int(near.sum())}
    if not kind.letter:
        return found
    calibration = calibrate(name, runs, deciding_values(runs)[name])
    low, high = calibration.gap(name) or (None, None)
    return found | {"trusted": calibration.trusted, "failing": calibration.failing, "from": low, "to": high}


def limits_of(text: str) -> Mapping[str, float]:
    """Return the limits that a row of the runs table says in JSON; those that it does not say are the defaults."""
    return DiagnosticThresholds().limits | json.loads(text)


def _limit_row(found: Mapping[str, Any]) -> tuple[str | Number, ...]:
    kind = CHECKS.get(found["check"])
    scale = kind.scale if kind else 1

    def number(value: Any) -> Number:
        return Number(None if pd.isna(value) else scale * value, decimals=1 if scale > 1 else None)

    ends = [render(number(found.get(end)), PLAIN) for end in ("from", "to")]
    separates = "" if pd.isna(found["trusted"]) or pd.isna(found["failing"]) else "none"
    near = f", {found['borderline']} borderline" if found["borderline"] else ""
    return (
        kind.label if kind else "cause of D2",
        kind.formula if kind else SATURATION[0],
        f"{kind.sign if kind else '<'} {scale * found['limit']:g}" + (", others" if found["other_limits"] else ""),
        found["source"],
        f"{found['fires']}/{found['evaluated']}{near}" if found["evaluated"] else "not evaluated",
        number(found["trusted"]),
        number(found["failing"]),
        " to ".join(ends) if not pd.isna(found.get("from")) else separates or "n/a",
    )


def _networks(tidy: Tidy, labels: Mapping[str, str]) -> str:
    counts = tidy.runs.groupby("setting").size().loc[list(tidy.settings)]
    return seeds_text(counts.to_dict(), labels).replace("Seeds", "Networks")


# --- validations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Validation:
    """Something that must hold if the numbers are to be believed, with the values by which that is decided.

    Attributes:
        values: what is compared, a value for each place; places without one are left out.
        holds: whether each value is as it must be.
        worst: which of them is shown.
    """

    name: str
    demand: str
    places: str
    values: Callable[[Tidy], pd.Series]
    holds: Callable[[pd.Series], pd.Series]
    worst: str = "max"


def _layers(column: str, of: Callable[[pd.DataFrame], pd.Series] | None = None) -> Callable[[Tidy], pd.Series]:
    """Return what reads a column of the layers table, of the runs that `of` chooses."""

    def read(tidy: Tidy) -> pd.Series:
        if column not in tidy.layers:
            return pd.Series(dtype=float)
        if of is None:
            return tidy.layers[column].astype(float)
        chosen = tidy.runs.loc[of(tidy.runs), list(KEY)]
        return tidy.layers.merge(chosen, on=list(KEY))[column].astype(float)

    return read


def _of_credits(name: str) -> Callable[[Tidy], Any]:
    """Return a credit metric of every block, at the side of the blocks at which all have it."""
    return lambda tidy: _layers(f"{name}{side_of(tidy.layers, name)}")(tidy)


def _runs(make: Callable[[pd.DataFrame], pd.Series], of: Callable[[pd.DataFrame], pd.Series]) -> Callable[[Tidy], Any]:
    """Return what makes a value of every run that `of` chooses."""
    return lambda tidy: (
        make(chosen).astype(float) if len(chosen := tidy.runs[of(tidy.runs)]) else pd.Series(dtype=float)
    )


def _clamp(tidy: Tidy) -> pd.Series:
    clamped, free = _layers("clamped_cosine_at_input")(tidy), _layers("cosine_at_input")(tidy)
    return (clamped - free).abs() if len(clamped) else clamped


def _headline(tidy: Tidy) -> pd.Series:
    """Return the distance of every headline accuracy from its trajectory's last epoch."""
    if tidy.trajectories.empty:
        return pd.Series(dtype=float)
    last = tidy.trajectories.sort_values("epoch").groupby(list(KEY))["test_accuracy"].last()
    return (tidy.runs.set_index(list(KEY))["accuracy"].astype(float) - last).abs()


def _untrained(runs: pd.DataFrame) -> pd.Series:
    return (runs["epochs"] == 0) | runs["run"].str.endswith("+epoch0")


def _compared(runs: pd.DataFrame) -> pd.Series:
    """Choose the runs that have baselines: those that are none, and were not stopped."""
    baseline = runs["run"].str.contains(r"\+(?:frozen|shallow)(?:\+|$)")
    return ~baseline & runs["stopped_after"].isna()


def _bp(runs: pd.DataFrame) -> pd.Series:
    return (runs["method"] == "bp") & ~runs["random_targets"].astype(bool) & ~_untrained(runs)


VALIDATIONS = (
    Validation("float32 gradients", "within 1 % of those in float64 (median over samples)", "states",
               _layers("float32_error"), lambda found: found <= 0.01),
    Validation("float32 directions", "cosine with float64 >= 0.99 (1st percentile)", "states",
               _layers("float32_cosine"), lambda found: found >= 0.99, "min"),
    Validation("rho, ceiling", "true gradient's rho >= 0.99 (paper: 0.997)", "blocks",
               _of_credits("rho_bp"), lambda found: found >= 0.99, "min"),
    Validation("rho, floor", "random credits' rho within ±0.05 (paper: 0.006)", "blocks",
               lambda tidy: _of_credits("rho_random")(tidy).abs(), lambda found: found <= 0.05),
    Validation("BP's own credit", "cosine with the gradient at the block's output is 1, within 1e-6", "blocks",
               _layers("cosine", lambda runs: runs["method"] == "bp"),
               lambda found: found >= 1 - 1e-6, "min"),
    Validation("torch's clamp", "clamped cosine within 0.01 of that without epsilon", "blocks",
               _clamp, lambda found: found <= 0.01),
    Validation("fresh feedback", "mean deep cosine of fresh draws within ±0.05 (FA: its last block sees the gradient)",
               "networks",
               lambda tidy: tidy.runs[f"fresh_b_mean{side_of(tidy.runs, 'fresh_b_mean')}"].dropna().astype(float).abs(),
               lambda found: found <= 0.05),
    Validation("baselines are there", "own and bp+frozen accuracy known", "networks",
               _runs(lambda runs: runs[["own_frozen_acc", "bp_frozen_acc"]].notna().all(axis=1), _compared),
               lambda found: found == 1, ""),
    Validation("frozen blocks", "no weight of them differs from its initialisation", "blocks",
               _layers("feature_drift", lambda runs: (runs["frozen_blocks"] == runs["depth"]) & (runs["depth"] > 0)),
               lambda found: found == 0),
    Validation("frozen and shallow", "bp+frozen within 2 points of no blocks at all", "networks",
               _runs(lambda runs: 100 * runs[["bp_frozen_acc", "shallow_acc"]].astype(float).diff(axis=1).abs().max(
                   axis=1), _compared),
               lambda found: found <= 2),
    Validation("headline accuracy", "that of the trajectory's last epoch", "networks",
               _headline, lambda found: found == 0),
    Validation("finite", "no NaN or infinity in states, gradients and logits", "networks",
               _runs(lambda runs: runs["finite"].astype(bool), lambda runs: runs["finite"].notna()),
               lambda found: found == 1, ""),
    Validation("control: BP", "trained on true targets it does not FAIL", "networks",
               _runs(lambda runs: ~fails(runs).fillna(False), lambda runs: _bp(runs) & _compared(runs)),
               lambda found: found == 1, ""),
    Validation("control: untrained", "before training D1 and D2 are silent", "networks",
               _runs(lambda runs: ~runs[["scale_fires", "reference_fires"]].eq(True).any(axis=1), _untrained),
               lambda found: found == 1, ""),
    Validation("control: random targets", "no better than frozen blocks on true ones: D3 fires", "networks",
               _runs(lambda runs: runs["depth_fires"].eq(True),
                     lambda runs: runs["random_targets"].astype(bool) & runs["depth_fires"].notna()),
               lambda found: found == 1, ""),
)  # fmt: skip
VALIDATIONS_NOTE = (
    "What must hold for the protocol's numbers to be believed, computed from the same audits. Holds: in how many of the"
    " places that have a value; worst: the value nearest to failing, or farthest beyond. What fails is a finding about"
    " these networks (a reference that float32 does not resolve, say), to be read with their verdicts."
)
VALIDATION_COLUMNS = ("validation", "what must hold", "holds in", "worst")


def validations(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return one row per validation: what must hold, in how many places it does, and the worst value.

    ``values`` has one row per validation: ``holds`` of ``n`` places, and ``worst``.
    """
    values = pd.DataFrame([_validated(validation, tidy) for validation in VALIDATIONS])
    places = (f"{row.holds}/{row.n} {row.places}" if row.n else "not measured" for row in values.itertuples())
    worst = (Number(None if pd.isna(value) else value) for value in values["worst"])
    rows = tuple((v.name, v.demand, place, value) for v, place, value in zip(VALIDATIONS, places, worst, strict=True))
    return Table(f"{title}. {VALIDATIONS_NOTE} {_networks(tidy, labels)}", VALIDATION_COLUMNS, rows, values)


def _validated(validation: Validation, tidy: Tidy) -> dict[str, Any]:
    found = validation.values(tidy).dropna()
    worst = getattr(found, validation.worst)() if validation.worst and len(found) else np.nan
    holds = int(validation.holds(found).sum())
    return {"validation": validation.name, "places": validation.places, "n": len(found), "holds": holds, "worst": worst}
