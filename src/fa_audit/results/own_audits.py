"""User audits beside measured runs: read from their files, and put into the network that they
belong to.
"""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.audit.record import DEEP, read_audit
from fa_audit.experiments.paths import TIDY, RunKey
from fa_audit.experiments.spec import NAMES, SHARED, Run, RunSpec
from fa_audit.results.seed_group import SeedGroup, read_seed_group
from fa_audit.results.tidy import Tidy, tidy_of

OTHERS = "other models"  # the setting of audits without a specification
NETWORK = (
    "dataset",
    "architecture",
    "width",
    "depth",
    "epochs",
)  # what runs of one network and budget share
ABSENT = ("stopped_after", "digest", "seconds", "device", "commit")


def read_own(paths: Sequence[str | Path]) -> list[SeedGroup]:
    """Read audits, those of one network over its seeds together, in the order in which they come.

    Raises:
        AuditError: a file is not an audit, contradicts itself, repeats a seed or differs from
            others of its model.
    """
    groups: dict[str, list[str | Path]] = defaultdict(list)
    for path in paths:
        audit = read_audit(path)
        groups[
            json.dumps(audit["spec"] | {"seed": 0}) if "spec" in audit else audit["method"]
        ].append(path)
    return [read_seed_group(group) for group in groups.values()]


def beside(measured: Tidy, groups: Iterable[SeedGroup]) -> tuple[Tidy, list[tuple[str, str]]]:
    """Return measured runs and one's own in the same tables, and the setting and run by which each
    group is found.

    A run of the same network, data and budget as a measured setting belongs there; of several, to
    the one with most runs. Others get a setting of their own, named by their network, and audits
    without a specification `OTHERS`.
    """
    named = _named(groups, lambda audit: _setting(audit, measured), " (yours)", " (yours, {})")
    return together(measured, _tables(named)[0]) if named else measured, list(named)


def alone(groups: Iterable[SeedGroup]) -> tuple[Tidy, dict[RunKey, Mapping[str, Any]]]:
    """Return the user's audits as tables, with the trajectories beside their files, and by their
    keys.

    Settings and runs have their own names, or else those of their network and method; groups that
    would share both are numbered.

    Raises:
        AuditError: a trajectory is not one, or of another run.
    """
    return _tables(
        _named(groups, lambda audit: audit.get("setting") or _network_name(audit), "", ", {}")
    )


def _named(
    groups: Iterable[SeedGroup],
    setting_of: Callable[[Mapping[str, Any]], str],
    first: str,
    later: str,
) -> dict[tuple[str, str], SeedGroup]:
    """Return the groups by setting and run; `first` ends the run's name, and `later` those of
    others of that name.
    """
    named: dict[tuple[str, str], SeedGroup] = {}
    for group in groups:
        setting, run = setting_of(group.audits[0]), _run(group.audits[0])
        ends = chain([first], map(later.format, count(2)))
        named[next((setting, run + end) for end in ends if (setting, run + end) not in named)] = (
            group
        )
    return named


def _tables(
    named: Mapping[tuple[str, str], SeedGroup],
) -> tuple[Tidy, dict[RunKey, Mapping[str, Any]]]:
    by_key: dict[RunKey, dict[str, Any]] = {}
    histories = []
    for (setting, run), group in named.items():
        for label, path, audit in zip(
            group.labels, map(Path.absolute, map(Path, group.paths)), group.audits
        ):
            row = _complete(audit, setting, run, label)
            key = RunKey(setting, run, row["seed"])
            by_key[key] = row
            history = path.parents[min(3, len(path.parents) - 1)] / "trajectories" / f"{key}.csv"
            of_this_run = path.as_posix().endswith(
                f"audits/{key}.json"
            )  # RESULTS/audits/SETTING/RUN/seedSEED.json
            histories += [history] if of_this_run and history.is_file() else []
    tidy = tidy_of(list(by_key.values()), histories)
    return replace(
        tidy, **{name: _reread(getattr(tidy, name)) for name in ("runs", "layers", "work")}
    ), by_key


def _reread(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table as it is read from its file, numbers for texts, but with its names: a method
    may be called NA.
    """
    found = pd.read_csv(io.StringIO(table.to_csv(index=False)))
    return found.assign(
        **{name: table[name] for name in ("setting", "run", "method") if name in table}
    )


def together(one: Tidy, other: Tidy) -> Tidy:
    """Return the tables of both, the settings of the first before those of the second."""
    tables = ([getattr(tidy, name).astype(object) for tidy in (one, other)] for name in TIDY)
    joined = (pd.concat(pair, ignore_index=True).infer_objects() for pair in tables)
    return Tidy(tuple(dict.fromkeys([*one.settings, *other.settings])), *joined)


def _run(audit: Mapping[str, Any]) -> str:
    """Return the name of a run: its own, or what its specification says, or what its author called
    it.
    """
    if audit.get("run") or "spec" not in audit:
        return audit.get("run") or audit.get("model") or audit["method"]
    spec = RunSpec.from_dict(audit["spec"])
    frozen = -1 if spec.frozen_blocks == _size(audit)["depth"] else spec.frozen_blocks
    options = {name: getattr(spec, name) for name in SHARED}
    return str(Run(**options, frozen=0 if spec.shallow else frozen))


def _size(audit: Mapping[str, Any]) -> dict[str, Any]:
    options = audit["spec"]["architecture_options"] if "spec" in audit else {}
    return {"width": options.get("width"), "depth": options.get("depth", len(audit["layers"]) - 1)}


def _network(audit: Mapping[str, Any]) -> dict[str, Any]:
    return {name: audit["spec"].get(name) for name in NETWORK} | _size(audit)


def _network_name(audit: Mapping[str, Any]) -> str:
    """Name the setting of an audit that belongs to no measured one."""
    name = "{dataset}, {architecture} (d = {width}, L = {depth}), {epochs} epochs"
    return name.format(**_network(audit)) if "spec" in audit else OTHERS


def _setting(audit: Mapping[str, Any], measured: Tidy) -> str:
    """Return the setting to which an audit belongs."""
    if "spec" not in audit:
        return OTHERS
    network = _network(audit)
    same = measured.runs[
        (measured.runs[list(NETWORK)] == pd.Series(network)[list(NETWORK)]).all(axis=1)
    ]
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
