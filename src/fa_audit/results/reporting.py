"""A run's full report as a document: verdicts, evidence, training and audit. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import starmap
from typing import Any

from fa_audit.documents.document import Document, Entry, Section
from fa_audit.methods.info import NOT_STATED, SYMBOLS, stated
from fa_audit.protocol.audit import Audit
from fa_audit.protocol.judge import Judgement
from fa_audit.protocol.report import details, document, grouped

UNKNOWN = "not recorded"


def report(judgement: Judgement) -> Document:
    """Return the report of one network over its seeds, with everything that its audits record."""
    short, first = document(judgement), judgement.networks[0]
    about = Section("Identification", tuple(starmap(Entry, _identification(judgement))))
    sections = [*short.sections, about]
    if first.spec is not None:
        sections.append(Section("Credit", tuple(_credit(first))))
    sections += details(judgement).sections
    return Document(short.title, tuple(sections), short.lead)


def _credit(audit: Audit) -> Iterator[Entry]:
    """Yield the formula and feedback of a trained run's method."""
    method = stated(audit.spec["method"])
    source = f"({method.source}). " if method.source else ""
    formula = method.equation or method.latex
    text = f"{source}{SYMBOLS}." if formula else f"{NOT_STATED}."
    yield Entry("Formula of the credit", text, formula, method.latex)
    yield Entry("Feedback", method.feedback or NOT_STATED)


def _identification(judgement: Judgement) -> Iterator[tuple[str, str]]:
    audit = judgement.networks[0]
    samples = "samples that were given to the audit"
    if audit.spec is None:
        yield "Method", audit.method
        about = audit.about
        states = ", ".join(map(str, about.get("states", ())))
        own = {"model": about.get("model"), "reads": about.get("reads"), "states": states}
        yield "Network", _settings(audit.entry or own)
    else:
        spec = dict(audit.spec)
        yield "Method", spec.pop("method")
        options = _settings(spec.pop("architecture_options"))
        yield "Network", f"{spec.pop('architecture')} ({options})"
        yield "Data", spec.pop("dataset")
        yield "Training", _settings(spec | {"seed": None})
        yield "Seeds", ", ".join(map(str, judgement.labels))
        yield "Trained by commit", _each(judgement, "commit")
        yield "Trained on", _each(judgement, "device")
        yield "Training time in seconds", _each(judgement, "seconds")
        samples = "samples of the unshuffled test set"
    if audit.setting:
        yield "Setting", audit.setting
    if audit.validation_acc is not None:
        yield "Validation accuracy", _each(judgement, "validation_acc")
    yield "Digest", _each(judgement, "digest")
    yield "Audited by commit", "; ".join(grouped(judgement, _commit))
    batches = f"{audit.batches} batches of {audit.stability.samples or audit.samples}"
    yield "Evaluation", f"the first {audit.samples} {samples}; stability over {batches}"
    yield "Files", "; ".join(grouped(judgement, lambda audit: [audit.path]))


def _each(judgement: Judgement, name: str) -> str:
    """Return a fact of the audits as text: once if all share it, else by seed."""

    def text(audit: Audit) -> list[str]:
        value = getattr(audit, name)
        return [UNKNOWN if value is None else str(value)]

    return "; ".join(grouped(judgement, text))


def _commit(audit: Audit) -> list[str]:
    version = audit.about.get("versions", {}).get("fa_audit")
    unknown = f"{UNKNOWN}; fa-audit {version}" if version else UNKNOWN
    return [audit.provenance.get("commit", unknown)]


def _settings(options: Mapping[str, Any]) -> str:
    known = {name: value for name, value in options.items() if value not in (None, "", {})}
    return ", ".join(f"{name} {value}" for name, value in sorted(known.items())) or UNKNOWN
