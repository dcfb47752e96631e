"""The whole report of a run as a document: report, details, training and audit. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import starmap
from typing import Any

from fa_audit.documents.document import Document, Entry, Section
from fa_audit.experiments.spec import DEPARTURES
from fa_audit.methods.info import NOT_STATED, SYMBOLS, stated
from fa_audit.protocol.audit import Audit
from fa_audit.protocol.judge import Judgement
from fa_audit.protocol.report import details, document, grouped

UNKNOWN = "not recorded"


def report(judgement: Judgement) -> Document:
    """Return the report of one network over its seeds, with everything that its audits record."""
    short, first = document(judgement), judgement.networks[0]
    about = Section("Identification", tuple(starmap(Entry, _identification(judgement))))
    credit = Section("Credit", tuple(_credit(first)))
    sections = [*short.sections, about, credit, *details(judgement).sections]
    shown = tuple(
        part for part in sections if any([part.items, part.entries, part.tables, part.text])
    )
    return Document(short.title, shown, short.lead)


def _credit(audit: Audit) -> Iterator[Entry]:
    """Yield the formula and feedback of a trained run's method."""
    if audit.spec is None:
        return
    method = stated(audit.spec["method"])
    source = f"({method.source}). " if method.source else ""
    known = method.equation or method.latex
    text = f"{source}{SYMBOLS}." if known else f"{NOT_STATED}."
    yield Entry("Formula of the credit", text, method.equation or method.latex, method.latex)
    yield Entry("Feedback", method.feedback or NOT_STATED)


def _identification(judgement: Judgement) -> Iterator[tuple[str, str]]:
    audit = judgement.networks[0]
    samples = "samples that were given to the audit"
    if audit.spec is None:
        yield "Method", audit.method
        yield from _model(audit)
    else:
        yield "Method", audit.spec["method"]
        yield from _specification(audit.spec)
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
    yield "Audited by commit", "; ".join(grouped(judgement, _audited_by))
    batches = f"{audit.batches} batches of {audit.stability.samples or audit.samples}"
    yield "Evaluation", f"the first {audit.samples} {samples}; stability over {batches}"
    yield "Files", "; ".join(grouped(judgement, lambda audit: [audit.path]))


def _each(judgement: Judgement, name: str) -> str:
    """Return a fact of the audits, once if all share it."""

    def text(audit: Audit) -> list[str]:
        value = getattr(audit, name)
        return [UNKNOWN if value is None else str(value)]

    return "; ".join(grouped(judgement, text))


def _audited_by(audit: Audit) -> list[str]:
    version = audit.about.get("versions", {}).get("fa_audit")
    printed = f"{UNKNOWN}; fa-audit {version}" if version else UNKNOWN
    return [audit.provenance.get("commit") or printed]


def _specification(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    options = []
    if spec["penalty"]:
        options.append(f"residual penalty {spec['penalty']:g}")
    if spec["frozen_blocks"]:
        options.append(f"first {spec['frozen_blocks']} blocks at initialisation")
    if spec["shallow"]:
        options.append("no blocks")
    if spec["random_targets"]:
        options.append("random targets")
    departures = {}
    for name, value in spec.items():
        if value != DEPARTURES.get(name, value):
            departures[name] = value
    if departures:
        options.append(_settings(departures))
    if spec.get("monitor"):
        options.append(f"stops early on {_settings(spec['monitor'])}")
    yield "Options", ", ".join(options) or "none"
    yield "Network", f"{spec['architecture']} ({_settings(spec['architecture_options'])})"
    yield "Data", spec["dataset"]
    budget = f"{spec['epochs']} epochs, batch size {spec['batch_size']}"
    if spec.get("snapshot") is not None:
        budget = f"the first {spec['snapshot']} of {budget}"
    yield (
        "Training",
        f"{budget}, learning rate {spec['lr']:g}, weight decay {spec['weight_decay']:g}",
    )


def _model(audit: Audit) -> Iterator[tuple[str, str]]:
    """Yield the facts of a model that was not trained here, from its configuration or its audit."""
    states = ", ".join(map(str, audit.about.get("states", ())))
    own = {"model": audit.about.get("model"), "states": states, "reads": audit.about.get("reads")}
    given = audit.entry or own
    known = {key: value for key, value in given.items() if value not in (None, "")}
    yield "Network", _settings(known) or UNKNOWN


def _settings(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(options.items()))
