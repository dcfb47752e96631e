"""Audits of one's own beside measured runs: read from their files, and put into the network that they belong to."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.audit.record import DEEP, read_audit
from fa_audit.experiments.paths import TIDY, RunKey
from fa_audit.experiments.spec import NAMES, Run, RunSpec
from fa_audit.results.seed_group import SeedGroup, read_seed_group
from fa_audit.results.tidy import Tidy, layers_table, runs_table, trajectories_table, work_table

OTHERS = "other models"  # the setting of audits without a specification
YOURS = "{} (yours)"
NETWORK = ("dataset", "architecture", "width", "depth", "epochs")
ABSENT = ("stopped_after", "digest", "seconds", "device", "commit")


def read_own(paths: Sequence[str | Path]) -> list[SeedGroup]:
    """Read audits, those of one network over its seeds together, in the order in which they come.

    Raises:
        AuditError: a file is no audit, contradicts itself, repeats a seed or differs from others of its model.
    """
    groups: dict[str, list[str | Path]] = defaultdict(list)
    for path in paths:
        audit = read_audit(path)
        groups[json.dumps(audit["spec"] | {"seed": 0}) if "spec" in audit else audit["method"]].append(path)
    return [read_seed_group(group) for group in groups.values()]


def beside(measured: Tidy, groups: Iterable[SeedGroup]) -> tuple[Tidy, list[tuple[str, str]]]:
    """Return measured runs and one's own in the same tables, and the setting and run by which each group is found.

    A run of the same network, data and budget as a measured setting belongs there; of several, to the one with most
    runs. Others get a setting of their own, named by their network, and audits without a specification `OTHERS`.
    """
    keys, tables, work = [], [measured.runs], [measured.work]
    for group in groups:
        setting, name = _setting(group.audits[0], measured), _run(group.audits[0])
        taken = sum(found[0] == setting and found[1].startswith(YOURS.format(name)[:-1]) for found in keys)
        key = setting, YOURS.format(name) if not taken else f"{YOURS.format(name)[:-1]}, {taken + 1})"
        keys.append(key)
        rows = [_complete(audit, *key, label) for label, audit in zip(group.labels, group.audits)]
        tables.append(_as_read(runs_table(rows)))
        work.append(_as_read(work_table(rows)))
    settings = dict.fromkeys([*measured.settings, *(setting for setting, _ in keys)])
    parts = {name: getattr(measured, name) for name in TIDY}
    both = {"runs": _joined(tables), "work": _joined(work)}
    return Tidy(tuple(settings), **parts | both), keys


def alone(groups: Iterable[SeedGroup]) -> tuple[Tidy, dict[RunKey, Mapping[str, Any]]]:
    """Return one's own audits in tables of their own, with the trajectories that lie beside them, and by their keys.

    Settings and runs have their own names, or else those of their network and method; groups that would share both
    are numbered.

    Raises:
        AuditError: a trajectory is none, or of another run.
    """
    by_key: dict[RunKey, Mapping[str, Any]] = {}
    keys: set[tuple[str, str]] = set()
    histories = []
    for group in groups:
        first = group.audits[0]
        setting, run = first.get("setting") or _network_name(first), _run(first)
        names = chain([run], (f"{run}, {number}" for number in count(2)))
        name = next(name for name in names if (setting, name) not in keys)
        keys.add((setting, name))
        for label, path, audit in zip(group.labels, group.paths, group.audits):
            row = _complete(audit, setting, name, label)
            key = RunKey(setting, name, row["seed"])
            by_key[key] = audit | row
            histories += _trajectory(path, key)
    audits = [dict(audit) for audit in by_key.values()]
    tables = (_as_read(table(audits)) for table in (runs_table, layers_table))
    tidy = Tidy(tuple(dict.fromkeys(key.setting for key in by_key)), *tables)
    return replace(tidy, trajectories=trajectories_table(histories, audits), work=_as_read(work_table(audits))), by_key


def together(one: Tidy, other: Tidy) -> Tidy:
    """Return the tables of both, the settings of the first before those of the second."""
    tables = {name: _joined([getattr(one, name), getattr(other, name)]) for name in TIDY}
    return Tidy(tuple(dict.fromkeys([*one.settings, *other.settings])), **tables)


def _trajectory(path: str | Path, key: RunKey) -> list[Path]:
    """Return the trajectory of an audit ``RESULTS/audits/SETTING/RUN/seedSEED.json``, if it is there."""
    path = Path(path).absolute()
    found = path.parents[min(3, len(path.parents) - 1)] / "trajectories" / f"{key}.csv"
    of_this_run = path.as_posix().endswith(f"audits/{key}.json")
    return [found] if of_this_run and found.is_file() else []


def _joined(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat([table.astype(object) for table in tables], ignore_index=True).infer_objects()


def _as_read(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table as it is read from its file: numbers that an audit writes as texts are numbers."""
    return pd.read_csv(io.StringIO(table.to_csv(index=False)))


def _run(audit: Mapping[str, Any]) -> str:
    """Return the name of a run: its own, or what its specification says, or what its author called it."""
    if audit.get("run") or "spec" not in audit:
        return audit.get("run") or audit.get("model") or audit["method"]
    spec = RunSpec.from_dict(audit["spec"])
    frozen = -1 if spec.frozen_blocks == _size(audit)["depth"] else spec.frozen_blocks
    options = {field.name: getattr(spec, field.name) for field in fields(Run) if field.name != "frozen"}
    return str(Run(**options, frozen=0 if spec.shallow else frozen))


def _size(audit: Mapping[str, Any]) -> dict[str, Any]:
    options = audit["spec"]["architecture_options"] if "spec" in audit else {}
    return {"width": options.get("width"), "depth": options.get("depth", len(audit["layers"]) - 1)}


def _network(audit: Mapping[str, Any]) -> dict[str, Any]:
    return {name: audit["spec"].get(name) for name in NETWORK} | _size(audit)


def _network_name(audit: Mapping[str, Any]) -> str:
    """Return what the setting of an audit is called that belongs to no other."""
    name = "{dataset}, {architecture} (d = {width}, L = {depth}), {epochs} epochs"
    return name.format(**_network(audit)) if "spec" in audit else OTHERS


def _setting(audit: Mapping[str, Any], measured: Tidy) -> str:
    """Return the setting to which an audit belongs."""
    if "spec" not in audit:
        return OTHERS
    network = _network(audit)
    same = measured.runs[(measured.runs[list(NETWORK)] == pd.Series(network)[list(NETWORK)]).all(axis=1)]
    if same.empty:
        return _network_name(audit)
    return str(same.groupby("setting")["run"].nunique().idxmax())


def _complete(audit: Mapping[str, Any], setting: str, run: str, label: int) -> dict[str, Any]:
    """Return an audit with everything that a tidy row is made of; what it does not say is empty."""
    unknown = dict.fromkeys(NAMES) | {"method": audit["method"]}
    spec = audit.get("spec", unknown)
    spec = spec | {"architecture_options": (spec["architecture_options"] or {}) | _size(audit)}
    deep = {name: {"value": None, "std": None} | audit["deep"].get(name, {}) for name in DEEP}
    roles = {role: {"accuracy": audit["baselines"][role]} for role in ("own", "bp")}
    empty = dict.fromkeys(ABSENT) | {"baseline_runs": roles}
    own = {"setting": setting, "run": run, "seed": audit.get("spec", {}).get("seed", label)}
    return empty | dict(audit) | own | {"spec": spec, "deep": deep}
