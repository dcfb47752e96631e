"""The type of a measured number in an audit. Imports no torch."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

_NORMAL_95 = 1.96  # standard deviations on either side of a normal distribution's mean
AT_INPUT = "_at_input"  # suffix of metrics that compare a credit at its block's input
NON_FINITE = ("nan", "inf", "-inf")  # JSON lacks these numbers, so they are written as texts


def at_both_sides(*names: str) -> tuple[str, ...]:
    """Return the given metrics' names, then their names with the suffix `AT_INPUT`."""
    return (*names, *(name + AT_INPUT for name in names))


def _read(value: Any) -> Any:
    return float(value) if value in NON_FINITE and isinstance(value, str) else value


def _written(value: float) -> float | str:
    text = str(value)
    return text if text in NON_FINITE else value


Number = Annotated[
    float,
    Field(strict=True, allow_inf_nan=True),
    BeforeValidator(_read),
    PlainSerializer(_written, when_used="json"),
]
Interval = tuple[Number, Number]


class Model(BaseModel):
    """A mapping whose known keys are checked; unknown keys are ignored."""

    # Parts were checked when they were built: a model that holds them does not check them again.
    model_config = ConfigDict(frozen=True, extra="ignore", revalidate_instances="never")

    def replace(self, **changes: Any) -> Self:
        """Return a copy with the given fields changed; all fields are checked again."""
        return type(self)(**(dict(self) | changes))


@dataclass(frozen=True, config=ConfigDict(extra="ignore"))
class Measured:
    """One number with its evidence.

    Attributes:
        value: the number, or None if it cannot be measured.
        n: number of samples, draws or blocks; None if not recorded.
        n_valid: how many of them could be used.
        reason: why `value` is None; empty otherwise.
        std: standard deviation (ddof 1) of the draws behind a mean; None for fewer than two.
    """

    value: Number | None
    n: int | None
    n_valid: int | None
    reason: str = ""
    std: Number | None = field(default=None, repr=False)

    @model_validator(mode="after")
    def _explained(self) -> Self:
        if (self.value is None) != bool(self.reason):
            raise PydanticCustomError("reason", "expected a value or a reason")
        return self

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the interval that holds 95 % of normally distributed draws; None without `std`."""
        if self.value is None or self.std is None:
            return None
        return self.value - _NORMAL_95 * self.std, self.value + _NORMAL_95 * self.std
