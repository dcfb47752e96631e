"""Store the state of a training after an epoch, and continue an interrupted training from it."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fa_audit.core.errors import AuditError
from fa_audit.training.checkpoint import (
    learner_tensors,
    load_learner_tensors,
    read_tensor_file,
    write_tensor_file,
)
from fa_audit.training.learner import Learner
from fa_audit.training.optimiser import Optimiser

log = logging.getLogger(__name__)
FORMAT = "fa-audit resume 1"


@dataclass(frozen=True)
class Resume:
    """The file from which an interrupted training continues.

    Attributes:
        origin: `training_origin` and digests of the code; a file with another origin is not used.
        every: least seconds between two saved states, because writing one can take longer than an
            epoch; the last state is always saved.
    """

    path: Path
    origin: str
    every: float = 10.0

    def save(self, learner: Learner, optimiser: Optimiser, progress: dict[str, Any]) -> None:
        """Save network, optimiser and `progress`, which must be of JSON types."""
        tensors = learner_tensors(learner)
        for index, moments in optimiser.moments.items():
            tensors |= {f"optimiser.{index}.{name}": t for name, t in moments.items()}
        # Progress is stored as a tensor: its history grows with the epochs, and the size of a
        # safetensors header is bounded.
        written = bytearray(json.dumps(progress).encode())
        tensors["progress"] = torch.frombuffer(written, dtype=torch.uint8)
        write_tensor_file(self.path, FORMAT, tensors, {"fingerprint": self.origin})

    def load(self, learner: Learner, optimiser: Optimiser) -> dict[str, Any] | None:
        """Restore the saved state and return its `progress`, or None if there is no usable file."""
        if not self.path.exists():
            return None
        try:
            tensors, about = read_tensor_file(self.path, FORMAT)
        except AuditError as error:
            log.warning("starting over: %s", error)
            return None
        if about["fingerprint"] != self.origin:
            log.info(
                "starting over: %s was saved with another specification, data set, code, "
                "version of torch, device or number of threads",
                self.path,
            )
            return None
        progress = json.loads(tensors.pop("progress").numpy().tobytes())
        for name in list(tensors):
            if name.startswith("optimiser."):
                _, index, moment = name.split(".")
                # Tensors that were read from a file are on the CPU.
                tensor = tensors.pop(name).to(optimiser.lr.device)
                optimiser.moments.setdefault(int(index), {})[moment] = tensor
        load_learner_tensors(learner, tensors)
        return progress
