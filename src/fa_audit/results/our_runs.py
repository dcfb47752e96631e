"""Our runs, found by what they are: a run counts as a published one whose specification and limits
are the same.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import pandas as pd

from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.published import (
    BATCH,
    NEVER,
    PAPER_LIMITS,
    QUANTITIES,
    Entry,
    Quantity,
    identity,
    plain,
)
from fa_audit.protocol.limits import depth_margin
from fa_audit.protocol.rules import THREE, fires_of, is_finite
from fa_audit.results.outcomes import withdrawals
from fa_audit.results.tidy import KEY, Tidy

Spec = Mapping[str, Any]
Measured = Mapping[str, Mapping[int, Any]]  # run -> seed -> what its tables say
ABSENT = "none"  # in the place of an answer
PLACES = (
    ("runs", ()),
    ("layers", ("layer",)),
    ("trajectories", ("epoch",)),
    ("trajectories", ("epoch", "layer")),
)


def _first_below(tidy: Tidy) -> list[Any]:
    """Return for every run the first epoch at which ``||g_L||`` on 1,024 samples is below the
    paper's floor.

    None where it never is, and `ABSENT` where the training was not followed.
    """
    rows = tidy.trajectories.reindex(
        columns=[*KEY, "epoch", "layer", "grad_norm", "grad_norm_1024"]
    )
    rows = (
        rows.sort_values(["epoch", "layer"]).groupby([*KEY, "epoch"]).tail(1).set_index(list(KEY))
    )  # last states
    norms = (
        rows["grad_norm_1024"].astype(float).fillna(rows["grad_norm"].astype(float) * BATCH / 1024)
    )
    first = rows["epoch"][norms < PAPER_LIMITS["reference"]].groupby(list(KEY)).min().to_dict()
    followed = set(norms.dropna().index)
    keys = tidy.runs[list(KEY)].itertuples(index=False, name=None)
    return [first.get(key) if key in followed else ABSENT for key in keys]


# Quantities made of several columns of the runs table, or of another table.
DERIVED: dict[str, Callable[[Tidy], Any]] = {
    "own_margin": lambda tidy: depth_margin(tidy.runs["accuracy"], tidy.runs["own_frozen_acc"]),
    "bp_margin": lambda tidy: depth_margin(tidy.runs["accuracy"], tidy.runs["bp_frozen_acc"]),
    "by_cosine": lambda tidy: withdrawals(tidy)["cosine"],
    "first_reference_flag_1024": _first_below,
}


@dataclass(frozen=True)
class OurRuns:
    """The runs of tidy tables, by specification."""

    tidy: Tidy

    @cached_property
    def specs(self) -> dict[RunKey, Spec]:
        """Return the specification of every run that was audited by the paper's limits."""
        rows = {key: row for (key, _), row in self._tables["runs", ()].items()}
        return {
            key: json.loads(row["spec"])
            for key, row in rows.items()
            if json.loads(row["thresholds"]).items() >= PAPER_LIMITS.items()
        }

    @cached_property
    def _same(self) -> dict[str, list[RunKey]]:
        """Return the runs by identity; a monitor that did not end the training does not count."""
        same = defaultdict(list)
        for key, spec in self.specs.items():
            ended = not pd.isna(self._tables["runs", ()][key, ()]["stopped_after"])
            for name in {identity(spec), identity(spec if ended else {**spec, "monitor": {}})}:
                same[name].append(key)
        return same

    def seeds(self, spec: Spec, setting: str = "") -> dict[int, RunKey]:
        """Return by seed the runs of a specification; where several settings have it, preferably
        this one's.
        """
        keys = sorted(self._same[identity(spec)], key=lambda key: key.setting == setting)
        return {key.seed: key for key in keys}

    def values(self, entry: Entry, specs: Mapping[str, Spec]) -> Measured:
        """Return what the tables have of an entry's quantity for runs of these specifications, by
        run and seed.
        """
        found = {run: self.seeds(spec, entry.setting) for run, spec in specs.items()}
        return {
            run: {seed: self._value(entry, key) for seed, key in keys.items()}
            for run, keys in found.items()
        }

    def fails(self, spec: Spec) -> bool:
        """Return whether the three-check verdict on the runs of a specification is FAIL."""
        rows = [self._tables["runs", ()][key, ()] for key in self.seeds(spec).values()]
        return any(THREE.decides(fires_of(row, THREE.checks), is_finite(row)) for row in rows)

    def _value(self, entry: Entry, key: RunKey) -> Any:
        """Return a cell as a number, NaN where there is none, or as an answer; on NaN norms no flag
        ever fires.

        A quantity not measured on the samples of the source is that of 128, a gradient scaled to
        its mean loss.
        """
        place, usual = entry.place, QUANTITIES[entry.quantity]
        cell = self._cell(entry, key, place)
        if place != usual and place.column not in DERIVED and pd.isna(cell):
            cell = self._cell(entry, key, usual)
            if usual.column.startswith("grad_norm") and not pd.isna(cell):
                cell *= BATCH / entry.samples
        if entry.kind != "verdict":
            return math.nan if cell is None or cell == ABSENT else float(cell)
        if pd.isna(cell):
            finite = plain(self._tables["runs", ()][key, ()].get("finite")) != "false"
            return NEVER if NEVER in usual.answers and finite else ABSENT
        if isinstance(cell, str):
            return cell.partition("(")[0].strip()  # without the reasons of a verdict
        return f"{cell:g}" if usual.number else plain(bool(cell))

    def _cell(self, entry: Entry, key: RunKey, place: Quantity) -> Any:
        if place.column in DERIVED:
            return self._derived(place.column)[key]
        last = (
            0
            if self.specs[key]["shallow"]
            else self.specs[key]["architecture_options"].get("depth")
        )
        at = {"epoch": entry.epoch, "layer": last if entry.layer is None else entry.layer}
        rows = self._tables[place.table, place.places]
        return rows.get((key, tuple(at[name] for name in place.places)), {}).get(place.column)

    @cached_property
    def _tables(self) -> dict[tuple[str, tuple[str, ...]], dict[Any, dict[str, Any]]]:
        """Return the rows of tables by run and place; any one of an epoch's states where a row is
        an epoch.
        """
        found: dict[tuple[str, tuple[str, ...]], dict[Any, dict[str, Any]]] = {}
        for name, places in PLACES:
            rows = getattr(self.tidy, name).to_dict("records")
            keys = (
                (RunKey(*(row[name] for name in KEY)), tuple(row[name] for name in places))
                for row in rows
            )
            found[name, places] = dict(zip(keys, rows))
        return found

    @cached_property
    def _derived(self) -> Callable[[str], dict[RunKey, Any]]:
        """Return those of `DERIVED` that are asked for, by run."""
        keys = list(map(RunKey._make, self.tidy.runs[list(KEY)].itertuples(index=False)))
        return cache(lambda name: dict(zip(keys, DERIVED[name](self.tidy), strict=True)))
