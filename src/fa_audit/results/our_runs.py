"""Find our runs of published experiments: runs with the same specification and limits."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pandas as pd

from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.published import (  # fmt: skip
    BATCH,
    EPOCH,
    LAYER,
    NEVER,
    PAPER_LIMITS,
    Entry,
    identity,
    plain,
)
from fa_audit.experiments.spec import SAMPLES
from fa_audit.results.judging import Measured
from fa_audit.results.outcomes import by_cosine
from fa_audit.results.tidy import KEY, Tidy

_ABSENT = "none"  # stands for a missing answer


class OurRuns:
    """Measured values, looked up by the specification of their run."""

    def __init__(self, tidy: Tidy) -> None:
        runs = tidy.runs.assign(by_cosine=by_cosine(tidy))
        for samples in SAMPLES:
            runs[f"first_reference_flag_{samples}"] = _first_below(tidy, samples)
        # A published number may belong to a layer, an epoch, both or neither. If it has an
        # epoch but no layer, any row of the epoch serves: all have the same accuracy and loss.
        self._rows = {
            (): _by_place(runs),
            LAYER: _by_place(tidy.layers, *LAYER),
            EPOCH: _by_place(tidy.trajectories, *EPOCH),
            EPOCH + LAYER: _by_place(tidy.trajectories, *EPOCH, *LAYER),
        }
        self._same: dict[str, list[tuple[bool, RunKey]]] = defaultdict(list)
        for (key,), row in self._rows[()].items():
            if json.loads(row["thresholds"]).items() >= PAPER_LIMITS.items():
                spec = json.loads(row["spec"])
                own = identity(spec)
                names = {own}
                # A monitor that did not stop the training does not change the network.
                if pd.isna(row["stopped_after"]):
                    names.add(identity({**spec, "monitor": {}}))
                for name in names:
                    self._same[name].append((name == own, key))

    def measured(self, entry: Entry, specs: Mapping[str, Mapping[str, Any]]) -> Measured:
        """Return the measured values of an entry's quantity, by run and seed.

        Args:
            specs: by run, the specification with which one of the paper's scripts trains it.
        """
        found: dict[str, dict[int, Any]] = {}
        for run, spec in specs.items():
            # The last run of a seed wins: one with the same monitor, then in the entry's setting.
            ranked = sorted(
                (exact, key.setting == entry.setting, key)
                for exact, key in self._same[identity(spec)]
            )
            seeds = {key.seed: key for *_, key in ranked}
            found[run] = {s: self._value(entry, seeds[s]) for s in entry.seeds if s in seeds}
        return found

    def _value(self, entry: Entry, key: RunKey) -> Any:
        """Return the measured number, NaN if it is missing; for a verdict, the answer as text."""
        places = [getattr(entry, name) for name in entry.places]
        row, column = self._rows[entry.places].get((key, *places), {}), entry.quantity
        if entry.samples != BATCH:
            column += f"_{entry.samples}"
        cell = row.get(column)
        # If nothing was measured on the published number of samples, take the value on 128.
        if pd.isna(cell) and places:
            cell = row.get(entry.quantity)
            # One sample's gradient of the mean loss is proportional to 1 / samples.
            if entry.quantity == "grad_norm" and not pd.isna(cell):
                cell *= BATCH / entry.samples
        if entry.kind == "verdict":
            return self._answer(entry, key, cell)
        return math.nan if cell is None or cell == _ABSENT else float(cell)

    def _answer(self, entry: Entry, key: RunKey, cell: Any) -> str:
        if pd.isna(cell):
            # NaN norms raise no flag: a missing flag means 'never' only if all numbers are finite.
            finite = plain(self._rows[()][key,].get("finite")) != "false"
            return NEVER if NEVER in entry.answers and finite else _ABSENT
        if isinstance(cell, str):
            return cell.partition("(")[0].strip()  # without the reasons of a verdict
        return plain(bool(cell)) if True in entry.answers else f"{cell:g}"


def _by_place(table: pd.DataFrame, *places: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return a table's rows, keyed by their run and their values in the columns `places`."""
    rows = {}
    for row in table.to_dict("records"):
        key = RunKey(row["setting"], row["run"], row["seed"])
        rows[key, *(row[place] for place in places)] = row
    return rows


def _first_below(tidy: Tidy, samples: int) -> list[Any]:
    """Return for every run the first epoch at which ``||g_L||`` on so many samples is below the
    paper's limit.

    If the norm was not measured on them, take that on 128, times 128 / samples. The epoch is None
    if the norm is never below the limit, and `_ABSENT` if the run has no trajectory.
    """
    columns = [*KEY, "epoch", "layer", "grad_norm", f"grad_norm_{samples}"]
    rows = tidy.trajectories.reindex(columns=columns).sort_values(["epoch", "layer"])
    last = rows.groupby([*KEY, "epoch"]).tail(1).set_index(KEY)
    scaled = last["grad_norm"].astype(float) * BATCH / samples
    norms = last[f"grad_norm_{samples}"].astype(float).fillna(scaled)
    below = last["epoch"][norms < PAPER_LIMITS["reference"]]
    first = below.groupby(KEY).min().to_dict()
    followed = set(norms.dropna().index)
    keys = tidy.runs[KEY].itertuples(index=False, name=None)
    return [first.get(key) if key in followed else _ABSENT for key in keys]
