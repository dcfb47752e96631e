"""The measurements of one network and the limits of the checks; verdicts follow from them alone.

docs/protocol.md has the source of each limit. Imports no torch.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, computed_field, model_validator
from pydantic.dataclasses import dataclass as checked_dataclass
from pydantic_core import PydanticCustomError

from fa_audit.core.errors import AuditError, shortened, unknown
from fa_audit.core.measured import AT_INPUT, Interval, Measured, Model, Number

# --- limits ---------------------------------------------------------------------------------------

FLOOR_SAMPLES = 128  # the batch size for which the paper's limit of D2 is meant


@dataclass(frozen=True)
class DiagnosticThresholds:
    """Limits of the checks. The first four have the paper's names and values.

    Attributes:
        h_norm_explosion_ratio: D1 fires above this ratio of median state norms across one block.
        g_norm_floor: D2 fires below this median ``||g_L||`` (gradient of the mean loss of 128
            samples; for other batches see `floor_for`).
        stability_drift_ceiling: C fires above this mean pairwise cosine between batches.
        frozen_acc_margin_pp: D3 fires below this accuracy margin over the frozen baseline, in
            percentage points.
        loss_saturation: below this product ``B * median||h_L|| * median||g_L||`` a small gradient
            comes from a saturated loss and not from an exploded state. The paper has no such
            limit. The product is 1 to 100 in healthy and in exploded networks, and 1e-3 or less if
            the loss is saturated, as in a network at 99 % accuracy.

    Raises:
        AuditError: a limit is not a finite number, or is outside its quantity's range.
    """

    h_norm_explosion_ratio: float = 50.0
    g_norm_floor: float = 1e-7
    stability_drift_ceiling: float = 0.30
    frozen_acc_margin_pp: float = 2.0
    loss_saturation: float = 1e-2

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _checked(field.name, getattr(self, field.name)))

    @property
    def limits(self) -> dict[str, float]:
        """Return the limits by their names in configurations and in an audit's JSON; margins are
        fractions.
        """
        values = {name: getattr(self, field) for name, field in FIELDS.items()}
        return values | {"depth_margin": round(self.frozen_acc_margin_pp / 100, 12)}

    @classmethod
    def of(cls, limits: Mapping[str, float]) -> DiagnosticThresholds:
        """Build thresholds from a configuration's limits, keyed by name; its margins are fractions.
        Absent limits keep their defaults.

        >>> DiagnosticThresholds.of({"depth_margin": 0.05}).frozen_acc_margin_pp
        5.0
        """
        given = dict(limits)
        strange = sorted(given.keys() - FIELDS.keys())
        if strange:
            raise unknown("limit", strange[0], FIELDS, where="thresholds")
        if "depth_margin" in given:
            given["depth_margin"] = round(100 * _checked("depth_margin", given["depth_margin"]), 10)
        return cls(**{FIELDS[name]: value for name, value in given.items()})


# Name of a limit in configurations and an audit's JSON -> field of `DiagnosticThresholds`.
FIELDS = {
    "growth": "h_norm_explosion_ratio",
    "reference": "g_norm_floor",
    "stability": "stability_drift_ceiling",
    "depth_margin": "frozen_acc_margin_pp",
    "saturation": "loss_saturation",
}
_RANGES = {
    "stability_drift_ceiling": (-1.0, 1.0, "a cosine from -1 to 1"),
    "frozen_acc_margin_pp": (-100.0, 100.0, "percentage points from -100 to 100"),
    "depth_margin": (-1.0, 1.0, "a fraction from -1 to 1"),
    "": (math.ulp(0.0), sys.float_info.max, "a finite number > 0"),
}


def _checked(name: str, value: Any) -> float:
    """Check a limit and return it as a float."""
    low, high, expected = _RANGES.get(name, _RANGES[""])
    try:
        limit = float(value)
    except (TypeError, ValueError, OverflowError):
        limit = math.nan
    # float() accepts booleans and texts, which are no limits.
    if isinstance(value, bool | str) or not low <= limit <= high:
        raise AuditError(f"thresholds: {name}: found {shortened(value)}; expected {expected}.")
    return limit


def floor_for(reference: float, samples: int) -> float:
    """Scale the limit of D2 from 128 samples to B: a mean loss's gradient scales as ``1 / B``.

    >>> floor_for(1e-7, 128), floor_for(1e-7, 32)
    (1e-07, 4e-07)
    """
    return reference * (FLOOR_SAMPLES / samples)


def depth_margin(accuracy: Any, frozen: Any) -> Any:
    """Return accuracy minus the frozen baseline's, both fractions; numbers or Series.

    The margin is rounded to nine digits, so that 0.36 - 0.34 is exactly two points.

    >>> depth_margin(0.36, 0.34), 0.36 - 0.34
    (0.02, 0.019999999999999962)
    """
    return round(accuracy - frozen, 9)


# --- measurements ---------------------------------------------------------------------------------

ROUNDING = 1e-6  # a cosine may exceed 1 by this much
_COSINES = ("cosine", "clamped_cosine", "rho", "rho_bp", "rho_random", "fresh_b_cosine")

Count = Annotated[int, Field(strict=True, ge=0, le=2**63)]
Fraction = Annotated[float, Field(strict=True, ge=0, le=1)]
# Why the true gradient is unknown at a state; `REASONS` explains each code.
Missing = Literal["untrue", "unresolved", "unverified"]
REASONS: dict[str, str] = {
    "untrue": "the model's backward pass is not the derivative of its forward pass",
    "unresolved": "float64 does not resolve whether a custom backward pass is the derivative of its"
    " forward pass",
    "unverified": "the model's backward pass is custom and could not be compared with its forward"
    " pass",
}
Metrics = dict[str, Measured]


def _limits_of(value: Any) -> Any:
    return DiagnosticThresholds.of(value) if isinstance(value, dict) else value


Limits = Annotated[
    DiagnosticThresholds,
    BeforeValidator(_limits_of),
    PlainSerializer(lambda thresholds: thresholds.limits),
]


class State(Model):
    """Evidence at one state ``h_l``.

    Attributes:
        layer: ``l``, 0 for the embedding's output, L for the last state.
        hidden_norm: median ``||h_l||``.
        grad_norm: median ``||g_l||``; g_l is the gradient of the batch-mean loss, summed over the
            positions of a feature map.
        grad_norm_per_sample: `grad_norm` for the loss of single samples, ``B`` times as large.
        growth: ``median||h_{l+1}|| / median||h_l||`` of the block that reads this state; None for
            the last.
        scale_free: ``B * median||h_l|| * median||g_l||``, unchanged if the state is inflated.
        float32_error: median over samples of ``||g_l - g_l^64|| / ||g_l^64||``.
        float32_cosine: 1st percentile over samples of ``cos(g_l, g_l^64)``.
        positions: number of positions that the state's vector averages; 1 for a plain vector.
        displacement: median over samples of ``||h_l - h_0|| / ||h_0||``, in float64.
        cosine_to_embedding: median over samples of ``cos(h_l, h_0)``, in float64.
        more_samples: measurements on more samples, such as ``grad_norm_1024``.
    """

    layer: Count
    hidden_norm: Number
    grad_norm: Number
    grad_norm_per_sample: Number
    growth: Number | None
    scale_free: Number
    float32_error: Measured | None = None
    float32_cosine: Measured | None = None
    positions: Count = 1
    displacement: Measured | None = None
    cosine_to_embedding: Measured | None = None
    more_samples: dict[str, Number | None] = Field(default_factory=dict)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def grad_norm_position_mean(self) -> Number:
        """Return `grad_norm` divided by `positions`, which is the norm in the paper's code."""
        return self.grad_norm / self.positions


@checked_dataclass(frozen=True, kw_only=True)
class Stability(Measured):
    """Cross-batch cosine of mean gradients; `n` and `n_valid` count batches.

    Attributes:
        layer: the state at which it was measured.
        samples: samples in a batch; None if unknown.
        jackknife: 95 % interval over the batches; None for fewer than 8.
    """

    layer: Count
    samples: Count | None = None
    jackknife: Interval | None = None


class Frequencies(Model):
    """The distance of mean predictions from class frequencies.

    Attributes:
        gaps: ``mean(p) - mean(y)`` over all batches, by class.
        refitted: C on the second half of the batches, after the head's bias was refitted on the
            first half.
    """

    gaps: tuple[Number, ...]
    refitted: Measured


class Baselines(Model):
    """Accuracies of frozen networks of the same architecture, data, budget and seed, as fractions.

    Attributes:
        own: blocks frozen, embedding trained by the method's own credit. D3 uses this one.
        own_name: name of `own` in a verdict.
        bp: blocks frozen, embedding trained by backpropagation. D3-strict uses this one.
        test_samples: size of the test set of all accuracies; None if unknown.
        paired: two numbers of test samples: those that only the audited network classifies
            correctly, and those that only its own baseline does; None if unknown.
    """

    own: Fraction | None = None
    own_name: str = "own frozen baseline"
    bp: Fraction | None = None
    test_samples: Count | None = None
    paired: tuple[Count, Count] | None = None


class Evidence(Model):
    """All measurements of one network, and the limits by which it is judged.

    Attributes:
        layers: one entry per state, ``h_0`` first.
        samples: number of samples on which the layers were measured, without those whose label the
            loss ignores.
        batches: number of batches used for the stability.
        finite: False if any state, gradient or logit of any batch is NaN or infinite.
        growth_interval, gradient_interval: 95 % bootstrap intervals, over samples, of the largest
            growth and of median ``||g_L||``; None for fewer than 8 samples or norms that are not
            finite.
        missing: by state, the reason why the true gradient is not known. For the reason ``untrue``,
            `grad_norm` is an estimate (NaN if the loss is neither a mean nor a sum over samples);
            for other reasons, `grad_norm` is NaN, or too small to verify.
        unchecked: the custom part of the backward pass that was not compared with the forward pass,
            and why; empty if there is none.
        frequencies: mean predictions and class frequencies, if C fires under cross-entropy.
        loss: mean loss of the samples on which the layers were measured.
        at_logits: B times the median norm of the loss's gradient at the logits; it is small if the
            loss is saturated.
        credit: the credit metrics of every block; empty if no credits were audited.
        deep: means of the credit metrics over the blocks l >= 1.
        feature_drift: relative change of every parameter since initialisation, by name.
        first_flags: for D1 and for D2, the first epoch at which it fired, None if it never did;
            empty if the training was not followed.
        batch_norm_twice: growth and norms under BatchNorm statistics that every training step
            updates twice, as the paper's code does; empty without BatchNorm.
        headline_acc: accuracy of the last epoch on the whole test set, as a fraction; None if
            unknown.
        hits: numbers of correctly classified samples and of all samples in the batches; None if
            unknown.
        thresholds: limits of the checks.
    """

    layers: Annotated[tuple[State, ...], Field(min_length=1)]
    stability: Stability
    samples: Annotated[Count, Field(ge=1)]
    batches: Count
    finite: Annotated[bool, Field(strict=True)]
    growth_interval: Interval | None = None
    gradient_interval: Interval | None = None
    missing: dict[int, Missing] = Field(default_factory=dict)
    unchecked: str = ""
    frequencies: Frequencies | None = None
    loss: Number | None = None
    at_logits: Number | None = None
    credit: tuple[Metrics, ...] = ()
    deep: Metrics = Field(default_factory=dict)
    feature_drift: Metrics = Field(default_factory=dict)
    first_flags: dict[str, Count | None] = Field(default_factory=dict)
    batch_norm_twice: dict[str, Number | None] = Field(default_factory=dict)
    headline_acc: Fraction | None = None
    baselines: Baselines = Baselines()
    hits: tuple[Count, Count] | None = None
    thresholds: Limits = DiagnosticThresholds()

    @model_validator(mode="after")
    def _has_every_state(self) -> Self:
        places = [state.layer for state in self.layers]
        blocks = len(places) - 1
        if places != list(range(blocks + 1)) or len(self.credit) not in (0, blocks):
            raise ValueError(
                f"found states {places} and credits of {len(self.credit)} blocks; expected states"
                " from 0 on, and credits of none or of all blocks between them"
            )
        return self

    @model_validator(mode="after")
    def _are_cosines(self) -> Self:
        for metrics in (*self.credit, self.deep):
            for name, measured in metrics.items():
                bounded = name.removesuffix(AT_INPUT) in _COSINES
                if bounded and abs(measured.value or 0.0) > 1 + ROUNDING:
                    raise PydanticCustomError("cosine", "expected cosines from -1 to 1")
        return self

    @property
    def untrue(self) -> tuple[int, ...]:
        """Return the states whose gradient is not the derivative of the loss."""
        return tuple(state for state, why in self.missing.items() if why == "untrue")


def known_mean(values: Iterable[float | None]) -> float | None:
    """Average the known values; None if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def value_of(metrics: Metrics, name: str) -> float | None:
    """Return a measured number by name; None if it was not measured or not recorded."""
    found = metrics.get(name)
    return None if found is None else found.value
