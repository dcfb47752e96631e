"""Audits read back from their JSON files: checked before they are believed, and known to be of one cell. No torch."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as shortened
from typing import Any

import jsonschema

from fa_audit.core.errors import AuditError, listed
from fa_audit.core.files import read_json
from fa_audit.core.thresholds import CHECK_LABELS

AUDIT = (
    "an audit's JSON: results/audits/SETTING/RUN/seed*.json, results/models/NAME.json, or what"
    " `fa-audit audit --format json` prints"
)
CREDITS = (
    "cosine", "clamped_cosine", "cosine_at_output", "rho", "rho_bp", "rho_random", "nudging", "bridge_residual",
    "fresh_b_cosine", "feature_drift",
)  # fmt: skip
DEEP = ("cosine", "clamped_cosine", "rho", "rho_bp", "nudging", "fresh_b_null")
PRECISION = ("float32_error", "float32_cosine")  # of a state; measured values, which can be absent with a reason
STATES = ("layer", "hidden_norm", "grad_norm", "grad_norm_per_sample", "growth", "scale_free", *PRECISION)
LIMITS = ("growth", "reference", "stability", "depth_margin", "saturation")
OF_THE_WEIGHTS = ("seed", "weights", "accuracy", "frozen_accuracy", "bp_frozen_accuracy")  # of a model's entry
SHOWN = 3  # differences in one message
ABSENT = "absent"


@dataclass(frozen=True)
class Cell:
    """Audits of one cell: the same specification but for the seed.

    Attributes:
        unit: what tells the audits apart: ``"seed"``, or ``"file"`` where no specification was recorded.
        labels: the seeds in rising order, or the numbers of the files, from 1.
        paths: the files, in the order of the labels.
        audits: what they hold, in the order of the labels.
    """

    unit: str
    labels: tuple[int, ...]
    paths: tuple[str, ...]
    audits: tuple[Mapping[str, Any], ...]


def number(value: float | str | None) -> float | None:
    """A number as the JSON of an audit writes it: plain, null, or 'nan', 'inf', '-inf'."""
    return None if value is None else float(value)


def read_cell(paths: Sequence[str | Path]) -> Cell:
    """Read the audits of one cell.

    Raises:
        AuditError: a file is no audit, or belongs to another cell than the first, or repeats a seed.
    """
    audits = {str(path): read_audit(path) for path in paths}
    if len(audits) < len(paths):
        raise AuditError(f"{_repeated(list(map(str, paths)))}: given twice; expected different files.")
    (first, reference), *others = audits.items()
    for path, audit in others:
        if differences := list(_differences(_identity(reference), _identity(audit))):
            raise AuditError(
                f"{path}: another cell than {first}; it differs in {listed(differences, SHOWN)}."
                " Expected the same specification but for the seed: one report for each cell."
            )
    return _ordered(audits)


def _ordered(audits: Mapping[str, Mapping[str, Any]]) -> Cell:
    if not all("spec" in audit for audit in audits.values()):
        return Cell("file", tuple(range(1, len(audits) + 1)), tuple(audits), tuple(audits.values()))
    by_seed: dict[int, str] = {}
    for path, audit in audits.items():
        if (seed := audit["spec"]["seed"]) in by_seed:
            raise AuditError(f"{path}: seed {seed} once more, after {by_seed[seed]}; expected one file for each seed.")
        by_seed[seed] = path
    paths = [path for _, path in sorted(by_seed.items())]
    return Cell("seed", tuple(sorted(by_seed)), tuple(paths), tuple(audits[path] for path in paths))


def _repeated(paths: list[str]) -> str:
    return next(path for path in paths if paths.count(path) > 1)


def _identity(audit: Mapping[str, Any]) -> dict[str, Any]:
    """What the audits of one cell share, by dotted names."""
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
            yield f"{_escaped(key)} ({shortened(there)}, not {shortened(here)})"


# --- one file ------------------------------------------------------------------------------------------------------


def read_audit(path: str | Path) -> dict[str, Any]:
    """One audit, every entry that a report uses checked for its type.

    Raises:
        AuditError: the file cannot be read, is no JSON, or is no audit; the message names the first problem.
    """
    try:
        audit = read_json(path, AUDIT)
    except OSError as error:
        raise AuditError(f"{path}: {error.strerror}; expected {AUDIT}.") from error
    problems = jsonschema.Draft202012Validator(SCHEMA).iter_errors(audit)
    for error in sorted(problems, key=lambda error: list(map(str, error.absolute_path))):
        raise AuditError(f"{path}: {_problem(error)}")
    return audit


def _problem(error: jsonschema.ValidationError) -> str:
    """One line for a schema violation: place, what was found, what is expected."""
    place = "".join(f"{_escaped(part)}: " for part in [".".join(map(str, error.absolute_path))] if part)
    found = f"found {shortened(error.instance)}"
    if error.validator == "required":
        found = f"missing {', '.join(key for key in error.validator_value if key not in error.instance)}"
    return f"{place}{found}; expected {error.schema['description']}."


def _escaped(text: str) -> str:
    return text.encode("unicode_escape").decode()


def _object(description: str, required: Mapping[str, Any], **optional: Any) -> dict[str, Any]:
    """A schema of an object; keys that it does not name are allowed, and not read."""
    properties = {**required, **optional}
    return {"description": description, "type": "object", "required": list(required), "properties": properties}


def _each(names: Iterable[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    return dict.fromkeys(names, schema)


def _list(description: str, items: Mapping[str, Any], **limits: int) -> dict[str, Any]:
    return {"description": description, "type": "array", "items": items, **limits}


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": f"{schema['description']}, or null", "anyOf": [schema, {"type": "null"}]}


TEXT = {"description": "a text", "type": "string"}
YES = {"description": "true or false", "type": "boolean"}
COUNT = {"description": "an integer >= 0", "type": "integer", "minimum": 0, "maximum": 2**63}
FINITE = {
    "description": "a finite number",
    "type": "number",
    "minimum": -sys.float_info.max,
    "maximum": sys.float_info.max,
}
NUMBER = {
    "description": "a number, null, 'nan', 'inf' or '-inf'",
    "anyOf": [FINITE, {"enum": [None, "nan", "inf", "-inf"]}],
}
FRACTION = _or_null({"description": "a fraction 0..1", "type": "number", "minimum": 0, "maximum": 1})
OBJECT = {"description": "a mapping", "type": "object"}
MEASURED = _object(
    "a measured value: a mapping with value, n and n_valid",
    {"value": NUMBER, "n": COUNT, "n_valid": COUNT},
    reason=TEXT,
    std=NUMBER,
    interval=_or_null(_list("a list of two numbers", NUMBER, minItems=2, maxItems=2)),
)
OUTCOME = {"name": TEXT, "value": NUMBER, "threshold": FINITE, "fires": _or_null(YES), "note": TEXT}
CHECK = _object("a check: a mapping with name, value, threshold, fires and note", OUTCOME)
MARGIN = _or_null({"description": "a number from -1 to 1", "type": "number", "minimum": -1, "maximum": 1})
MARGIN_CHECK = _object(CHECK["description"], OUTCOME | {"value": MARGIN})
STATE = _object("the evidence at one state", _each(STATES, NUMBER) | _each(PRECISION, MEASURED) | {"layer": COUNT})
SPEC = _object(
    "the specification of a run",
    _each(("dataset", "architecture", "method"), TEXT)
    | _each(("frozen_blocks", "epochs", "batch_size", "seed"), COUNT)
    | _each(("penalty", "lr", "weight_decay"), FINITE)
    | _each(("shallow", "random_targets"), YES)
    | {"architecture_options": OBJECT},
    monitor=OBJECT,
)
OPTIONAL = {
    **_each(("setting", "run", "model", "digest", "device", "commit"), TEXT),
    **{"spec": SPEC, "entry": OBJECT, "seed": COUNT, "seconds": NUMBER, "stopped_after": _or_null(COUNT)},
    "baseline_runs": OBJECT
    | {"additionalProperties": _object("a baseline: run and accuracy", {"run": TEXT, "accuracy": FRACTION})},
    "provenance": _object("where an audit was made", _each(("device", "commit"), TEXT)),
}
SCHEMA = _object(
    AUDIT,
    {
        "method": TEXT,
        "verdict": _object("the verdicts", _each(("three_check", "four_check", "baseline"), TEXT)),
        "flags": _list("a list of texts", TEXT),
        "first_flags": _object(
            "the epochs of the first flags, or an empty mapping",
            {},
            **_each(("first_scale_flag", "first_reference_flag"), _or_null(COUNT)),
        ),
        "headline_acc": FRACTION,
        "baselines": _object("the frozen baselines", {"own": FRACTION, "own_name": TEXT, "bp": FRACTION}),
        "checks": _object("the checks", _each(CHECK_LABELS, CHECK) | _each(("depth", "depth_strict"), MARGIN_CHECK)),
        "finite": YES,
        "layers": _list("a non-empty list of states", STATE, minItems=1),
        "credit": _list("a list of blocks", _object("the credit of one block", _each(CREDITS, MEASURED))),
        "deep": _object("the credits of the blocks l >= 1", {}, **_each(DEEP, MEASURED)),
        "feature_drift": OBJECT | {"additionalProperties": MEASURED},
        "stability": _object("the cross-batch stability", {"layer": COUNT}) | {"allOf": [MEASURED]},
        **_each(("samples", "batches"), COUNT),
        "thresholds": _object("the limits of the checks", _each(LIMITS, FINITE)),
        "notes": TEXT,
    },
    **OPTIONAL,
)
