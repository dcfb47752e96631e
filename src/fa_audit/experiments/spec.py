"""What a training run is: the name people write (`dfa+penalty1e-2`) and the full specification behind it.

Imports no torch: the workflow builds its whole plan from these objects.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any

from fa_audit.core.errors import AuditError, listed, shortened, unknown

RUN_OPTIONS = ("penalty<number>", "frozen", "frozen<k>", "shallow", "random_targets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A method and its options, e.g. ``Run(method="dfa", penalty=0.01)`` for ``dfa+penalty1e-2``.

    Attributes:
        method: name of the training method.
        penalty: residual penalty ``lambda`` >= 0.
        frozen: number of leading blocks kept at initialisation; ``-1`` means all of them.
        shallow: drop the blocks altogether.
        random_targets: train on fresh uniform labels.
    """

    method: str
    penalty: float = 0.0
    frozen: int = 0
    shallow: bool = False
    random_targets: bool = False

    def __str__(self) -> str:
        frozen = "" if not self.frozen else "frozen" if self.frozen < 0 else f"frozen{self.frozen}"
        penalty = f"penalty{short_number(self.penalty)}" if self.penalty else ""
        flags = [name for name in ("shallow", "random_targets") if getattr(self, name)]
        return "+".join(part for part in (self.method, penalty, frozen, *flags) if part)

    def spec(self, *, depth: int, **common: Any) -> RunSpec:
        """The full specification of this run in a network of `depth` blocks; `common` are the other fields."""
        return RunSpec(
            method=self.method,
            penalty=self.penalty,
            frozen_blocks=depth if self.frozen < 0 else self.frozen,
            shallow=self.shallow,
            random_targets=self.random_targets,
            **common,
        )

    @property
    def is_baseline(self) -> bool:
        """True for networks whose blocks are all frozen or absent: what others are compared with."""
        return self.frozen < 0 or self.shallow


def short_number(value: float) -> str:
    """The shortest scientific spelling of a positive number: 0.01 -> ``1e-2``, 0.025 -> ``2.5e-2``."""
    digits, exponent = f"{Decimal(repr(value)).normalize():e}".split("e")
    return f"{digits}e{int(exponent)}"


def parse_run(text: str, *, where: str = "run") -> Run:
    """Read a run name; the inverse of ``str(run)``, and tolerant of other spellings of a number.

    Raises:
        AuditError: an unknown, repeated or contradictory option, or a negative penalty.
    """
    method, *options = text.split("+")
    chosen: dict[str, Any] = {}
    for option in options:
        name, value = _parse_option(option, text, where)
        if name in chosen:
            raise AuditError(f"{where}: option '{name}' stands twice in '{text}'; keep one of them.")
        chosen[name] = value
    run = Run(method=method, **chosen)
    if run.shallow and (run.frozen or run.penalty):
        raise AuditError(f"{where}: '{text}' has no blocks to freeze or penalise; drop that option or 'shallow'.")
    return run


def _parse_option(option: str, text: str, where: str) -> tuple[str, Any]:
    if option in ("shallow", "random_targets"):
        return option, True
    if option == "frozen":
        return "frozen", -1
    if re.fullmatch(r"frozen[1-9]\d{0,8}", option):
        return "frozen", int(option.removeprefix("frozen"))
    if option.startswith("penalty"):
        return "penalty", _parse_penalty(option.removeprefix("penalty"), text, where)
    raise unknown("option", option, RUN_OPTIONS, where=f"{where} '{text}'")


def _parse_penalty(number: str, text: str, where: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0 and number == number.strip()):
        raise AuditError(
            f"{where}: penalty '{number}' in '{text}' is not a finite number >= 0; write it like penalty1e-2."
        )
    return value


RANGES: dict[str, tuple[Any, float, str]] = {
    "penalty": ((int, float), 0, "a finite number >= 0"),
    "frozen_blocks": (int, 0, "an integer 0..2147483647"),
    "epochs": (int, 1, "an integer 1..2147483647"),
    "batch_size": (int, 1, "an integer 1..2147483647"),
    "lr": ((int, float), 0, "a finite number >= 0"),
    "weight_decay": ((int, float), 0, "a finite number >= 0"),
    "seed": (int, 0, "an integer 0..2147483647"),
}
LARGEST = 2**31 - 1  # an integer, of seeds too: torch takes no arbitrary ones
PAIRS = ("architecture_options", "monitor")  # dictionaries, kept as sorted pairs
CELL = ("dataset", "architecture", "architecture_options", "epochs", "batch_size", "lr", "weight_decay", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """Everything that decides the bits of a trained network. Defaults are the paper's (section 'Training').

    Attributes:
        dataset: name of the data set.
        architecture: name of the architecture.
        architecture_options: its options, as sorted ``(name, value)`` pairs.
        method: name of the training method.
        penalty: ``lambda`` of ``lambda * mean_B ||f_l||^2``.
        frozen_blocks: the first ``k`` blocks stay at initialisation.
        shallow: no blocks at all.
        random_targets: fresh uniform labels in every minibatch.
        epochs: passes over the training set.
        batch_size: images per step; the last batch of an epoch may be smaller.
        lr: AdamW's learning rate before the cosine decay to 0.
        weight_decay: AdamW's decoupled weight decay.
        seed: fixes initialisation, feedback matrices, shuffling, augmentation and noise.
        monitor: checks (``"D1"``, ``"D2"``) and their limits, sorted; training ends after the first epoch at which all
            of them fire. Empty: it never ends early.

    Raises:
        AuditError: a number of the wrong type or out of range.
    """

    dataset: str
    architecture: str
    architecture_options: tuple[tuple[str, Any], ...] = ()
    method: str
    penalty: float = 0.0
    frozen_blocks: int = 0
    shallow: bool = False
    random_targets: bool = False
    epochs: int = 100
    batch_size: int = 128
    lr: float = 1e-3
    weight_decay: float = 0.01
    seed: int = 42
    monitor: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        for name, (kind, least, text) in RANGES.items():
            value = getattr(self, name)
            most = LARGEST if kind is int else sys.float_info.max
            if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most:
                raise AuditError(f"{name}: found {shortened(value)}; expected {text}.")
        for name in ("penalty", "lr", "weight_decay"):  # equal specifications must have equal digests: 0, 0.0, -0.0
            object.__setattr__(self, name, float(getattr(self, name)) + 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; ``RunSpec.from_dict`` inverts it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {name: dict(values[name]) for name in PAIRS}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunSpec:
        """Rebuild a specification from its dictionary.

        Raises:
            AuditError: a field is missing or unknown, or its value is no number, printable text, true or false.
        """
        names = {field.name for field in fields(cls)}
        if odd := sorted((set(values) ^ names) - {"monitor"}):  # files of older versions have none
            raise AuditError(
                f"run specification: missing or unknown fields: {listed(odd)}; expected {', '.join(sorted(names))}."
            )
        pairs = {name: tuple(sorted(values.get(name, {}).items())) for name in PAIRS}
        plain = [(name, values[name]) for name in sorted(names - set(PAIRS))]
        for name, value in (*plain, *pairs["architecture_options"], *pairs["monitor"]):
            if not isinstance(value, int | float) and not (isinstance(value, str) and value.isprintable()):
                raise AuditError(f"{name}: found {shortened(value)}; expected a number, text, true or false.")
        return cls(**{**values, **pairs})

    def of_cell(self, run: Run) -> RunSpec:
        """The specification of another run in the cell of this one; runs like it, without a monitor."""
        depth = dict(self.architecture_options).get("depth", 0)
        return run.spec(depth=depth, **{name: getattr(self, name) for name in CELL})

    @property
    def digest(self) -> str:
        """Eight hexadecimal digits that name this specification in provenance."""
        canonical = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:8]
