"""Read tidy tables that others may have edited: whatever follows from other columns is derived again and compared.

The tables of a folder ``FOLDER/SETTING/{runs,layers,trajectories,work}.csv``, such as ``reference/measured``, or
``results/tidy`` of one's own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fa_audit.audit import verdicts
from fa_audit.core.errors import AuditError, first_line, listed, shortened
from fa_audit.core.files import FOREIGN
from fa_audit.core.thresholds import (
    FLOOR_SAMPLES,
    LIMITS,
    DiagnosticThresholds,
    depth_margin,
    distance,
    fires,
    floor_for,
)
from fa_audit.experiments.paths import MEASURED, TIDY
from fa_audit.experiments.spec import NAMES, RunSpec, parse_run
from fa_audit.results.tidy import KEY, Tidy, read_table, read_tidy
from fa_audit.training.monitor import first_flags

FOLDER = "reference/measured"
ENDS = ("interval_low", "interval_high")
DEEP = ("cosine", "clamped_cosine", "rho", "nudging")  # of layers; their means over the blocks l >= 1 are of runs
OUTCOMES = tuple(f"{check}_{part}" for check in LIMITS for part in ("fires", "distance", *ENDS, "borderline"))
NEEDED = (*KEY, "accuracy", "own_frozen_acc", "bp_frozen_acc", "max_growth", "hidden_norm_last", "grad_norm_last",
          "stability", "scale_free_last", "three_check", "four_check", "baseline", "finite", "flags",
          *OUTCOMES)  # fmt: skip


def measured_folder(folder: str | Path | None) -> Path:
    """Return the folder to read: the one given, or the one that comes with the repository.

    Raises:
        AuditError: there is none, or it holds no tables.
    """
    checkout = Path(__file__).resolve().parents[3] / FOLDER
    found = Path(folder) if folder else next((path for path in (Path(FOLDER), checkout) if path.is_dir()), Path(FOLDER))
    if not settings_in(found):
        raise AuditError(
            f"--from: found no tables SETTING/runs.csv in '{found}'; expected a folder such as {FOLDER} of the project,"
            " or results/tidy of your own: name it with --from."
        )
    return found


def settings_in(folder: Path) -> list[str]:
    """Return the settings that have a table of runs, sorted."""
    return sorted(path.parent.name for path in folder.glob("*/runs.csv"))


def tables_of(folder: Path, settings: Iterable[str], names: Sequence[str] = MEASURED) -> list[Path]:
    """Return the paths of tables of settings, each of which has been verified.

    Raises:
        AuditError: one is missing, or altered.
    """
    paths = []
    for setting in settings:
        for path in (folder / setting / f"{name}.csv" for name in ("runs", *names)):
            if not path.is_file():
                known = listed(settings_in(folder)) or "none"
                raise AuditError(f"setting '{setting}': no file '{path}'; '{folder}' has the settings {known}.")
        verify(folder / setting)
        paths += [folder / setting / f"{name}.csv" for name in names]
    return paths


def read_measured(folder: Path) -> Tidy:
    """Read the tables of runs, layers and work of every setting, as far as they are there, verified.

    Raises:
        AuditError: a table is altered.
    """
    settings = settings_in(folder)
    there = [folder / setting / f"{name}.csv" for name in TIDY if name != "trajectories" for setting in settings]
    tables_of(folder, settings, ("runs",))
    return read_tidy([path for path in there if path.is_file()])


# --- verification ----------------------------------------------------------------------------------------------------


def verify(folder: Path) -> None:
    """Compare every entry that follows from others in the tables of a setting with what follows.

    Outcomes, distances and borderline marks of checks from values, intervals and limits, verdicts and flags from
    outcomes, options from the run's name, everything in a specification; from the tables of layers and trajectories, if
    they are there, largest growth, last norms, means of credits, accuracy and the epochs of the first flags.

    Raises:
        AuditError: the first entry that differs: its file, row, column, what was found and what was expected.
    """
    try:
        _verify(folder)
    except AuditError:
        raise
    except FOREIGN as error:
        raise AuditError(f"{folder}: found tables with {first_line(error)}; expected those of the workflow.") from error


def _verify(folder: Path) -> None:
    path = folder / "runs.csv"
    runs = read_table(path)
    if missing := sorted(set(NEEDED) - set(runs.columns)):
        raise AuditError(f"{path}: no column {listed(missing, 3)}; expected a table of runs that the workflow wrote.")
    if runs.empty:
        raise AuditError(f"{path}: found no rows; expected one for each run and seed. Take the original.")
    if strange := sorted(set(map(str, runs["setting"])) - {folder.name}):
        raise AuditError(f"{path}: found setting {strange[0]}; expected {folder.name}, as its folder is called.")
    parts = {name: _by_run(folder / f"{name}.csv") for name in ("layers", "trajectories")}
    seen: set[tuple[str, Any]] = set()
    for number, row in enumerate(runs.to_dict("records"), 2):
        where = f"{path}: line {number} ({row['run']}, seed {row['seed']})"
        if (row["run"], row["seed"]) in seen:
            raise AuditError(f"{where}: once more; expected one row for each run and seed.")
        seen.add((row["run"], row["seed"]))
        limits = _limits(where, row)
        derived = _derived(row, limits) | _of_name(row) | _of_spec(where, row)
        for name, groups in parts.items():
            if groups and (row["run"], row["seed"]) not in groups:
                raise AuditError(f"{where}: no rows in {folder / name}.csv; expected them. Take the original.")
        if parts["layers"]:
            derived |= _of_layers(parts["layers"][row["run"], row["seed"]])
        if parts["trajectories"]:
            derived |= _of_trajectory(parts["trajectories"][row["run"], row["seed"]], limits)
        _compare(where, row, derived)


def _by_run(path: Path) -> dict[tuple[str, Any], pd.DataFrame]:
    """Return the rows of every run and seed; none where there is no such table."""
    return dict(list(read_table(path).groupby(["run", "seed"]))) if path.is_file() else {}


def _compare(where: str, row: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for column, value in expected.items():
        if not _same(found := _plain(row.get(column)), value):
            raise AuditError(
                f"{where}: {column}: found {shortened(found)}, expected {shortened(value)}, which follows from the"
                " other columns: altered after it was written. Take the original."
            )


def _plain(value: Any) -> Any:
    """Return a cell as a plain value, None for an empty one."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and math.isnan(value) else value


def _same(found: Any, expected: Any) -> bool:
    """Compare a cell with what it should be; numbers but for what platforms round differently."""
    if isinstance(expected, bool) or expected is None or isinstance(expected, str):
        return type(found) is type(expected) and found == expected
    return isinstance(found, float | int) and math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12)


def _derived(row: Mapping[str, Any], limits: Mapping[str, float]) -> dict[str, Any]:
    """Return the columns of one row that follow from its others and the limits."""
    checks = {check: _check(row, check, limits) for check in LIMITS}
    derived: dict[str, Any] = {}
    for check, found in checks.items():
        derived |= {f"{check}_fires": found.fires, f"{check}_distance": found.distance}
        derived |= {f"{check}_borderline": found.borderline}
    norms = [_plain(row[name]) for name in ("hidden_norm_last", "grad_norm_last")]
    finite = bool(row["finite"]) and all(norm is not None and math.isfinite(norm) for norm in norms)
    outcomes = verdicts.Checks(**checks, finite=finite)
    rules = {"three_check": verdicts.three_check_verdict, "four_check": verdicts.four_check_verdict}
    derived |= {"finite": finite, "flags": "; ".join(verdicts.flags(outcomes)) or None}
    derived |= {name: rule(outcomes) for name, rule in rules.items()}
    derived |= {f"{name}_borderline": verdicts.is_borderline(rule, outcomes) for name, rule in rules.items()}
    return derived


def _limits(where: str, row: Mapping[str, Any]) -> dict[str, float]:
    """Return the limits of a row's checks: the table's own, or the paper's; the floor for the batch that was used."""
    text = _plain(row.get("thresholds"))
    try:
        limits = DiagnosticThresholds.of(json.loads(text) if text else {}).limits
    except FOREIGN as error:
        raise AuditError(f"{where}: thresholds: found {shortened(text)}; expected limits as JSON ({error}).") from error
    norms = row["hidden_norm_last"] * row["grad_norm_last"]
    samples = row["scale_free_last"] / norms if norms else math.nan
    known = math.isfinite(samples) and round(samples) >= 1
    return limits | {"reference": floor_for(limits["reference"], round(samples) if known else FLOOR_SAMPLES)}


def _check(row: Mapping[str, Any], check: str, limits: Mapping[str, float]) -> verdicts.Check:
    """Return a check of one row as it follows from the row's value and its limit."""
    name, value = LIMITS[check], _value(row, check)
    ends = [_plain(row[f"{check}_{end}"]) for end in ENDS]
    interval = None if None in ends else (ends[0], ends[1])
    if value is None:
        return verdicts.Check(check, None, limits[name], None, interval=interval)
    fired = bool(fires(name, value, limits[name]))
    saturated = row["scale_free_last"] < limits["saturation"]
    notes = {"reference": "saturated loss" if saturated else "collapsed reference"} if fired else {}
    notes |= {"depth": f"against {row['baseline']}", "depth_strict": "against bp+frozen"}
    far = distance(name, value, limits[name])
    return verdicts.Check(check, value, limits[name], fired, notes.get(check, ""), interval, "", far)


def _value(row: Mapping[str, Any], check: str) -> float | None:
    if check in ("depth", "depth_strict"):
        both = _plain(row["accuracy"]), _plain(row["own_frozen_acc" if check == "depth" else "bp_frozen_acc"])
        return None if None in both else depth_margin(*both)
    value = _plain(row[{"scale": "max_growth", "reference": "grad_norm_last", "stability": "stability"}[check]])
    return None if check == "reference" and value is not None and not math.isfinite(value) else value


def _of_spec(where: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the specification says of a run, where the table has it."""
    text = _plain(row.get("spec"))
    if not text:
        return {}
    try:
        spec = RunSpec.from_dict(json.loads(text))
    except FOREIGN as error:
        raise AuditError(f"{where}: spec: found {shortened(text)}; expected a specification ({error}).") from error
    values = {name: getattr(spec, name) for name in NAMES} | dict(spec.architecture_options) | {"digest": spec.digest}
    return {name: value for name, value in values.items() if name in row and not isinstance(value, tuple)}


def _of_name(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that the name of a run says."""
    run = parse_run(row["run"])
    frozen = row["depth"] if run.frozen < 0 else run.frozen
    options = {name: getattr(run, name) for name in ("method", "penalty", "shallow", "random_targets")}
    return options | {"frozen_blocks": frozen}


def _of_trajectory(own: pd.DataFrame, limits: Mapping[str, float]) -> dict[str, Any]:
    """Return what follows from a run's rows in the table of trajectories: last accuracy, epochs of the first flags."""
    own = own.sort_values(["epoch", "layer"])
    history = own.astype(object).where(own.notna(), None).to_dict("records")
    return {"accuracy": history[-1]["test_accuracy"]} | first_flags(history, DiagnosticThresholds.of(limits))


def _of_layers(own: pd.DataFrame) -> dict[str, Any]:
    """Return what follows from a run's rows in the table of layers: largest growth, last state, means of credits."""
    own = own.sort_values("layer")
    norms, last = own["hidden_norm"].to_numpy(float), own.iloc[-1]
    with np.errstate(all="ignore"):
        growths = np.where(norms[:-1] == 0, np.inf, norms[1:] / norms[:-1])
    largest = None if not growths.size or np.isnan(growths).any() else float(growths.max())
    lasts = {f"{name}_last": _plain(last[name]) for name in ("hidden_norm", "grad_norm", "scale_free")}
    deep = {f"deep_{name}": _plain(own[name].astype(float)[1:].mean()) for name in DEEP}
    return {"max_growth": largest} | lasts | deep
