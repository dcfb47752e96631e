"""The audit of one network: evidence, facts about the network, and the audit's JSON file.

`DiagnosticReport` is what `diagnose` returns. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError

from fa_audit.core.errors import AuditError, first_line, printable
from fa_audit.core.measured import Model, Number
from fa_audit.protocol.checks import CHECKS, Outcome, evaluate_credits
from fa_audit.protocol.evidence import Count, Evidence, Fraction
from fa_audit.protocol.judge import FOUR, THREE, Judgement

AUDIT = (
    "an audit's JSON: results/audits/SETTING/RUN/seed*.json, results/models/NAME.json, or what"
    " `fa-audit audit --format json` prints"
)
# Subjects of warnings; comments say which ones change a report.
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
    "gradient not compared",  # nothing may be written about the credits
    "gradient unresolved",
    "rounded gradient",
]


class AuditWarning(Model):
    """A doubt about the numbers of an audit: a code for programs, a text for readers."""

    code: Code
    text: str

    def __str__(self) -> str:
        return self.text


class _About(Model):
    """The parts of `Audit.about` that reports read."""

    states: Sequence[str] = ()
    share: Fraction | None = None
    past: Sequence[Fraction | None] = ()
    versions: dict[str, Any] = Field(default_factory=dict)


def _checked_about(value: dict[str, Any]) -> dict[str, Any]:
    _About.model_validate(value)
    return value


class BaselineRun(Model):
    """The name, accuracy and specification of a baseline of the audited run."""

    run: str = ""
    accuracy: Fraction
    spec: dict[str, Any] | None = None
    digest: str = ""


class Audit(Evidence):
    """The audit of one network.

    Attributes:
        method: the name of the audited method or network.
        warnings: doubts about the numbers.
        notes: remarks, printed in the details.
        about: how the audit was made: versions, device, precision, model, description, date.
        setting, run, seed, model: names of the audited run, or of the model.
        spec, entry: the specification of a run, or the configuration's entry of a model.
        baseline_runs: the baselines of a run, by role.
        digest, stopped_after, seconds, device, commit, cpu, torch, data_sha256, checkpoint_sha256,
            validation_acc: facts of the training, see `fa_audit.training.sidecar`.
        provenance: facts of the process that audited.
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
    path: str = Field("", exclude=True)  # the file that it was read from
    provenance: dict[str, Any] = Field(default_factory=dict)

    @cached_property
    def checks(self) -> dict[str, Outcome]:
        """Return the outcome of every check."""
        return {name: check.evaluate(self) for name, check in CHECKS.items()}

    @cached_property
    def credits(self) -> dict[str, Outcome]:
        """Return the outcome of every credit metric: whether the credits beat chance."""
        return evaluate_credits(self)

    @cached_property
    def judgement(self) -> Judgement:
        """Judge this network alone."""
        return Judgement([self], self.unit)

    @property
    def unit(self) -> str:
        """Return what tells audits of a group apart: ``seed``, or ``file`` if none is recorded."""
        return "file" if self.spec is None else "seed"

    @property
    def label(self) -> int | None:
        """Return the run's seed, from `spec` if possible: `fa-audit audit` leaves `seed` empty."""
        return self.seed if self.spec is None else self.spec.get("seed", self.seed)

    def warned(self, code: Code) -> bool:
        """Return whether there is a warning of this code."""
        return any(warning.code == code for warning in self.warnings)

    # --- the file ---------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as JSON types, with its verdicts and a digest of the content.

        NaN and infinities become 'nan', 'inf' and '-inf'; entries that were not recorded are left
        out.
        """
        # Imported here and below, since audits in a training loop need no files or writers.
        from fa_audit.core.files import as_json, signed

        record = self.model_dump(mode="json", exclude_defaults=True)
        record["thresholds"] = self.thresholds.limits  # defaults may change after this audit
        verdicts = as_json(self.judgement.to_dict())
        verdicts["verdict"]["baseline"] = self.baselines.own_name
        return signed(record | verdicts)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], where: str | Path = "audit") -> Self:
        """Rebuild an audit from `to_dict`; verdicts are derived again from its evidence.

        Raises:
            AuditError: the record is not an audit (the message names the first problem), or was
                changed after it was written.
        """
        from fa_audit.core.files import FOREIGN, check_signature

        check_signature(record, where)
        try:
            audit = cls.model_validate(record)
            # Values of the right types may still be impossible to judge.
            audit.judgement.to_dict()
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"])) or "top level"
            found = printable(f"{where}: {place}: {first['msg']}")
            raise AuditError(
                f"{found}; expected an audit written by this version of fa-audit. If another"
                " version wrote it, make the audit again."
            ) from None
        except FOREIGN as error:
            raise AuditError(
                f"{where}: its evidence cannot be judged ({first_line(error)}); make it again."
            ) from error
        return audit

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read an audit.

        Raises:
            AuditError: the file cannot be read, is not JSON, or holds no audit (see `from_dict`).
        """
        from fa_audit.core.files import read_json

        record = read_json(path, AUDIT)
        if not isinstance(record, dict) or "layers" not in record:
            raise AuditError(f"{path}: found no audit of one network; expected {AUDIT}.")
        return cls.from_dict(record, path).model_copy(update={"path": str(path)})

    def write(self, path: str | Path) -> None:
        """Write the audit."""
        from fa_audit.core.files import write_json

        write_json(path, self.to_dict())


class DiagnosticReport(Audit):
    """The audit of one network, with attributes named as in the paper's package.

    `print` shows it as text, a notebook as markdown. `write` saves it as JSON; `read` loads it.
    """

    @property
    def method_name(self) -> str:
        """Return the name of the audited method or network."""
        return self.method

    @property
    def residual_norms(self) -> list[float]:
        """Return median ``||h_l||`` for l = 0..L."""
        return [state.hidden_norm for state in self.layers]

    @property
    def bp_grad_norms(self) -> list[float]:
        """Return median ``||g_l||`` of the batch-mean loss for l = 0..L."""
        return [state.grad_norm for state in self.layers]

    @property
    def cross_batch_stability(self) -> float | None:
        """Return the mean pairwise cosine of the batches' mean gradients, or None."""
        return self.stability.value

    @property
    def frozen_baseline_acc(self) -> float | None:
        """Return the accuracy of the frozen baseline that D3 uses."""
        return self.baselines.own

    @property
    def verdict(self) -> str:
        """Return the four-check verdict."""
        return self.judgement.verdict(FOUR)

    @property
    def three_check_verdict(self) -> str:
        """Return the three-check verdict."""
        return self.judgement.verdict(THREE)

    @property
    def flags(self) -> list[str]:
        """List every check that fired, with its cause or baseline."""
        return self.judgement.flags

    @property
    def borderline(self) -> list[str]:
        """List every check whose 95 % interval contains its limit."""
        return self.judgement.borderline

    def __str__(self) -> str:
        from fa_audit.documents.document import to_text
        from fa_audit.protocol.report import document

        return to_text(document(self.judgement))

    def details(self) -> str:
        """Return the evidence at every state and the credits at every block, as text."""
        from fa_audit.documents.document import to_text
        from fa_audit.protocol.report import details

        return to_text(details(self.judgement))

    def to_markdown(self) -> str:
        """Return the report as a section in markdown."""
        from fa_audit.documents.document import to_markdown
        from fa_audit.protocol.report import document

        return to_markdown(document(self.judgement))

    _repr_markdown_ = to_markdown
