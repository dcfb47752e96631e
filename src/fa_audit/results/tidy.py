"""Write and read audits as four tidy tables: runs, layers, trajectories, and work.

Figures, tables, boards and the scorecard call `read_tidy`, which makes the tables from the files
audits.json and trajectories.csv of each setting. The CSV files of runs, layers and work are for
other programs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.core.errors import AuditError, listed, unknown
from fa_audit.core.files import read_json, sha256_of, write_text
from fa_audit.core.measured import AT_INPUT, Measured, at_both_sides
from fa_audit.experiments.paths import TIDY, RunKey
from fa_audit.experiments.spec import DEPARTURES, OWN_OPTIONS, RunSpec
from fa_audit.protocol.audit import Audit
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.evidence import known_mean, value_of
from fa_audit.protocol.judge import RULES, Judgement
from fa_audit.results.seed_group import check_spec, group_of
from fa_audit.training.trajectory import TRAJECTORY_COLUMNS, check_history, read_trajectory

KEY = list(RunKey._fields)  # a list, since pandas takes a tuple for one column
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
_PACKED = "all audits of a setting, as the workflow writes them to results/tidy/SETTING/audits.json"
_AS_TEXT = dict.fromkeys((*WORK[1:], "digest"), str)  # hexadecimal digits may look like numbers
_OF_SPEC = (
    "method",
    "dataset",
    "architecture",
    "epochs",
    "penalty",
    "frozen_blocks",
    "shallow",
    "random_targets",
    "lr",
)
DEEP = at_both_sides("cosine", "clamped_cosine", "rho", "rho_bp", "nudging")


@dataclass(frozen=True)
class Tidy:
    """Input of a figure or a table: settings in the order of display, and their tables.

    `tidy_of` makes the tables from audits. Tables that were not read are empty.
    """

    settings: tuple[str, ...]
    runs: pd.DataFrame
    layers: pd.DataFrame
    trajectories: pd.DataFrame
    work: pd.DataFrame

    def of(self, *settings: str) -> Tidy:
        """Return the tables of some settings, which are shown in this order."""
        found = self._part("setting", settings)
        return replace(found, settings=tuple(name for name in settings if name in found.settings))

    def has(self, column: str) -> bool:
        """Return whether any run has a value in a column of the runs."""
        return bool(self.runs[column].notna().any())

    def only(self, runs: Collection[str]) -> Tidy:
        """Return the tables of the named runs, in all settings; all runs if none is named. A
        method's name stands for all runs of the method, unless a run has this very name.

        Raises:
            AuditError: there is no such run or method.
        """
        if not runs:
            return self
        known, chosen = set(self.runs["run"]), set(runs)
        for run in chosen - known:
            of_method = self.runs.loc[self.runs["method"] == run, "run"]
            if of_method.empty:
                raise unknown("run", run, known, where=listed(self.settings, 3))
            chosen |= set(of_method)
        return self._part("run", chosen)

    def _part(self, column: str, values: Collection[str]) -> Tidy:
        """Return the rows whose `column` has one of `values`, and the settings of these rows."""
        parts = {}
        for name in TIDY:
            table = getattr(self, name)
            parts[name] = table[table[column].isin(values)].reset_index(drop=True)
        there = set(parts["runs"]["setting"])
        return Tidy(tuple(name for name in self.settings if name in there), **parts)

    def followed(self) -> pd.DataFrame:
        """Return the trajectories, for a figure that needs those of every setting.

        Raises:
            AuditError: a setting has none.
        """
        absent = set(self.settings) - set(self.trajectories["setting"])
        if absent:
            raise AuditError(
                f"setting '{min(absent)}': found no trajectories, which this figure needs; leave"
                " the setting out."
            )
        return self.trajectories

    def mean_of_blocks(self, name: str) -> pd.Series:
        """Average a column of `layers` over blocks that have a value, for each row of `runs`."""
        layers = self.layers.reindex(columns=[*KEY, name])  # missing if no audit has credits
        means = layers.groupby(KEY)[name].mean()
        return self.runs[KEY].join(means, on=KEY)[name]


# --- tables of audits -----------------------------------------------------------------------------


def tidy_of(audits: Sequence[Audit]) -> Tidy:
    """Return the tables of audits. The table of trajectories is empty: see `trajectories_table`."""
    columns = [*KEY, *WORK]
    # `judged` needs the audit behind each row.
    tables = (
        runs_table(audits).assign(audit=audits),
        layers_table(audits),
        pd.DataFrame(columns=[*KEY, *TRAJECTORY_COLUMNS]),
        pd.DataFrame([audit.model_dump(include=set(columns)) for audit in audits], columns=columns),
    )
    return Tidy(tuple(dict.fromkeys(audit.setting for audit in audits)), *tables)


def runs_table(audits: Iterable[Audit]) -> pd.DataFrame:
    """Return one row per run and seed: accuracy, baselines, verdicts, and for every check the
    measured number and the outcome. Margins are fractions.

    ``<check>_fires`` (scale, reference, stability, depth, depth_strict) is empty if the check was
    not evaluated. So are ``<check>_distance``, the number's distance from the limit, and
    ``<check>_interval_low`` and ``<check>_interval_high``, the ends of the number's 95 % interval.
    ``finite`` is False if a state, gradient or logit is NaN or infinite. ``spec`` and
    ``thresholds`` are JSON.
    """
    return _table(map(_run_row, audits))


def _table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    table = pd.DataFrame(rows)
    # Columns without any value hold None, with which pandas cannot calculate.
    return table.astype(dict.fromkeys(table.columns[table.isna().all()], float))


def _run_row(audit: Audit) -> dict[str, Any]:
    """Return the row of an audit in the table of runs."""
    # Specifications leave out the defaults in `DEPARTURES`. External models have no specification.
    spec = DEPARTURES | audit.spec if audit.spec else {"method": audit.method}
    options = spec.get("architecture_options") or {}
    last = audit.layers[-1]
    row = key_of(audit)._asdict()
    for name in (*_OF_SPEC, *OWN_OPTIONS):
        row[name] = spec.get(name)
    row |= {
        "width": options.get("width"),
        "depth": options.get("depth", len(audit.layers) - 1),
        "accuracy": audit.headline_acc,
        "validation_acc": audit.validation_acc,
        **_baselines(audit),
    }
    state = dict(last)
    row["identity_distance"] = value_of(state, "displacement")
    row["identity_cosine"] = value_of(state, "cosine_to_embedding")
    row |= _credits(audit)
    judgement = audit.judgement
    for name, found in audit.checks.items():
        low, high = found.interval or (None, None)
        row |= {
            CHECKS[name].column: found.value,
            f"{name}_fires": found.fires,
            f"{name}_distance": found.distance,
            f"{name}_interval_low": low,
            f"{name}_interval_high": high,
            f"{name}_borderline": judgement[name].borderline,
        }
    row |= {
        "hidden_norm_last": last.hidden_norm,
        # If this norm is not finite, D2 has no value, but the column has the norm.
        "grad_norm_last": last.grad_norm,
        "scale_free_last": last.scale_free,
    }
    for name, rule in RULES.items():
        row[name] = judgement.verdict(rule)
        row[f"{name}_borderline"] = judgement.is_borderline(rule)
    return row | {
        "baseline": audit.baselines.own_name,
        "flags": "; ".join(judgement.flags),
        "finite": audit.finite,
        "samples": audit.samples,
        **audit.first_flags,
        "stopped_after": audit.stopped_after,
        "digest": audit.digest,
        "spec": None if audit.spec is None else _json(audit.spec),
        "thresholds": _json(audit.thresholds.limits),
    }


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _baselines(audit: Audit) -> dict[str, Any]:
    """Return the baselines' accuracies.

    A run that stopped early has none, because its baselines trained longer.
    """
    shallow = audit.baseline_runs.get("shallow")
    found = {
        "own_frozen_acc": audit.baselines.own,
        "bp_frozen_acc": audit.baselines.bp,
        "shallow_acc": shallow.accuracy if shallow else None,
    }
    return dict.fromkeys(found) if audit.stopped_after else found


def _credits(audit: Audit) -> dict[str, Any]:
    """Return the means of the credit metrics over blocks."""
    columns: dict[str, Any] = {}
    name = f"clamped_cosine{AT_INPUT}"
    columns[f"mean_{name}"] = known_mean(value_of(block, name) for block in audit.credit)
    for name in DEEP:
        columns[f"deep_{name}"] = value_of(audit.deep, name)
    for side in ("", AT_INPUT):
        null = audit.deep.get(f"fresh_b_null{side}")
        columns[f"fresh_b_mean{side}"] = None if null is None else null.value
        columns[f"fresh_b_std{side}"] = None if null is None else null.std
        name = f"rho_random{side}"
        columns[f"deep_{name}"] = known_mean(value_of(block, name) for block in audit.credit[1:])
    return columns


def layers_table(audits: Iterable[Audit]) -> pd.DataFrame:
    """Return one row per run, seed and state: its measurements and the next block's credit."""
    rows: list[dict[str, Any]] = []
    for audit in audits:
        for place, state in enumerate(audit.layers):
            values = dict(state) | {"grad_norm_position_mean": state.grad_norm_position_mean}
            more = values.pop("more_samples")
            if place < len(audit.credit):
                values |= audit.credit[place]
            row = key_of(audit)._asdict() | dict.fromkeys(at_both_sides("cosine"))
            for name, value in values.items():
                row[name] = value
                if isinstance(value, Measured):
                    row |= {name: value.value, f"{name}_n_valid": value.n_valid}
                    row[f"{name}_reason"] = value.reason or None
                    if value.std is not None:
                        row[f"{name}_std"] = value.std
            rows.append(row | more)
    return _table(rows)


def trajectories_table(paths: Sequence[str | Path], audits: Sequence[Audit]) -> pd.DataFrame:
    """Return one row per run, seed, epoch and layer of the trajectory files
    ``.../{setting}/{run}/seed{seed}.csv``.

    Raises:
        AuditError: a trajectory lacks rows, or ends with another accuracy than the audit of its
            run.
    """
    of_run = dict(zip(map(key_of, audits), audits))
    columns = [*KEY, *TRAJECTORY_COLUMNS]
    frames = []
    for key, path in sorted((RunKey.of(path), path) for path in paths):
        audit, history = of_run[key], read_trajectory(path)
        spec = RunSpec.from_dict(audit.spec)
        check_history(history, spec, audit.headline_acc, audit.stopped_after, str(path))
        frames.append(read_table(path).assign(**key._asdict()))
    return pd.concat(frames, ignore_index=True)[columns]


def judged(rows: pd.DataFrame) -> Judgement:
    """Judge one run from its rows of the table of runs, one for each seed."""
    return Judgement(list(rows["audit"]))


# --- files ----------------------------------------------------------------------------------------


def read_audits(paths: Sequence[str | Path]) -> list[Audit]:
    """Read audits of trained runs in the order of setting, run and seed.

    Raises:
        AuditError: a file is not an audit of a trained run, its run is not the one that its path
            names, or audits of one run differ in more than the seed.
    """
    audits = []
    for path in paths:
        audit = _checked(Audit.read(path), path, RunKey.of(path))
        audits.append(audit.model_copy(update={"audit_sha256": sha256_of(path)}))
    return _by_run(audits)


def _by_run(audits: Iterable[Audit]) -> list[Audit]:
    """Sort audits by setting, run and seed; check that a run's audits differ only in the seed."""
    ordered = sorted(audits, key=key_of)
    for _, seeds in groupby(ordered, lambda audit: (audit.setting, audit.run)):
        group_of(list(seeds))
    return ordered


def key_of(audit: Audit) -> RunKey:
    """Return the setting, run and seed of an audit."""
    return RunKey(audit.setting, audit.run, audit.seed or 0)


def _checked(audit: Audit, where: str | Path, expected: RunKey) -> Audit:
    if not audit.spec or not audit.setting:
        raise AuditError(
            f"{where}: expected an audit of a trained run: delete the file and make it again."
        )
    check_spec(audit, where)
    if key_of(audit) != expected:
        raise AuditError(
            f"{where}: found an audit of {key_of(audit)}; expected the run of its path,"
            f" {expected}. Delete it and make it again."
        )
    return audit


def write_packed(path: str | Path, audits: Iterable[Audit]) -> None:
    """Write all audits of a setting as one JSON: ``reports`` by run and seed, one line each."""
    lines = []
    for audit in audits:
        record = json.dumps(audit.to_dict(), separators=(",", ":"), allow_nan=False)
        lines.append(f'"{audit.run}/seed{audit.seed}": {record}')
    write_text(path, '{"reports": {\n' + ",\n".join(lines) + "\n}}\n")


def read_packed(path: str | Path) -> list[Audit]:
    """Read the audits of a setting from a file that `write_packed` wrote.

    Raises:
        AuditError: the file has another form, or an audit is not of a trained run, or its setting
            is not the folder's name.
    """
    found = read_json(path, _PACKED)
    reports = found.get("reports") if isinstance(found, dict) else None
    if not isinstance(reports, dict) or not reports:
        raise AuditError(f"{path}: found no reports; expected {_PACKED}.")
    setting, audits = Path(path).parent.name, []
    for name, record in reports.items():
        where = f"{path}: {name}"
        key = RunKey.of(f"{setting}/{name}")
        audit = _checked(Audit.from_dict(record, where), where, key)
        audits.append(audit.model_copy(update={"path": where}))
    return _by_run(audits)


def read_tidy(
    paths: Sequence[str | Path],
    runs: Collection[str] = (),
    read: Callable[[Path], list[Audit]] = read_packed,
) -> Tidy:
    """Read the files ``SETTING/audits.json`` and ``SETTING/trajectories.csv`` of settings.

    The settings come in the order of their ``audits.json``.

    Args:
        runs: the runs to keep; all of them if none is named.
        read: reads one file of audits; pass a cached `read_packed` to read each file only once.

    Raises:
        AuditError: see `read_packed`; or trajectories do not fit the audits; or one of `runs` is
            in no setting.
    """
    audits: list[Audit] = []
    histories = []
    for path in map(Path, paths):
        if path.suffix == ".json":
            audits += read(path)
        else:
            own = [audit for audit in audits if audit.setting == path.parent.name]
            histories.append(_read_histories(path, own))
    tidy = tidy_of(audits)
    if histories:
        tidy = replace(tidy, trajectories=pd.concat(histories, ignore_index=True))
    return tidy.only(runs)


def _read_histories(path: Path, audits: Iterable[Audit]) -> pd.DataFrame:
    """Read the trajectories of a setting, and check that they belong to its audits."""
    table = read_table(path)
    expected = f"{path}: expected trajectories of the runs in the audits.json beside it"
    missing = {*KEY, "epoch", "layer", "test_accuracy"} - set(table)
    texts = set(table.select_dtypes(exclude="number")) - {"setting", "run"}
    if missing or (texts and len(table)):
        raise AuditError(f"{expected}; found no numbers in {listed(sorted(missing | texts), 3)}.")
    of_run = dict(zip(map(key_of, audits), audits))
    for key, own in table.groupby(KEY, sort=False):
        audit = of_run.get(RunKey(*key))
        if audit is None:
            raise AuditError(f"{expected}; found {RunKey(*key)}.")
        spec = RunSpec.from_dict(audit.spec)
        where = f"{path}: {audit.run}/seed{audit.seed}"
        rows = own[["epoch", "layer", "test_accuracy"]].to_dict("records")
        check_history(rows, spec, audit.headline_acc, audit.stopped_after, where)
    return table


def write_tables(tables: Mapping[str, pd.DataFrame]) -> None:
    """Write each table to its path as CSV, atomically."""
    for path, table in tables.items():
        write_text(path, table.drop(columns="audit", errors="ignore").to_csv(index=False))


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a CSV file, such as a table that `write_tables` wrote.

    Raises:
        AuditError: the file is missing, or is not a CSV with a header.
    """
    try:
        return pd.read_csv(path, dtype=_AS_TEXT)
    except (OSError, ValueError) as error:
        raise AuditError(
            f"{path}: found no table ({error}); make it again, and delete a damaged file first."
        ) from error
