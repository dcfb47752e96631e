"""Estimate costs from stored benchmarks: seconds per epoch of backpropagation times what the method declares.

`benchmarks/costs.json` holds what `benchmarks/costs.py` measured, by device and network. What was never measured has no
estimate. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fa_audit.core.files import read_json
from fa_audit.core.registry import entry_of
from fa_audit.core.source import class_literals
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods import METHODS

DEVICES = ("cpu", "gpu")
CONTEXT_MB = 500  # of a GPU, for CUDA itself in every process
MARGIN = 2  # another machine may be slower than the one that was measured
NETWORK = ("dataset", "architecture", "architecture_options", "batch_size")  # fields of a `RunSpec`
DECIDING = (*NETWORK, "method", "frozen_blocks", "shallow")


@dataclass(frozen=True)
class Costs:
    """Measured times.

    Attributes:
        networks: for every device, entries with the fields `NETWORK`, ``seconds_per_epoch`` of backpropagation
            (training and the trajectory's row), ``seconds_per_audit``, the peak ``memory_mb`` of both and the
            ``machine``.
    """

    networks: Mapping[str, list[dict[str, Any]]]

    def machines(self, device: str) -> list[str]:
        """Return what was used for the measurements on a device; nothing where there are none."""
        return sorted({entry["machine"] for entry in self.networks[device]})

    def training_hours(self, spec: RunSpec, device: str) -> float | None:
        """Return a training's hours, None where its network was not measured; frozen blocks count like others."""
        seconds = self._entry(spec, device).get("seconds_per_epoch")
        return None if seconds is None else seconds * spec.epochs * declared(spec.method, "relative_time") / 3600

    def audit_hours(self, spec: RunSpec, device: str) -> float | None:
        """Return the hours of a run's audit; None where its network was not measured."""
        seconds = self._entry(spec, device).get("seconds_per_audit")
        return None if seconds is None else seconds / 3600

    def memory_mb(self, spec: RunSpec, device: str) -> int | None:
        """Return the peak memory of a training or an audit by backpropagation; None where it was not measured."""
        return self._entry(spec, device).get("memory_mb")

    def gpu_memory_mb(self, spec: RunSpec) -> int:
        """Return the memory of a GPU that a training or an audit takes; 0 where its network was not measured.

        Where none was measured on a GPU (``gpu_memory_mb``), that of a process on a CPU, which holds the same tensors,
        and CUDA's own.
        """
        main = self.memory_mb(spec, "cpu") or 0
        estimated = main + declared(spec.method, "memory_mb") + CONTEXT_MB if main else 0
        return self._entry(spec, "gpu").get("gpu_memory_mb", estimated)

    def training_minutes(self, spec: RunSpec, device: str) -> int:
        """Return the minutes to ask for a training."""
        hours = self.training_hours(spec, device)
        unmeasured = 2 * spec.epochs * declared(spec.method, "relative_time")
        return round(30 + (unmeasured if hours is None else MARGIN * 60 * hours))

    def audit_minutes(self, spec: RunSpec, device: str) -> int:
        """Return the minutes to ask for an audit."""
        return round(15 + MARGIN * 60 * (self.audit_hours(spec, device) or 0))

    def training_memory_mb(self, spec: RunSpec, device: str) -> int:
        """Return the main memory to ask for a training; where none was measured on a GPU, as much as on a CPU."""
        measured = self.memory_mb(spec, device) or self.memory_mb(spec, "cpu") or 0
        return max(2000, round(1.25 * measured)) + declared(spec.method, "memory_mb")

    def audit_memory_mb(self, spec: RunSpec, device: str) -> int:
        """Return the main memory to ask for an audit."""
        return self.training_memory_mb(spec, device) + 1000

    def _entry(self, spec: RunSpec, device: str) -> dict[str, Any]:
        wanted = network_of(spec)
        return next((entry for entry in self.networks[device] if wanted.items() <= entry.items()), {})


def network_of(spec: RunSpec) -> dict[str, Any]:
    """Return the fields of a specification that decide the cost of a step."""
    values = spec.to_dict()
    return {name: values[name] for name in NETWORK}


def cost_key(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what decides the cost of a step, of a specification's dictionary or of a row."""
    return tuple(
        tuple(sorted(values[name].items())) if name == "architecture_options" else values.get(name) for name in DECIDING
    )


def declared(method: str, name: str) -> Any:
    """Return what a method's class declares of its cost, read from its source.

    Args:
        name: ``relative_time`` (of a step, backpropagation's being 1) or ``memory_mb`` (beyond backpropagation's).
    """
    own = class_literals(entry_of("method", METHODS, method))
    return (class_literals("fa_audit.methods.method:Method") | own)[name]


def read_costs(path: str | Path) -> Costs:
    """Read the stored benchmarks; none where there is no such file."""
    stored = read_json(path) if Path(path).exists() else {}
    return Costs({device: stored.get(device, []) for device in DEVICES})
