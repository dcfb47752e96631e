"""An audit: the evidence of one network, what it is of, and its file. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError

from fa_audit.core.errors import AuditError, first_line, printable
from fa_audit.core.files import FOREIGN, as_json, check_signature, read_json, signed, write_json
from fa_audit.core.measured import Model, Number
from fa_audit.protocol.checks import CHECKS, Outcome, evaluate_credits
from fa_audit.protocol.evidence import Count, Evidence, Fraction
from fa_audit.protocol.judge import Judgement, judge

AUDIT = (
    "an audit's JSON: results/audits/SETTING/RUN/seed*.json, results/models/NAME.json, or what"
    " `fa-audit audit --format json` prints"
)
# What a warning is about; the comments say what readers do with a code.
Code = Literal[
    "data as state",
    "batch size in loss",
    "probabilities",
    "narrow type",
    "partial states",
    "unproven states",
    "gaps in data",
    "unlikely accuracy",
    "weak baseline",  # margins are in doubt
    "repeated samples",
    "single class",
    "exploding gradient",
    "gradient not compared",  # nothing may be written of credits
    "gradient unresolved",
    "rounded gradient",
]


class AuditWarning(Model):
    """Something that keeps a reader from being misled by the numbers."""

    code: Code
    text: str

    def __str__(self) -> str:
        return self.text


class _About(Model):
    """What reports read of how an audit was made."""

    states: Sequence[str] = ()
    covered: Fraction = 1.0
    past: Sequence[Fraction | None] = ()
    versions: dict[str, Any] = Field(default_factory=dict)


def _checked_about(value: dict[str, Any]) -> dict[str, Any]:
    _About.model_validate(value)
    return value


class BaselineRun(Model):
    """A baseline: run and accuracy."""

    run: str = ""
    accuracy: Fraction
    spec: dict[str, Any] | None = None
    digest: str = ""


class Audit(Evidence):
    """The audit of one network.

    Attributes:
        method: the name of the audited method or network.
        warnings: what may make the numbers mean something else.
        notes: the author's remarks.
        about: how the audit was made: versions, device, precision, model, description, date.
        setting, run, seed, model: what it is of.
        spec, entry: the specification of a run, or what a configuration says of a model.
        baseline_runs: the baselines of a run, by role.
        digest, stopped_after, seconds, device, commit, cpu, torch, data_sha256, checkpoint_sha256,
            validation_acc: of the training, see `fa_audit.training.sidecar`.
        provenance: of the process that audited.
    """

    method: str
    warnings: tuple[AuditWarning, ...] = ()
    notes: str = ""
    about: Annotated[dict[str, Any], AfterValidator(_checked_about)] = Field(default_factory=dict)
    setting: str = ""
    run: str = ""
    seed: Count | None = None
    model: str = ""
    spec: dict[str, Any] | None = None
    entry: dict[str, Any] = Field(default_factory=dict)
    weights_sha256: str | None = None
    baseline_runs: dict[str, BaselineRun] = Field(default_factory=dict)
    digest: str | None = None
    stopped_after: Count | None = None
    validation_acc: Fraction | None = None
    seconds: Number | None = None
    device: str | None = None
    commit: str | None = None
    cpu: str | None = None
    torch: str | None = None
    data_sha256: str | None = None
    checkpoint_sha256: str | None = None
    audit_sha256: str | None = None
    path: str = Field("", exclude=True)  # where it was read
    lineage: str = ""
    provenance: dict[str, Any] = Field(default_factory=dict)

    @cached_property
    def checks(self) -> dict[str, Outcome]:
        """Return the outcome of every check."""
        return {name: check.evaluate(self) for name, check in CHECKS.items()}

    @cached_property
    def credits(self) -> dict[str, Outcome]:
        """Return whether the credits are beyond chance, by metric."""
        return evaluate_credits(self)

    @cached_property
    def judgement(self) -> Judgement:
        """Return what the protocol says of this network alone."""
        return judge([self], self.unit)

    @property
    def unit(self) -> str:
        """Return what distinguishes networks of its kind: ``seed``, or ``file``."""
        return "file" if self.spec is None else "seed"

    @property
    def label(self) -> int | None:
        """Return the seed, which audits that were printed have in their specification alone."""
        return self.seed if self.spec is None else self.spec.get("seed", self.seed)

    def warned(self, code: Code) -> bool:
        """Return whether there is a warning of this code."""
        return any(warning.code == code for warning in self.warnings)

    # --- the file ---------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as JSON types, signed, with verdicts; NaN and infinities become the
        strings 'nan', 'inf' and '-inf'. What was not recorded is left out.
        """
        record = self.model_dump(mode="json", exclude_defaults=True)
        record["thresholds"] = self.thresholds.limits  # defaults may change after this audit
        verdicts = as_json(self.judgement.to_dict())
        verdicts["verdict"]["baseline"] = self.baselines.own_name
        return signed(record | verdicts)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], where: str | Path = "audit") -> Self:
        """Return the audit of a `to_dict`; verdicts follow from its evidence alone.

        Raises:
            AuditError: it is not an audit: the message names the first problem; or its content is
                not what was written.
        """
        check_signature(record, where)
        try:
            audit = cls.model_validate(record)
            audit.judgement.to_dict()
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"])) or "top level"
            found = printable(f"{where}: {place}: {first['msg']}")
            raise AuditError(
                f"{found}; expected an audit of this version of fa-audit. If an earlier one wrote"
                " it, make it again."
            ) from None
        except FOREIGN as error:
            raise AuditError(
                f"{where}: no check follows from its evidence ({first_line(error)}); make it again."
            ) from error
        return audit

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read an audit.

        Raises:
            AuditError: the file cannot be read, is not JSON, or as `from_dict`.
        """
        record = read_json(path, AUDIT)
        if not isinstance(record, dict):
            raise AuditError(f"{path}: found no mapping; expected {AUDIT}.")
        return cls.from_dict(record, path).model_copy(update={"path": str(path)})

    def write(self, path: str | Path) -> None:
        """Write the audit."""
        write_json(path, self.to_dict())
