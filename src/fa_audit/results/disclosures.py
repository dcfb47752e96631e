"""Disclosures: what a reader must know before believing an audit, from its JSON alone. No torch.

A function of an audit returns one text about it, empty where nothing is to be disclosed.
docs/protocol.md has the pitfalls of every check.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from fa_audit.audit.record import CREDITS, DEEP, PRECISION, number
from fa_audit.core.checks import CHECKS
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.seed_group import SeedGroup
from fa_audit.results.statistics import extent

Audit = Mapping[str, Any]
SHORT = "{:.3g}".format
APART = 0.1  # accuracies of one baseline over seeds
STOPPED = "stopped early, by the monitor after epoch {}, from which the accuracy is"


def disclosures(group: SeedGroup) -> tuple[tuple[str, str], ...]:
    """Return term and text of every disclosure that applies to the audits of a seed group."""
    found = (
        ("Warnings", by_seed(group, lambda audit: " ".join(audit.get("warnings", [])))),
        ("Baselines over seeds", _baselines_apart(group)),
        (
            "Budget",
            by_seed(
                group, lambda audit: STOPPED.format(n) if (n := audit.get("stopped_after")) else ""
            ),
        ),
        ("Perturbation correlation", by_seed(group, _correlation)),
        ("Over training", by_seed(group, _over_training)),
        ("Missing values", _missing(group)),
        ("Limits", by_seed(group, _limits)),
        ("Code", by_seed(group, _code)),
        ("Remarks", by_seed(group, lambda audit: audit["notes"])),
    )
    return tuple((term, f"{text.rstrip('.')}.") for term, text in found if text)


def values_of(places: Iterable[Mapping[str, Any]], name: str) -> list[float | None]:
    """Return one quantity of every state or block, None where it was not measured."""
    return [number(place[name]["value"]) for place in places]


def ends_of(quantity: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the ends of a quantity's interval; None where there is none."""
    low, high = map(number, quantity.get("interval") or (None, None))
    return low, high


def by_seed(group: SeedGroup, say: Callable[[Audit], str]) -> str:
    """Join what `say` returns for each audit: equal texts once, with their seeds where not all have
    them.
    """
    told = group.alike([say(audit) for audit in group.audits])
    return "; ".join(f"{whose}{text}" for text, (whose, _) in told.items() if text)


def _baselines_apart(group: SeedGroup) -> str:
    """Warn of frozen baselines of one network that differ by more than chance or seeds explain."""
    known = [
        accuracy for audit in group.audits if (accuracy := audit["baselines"]["own"]) is not None
    ]
    apart = max(known, default=0) - min(known, default=0)
    if apart <= APART:
        return ""
    return (
        f"they lie {100 * apart:.1f} points apart (more than {100 * APART:.0f}): the lower ones may have failed to"
        " train, and D3 then says little"
    )


def _correlation(audit: Audit) -> str:
    blocks = audit["credit"]
    chance = [
        str(index)
        for index, block in enumerate(blocks)
        if _inside(block["rho"], block["rho_random"])
    ]
    where = (
        f"at chance (where random credits lie) in blocks {', '.join(chance)}"
        if chance
        else "in no block at chance"
    )
    ceiling = extent(values_of(blocks, "rho_bp"), SHORT) or "n/a"
    return f"{where}; ceiling, that of the true gradient: {ceiling}" if blocks else ""


def _inside(measured: Mapping[str, Any], null: Mapping[str, Any]) -> bool:
    """Return whether a value is where 95 % of random draws are."""
    value, (low, high) = number(measured["value"]), ends_of(null)
    return None not in (value, low, high) and low <= value <= high


def _over_training(audit: Audit) -> str:
    flags = audit["first_flags"]
    if not flags:
        return "not followed: no trajectory"
    first = {"D1": flags.get("first_scale_flag"), "D2": flags.get("first_reference_flag")}
    told = {
        name: "never fired" if n is None else f"fired first at epoch {n}"
        for name, n in first.items()
    }
    return ", ".join(f"{name} {text}" for name, text in told.items())


def _missing(group: SeedGroup) -> str:
    """Return every reason for absent values, with the quantities: in how many of how many places."""
    offered: Counter[str] = Counter()
    absent: dict[str, Counter[str]] = defaultdict(Counter)
    for name, entry in (pair for audit in group.audits for pair in _measured(audit)):
        offered[name] += 1
        if entry["value"] is None:
            absent[entry.get("reason") or entry.get("note") or "no reason given"][name] += 1
    return "; ".join(
        f"{reason}: {', '.join(f'{name} ({count} of {offered[name]})' for name, count in counts.items())}"
        for reason, counts in absent.items()
    )


def _measured(audit: Audit) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield everything that may be absent, with its name."""
    yield "accuracy", {"value": audit["headline_acc"], "reason": "no headline accuracy"}
    yield from ((f"check {kind.label}", audit["checks"][name]) for name, kind in CHECKS.items())
    for names, places in ((PRECISION, audit["layers"]), (CREDITS, audit["credit"])):
        yield from (
            (name.replace("_", " "), place[name])
            for place in places
            for name in names
            if name in place
        )
    yield from (
        (f"deep {name.replace('_', ' ')}", audit["deep"][name])
        for name in DEEP
        if name in audit["deep"]
    )
    yield from (("feature drift of parameters", entry) for entry in audit["feature_drift"].values())


def _limits(audit: Audit) -> str:
    limits, usual = audit["thresholds"], DiagnosticThresholds().limits
    changed = [
        f"{name} {limits[name]:g} (default {value:g})"
        for name, value in usual.items()
        if limits[name] != value
    ]
    return f"not the defaults: {', '.join(changed)}" if changed else "the defaults"


def _code(audit: Audit) -> str:
    commits = [
        place["commit"] for place in (audit, audit.get("provenance", {})) if "commit" in place
    ]
    if not commits or "unknown" in commits:
        return "its commit is not known"
    return (
        "there were uncommitted changes"
        if any(commit.endswith("-dirty") for commit in commits)
        else ""
    )
