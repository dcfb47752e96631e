"""The protocol's reporting template, filled in from the audits of one run's seeds. Imports no
torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import starmap
from operator import getitem
from typing import Any

from fa_audit.audit.record import outcome_columns
from fa_audit.core.files import number
from fa_audit.documents.document import Document, Entry, Section
from fa_audit.documents.formats import Number, Table
from fa_audit.experiments.spec import DEPARTURES
from fa_audit.methods.info import NOT_STATED, SYMBOLS, stated
from fa_audit.protocol.checks import CHECKS, lettered
from fa_audit.protocol.over_seeds import verdict_over_seeds
from fa_audit.protocol.rules import RULES
from fa_audit.protocol.sentences import facts_of, sentences
from fa_audit.results.seed_group import SeedGroup
from fa_audit.results.statistics import summarise

OUTCOMES = {True: "fires", False: "ok", None: "not evaluated"}
UNKNOWN = "not recorded"
VERDICT = (*RULES, "baseline")
STATE_COLUMNS = {
    "hidden_norm": "||h_l||", "growth": "growth", "grad_norm": "||g_l||", "scale_free": "B ||h_l|| ||g_l||",
    "float32_error": "float32 error", "float32_cosine": "float32 cosine",
}  # fmt: skip
CREDIT_COLUMNS = {
    "cosine": "cosine", "clamped_cosine": "clamped", "rho": "rho", "rho_bp": "rho of gradient",
    "nudging": "nudging (nats)", "cosine_at_input": "cosine at input", "rho_at_input": "rho at input",
    "bridge_residual": "bridge residual", "feature_drift": "drift",
}  # fmt: skip


def report(group: SeedGroup) -> Document:
    """Fill in the template.

    Accuracies are printed in percent and margins in points; mean, sample deviation (divisor n - 1)
    and 95 % t-interval are over the seeds that have a value.
    """
    may, may_not = sentences([facts_of(audit) for audit in group.audits], group.unit)
    headline = {
        "summary": _summary_table(group),
        "seeds": _seed_table(group),
        "verdicts": _verdict_table(group),
    }
    checks = {"checks": _check_table(group)} | _over_seeds_table(group)
    layers = {"states": _state_table(group)} | _credit_tables(group)
    sections = [
        Section("You may write", items=tuple(may)),
        Section("You may not write", items=tuple(may_not)),
        Section("Warnings", items=tuple(group.warnings())),
        Section("Identification", tuple(starmap(Entry, _identification(group)))),
        Section("Credit", tuple(_credit(group))),
        Section("Headline", tables=headline),
        Section("Checks", tables=checks),
        Section("Layers", tables=layers),
    ]
    shown = tuple(part for part in sections if part.items or part.entries or part.tables)
    return Document(
        f"Audit report: {_name(group)}", shown, f"{_quoted(group)}.", f"audit {_name(group)}"
    )


def _credit(group: SeedGroup) -> Iterator[Entry]:
    """Yield the formula and the feedback that the method of a trained run states."""
    spec = group.audits[0].get("spec")
    if not spec:
        return
    method = stated(spec["method"])
    known = method.equation or method.latex
    source = f"({method.source}). " if method.source else ""
    text = f"{source}{SYMBOLS}." if known else f"{NOT_STATED}."
    yield Entry("Formula of the credit", text, method.equation or method.latex, method.latex)
    yield Entry("Feedback", f"{method.feedback or NOT_STATED}; {method.drawn or NOT_STATED}")


def _name(group: SeedGroup) -> str:
    audit = group.audits[0]
    where = f" in {audit['setting']}" if "setting" in audit else ""
    return f"{audit.get('run') or audit['method']}{where}"


def _quoted(group: SeedGroup) -> str:
    """Return the verdict to quote, of all seeds or of each; and whether warnings put it in doubt."""

    def verdict(audit: Mapping[str, Any]) -> str:
        facts = facts_of(audit)
        return f"{facts.checks.quoted}{', in doubt (see the warnings)' * facts.doubted}"

    return f"Verdict to quote: {group.by_seed(verdict)}"


def _identification(group: SeedGroup) -> Iterator[tuple[str, str]]:
    audit = group.audits[0]
    yield "Method", audit["spec"]["method"] if "spec" in audit else audit["method"]
    yield from _specification(audit["spec"]) if "spec" in audit else _model(audit)
    if group.unit == "seed":
        yield "Seeds", ", ".join(map(str, group.labels))
    if "validation_acc" in audit:
        yield (
            "Validation accuracy",
            group.by_seed(lambda audit: f"{audit.get('validation_acc', UNKNOWN)}"),
        )
    yield "Digest", group.by_seed(lambda audit: audit.get("digest", UNKNOWN))
    if "spec" in audit:
        yield "Trained by commit", group.by_seed(lambda audit: audit.get("commit", UNKNOWN))
        yield "Trained on", group.by_seed(lambda audit: audit.get("device", UNKNOWN))
    yield "Audited by commit", group.by_seed(_audited_by)
    yield (
        "Audited on",
        group.by_seed(lambda audit: audit.get("provenance", {}).get("device", UNKNOWN)),
    )
    yield (
        "Training time",
        group.by_seed(lambda audit: f"{audit['seconds']} s" if "seconds" in audit else UNKNOWN),
    )
    stability = f"over {audit['batches']} batches of {audit['stability'].get('samples') or audit['samples']}"
    which = (
        "samples of the unshuffled test set"
        if "spec" in audit
        else "samples that were given to the audit"
    )
    yield "Evaluation", f"the first {audit['samples']} {which}; stability {stability}"
    yield (
        "Files",
        "; ".join(
            f"{group.unit} {label}: {path}" for label, path in zip(group.labels, group.paths)
        ),
    )


def _audited_by(audit: Mapping[str, Any]) -> str:
    version = audit.get("about", {}).get("versions", {}).get("fa_audit")
    return audit.get("provenance", {}).get("commit") or (
        f"{UNKNOWN}; fa-audit {version}" if version else UNKNOWN
    )


def _specification(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    departures = {
        name: value for name, value in spec.items() if value != DEPARTURES.get(name, value)
    }
    options = {
        f"residual penalty {spec['penalty']:g}": spec["penalty"],
        f"first {spec['frozen_blocks']} blocks at initialisation": spec["frozen_blocks"],
        "no blocks": spec["shallow"],
        "random targets": spec["random_targets"],
        _settings(departures): departures,
        f"stops early on {_settings(spec.get('monitor', {}))}": spec.get("monitor"),
    }
    yield "Options", ", ".join(text for text, chosen in options.items() if chosen) or "none"
    yield "Network", f"{spec['architecture']} ({_settings(spec['architecture_options'])})"
    yield "Data", spec["dataset"]
    snapshot = "" if spec.get("snapshot") is None else f"the first {spec['snapshot']} of "
    budget = f"{snapshot}{spec['epochs']} epochs, batch size {spec['batch_size']}"
    yield (
        "Training",
        f"{budget}, learning rate {spec['lr']:g}, weight decay {spec['weight_decay']:g}",
    )


def _model(audit: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is recorded of a model that was not trained here: by its configuration, or by the
    audit.
    """
    about = audit.get("about", {})
    own = {
        "model": about.get("model"),
        "states": ", ".join(map(str, about.get("states", about.get("blocks", [])))),
        "reads": about.get("reads"),
    }
    known = {
        key: value for key, value in (audit.get("entry") or own).items() if value not in (None, "")
    }
    yield "Network", _settings(known) or UNKNOWN


def _settings(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(options.items()))


FRACTIONS = {  # heading -> where the JSON has it
    "accuracy (%)": ("headline_acc",),
    "own frozen (%)": ("baselines", "own"),
    "margin (points)": ("checks", "depth", "value"),
    "bp+frozen (%)": ("baselines", "bp"),
    "strict margin (points)": ("checks", "depth_strict", "value"),
}
NORMS = {"max growth": ("checks", "scale", "value"), "||g_L||": ("checks", "reference", "value")}


def _at(audit: Mapping[str, Any], place: tuple[str, ...], scale: int = 1) -> float | None:
    """Return a number of the record, so many times as large."""
    value = number(reduce(getitem, place, audit))
    return None if value is None else scale * value


def _summary_table(group: SeedGroup) -> Table:
    columns = ("quantity", "n", "mean", "95 % from", "95 % to", "smallest", "largest")
    caption = (
        f"Mean ± sample deviation and 95 % t-interval over the n {group.unit}s that have a value; growth and ||g_L||,"
        " which differ by orders of magnitude, with their range alone."
    )
    rows = [_summary_row(group, heading, place) for heading, place in (FRACTIONS | NORMS).items()]
    return Table(caption, columns, tuple(rows))


def _summary_row(
    group: SeedGroup, heading: str, place: tuple[str, ...]
) -> tuple[str | Number, ...]:
    values = [value for audit in group.audits if (value := _at(audit, place)) is not None]
    count = Number(len(values), decimals=0)
    if not values:
        return (heading, count, *[Number(None)] * 5)
    if heading in NORMS:
        return (heading, count, *[Number(None)] * 3, Number(min(values)), Number(max(values)))
    summary = summarise(100 * value for value in values)
    low, high = summary.interval or (None, None)
    ends = (low, high, 100 * min(values), 100 * max(values))
    return (
        heading,
        count,
        Number(summary.mean, 2, summary.deviation),
        *(Number(end, 2) for end in ends),
    )


def _seed_table(group: SeedGroup) -> Table:
    rows = [
        (
            Number(label, decimals=0),
            *(Number(_at(audit, place, 100), decimals=2) for place in FRACTIONS.values()),
            *(Number(_at(audit, place)) for place in NORMS.values()),
        )
        for label, audit in zip(group.labels, group.audits)
    ]
    known, given = "accuracy on the whole test set", "accuracy as it was given to the audit"
    source = group.by_seed(
        lambda audit: f"{known} {_measured_after(audit)}" if "spec" in audit else given
    )
    caption = f"Headline numbers of every {group.unit}: {source}."
    return Table(caption, (group.unit, *FRACTIONS, *NORMS), tuple(rows))


def _verdict_table(group: SeedGroup) -> Table:
    columns = (group.unit, "three-check", "four-check", "frozen baseline", "flags")
    rows = []
    for label, audit in zip(group.labels, group.audits):
        near = audit.get("borderline", {})
        verdicts = (
            audit["verdict"][key] + " (borderline)" * bool(near.get(key)) for key in VERDICT
        )
        rows.append((str(label), *verdicts, ", ".join(audit["flags"]) or "none"))
    return Table(f"Verdicts of every {group.unit}.", columns, tuple(rows))


def _check_table(group: SeedGroup) -> Table:
    columns = (
        "check",
        "fires when",
        group.unit,
        "value",
        "outcome",
        "95 % from",
        "95 % to",
        "interval",
    )
    rows = [
        (f"{CHECKS[name].label} {check['name']}", f"{CHECKS[name].sign} {check['threshold']:g}", str(label),
         Number(number(check["value"])), _outcome(check["fires"], check.get("borderline", False)),
         *map(Number, _ends_of(check)), check.get("interval_note", ""))
        for name in CHECKS
        for label, check in ((label, audit["checks"][name]) for label, audit in zip(group.labels, group.audits))
    ]  # fmt: skip
    caption = (
        "Every check; margins are fractions of 1. Borderline: the 95 % interval contains the limit."
    )
    return Table(caption, columns, tuple(rows))


def _outcome(fires: bool | None, borderline: bool) -> str:
    return OUTCOMES[fires] + (", borderline" if borderline else "")


def _over_seeds_table(group: SeedGroup) -> dict[str, Table]:
    """Return the table of one verdict for all seeds by the end of its label; none for one seed."""
    if len(group.audits) == 1:
        return {}
    together = verdict_over_seeds(
        outcome_columns(a["checks"]) | {"finite": a["finite"]} for a in group.audits
    )
    rows = [
        (CHECKS[lettered()[letter]].label, Number(found.n, decimals=0), Number(found.mean),
         *map(Number, found.interval or (None, None)), _outcome(found.fires, found.borderline),
         Number(found.settles, decimals=0))
        for letter, found in together.checks.items()
    ]  # fmt: skip
    caption = (
        f"Over the {group.unit}s: {together}. Mean and 95 % t-interval of the distance from the limit, negative where"
        " the check fires, of growth and gradient in decades; settles: how many seeds would take 0 out of the interval."
    )
    columns = ("check", "n", "distance", "95 % from", "95 % to", "outcome", "settles")
    return {"over-seeds": Table(caption, columns, tuple(rows))}


def _mean(values: Sequence[float | None]) -> Number:
    """Return the mean over the seeds that have a value, and how many have; an infinite one makes it
    infinite.
    """
    known = [value for value in values if value is not None and not math.isnan(value)]
    return Number(sum(known) / len(known) if known else None, measured=len(known), of=len(values))


def _value(entry: Any) -> float | None:
    """Return a number that is given alone or with its evidence."""
    return number(entry["value"] if isinstance(entry, Mapping) else entry)


def _place_table(
    group: SeedGroup, kind: str, caption: str, headings: Mapping[str, str], first: str
) -> Table:
    """Return means over the audits, a row per state or block; quantities without any value are left
    out.
    """
    places = range(len(group.audits[0][kind]))
    means = {
        name: [
            _mean([_value(audit[kind][place][name]) for audit in group.audits]) for place in places
        ]
        for name in headings
    }
    shown = {
        name: column
        for name, column in means.items()
        if any(mean.value is not None for mean in column)
    }
    rows = [(str(place), *(column[place] for column in shown.values())) for place in places]
    return Table(caption, (first, *(headings[name] for name in shown)), tuple(rows))


def _state_table(group: SeedGroup) -> Table:
    caption = (
        f"Means over {group.unit}s at every state: medians over the samples of the first batch; growth of the block"
        " that reads the state; agreement of float32 gradients with float64."
    )
    return _place_table(group, "layers", caption, STATE_COLUMNS, "l")


def _credit_tables(group: SeedGroup) -> dict[str, Table]:
    """Return tables of the credits, block by block and against fresh feedback; none without a
    method.
    """
    if not group.audits[0]["credit"]:
        return {}
    caption = (
        f"Credits, means over {group.unit}s at every block: cosine with the gradient at the block's output, without"
        " epsilon and as torch clamps it; perturbation correlation and nudging there; at input: as published numbers."
    )
    credits = _place_table(group, "credit", caption, CREDIT_COLUMNS, "block")
    rows = [
        (Number(label, decimals=0), *_deep(audit["deep"]))
        for label, audit in zip(group.labels, group.audits)
    ]
    columns = (
        group.unit,
        "cosine",
        "clamped",
        "rho",
        "nudging",
        "fresh feedback",
        "95 % from",
        "95 % to",
    )
    caption = (
        f"Credits of every {group.unit}, means over the blocks l >= 1; cosine with fresh feedback: mean ± deviation of"
        " the draws, and where 95 % of them lie."
    )
    return {"credits": credits, "deep": Table(caption, columns, tuple(rows))}


def _deep(deep: Mapping[str, Any]) -> Iterator[Number]:
    for name in ("cosine", "clamped_cosine", "rho", "nudging"):
        yield Number(number(deep.get(name, {}).get("value")))
    null = deep.get("fresh_b_null", {})
    yield Number(number(null.get("value")), decimals=3, deviation=number(null.get("std")))
    yield from (Number(end, decimals=3) for end in _ends_of(null))


def _ends_of(quantity: Mapping[str, Any]) -> list[float | None]:
    """Return the ends of a quantity's interval; None where there is none."""
    return [number(end) for end in quantity.get("interval") or (None, None)]


def _measured_after(audit: Mapping[str, Any]) -> str:
    """Return after which epoch a run's accuracy was measured: not every run reaches the last one."""
    epochs = audit["spec"]["epochs"]
    stopped = audit.get("stopped_after")
    snapshot = audit["spec"].get("snapshot")
    if stopped is not None:
        return f"after epoch {stopped} of {epochs}, where the monitor stopped the training"
    if snapshot is not None:
        return f"after epoch {snapshot} of {epochs}, a snapshot"
    return "after the last epoch"
