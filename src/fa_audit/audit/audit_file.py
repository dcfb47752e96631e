"""Read audits from their JSON files, and group those of one network over its seeds. Imports no torch.

A digest over the content, where it was written with one, tells whether it changed since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, create_model, model_validator
from pydantic_core import PydanticCustomError

from fa_audit.audit.verdicts import Baselines, check, outcomes
from fa_audit.core.checks import CHECKS
from fa_audit.core.errors import AuditError, first_line, listed, printable, shortened
from fa_audit.core.files import FOREIGN, as_json, check_signature, read_json
from fa_audit.core.thresholds import DiagnosticThresholds, distance
from fa_audit.core.validation import Tolerant, problems_of
from fa_audit.experiments.paths import AT_INPUT, at_both_sides
from fa_audit.experiments.spec import SpecFile
from fa_audit.training.sidecar import Provenance

AUDIT = (
    "an audit's JSON: results/audits/SETTING/RUN/seed*.json, results/models/NAME.json, or what"
    " `fa-audit audit --format json` prints"
)
OF_THE_WEIGHTS = ("seed", "weights", "accuracy", "frozen_accuracy", "bp_frozen_accuracy")  # of a model's entry
ROUNDING = 1e-6  # of a cosine, beyond -1 and 1
SHOWN = 3  # differences in one message
ABSENT = "absent"
MAY_LACK: Any = None  # of an entry that may be absent, but not null


# --- the file --------------------------------------------------------------------------------------------------------

Text = Annotated[str, Field(description="a text")]
YesNo = Annotated[bool, Field(description="true or false")]
Count = Annotated[int, Field(ge=0, le=2**63, description="an integer >= 0")]
Epoch = Annotated[Count | None, Field(description="an integer >= 0, or null")]
Finite = Annotated[float, Field(description="a finite number")]
Number = Annotated[
    float | Literal["nan", "inf", "-inf"] | None, Field(description="a number, null, 'nan', 'inf' or '-inf'")
]
Fraction = Annotated[Annotated[float, Field(ge=0, le=1)] | None, Field(description="a fraction 0..1, or null")]
Cosine = Annotated[
    Annotated[float, Field(ge=-1 - ROUNDING, le=1 + ROUNDING)] | None,
    Field(description="a number from -1 to 1, or null"),
]
Norm = Annotated[float | Literal["nan", "inf"], Field(description="a number, 'nan' or 'inf'")]
Pair = Annotated[list[Number], Field(min_length=2, max_length=2)]
Ends = Annotated[Pair | None, Field(description="a list of two numbers, or null")]


class Measured(Tolerant):
    """a measured value: a mapping with value, n and n_valid, and a reason where the value is null"""

    value: float | Literal["inf", "-inf"] | None = Field(description="a number, null, 'inf' or '-inf'")
    n: Count
    n_valid: Count
    reason: Text = ""
    std: Number = None
    interval: Ends = None

    @model_validator(mode="after")
    def _explained(self) -> Self:
        if (self.value is None) != bool(self.reason):
            raise PydanticCustomError("reason", "a value or a reason")
        return self


class MeasuredCosine(Measured):
    """a measured cosine or correlation: a mapping with value, n and n_valid, and a reason where the value is null"""

    value: Cosine


def _in_order(ends: list[float]) -> list[float]:
    if not float(ends[0]) <= float(ends[1]):
        raise PydanticCustomError("order", "the lower end first")
    return ends


Interval = Annotated[list[float | Literal["inf", "-inf"]], Field(min_length=2, max_length=2), AfterValidator(_in_order)]


class Check(Tolerant):
    """a check: a mapping, of which the interval is read"""

    interval: Interval | None = Field(None, description="two numbers, the lower one first, or null")


class State(Tolerant):
    """the evidence at one state"""

    layer: Count
    hidden_norm: Norm
    grad_norm: Norm
    grad_norm_per_sample: Number
    growth: Number
    scale_free: Number
    float32_error: Measured
    float32_cosine: MeasuredCosine
    displacement: Measured = MAY_LACK
    cosine_to_embedding: MeasuredCosine = MAY_LACK
    positions: Count = 1
    grad_norm_position_mean: Number = None
    more_samples: dict[str, Number] = Field({}, description="a mapping from names to numbers")


COSINES = at_both_sides("cosine", "clamped_cosine", "rho", "rho_bp")  # and correlations
FLOAT32 = (f"rho_float32{AT_INPUT}", f"rho_bp_float32{AT_INPUT}")
OF_BLOCKS: dict[str, Any] = {
    **dict.fromkeys((*COSINES, *at_both_sides("rho_random", "fresh_b_cosine")), (MeasuredCosine, ...)),
    **dict.fromkeys((*at_both_sides("nudging"), "bridge_residual", "feature_drift"), (Measured, ...)),
    **dict.fromkeys(FLOAT32, (MeasuredCosine, None)),
    **dict.fromkeys(("credit_norm", "residual_ratio", "scale"), (Measured, None)),
}
OF_DEEP: dict[str, Any] = {
    **dict.fromkeys((*COSINES, *at_both_sides("fresh_b_null"), *FLOAT32), (MeasuredCosine, None)),
    **dict.fromkeys(at_both_sides("nudging"), (Measured, None)),
}
Credit = create_model("Credit", __base__=Tolerant, __doc__="the credit of one block", **OF_BLOCKS)
Deep = create_model("Deep", __base__=Tolerant, __doc__="the credits of the blocks l >= 1", **OF_DEEP)


class Stability(MeasuredCosine):
    """the cross-batch stability: a mapping with value, n, n_valid and layer"""

    layer: Count
    samples: Count | None = Field(None, description="an integer >= 0, or null")


class FirstFlags(Tolerant):
    """the epochs of the first flags, or an empty mapping"""

    first_scale_flag: Epoch = None
    first_reference_flag: Epoch = None


class BatchNormTwice(Tolerant):
    """the norms with statistics that are updated twice a step, or an empty mapping"""

    max_growth: Number = None
    hidden_norm_last: Number = None
    grad_norm_last: Number = None


class FrozenBaselines(Tolerant):
    """the frozen baselines"""

    own: Fraction
    own_name: Text
    bp: Fraction
    test_samples: Count | None = Field(None, description="an integer >= 0, or null")
    paired: Ends = None


class BaselineRun(Tolerant):
    """a baseline: run and accuracy"""

    run: Text
    accuracy: float = Field(ge=0, le=1, description="a fraction 0..1")
    spec: SpecFile = MAY_LACK
    digest: Text = ""


class Limits(Tolerant):
    """the limits of the checks"""

    growth: Finite
    reference: Finite
    stability: Finite
    depth_margin: Finite
    saturation: Finite


class AuditFile(Tolerant, json_schema_extra={"description": AUDIT}):
    """Everything in an audit that reports, tables and figures read; what has a default may be absent."""

    method: Text
    warnings: list[Text] = Field([], description="a list of texts")
    first_flags: FirstFlags
    batch_norm_twice: BatchNormTwice = MAY_LACK
    headline_acc: Fraction
    validation_acc: Fraction = None
    baselines: FrozenBaselines
    checks: dict[str, Check] = Field(description="a mapping of checks")
    finite: YesNo
    layers: list[State] = Field(min_length=1, description="a non-empty list of states")
    credit: list[Credit] = Field(description="a list of blocks")  # type: ignore[valid-type]
    deep: Deep  # type: ignore[valid-type]
    feature_drift: dict[str, Measured] = Field(description="a mapping")
    stability: Stability
    samples: Count
    batches: Count
    untrue: list[Count] = Field([], description="a list of states")
    frequencies: dict[str, Any] | None = Field(None, description="a mapping, or null")
    about: dict[str, Any] = Field({}, description="a mapping")
    thresholds: Limits
    notes: Text
    setting: Text = ""
    run: Text = ""
    model: Text = ""
    digest: Text = ""
    device: Text = ""
    commit: Text = ""
    spec: SpecFile = MAY_LACK
    entry: dict[str, Any] = Field({}, description="a mapping")
    seed: Count = 0
    seconds: Number = None
    stopped_after: Epoch = None
    baseline_runs: dict[str, BaselineRun] = Field({}, description="a mapping")
    provenance: Provenance = MAY_LACK


PRECISION = ("float32_error", "float32_cosine")  # of a state; measured values, which can be absent with a reason
CREDITS, DEEP = tuple(OF_BLOCKS), tuple(OF_DEEP)


def number(value: float | str | None) -> float | None:
    """Return a number as the JSON of an audit writes it: plain, null, or 'nan', 'inf', '-inf'."""
    return None if value is None else float(value)


def outcome_columns(checks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the tidy table of runs has of the checks in an audit's JSON beside their values.

    ``<check>_fires``, ``_distance``, ``_interval_low``, ``_interval_high`` and ``_borderline``; None where a check was
    not evaluated, or has no interval.
    """
    columns: dict[str, Any] = {}
    for name, kind in CHECKS.items():
        found = checks[name]
        value, low, high = map(number, (found["value"], *(found.get("interval") or (None, None))))
        far = None if value is None else distance(kind.limit, value, found["threshold"])
        columns |= {f"{name}_fires": found["fires"], f"{name}_distance": far, f"{name}_interval_low": low}
        columns |= {f"{name}_interval_high": high, f"{name}_borderline": found.get("borderline", False)}
    return columns


def read_audit(path: str | Path) -> dict[str, Any]:
    """Read one audit; every entry that a report uses is checked, and outcomes follow from the evidence alone.

    Raises:
        AuditError: the file cannot be read, is no JSON, or is no audit, of which the message names the first problem;
            or its content is not what was written.
    """
    try:
        audit: dict[str, Any] = read_json(path, AUDIT)
    except OSError as error:
        raise AuditError(f"{path}: {error.strerror}; expected {AUDIT}.") from error
    for problem in problems_of(AuditFile, audit):
        raise AuditError(f"{path}: {printable(problem.removeprefix('top level: '))}")
    check_signature(audit, path)
    try:
        return audit | outcomes_of(audit)
    except FOREIGN as error:
        raise AuditError(f"{path}: no check follows from its evidence ({first_line(error)}); make it again.") from error


def outcomes_of(audit: Mapping[str, Any]) -> dict[str, Any]:
    """Derive checks, verdicts, flags and what is borderline from the evidence in an audit's JSON.

    Of its checks only the intervals are read, which are evidence: they were formed over samples or batches.
    """
    around = {name: audit["checks"].get(name, {}).get("interval") for name in CHECKS}
    growth, gradient, stability = (
        around[name] and tuple(map(float, around[name])) for name in ("scale", "reference", "stability")
    )
    numbers = ("growth", "grad_norm", "scale_free")
    layers = [SimpleNamespace(layer=h["layer"], **{name: number(h[name]) for name in numbers}) for h in audit["layers"]]
    predicted = audit.get("frequencies")
    evidence: Any = SimpleNamespace(
        layers=layers,
        stability=_namespace(audit["stability"]),
        frequencies=predicted and SimpleNamespace(gaps=predicted["gaps"], refitted=_namespace(predicted["refitted"])),
        growth_interval=growth,
        gradient_interval=gradient,
        stability_interval=stability,
        **{name: audit.get(name, ()) for name in ("samples", "finite", "untrue")},
    )
    baselines = Baselines(**{field.name: audit["baselines"].get(field.name) for field in fields(Baselines)})
    checks = check(evidence, audit["headline_acc"], baselines, DiagnosticThresholds.of(audit["thresholds"]))
    found: dict[str, Any] = as_json(outcomes(checks, baselines.own_name))
    return found


def _namespace(measured: Mapping[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(**{"reason": "", "samples": None} | dict(measured))


# --- the audits of one network over its seeds ------------------------------------------------------------------------


@dataclass(frozen=True)
class SeedGroup:
    """Audits of the same specification but for the seed.

    Attributes:
        unit: what distinguishes the audits: ``"seed"``, or ``"file"`` where no specification was recorded.
        labels: the seeds in rising order, or the numbers of the files, from 1.
        paths: the files, in the order of the labels.
        audits: what they hold, in the order of the labels.
    """

    unit: str
    labels: tuple[int, ...]
    paths: tuple[str, ...]
    audits: tuple[Mapping[str, Any], ...]


def read_seed_group(paths: Sequence[str | Path]) -> SeedGroup:
    """Read the audits of one network over its seeds.

    Raises:
        AuditError: a file is no audit, or differs from the first in more than the seed, or repeats a seed.
    """
    audits = {str(path): read_audit(path) for path in paths}
    if len(audits) < len(paths):
        raise AuditError(f"{_repeated(list(map(str, paths)))}: given twice; expected different files.")
    (first, reference), *others = audits.items()
    for path, audit in others:
        if differences := list(_differences(_identity(reference), _identity(audit))):
            raise AuditError(
                f"{path}: another run than {first}; it differs in {listed(differences, SHOWN)}."
                " Expected the same specification but for the seed: one report for each run."
            )
    return _ordered(audits)


def _ordered(audits: Mapping[str, Mapping[str, Any]]) -> SeedGroup:
    if not all("spec" in audit for audit in audits.values()):
        return SeedGroup("file", tuple(range(1, len(audits) + 1)), tuple(audits), tuple(audits.values()))
    by_seed: dict[int, str] = {}
    for path, audit in audits.items():
        if (seed := audit["spec"]["seed"]) in by_seed:
            raise AuditError(f"{path}: seed {seed} once more, after {by_seed[seed]}; expected one file for each seed.")
        by_seed[seed] = path
    paths = [path for _, path in sorted(by_seed.items())]
    return SeedGroup("seed", tuple(sorted(by_seed)), tuple(paths), tuple(audits[path] for path in paths))


def _repeated(paths: list[str]) -> str:
    return next(path for path in paths if paths.count(path) > 1)


def _identity(audit: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the audits of one group share, by dotted names."""
    entry = audit.get("entry", {})
    shared = {"spec": audit["spec"] | {"seed": "any"}} if "spec" in audit else {"method": audit["method"]}
    shared |= {"entry": {key: value for key, value in entry.items() if key not in OF_THE_WEIGHTS}}
    shared |= {key: audit[key] for key in ("thresholds", "samples", "batches")}
    shared |= {"number of states": len(audit["layers"]), "number of blocks with credits": len(audit["credit"])}
    return dict(_flat(shared))


def _flat(value: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    for key, child in value.items():
        yield from _flat(child, f"{place}{key}.") if isinstance(child, Mapping) else [(f"{place}{key}", child)]


def _differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys((*one, *other)):
        if (here := one.get(key, ABSENT)) != (there := other.get(key, ABSENT)):
            yield printable(f"{key} ({shortened(there)}, not {shortened(here)})")
