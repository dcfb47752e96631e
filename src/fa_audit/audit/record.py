"""The record of an audit: written as JSON, read again, and as rows of the tidy tables. Imports no
torch.

Readers take the evidence from it and derive checks and verdicts; a digest over its entries finds
damage.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, create_model, model_validator
from pydantic_core import PydanticCustomError

from fa_audit.core.errors import AuditError, first_line, printable
from fa_audit.core.files import (
    FOREIGN,
    as_json,
    check_signature,
    number,
    read_json,
    signed,
    write_json,
)
from fa_audit.core.validation import Tolerant, problems_of
from fa_audit.experiments.paths import AT_INPUT, IDENTITY, RunKey, at_both_sides
from fa_audit.experiments.spec import DEPARTURES, OWN_OPTIONS, SpecFile
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.limits import FIELDS, DiagnosticThresholds, distance
from fa_audit.protocol.rules import RULES, verdicts_of
from fa_audit.protocol.verdicts import Baselines, Given, check, outcomes
from fa_audit.training.sidecar import Provenance

if TYPE_CHECKING:
    from fa_audit.audit.result import AuditResult
    from fa_audit.core.vectors import Measured as Value

AUDIT = (
    "an audit's JSON: results/audits/SETTING/RUN/seed*.json, results/models/NAME.json, or what"
    " `fa-audit audit --format json` prints"
)
ROUNDING = 1e-6  # of a cosine, beyond -1 and 1
MAY_LACK: Any = None  # of an entry that may be absent, but not null


# --- the file --------------------------------------------------------------------------------------------------------

Text = Annotated[str, Field(description="a text")]
YesNo = Annotated[bool, Field(description="true or false")]
Count = Annotated[int, Field(ge=0, le=2**63, description="an integer >= 0")]
Epoch = Annotated[Count | None, Field(description="an integer >= 0, or null")]
Finite = Annotated[float, Field(description="a finite number")]
Number = Annotated[
    float | Literal["nan", "inf", "-inf"] | None,
    Field(description="a number, null, 'nan', 'inf' or '-inf'"),
]
Fraction = Annotated[
    Annotated[float, Field(ge=0, le=1)] | None, Field(description="a fraction 0..1, or null")
]
Cosine = Annotated[
    Annotated[float, Field(ge=-1 - ROUNDING, le=1 + ROUNDING)] | None,
    Field(description="a number from -1 to 1, or null"),
]
Norm = Annotated[float | Literal["nan", "inf"], Field(description="a number, 'nan' or 'inf'")]
Pair = Annotated[list[Number], Field(min_length=2, max_length=2)]
Hits = Annotated[
    list[Count], Field(min_length=2, max_length=2, description="two integers >= 0, or null")
]
Ends = Annotated[Pair | None, Field(description="a list of two numbers, or null")]


class Measured(Tolerant):
    """a measured value: a mapping with value, n and n_valid, and a reason where the value is null"""

    value: float | Literal["inf", "-inf"] | None = Field(
        description="a number, null, 'inf' or '-inf'"
    )
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
    """a measured cosine or correlation: a mapping with value, n and n_valid, and a reason where the
    value is null
    """

    value: Cosine


def _in_order(ends: list[float]) -> list[float]:
    if not float(ends[0]) <= float(ends[1]):
        raise PydanticCustomError("order", "the lower end first")
    return ends


Interval = Annotated[
    list[float | Literal["inf", "-inf"]],
    Field(min_length=2, max_length=2),
    AfterValidator(_in_order),
]


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
    **dict.fromkeys(
        (*COSINES, *at_both_sides("rho_random", "fresh_b_cosine")), (MeasuredCosine, ...)
    ),
    **dict.fromkeys(
        (*at_both_sides("nudging"), "bridge_residual", "feature_drift"), (Measured, ...)
    ),
    **dict.fromkeys(FLOAT32, (MeasuredCosine, None)),
    **dict.fromkeys(("credit_norm", "residual_ratio", "scale"), (Measured, None)),
}
OF_DEEP: dict[str, Any] = {
    **dict.fromkeys((*COSINES, *at_both_sides("fresh_b_null"), *FLOAT32), (MeasuredCosine, None)),
    **dict.fromkeys(at_both_sides("nudging"), (Measured, None)),
}
Credit = create_model("Credit", __base__=Tolerant, __doc__="the credit of one block", **OF_BLOCKS)
Deep = create_model(
    "Deep", __base__=Tolerant, __doc__="the credits of the blocks l >= 1", **OF_DEEP
)


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


OF_LIMITS: dict[str, Any] = dict.fromkeys(FIELDS, (Finite, ...))
Limits = create_model("Limits", __base__=Tolerant, __doc__="the limits of the checks", **OF_LIMITS)


class AuditFile(Tolerant, json_schema_extra={"description": AUDIT}):
    """Everything in an audit that reports, tables and figures read; what has a default may be
    absent.
    """

    method: Text
    warnings: list[Text] = Field([], description="a list of texts")
    first_flags: FirstFlags
    batch_norm_twice: BatchNormTwice = MAY_LACK
    headline_acc: Fraction
    validation_acc: Fraction = None
    hits: Hits | None = Field(None, description="two integers >= 0, or null")
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
    at_logits: Number = None
    frequencies: dict[str, Any] | None = Field(None, description="a mapping, or null")
    about: dict[str, Any] = Field({}, description="a mapping")
    thresholds: Limits  # type: ignore[valid-type]
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


PRECISION = (
    "float32_error",
    "float32_cosine",
)  # of a state; measured values, which can be absent with a reason
CREDITS, DEEP = tuple(OF_BLOCKS), tuple(OF_DEEP)
DEEP_CREDIT = at_both_sides(
    "cosine", "clamped_cosine", "rho", "rho_bp", "nudging"
)  # in the tidy table of runs
NULLS = [
    (side, *of) for side in ("", AT_INPUT) for of in (("mean", "value"), ("std", "std"))
]  # likewise


# --- writing ---------------------------------------------------------------------------------------------------------


def record_of(report: AuditResult) -> dict[str, Any]:
    """Return a report as JSON types, signed; NaN and infinities become the strings 'nan', 'inf',
    '-inf'.
    """
    facts: dict[str, Any] = as_json(
        {
            "method": report.method_name,
            **outcomes(report.checks, report.baselines.own_name),
            "warnings": report.warnings,
            "first_flags": report.first_flags,
            "batch_norm_twice": report.batch_norm_twice,
            "headline_acc": report.headline_acc,
            "hits": report.hits,
            "baselines": asdict(report.baselines),
            "finite": report.evidence.finite,
            "layers": [layer.to_dict() for layer in report.evidence.layers],
            "credit": [_entries(block) for block in report.credit],
            "deep": _entries(report.deep),
            "feature_drift": _entries(report.feature_drift),
            "stability": {
                "layer": report.stability_layer,
                "samples": report.evidence.stability_samples,
            }
            | report.evidence.stability.to_dict(),
            "samples": report.evidence.samples,
            "batches": report.evidence.batches,
            "untrue": report.evidence.untrue,
            "at_logits": report.evidence.at_logits,
            "frequencies": report.evidence.frequencies and report.evidence.frequencies.to_dict(),
            "about": report.about,
            "thresholds": report.thresholds.limits,
            "notes": report.notes,
        }
    )
    return signed(facts)


def _entries(measured: Mapping[str, Value]) -> dict[str, Any]:
    return {name: entry.to_dict() for name, entry in measured.items()}


def full_record(
    report: AuditResult, key: Mapping[str, Any], about: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the record with the key of its run or model, and further facts about it."""
    return signed(dict(key) | record_of(report) | dict(about))


def write_audit(
    path: str | Path, report: AuditResult, key: Mapping[str, Any], about: Mapping[str, Any]
) -> None:
    """Write the `full_record`."""
    write_json(path, full_record(report, key, about))


# --- reading ---------------------------------------------------------------------------------------------------------


def read_audit(path: str | Path) -> dict[str, Any]:
    """Read one audit; every entry that a report uses is checked, and outcomes follow from the
    evidence alone.

    Raises:
        AuditError: the file cannot be read, is not JSON, or is not an audit: the message names the
            first problem; or its content is not what was written.
    """
    audit: dict[str, Any] = read_json(path, AUDIT)
    for problem in problems_of(AuditFile, audit):
        raise AuditError(f"{path}: {printable(problem.removeprefix('top level: '))}")
    check_signature(audit, path)
    try:
        return audit | outcomes_of(audit)
    except FOREIGN as error:
        raise AuditError(
            f"{path}: no check follows from its evidence ({first_line(error)}); make it again."
        ) from error


def outcomes_of(audit: Mapping[str, Any]) -> dict[str, Any]:
    """Derive checks, verdicts, flags and what is borderline from the evidence in an audit's JSON.

    Only the intervals of its checks are read: they are evidence, formed over samples or batches.
    """
    around = {name: audit["checks"].get(name, {}).get("interval") for name in CHECKS}
    growth, gradient, stability = (
        around[name] and tuple(map(float, around[name]))
        for name in ("scale", "reference", "stability")
    )
    numbers = ("growth", "grad_norm", "scale_free")
    layers = [
        SimpleNamespace(layer=h["layer"], **{name: number(h[name]) for name in numbers})
        for h in audit["layers"]
    ]
    frequencies = audit.get("frequencies")
    if frequencies:
        refitted = SimpleNamespace(**{"reason": ""} | frequencies["refitted"])
        frequencies = SimpleNamespace(gaps=frequencies["gaps"], refitted=refitted)
    evidence: Any = SimpleNamespace(
        layers=layers,
        stability=SimpleNamespace(**{"reason": ""} | audit["stability"]),
        frequencies=frequencies,
        growth_interval=growth,
        gradient_interval=gradient,
        stability_interval=stability,
        at_logits=number(audit.get("at_logits")),
        **{name: audit.get(name, ()) for name in ("samples", "finite", "untrue")},
    )
    baselines = Baselines(
        **{field.name: audit["baselines"].get(field.name) for field in fields(Baselines)}
    )
    limits = DiagnosticThresholds.of(audit["thresholds"])
    checks = check(Given(evidence, audit["headline_acc"], baselines, limits, audit.get("hits")))
    found: dict[str, Any] = as_json(outcomes(checks, baselines.own_name))
    return found


# --- rows ------------------------------------------------------------------------------------------------------------


def outcome_columns(checks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the columns of the checks in the tidy table of runs, beside their values, from an
    audit's JSON.

    ``<check>_fires``, ``_distance``, ``_interval_low``, ``_interval_high`` and ``_borderline``;
    None where a check was not evaluated, or has no interval.
    """
    columns: dict[str, Any] = {}
    for name, kind in CHECKS.items():
        found = checks[name]
        value, low, high = map(number, (found["value"], *(found.get("interval") or (None, None))))
        far = None if value is None else distance(kind.limit, value, found["threshold"])
        columns |= {
            f"{name}_fires": found["fires"],
            f"{name}_distance": far,
            f"{name}_interval_low": low,
        }
        columns |= {
            f"{name}_interval_high": high,
            f"{name}_borderline": found.get("borderline", False),
        }
    return columns


def run_row(audit: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of the tidy table of runs."""
    spec, last = audit["spec"], audit["layers"][-1]
    checks = audit["checks"]
    columns = outcome_columns(checks)
    judged = verdicts_of(columns | {"finite": audit["finite"]})
    fair = (
        {} if audit["stopped_after"] else audit["baseline_runs"]
    )  # baselines of a stopped run had a larger budget
    baselines = {role: run["accuracy"] for role, run in fair.items()}
    values = {
        kind.column: number(checks[name]["value"])
        for name, kind in CHECKS.items()
        if kind.unit != "points"
    }
    row = {
        **{key: audit[key] for key in RunKey._fields},
        **{key: spec[key] for key in ("method", "dataset", "architecture")},
        **{key: spec["architecture_options"].get(key) for key in ("width", "depth")},
        **{
            key: spec[key]
            for key in ("epochs", "penalty", "frozen_blocks", "shallow", "random_targets")
        },
        **{key: (DEPARTURES | spec)[key] for key in ("lr", *OWN_OPTIONS)},
        "accuracy": audit["headline_acc"],
        "validation_acc": audit.get("validation_acc"),
        "own_frozen_acc": baselines.get("own"),
        "bp_frozen_acc": baselines.get("bp"),
        "shallow_acc": baselines.get("shallow"),
        "max_growth": checks["scale"]["value"],
        "hidden_norm_last": last["hidden_norm"],
        "grad_norm_last": last["grad_norm"],
        "stability": checks["stability"]["value"],
        "scale_free_last": last["scale_free"],
        **{f"identity_{name}": last.get(of, {}).get("value") for name, of in IDENTITY.items()},
        f"mean_clamped_cosine{AT_INPUT}": _mean(audit["credit"], f"clamped_cosine{AT_INPUT}"),
        **{f"deep_{name}": audit["deep"][name]["value"] for name in DEEP_CREDIT},
        **{
            f"fresh_b_{column}{side}": audit["deep"][f"fresh_b_null{side}"][of]
            for side, column, of in NULLS
        },
        **{
            f"deep_{name}": _mean(audit["credit"][1:], name) for name in at_both_sides("rho_random")
        },
        **{rule: judged[rule] for rule in RULES},
        "baseline": audit["verdict"]["baseline"],
        **columns,
        **judged,
        "finite": audit["finite"],
        "samples": audit["samples"],
        "flags": "; ".join(audit["flags"]),
        **audit["first_flags"],
        **{key: audit[key] for key in ("stopped_after", "digest")},
        **{
            key: json.dumps(audit[key], sort_keys=True, separators=(",", ":"))
            for key in ("spec", "thresholds")
        },
    }
    return row | {column: value for column, value in values.items() if column not in row}


def _mean(blocks: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Average a measured value over the blocks that have it; None where none has."""
    values = [block[name]["value"] for block in blocks if block[name]["value"] is not None]
    return sum(values) / len(values) if values else None


def layer_rows(audit: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the tidy table of layers: of every state, with the credit of the block that
    reads it.
    """
    for layer, credit in zip(audit["layers"], chain(audit["credit"], repeat({}))):
        own = {name: value for name, value in layer.items() if name != "more_samples"}
        plain = {name: value for name, value in own.items() if not isinstance(value, dict)}
        measured = {
            name: value for name, value in (own | credit).items() if isinstance(value, dict)
        }
        more = layer.get("more_samples", {})
        yield {key: audit[key] for key in RunKey._fields} | plain | _flat(measured) | more


def _flat(measured: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return measured quantities as columns: value, valid samples, spread of draws, and why a value
    is absent.
    """
    columns: dict[str, Any] = {}
    for name, entry in measured.items():
        columns |= {
            name: entry["value"],
            f"{name}_n_valid": entry["n_valid"],
            f"{name}_reason": entry.get("reason"),
        }
        if "std" in entry:
            columns[f"{name}_std"] = entry["std"]
    return columns
