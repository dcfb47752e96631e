"""Write and read audits as four tidy tables: runs, layers, trajectories, and work.

Times and devices of trainings are in ``work`` alone: they differ every time, and artefacts made
from the other tables must not.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.core.errors import AuditError, listed, unknown
from fa_audit.core.files import sha256_of, write_text
from fa_audit.core.measured import AT_INPUT, Measured, at_both_sides
from fa_audit.experiments.paths import IDENTITY, TIDY, RunKey
from fa_audit.experiments.spec import DEPARTURES, OWN_OPTIONS, RunSpec
from fa_audit.protocol.audit import Audit
from fa_audit.protocol.checks import CHECKS, Outcome
from fa_audit.protocol.evidence import Metrics, value_of
from fa_audit.protocol.judge import RULES, Judgement, judge
from fa_audit.protocol.limits import DiagnosticThresholds, floor_for
from fa_audit.training.trajectory import TRAJECTORY_COLUMNS, check_history, read_trajectory

KEY = RunKey._fields
WORK = (
    "seconds",
    "device",
    "commit",
    "cpu",
    "torch",
    "data_sha256",
    "checkpoint_sha256",
    "audit_sha256",
)
AS_TEXT = dict.fromkeys((*WORK[1:], "digest"), str)  # hexadecimal digits may look like numbers
# The summary in one JSON of all audits: column in the table of runs -> name there.
SUMMARY = {"accuracy": "accuracy", "hidden_norm_last": "hidden_norm_last", "grad_norm_last": "grad_norm_last",
           "stability": "stability", "own_frozen_acc": "frozen_accuracy", "four_check": "verdict",
           "three_check": "three_check_verdict"}  # fmt: skip
OF_SPEC = (
    "method",
    "dataset",
    "architecture",
    "epochs",
    "penalty",
    "frozen_blocks",
    "shallow",
    "random_targets",
)
DEEP = at_both_sides("cosine", "clamped_cosine", "rho", "rho_bp", "nudging")


@dataclass(frozen=True)
class Tidy:
    """Input of a figure or a table: its settings in the order of display, and their tables.

    `tidy_of` makes the tables from audits; tables that are not read are empty.
    """

    settings: tuple[str, ...]
    runs: pd.DataFrame
    layers: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=KEY))
    trajectories: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=KEY))
    work: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=KEY))

    def of(self, setting: str) -> Tidy:
        """Return the part of one setting."""
        parts = {}
        for name in TIDY:
            table = getattr(self, name)
            parts[name] = table[table["setting"] == setting]
        return Tidy((setting,), **parts)

    def has(self, column: str) -> bool:
        """Return whether any run has a value in a column of the runs."""
        return column in self.runs and bool(self.runs[column].notna().any())

    def only(self, runs: Collection[str]) -> Tidy:
        """Return the part of some runs in all settings; everything if none is named.

        Raises:
            AuditError: there is no such run.
        """
        if not runs:
            return self
        known = set(self.runs["run"])
        for run in runs:
            if run not in known:
                raise unknown("run", run, known, where=listed(self.settings, 3))
        parts = {}
        for name in TIDY:
            table = getattr(self, name)
            parts[name] = table[table["run"].isin(runs)].reset_index(drop=True)
        there = set(parts["runs"]["setting"])
        return Tidy(tuple(setting for setting in self.settings if setting in there), **parts)

    def followed(self) -> pd.DataFrame:
        """Return the trajectories.

        Raises:
            AuditError: a setting has none.
        """
        absent = set(self.settings) - set(self.trajectories["setting"])
        if absent:
            raise AuditError(
                f"setting '{min(absent)}': found no trajectories, which this draws; leave it out."
            )
        return self.trajectories

    def mean_of_blocks(self, name: str) -> pd.Series:
        """Average a column of the layers over the blocks that have it, in the order of `runs`."""
        means = self.layers.groupby(list(KEY))[name].mean()
        keys = pd.MultiIndex.from_frame(self.runs[list(KEY)])
        return pd.Series(means.reindex(keys).to_numpy(float), index=self.runs.index)


# --- tables of audits -----------------------------------------------------------------------------


def tidy_of(audits: Sequence[Audit], trajectories: Sequence[str | Path] = ()) -> Tidy:
    """Return the tables of audits and of the trajectory files of their runs.

    Raises:
        AuditError: as `trajectories_table`.
    """
    tables = (
        runs_table(audits),
        layers_table(audits),
        trajectories_table(trajectories, audits),
        work_table(audits),
    )
    return Tidy(tuple(dict.fromkeys(audit.setting for audit in audits)), *tables)


def runs_table(audits: Iterable[Audit]) -> pd.DataFrame:
    """Return one row per run and seed: accuracy, baselines, verdicts, number and outcome of every
    check.

    ``<check>_fires`` (scale, reference, stability, depth, depth_strict) is empty if the check was
    not evaluated. So are its ``_distance`` from the limit and the ends of its 95 % interval,
    ``_interval_low`` and ``_interval_high``. ``finite`` is False if a state, gradient or logit is
    NaN or infinite. ``spec`` and ``thresholds`` are JSON.
    """
    return pd.DataFrame(map(run_row, audits))


def run_row(audit: Audit) -> dict[str, Any]:
    """Return the row of the table of runs."""
    spec = audit.spec or {"method": audit.method}
    options = spec.get("architecture_options") or {}
    last = audit.layers[-1]
    row: dict[str, Any] = {**_key(audit), **{name: spec.get(name) for name in OF_SPEC}}
    row |= {"width": options.get("width"), "depth": options.get("depth", len(audit.layers) - 1)}
    for name in ("lr", *OWN_OPTIONS):
        row[name] = spec.get(name, DEPARTURES.get(name) if audit.spec else None)
    row |= {"accuracy": audit.headline_acc, "validation_acc": audit.validation_acc}
    row |= _baselines(audit)
    for name, kind in CHECKS.items():
        if kind.unit != "points":
            row[kind.column] = audit.checks[name].value
    row |= {"hidden_norm_last": last.hidden_norm, "grad_norm_last": last.grad_norm}
    row["scale_free_last"] = last.scale_free
    for name, of in IDENTITY.items():
        measured = getattr(last, of)
        row[f"identity_{name}"] = None if measured is None else measured.value
    row |= _credits(audit)
    row |= outcome_columns(audit.checks)
    judgement = audit.judgement
    for name, rule in RULES.items():
        row[name] = judgement.verdict(rule)
        row[f"{name}_borderline"] = judgement.is_borderline(rule)
    row |= {"baseline": audit.baselines.own_name, "flags": "; ".join(judgement.flags)}
    row |= {"finite": audit.finite, "samples": audit.samples, **audit.first_flags}
    row |= {"stopped_after": audit.stopped_after, "digest": audit.digest}
    row["spec"] = None if audit.spec is None else _json(audit.spec)
    row["thresholds"] = _json(audit.thresholds.limits)
    return row


def _key(audit: Audit) -> dict[str, Any]:
    return {"setting": audit.setting, "run": audit.run, "seed": audit.seed}


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _baselines(audit: Audit) -> dict[str, Any]:
    """Return the accuracies of the baselines; none for a stopped run, whose baselines trained
    longer.
    """
    found = {role: run.accuracy for role, run in audit.baseline_runs.items()}
    if not found:
        found = {"own": audit.baselines.own, "bp": audit.baselines.bp}
    if audit.stopped_after:
        found = {}
    names = {"own_frozen_acc": "own", "bp_frozen_acc": "bp", "shallow_acc": "shallow"}
    return {column: found.get(role) for column, role in names.items()}


def _credits(audit: Audit) -> dict[str, Any]:
    """Return the means of the credit metrics over blocks."""
    columns: dict[str, Any] = {}
    name = f"clamped_cosine{AT_INPUT}"
    columns[f"mean_{name}"] = _mean(audit.credit, name)
    for name in DEEP:
        columns[f"deep_{name}"] = value_of(audit.deep, name)
    for side in ("", AT_INPUT):
        null = audit.deep.get(f"fresh_b_null{side}")
        columns[f"fresh_b_mean{side}"] = None if null is None else null.value
        columns[f"fresh_b_std{side}"] = None if null is None else null.std
        name = f"rho_random{side}"
        columns[f"deep_{name}"] = _mean(audit.credit[1:], name)
    return columns


def _mean(blocks: Sequence[Metrics], name: str) -> float | None:
    """Average a measured value over the blocks that have it; None if no block does."""
    values = [value_of(block, name) for block in blocks]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def outcome_columns(checks: Mapping[str, Outcome]) -> dict[str, Any]:
    """Return the columns of the checks' outcomes; `judged` reads them again."""
    columns: dict[str, Any] = {}
    for name in CHECKS:
        found = checks[name]
        low, high = found.interval or (None, None)
        columns |= {
            f"{name}_fires": found.fires,
            f"{name}_distance": found.distance,
            f"{name}_interval_low": low,
            f"{name}_interval_high": high,
            f"{name}_borderline": found.borderline,
        }
    return columns


def layers_table(audits: Iterable[Audit]) -> pd.DataFrame:
    """Return one row per run, seed and state: norms, growth, float32 agreement, the next block's
    credit.
    """
    rows: list[dict[str, Any]] = []
    for audit in audits:
        for place, state in enumerate(audit.layers):
            values = dict(state) | {"grad_norm_position_mean": state.grad_norm_position_mean}
            more = values.pop("more_samples")
            if place < len(audit.credit):
                values |= audit.credit[place]
            row = _key(audit)
            for name, value in values.items():
                row |= _flat(name, value) if isinstance(value, Measured) else {name: value}
            rows.append(row | more)
    return pd.DataFrame(rows)


def _flat(name: str, measured: Measured) -> dict[str, Any]:
    """Return a measured quantity as columns: value, valid samples, reason of absence, spread."""
    columns: dict[str, Any] = {
        name: measured.value,
        f"{name}_n_valid": measured.n_valid,
        f"{name}_reason": measured.reason or None,
    }
    if measured.std is not None:
        columns[f"{name}_std"] = measured.std
    return columns


def work_table(audits: Iterable[Audit]) -> pd.DataFrame:
    """Return one row per run and seed: time and device of its training, digests of its data and
    files.
    """
    return pd.DataFrame(
        [_key(audit) | {name: getattr(audit, name) for name in WORK} for audit in audits]
    )


def trajectories_table(paths: Sequence[str | Path], audits: Iterable[Audit]) -> pd.DataFrame:
    """Return one row per run, seed, epoch and layer of the trajectory files
    ``.../{setting}/{run}/seed{seed}.csv``.

    Raises:
        AuditError: a trajectory lacks rows, or ends with another accuracy than the audit of its
            run.
    """
    of_run = {key_of(audit): audit for audit in audits}
    frames = [] if paths else [pd.DataFrame(columns=[*TRAJECTORY_COLUMNS, *KEY])]
    for key, path in sorted((RunKey.of(path), path) for path in paths):
        audit, history = of_run[key], read_trajectory(path)
        spec = RunSpec.from_dict(audit.spec or {})
        check_history(history, spec, audit.headline_acc, audit.stopped_after, str(path))
        frames.append(read_table(path).assign(**key._asdict()))
    table = pd.concat(frames, ignore_index=True)
    return table[[*KEY, *table.columns.drop(list(KEY))]]


def together(audits: Sequence[Audit]) -> dict[str, Any]:
    """Return all audits of a setting as one JSON: ``reports`` by run and seed, and a ``summary``."""
    runs = runs_table(audits).rename(columns=SUMMARY)[[*KEY[1:], *SUMMARY.values()]].astype(object)
    reports = {f"{audit.run}/seed{audit.seed}": audit.to_dict() for audit in audits}
    summary = runs.where(runs.notna(), None).to_dict("records")
    return {"reports": reports, "summary": summary}


# --- the judge of rows ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """A row of the table of runs as the judge reads it."""

    checks: dict[str, Outcome]
    finite: bool
    label: int


def judged(rows: pd.DataFrame | Iterable[Mapping[str, Any]]) -> Judgement:
    """Judge the seeds of a run by their rows; values, or their texts in the CSV."""
    records = rows.to_dict("records") if isinstance(rows, pd.DataFrame) else rows
    return judge([_row(record) for record in records])


def _row(record: Mapping[str, Any]) -> _Row:
    given = record.get("thresholds")
    limits = json.loads(given) if isinstance(given, str) else {}
    thresholds = DiagnosticThresholds.of(limits)
    checks = {}
    for name, kind in CHECKS.items():
        limit = thresholds.limits[kind.limit]
        if name == "reference" and _number(record.get("samples")):
            limit = floor_for(limit, int(float(record["samples"])))
        low, high = (_number(record.get(f"{name}_interval_{end}")) for end in ("low", "high"))
        interval = None if low is None or high is None else (low, high)
        far = _number(record.get(f"{name}_distance"))
        value = None if far is None else kind.at(far, limit)
        fires = flag_of(record.get(f"{name}_fires"))
        checks[name] = Outcome(value, limit, fires, far, interval=interval)
    finite = flag_of(record.get("finite")) is not False
    return _Row(checks, finite, int(float(record.get("seed", 0))))


def _number(cell: Any) -> float | None:
    """Return a cell as a number, None where there is none."""
    if cell is None or cell == "":
        return None
    number = float(cell)
    return None if number != number else number


def flag_of(value: Any) -> bool | None:
    """Read an outcome from a table's cell: a boolean, its text or its number; None for anything
    else.

    Numbers occur because pandas converts booleans when it joins them with an empty column.

    >>> flag_of("True"), flag_of(0.0), flag_of(float("nan"))
    (True, False, None)
    """
    return {"true": True, "1.0": True, "false": False, "0.0": False}.get(str(value).lower())


# --- files ----------------------------------------------------------------------------------------


def read_audits(paths: Sequence[str | Path]) -> list[Audit]:
    """Read audits of trained runs in the order of setting, run and seed.

    Raises:
        AuditError: a file is not an audit of a trained run, or its run is not the one that its path
            names.
    """
    return sorted(map(_read, paths), key=key_of)


def key_of(audit: Audit) -> RunKey:
    """Return the run of an audit."""
    return RunKey(audit.setting, audit.run, audit.seed or 0)


def _read(path: str | Path) -> Audit:
    audit = Audit.read(path)
    if not audit.spec or not audit.setting:
        raise AuditError(
            f"{path}: expected an audit of a trained run: delete the file and make it again."
        )
    expected = RunKey.of(path)
    if key_of(audit) != expected:
        raise AuditError(
            f"{path}: of {key_of(audit)}; expected the run of its path, {expected}. Delete it and"
            " make it again."
        )
    return audit.model_copy(update={"audit_sha256": sha256_of(path)})


def read_tidy(paths: Sequence[str | Path], runs: Collection[str] = ()) -> Tidy:
    """Read tables such as ``results/tidy/{setting}/runs.csv``; settings keep the files' order.

    Args:
        runs: the runs to keep; all of them if none is named.

    Raises:
        AuditError: a file is missing or is not a table, has rows of another setting than its
            folder, or none has one of `runs`.
    """
    files: dict[str, list[Path]] = defaultdict(list)
    for path in map(Path, paths):
        files[path.stem].append(path)
    tables = {name: pd.concat(map(_checked, group)) for name, group in files.items()}
    tables["runs"] = _with_verdicts(tables["runs"])
    settings = tuple(dict.fromkeys(path.parent.name for path in files["runs"]))
    for name, table in tables.items():
        tables[name] = table.reset_index(drop=True)
    return Tidy(settings, **tables).only(runs)


def _with_verdicts(runs: pd.DataFrame) -> pd.DataFrame:
    """Derive the verdicts of all rows from their outcomes, ignoring those in the file."""
    found = list(_verdicts(runs))
    return runs.assign(**pd.DataFrame(found, runs.index))


def _verdicts(runs: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for record in runs.to_dict("records"):
        judgement = judged([record])
        row: dict[str, Any] = {}
        for name, rule in RULES.items():
            row[name] = judgement.verdict(rule)
            row[f"{name}_borderline"] = judgement.is_borderline(rule)
        yield row


def _checked(path: Path) -> pd.DataFrame:
    table = read_table(path)
    found = sorted({str(name) for name in table["setting"]} - {path.parent.name})
    if found:
        raise AuditError(
            f"{path}: found rows of {listed(found, 3)}; expected those of the setting of its "
            "folder."
        )
    return table


def write_tables(tables: Mapping[str, pd.DataFrame]) -> None:
    """Write each table to its path as CSV, atomically."""
    for path, table in tables.items():
        write_text(path, table.to_csv(index=False))


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a table that `write_tables` wrote.

    Raises:
        AuditError: the file is missing, or is not a CSV with a header.
    """
    try:
        return pd.read_csv(path, dtype=AS_TEXT)
    except (OSError, ValueError) as error:
        raise AuditError(
            f"{path}: found no table ({error}); delete the file and make it again."
        ) from error


def side_of(table: pd.DataFrame, *names: str) -> str:
    """Return the suffix of the credit metrics that all rows of a table have: none, or `AT_INPUT`.

    Older audits have no rho and nudging at the blocks' outputs.
    """
    for name in names:
        at_input = f"{name}{AT_INPUT}"
        if at_input in table and (table[name].isna() & table[at_input].notna()).any():
            return AT_INPUT
    return ""
