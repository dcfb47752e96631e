"""Estimate the time and memory of jobs from measurements. Imports no torch.

`benchmarks/costs.py` writes `benchmarks/costs.json`: for each device, a row for every network,
method and number of frozen blocks. Benchmarks in results/ take precedence.
"""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from fa_audit.core.errors import AuditError
from fa_audit.core.files import FOREIGN, read_json
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods.info import MethodInfo, stated

DEVICES = ("cpu", "gpu")
# GPU memory for CUDA itself in every process.
CONTEXT_MB = 500
# Another machine may be slower than the one that was measured.
_MARGIN = 2
# Minutes until a job begins its work: importing torch from a cold file system takes that long.
_START_MINUTES = 10
# Most minutes to request for a training and for its audit: both together last a day. An interrupted
# training resumes in the next job.
_LONGEST_TRAINING, _LONGEST_AUDIT = 22 * 60, 2 * 60
# Hours for an epoch of backpropagation on a network that was never measured.
_UNMEASURED = 1 / 60
# The fields of a specification that decide what a step costs.
DECIDING = (
    "dataset",
    "architecture",
    "architecture_options",
    "batch_size",
    "method",
    "frozen_blocks",
    "shallow",
)
Row = dict[str, Any]


class Hours(NamedTuple):
    """Hours of a job, and whether they were measured for this very job, so far as they depend on it."""

    value: float
    measured: bool


@dataclass(frozen=True)
class Costs:
    """Measured times and memory of jobs.

    Attributes:
        rows: device -> `cost_key` -> row. A row has ``seconds_per_epoch`` (training, with the
            trajectory's measurements), ``seconds_per_audit`` (of a network trained by
            backpropagation), ``start_seconds`` of a process, its peak ``memory_mb`` and
            ``gpu_memory_mb``; rows of `own_benchmarks` have times only.
    """

    rows: Mapping[str, Mapping[tuple[Any, ...], Row]]

    def training_hours(self, spec: RunSpec, *devices: str) -> Hours | None:
        """Estimate the hours of a training; None if nothing similar was measured.

        Three measurements on the network may serve, in this order: the same training, its method
        without frozen blocks, and backpropagation, whose time is multiplied by the method's
        declared `relative_time`. The first of `devices` that has one of them is used. Penalties and
        random targets add next to nothing. A training of no epochs needs no measurement.
        """
        row, exact, unmeasured = self._row(spec, "seconds_per_epoch", *devices)
        start = row.get("start_seconds", 0)
        # An untrained network costs only its start, however long an epoch would take.
        if spec.last_epoch == 0:
            return Hours(start / 3600, True)
        if not row:
            return None
        seconds = row["seconds_per_epoch"] * spec.last_epoch * unmeasured.relative_time
        return Hours((start + seconds) / 3600, exact)

    def audit_hours(self, spec: RunSpec, *devices: str) -> Hours | None:
        """Return the hours of an audit on the first of `devices` that has a row for the network;
        None if none has. The hours hardly depend on the method.
        """
        row, _, _ = self._row(spec, "seconds_per_audit", *devices)
        if not row:
            return None
        return Hours((row.get("start_seconds", 0) + row["seconds_per_audit"]) / 3600, True)

    def training_minutes(self, spec: RunSpec, device: str) -> int:
        """Return the minutes to request for a training: from measurements on `device`, else on a
        CPU; a guess if there are none.
        """
        hours = self.training_hours(spec, device, "cpu")
        guess = spec.last_epoch * _UNMEASURED * stated(spec.method).relative_time
        return min(_LONGEST_TRAINING, _minutes(hours.value if hours else guess))

    def audit_minutes(self, spec: RunSpec, device: str) -> int:
        """Return the minutes to request for an audit: from measurements on `device`, else on a
        CPU; those of the start if there are none.
        """
        hours = self.audit_hours(spec, device, "cpu")
        return min(_LONGEST_AUDIT, _minutes(hours.value if hours else 0))

    def training_memory_mb(self, spec: RunSpec, device: str) -> int:
        """Return the main memory in MB to request for a training: from measurements on `device`,
        else on a CPU; 2000 at the least.
        """
        row, _, unmeasured = self._row(spec, "memory_mb", device, "cpu")
        return max(2000, round(1.25 * row.get("memory_mb", 0))) + unmeasured.memory_mb

    def audit_memory_mb(self, spec: RunSpec, device: str) -> int:
        """Return the main memory to request for an audit."""
        return self.training_memory_mb(spec, device) + 1000

    def gpu_memory_mb(self, spec: RunSpec) -> int:
        """Return the GPU memory of a training or an audit; 0 for an unmeasured network.

        If only a CPU was measured, this is the memory of the CPU's process, which holds the same
        tensors, plus that of CUDA.
        """
        for device, name, more in (("gpu", "gpu_memory_mb", 0), ("cpu", "memory_mb", CONTEXT_MB)):
            row, _, unmeasured = self._row(spec, name, device)
            if row:
                return row[name] + more + unmeasured.memory_mb
        return 0

    def _row(self, spec: RunSpec, name: str, *devices: str) -> tuple[Row, bool, MethodInfo]:
        """Find a row with entry `name` on the first of `devices` that has one: a row of the run's
        method or else of backpropagation.

        Return the row, empty if there is none; whether it was measured for exactly this run; and
        the costs to apply to it: none for the method's own row, else the declared ones.
        """
        own, declared = spec.to_dict(), stated(spec.method)
        plain = own | {"frozen_blocks": 0, "shallow": False}
        methods = (spec.method, MethodInfo()), ("bp", declared)
        for device, (method, unmeasured), nearest in product(devices, methods, (own, plain)):
            values = nearest | {"method": method}
            row = self.rows[device].get(cost_key(values), {})
            if name in row:
                return row, values == own, unmeasured
        return {}, False, declared


def _minutes(hours: float) -> int:
    """Return the minutes to ask a cluster for: twice the estimate, plus the start-up time."""
    return round(_START_MINUTES + _MARGIN * 60 * hours)


def cost_key(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values that decide the cost of a step, from a specification's dictionary or a row."""
    options = dict(values["architecture_options"])
    options.pop("w2_std", None)
    deciding = {**values, "architecture_options": tuple(sorted(options.items()))}
    return tuple(deciding[name] for name in DECIDING)


def read_costs(path: str | Path, own: Iterable[tuple[str, Row]] = ()) -> Costs:
    """Read the measured costs from a file, if it exists; times in `own` replace the file's."""
    stored = read_json(path) if Path(path).exists() else {}
    rows: dict[str, dict[tuple[Any, ...], Row]] = {}
    for device in DEVICES:
        rows[device] = {cost_key(row): row for row in stored.get(device, [])}
    for device, row in own:
        rows[device].setdefault(cost_key(row), {}).update(row)
    return Costs(rows)


def own_benchmarks() -> Iterator[tuple[str, Row]]:
    """Yield the device and the measured times of every run in results/, taken from its first timed
    seed.
    """
    for rule, folder in (("train_network", "checkpoints"), ("audit_network", "audits")):
        # Later rows of a network replace earlier ones, so snapshots, with fewer epochs, come first.
        runs = Path("results/benchmarks", rule).glob("*/*")
        for run in sorted(runs, key=lambda run: ("+epoch" not in run.name, run)):
            for path in sorted(run.glob("seed*.tsv")):
                # Skip damaged files, and networks of 0 epochs, which have no time per epoch.
                with contextlib.suppress(OSError, StopIteration, *FOREIGN):
                    yield _own_row(path, facts_of(RunKey.of(path).path(folder, "json")))
                    break


def _own_row(path: Path, facts: Mapping[str, Any]) -> tuple[str, Row]:
    """Return the device and the measured times of a job.

    Args:
        path: Snakemake's benchmark of the job, a table with its seconds in column ``s``.
        facts: the job's result: an audit, or a training's sidecar, whose seconds include those
            before an interruption.
    """
    device = str(facts["provenance"]["device"])
    with path.open(encoding="utf-8") as lines:
        seconds = float(next(csv.DictReader(lines, delimiter="\t"))["s"])
    spec = RunSpec.from_dict(facts["spec"])
    row = {**spec.to_dict(), "start_seconds": 0}
    if "audit_network" in path.parts:
        row["seconds_per_audit"] = seconds
    else:
        epochs = facts["stopped_after"] or spec.last_epoch
        row["seconds_per_epoch"] = max(seconds, facts["seconds"]) / epochs
    return "cpu" if device.startswith("cpu") else "gpu", row


def facts_of(path: str) -> dict[str, Any]:
    """Read the JSON of a result; empty if it is missing or damaged, since it is then made again."""
    with contextlib.suppress(AuditError, OSError, *FOREIGN):
        return dict(read_json(path))
    return {}
