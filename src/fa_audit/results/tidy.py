"""Many audits as tidy tables: one row per run; per run and layer; per run, epoch and layer; what
each run took.

Times and devices of trainings have a table of their own: they differ every time, and what is made
from the others does not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.audit.record import layer_rows, read_audit, run_row
from fa_audit.core.errors import AuditError, listed, unknown
from fa_audit.core.files import sha256_of, write_text
from fa_audit.experiments.paths import AT_INPUT, TIDY, RunKey
from fa_audit.experiments.spec import RunSpec
from fa_audit.protocol.rules import verdicts_of
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
AS_TEXT = dict.fromkeys(
    (*WORK[1:], "digest"), str
)  # hexadecimal digits and versions, which may look like numbers
# The summary in one JSON of all audits: column in the table of runs -> name there.
SUMMARY = {"accuracy": "accuracy", "hidden_norm_last": "hidden_norm_last", "grad_norm_last": "grad_norm_last",
           "stability": "stability", "own_frozen_acc": "frozen_accuracy", "four_check": "verdict",
           "three_check": "three_check_verdict"}  # fmt: skip
OF_A_RUN = (*KEY, "spec", "digest", "baseline_runs", "stopped_after", "seconds", "device", "commit")


@dataclass(frozen=True)
class Tidy:
    """Input of a figure or a table: its settings in the order in which they are shown, and their
    tables.

    `runs_table`, `layers_table`, `trajectories_table` and `work_table` make them; those that are
    not read are empty.
    """

    settings: tuple[str, ...]
    runs: pd.DataFrame
    layers: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=KEY))
    trajectories: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=KEY))
    work: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=KEY))

    def of(self, setting: str) -> Tidy:
        """Return the part of one setting."""
        parts = {name: (table := getattr(self, name))[table["setting"] == setting] for name in TIDY}
        return Tidy((setting,), **parts)

    def has(self, column: str) -> bool:
        """Return whether any run has a value in a column of the runs."""
        return column in self.runs and bool(self.runs[column].notna().any())

    def only(self, runs: Collection[str]) -> Tidy:
        """Return the part of some runs, in whatever settings; all of them if none is named.

        Raises:
            AuditError: there is no such run.
        """
        if not runs:
            return self
        for run in set(runs) - (known := set(self.runs["run"])):
            raise unknown("run", run, known, where=listed(self.settings, 3))
        parts = {
            name: (table := getattr(self, name))[table["run"].isin(runs)].reset_index(drop=True)
            for name in TIDY
        }
        there = set(parts["runs"]["setting"])
        return Tidy(tuple(setting for setting in self.settings if setting in there), **parts)

    def followed(self) -> pd.DataFrame:
        """Return the trajectories.

        Raises:
            AuditError: a setting has none.
        """
        if absent := set(self.settings) - set(self.trajectories["setting"]):
            raise AuditError(
                f"setting '{min(absent)}': found no trajectories, which this draws; leave it out."
            )
        return self.trajectories

    def mean_of_blocks(self, name: str) -> pd.Series:
        """Average a column of the layers over the blocks that have it, in the order of `runs`."""
        means = self.layers.groupby(list(KEY))[name].mean()
        keys = pd.MultiIndex.from_frame(self.runs[list(KEY)])
        return pd.Series(means.reindex(keys).to_numpy(float), index=self.runs.index)


def side_of(table: pd.DataFrame, *names: str) -> str:
    """Return the suffix of credit metrics that every row of a table has: none, or `AT_INPUT` if a
    row has no others.

    Audits of before credits were compared at the blocks' outputs have cosines there, and no rho or
    nudging.
    """
    known = [name for name in names if f"{name}{AT_INPUT}" in table]
    lacking = any((table[name].isna() & table[f"{name}{AT_INPUT}"].notna()).any() for name in known)
    return AT_INPUT if lacking else ""


def read_tidy(paths: Sequence[str | Path], runs: Collection[str] = ()) -> Tidy:
    """Read tables such as ``results/tidy/{setting}/runs.csv``; settings keep the order of their
    files.

    Args:
        runs: the runs to keep; all of them if none is named.

    Raises:
        AuditError: a file is missing or is not a table, has rows of another setting than its
            folder, or none has one of `runs`.
    """
    files: dict[str, list[Path]] = defaultdict(list)
    for path in map(Path, paths):
        files[table_name(path)].append(path)
    tables = {name: pd.concat(map(_checked, group)) for name, group in files.items()}
    verdicts = pd.DataFrame(
        map(verdicts_of, tables["runs"].to_dict("records")), tables["runs"].index
    )
    tables["runs"] = tables["runs"].assign(
        **verdicts
    )  # as they follow from the outcomes, whatever the file says
    settings = tuple(dict.fromkeys(path.parent.name for path in files["runs"]))
    return Tidy(
        settings, **{name: table.reset_index(drop=True) for name, table in tables.items()}
    ).only(runs)


def table_name(path: Path) -> str:
    """Return which table a file is: its name without the endings .csv or .csv.xz."""
    return path.name.partition(".")[0]


def _checked(path: Path) -> pd.DataFrame:
    table = read_table(path)
    if found := sorted({str(name) for name in table["setting"]} - {path.parent.name}):
        raise AuditError(
            f"{path}: found rows of {listed(found, 3)}; expected those of the setting of its folder."
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


def read_audits(paths: Sequence[str | Path]) -> list[dict[str, Any]]:
    """Read audits of trained runs in the order of setting, run and seed.

    Raises:
        AuditError: a file is not an audit of a trained run, or its run is not the one that its path
            names.
    """
    return sorted(map(_read, paths), key=lambda audit: [audit[key] for key in KEY])


def _read(path: str | Path) -> dict[str, Any]:
    audit = read_audit(path)
    if missing := [key for key in OF_A_RUN if key not in audit]:
        raise AuditError(
            f"{path}: missing {', '.join(missing)}; expected an audit of a trained run: delete the file and make it"
            " again."
        )
    if (found := RunKey(*(audit[key] for key in KEY))) != (expected := RunKey.of(path)):
        raise AuditError(
            f"{path}: of {found}; expected the run of its path, {expected}. Delete it and make it again."
        )
    return audit | {"audit_sha256": sha256_of(path)}


def together(audits: list[dict[str, Any]]) -> dict[str, Any]:
    """Return all audits of a setting as one JSON: ``reports`` by run and seed, and ``summary``, one
    entry for each.
    """
    runs = runs_table(audits).rename(columns=SUMMARY)[[*KEY[1:], *SUMMARY.values()]].astype(object)
    keys = [f"{audit['run']}/seed{audit['seed']}" for audit in audits]
    summary = runs.where(runs.notna(), None).to_dict("records")
    return {"reports": dict(zip(keys, audits, strict=True)), "summary": summary}


def runs_table(audits: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one row per run and seed: accuracy, baselines, every check's number and outcome,
    verdicts.

    ``<check>_fires`` (scale, reference, stability, depth, depth_strict) is empty where a check was
    not evaluated; so are its ``_distance`` from the limit and the ends of its 95 % interval,
    ``_interval_low`` and ``_interval_high``. ``finite`` is False where a state, gradient or logit
    is NaN or infinite. ``spec`` and ``thresholds`` are JSON.
    """
    return pd.DataFrame([run_row(audit) for audit in audits])


def tidy_of(audits: list[dict[str, Any]], trajectories: Sequence[str | Path]) -> Tidy:
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
    return Tidy(tuple(dict.fromkeys(audit["setting"] for audit in audits)), *tables)


def work_table(audits: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one row per run and seed: what its training took, on what, and digests of its data and
    files.
    """
    return pd.DataFrame([{key: audit.get(key) for key in (*KEY, *WORK)} for audit in audits])


def layers_table(audits: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one row per run, seed and state: norms, growth, float32 agreement, credit of the block
    that reads it.
    """
    return pd.DataFrame([row for audit in audits for row in layer_rows(audit)])


def trajectories_table(paths: Sequence[str | Path], audits: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one row per run, seed, epoch and layer of the trajectory files
    ``.../{setting}/{run}/seed{seed}.csv``.

    Raises:
        AuditError: a trajectory lacks rows, or ends with another accuracy than the audit of its
            run.
    """
    of_run = {RunKey(*(audit[key] for key in KEY)): audit for audit in audits}
    frames = [pd.DataFrame(columns=[*TRAJECTORY_COLUMNS, *KEY])] if not paths else []
    for key, path in sorted((RunKey.of(path), path) for path in paths):
        spec, history = RunSpec.from_dict(of_run[key]["spec"]), read_trajectory(path)
        check_history(
            history, spec, of_run[key]["headline_acc"], of_run[key]["stopped_after"], str(path)
        )
        frames.append(read_table(path).assign(**key._asdict()))
    table = pd.concat(frames, ignore_index=True)
    return table[[*KEY, *table.columns.drop(list(KEY))]]
