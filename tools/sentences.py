"""docs/sentences.md and a count in docs/protocol.md, from the table of checks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from methods_table import ROOT, filled, markdown

from fa_audit.protocol.checks import CHECKS, CREDITS, Check, Criterion
from fa_audit.protocol.limits import DiagnosticThresholds
from fa_audit.protocol.sentences import (
    DEEP,
    NOT_FINITE,
    NOT_GIVEN,
    NOTHING,
    ONE,
    Facts,
    phrase,
    rulings,
)
from fa_audit.protocol.verdicts import Checks, Outcome
from fa_audit.results.tidy import read_table

MEASURED = ROOT / "reference/measured"
OUTCOMES = ("does not fire", "fires", "borderline", "not evaluated")
OF_CREDITS = dict(zip(OUTCOMES, ("beyond chance", "not beyond chance", "", "not comparable")))


def outcome_of(kind: Criterion, outcome: str, cause: str = "") -> Outcome:
    """Return an outcome of a kind that has no numbers of its own."""
    fires = {"does not fire": False, "not evaluated": None}.get(outcome, True)
    note = cause or "why" * (fires is None)
    interval = (0.0, 0.0) if outcome == "borderline" else None
    return Outcome(kind.label, None if fires is None else 0.0, 0.0, fires, note, interval)


def cells(name: str, kind: Criterion, outcome: str, cause: str = "") -> list[str]:
    """Return the rest of a row: the outcome, the sentence that it supports, and what it does not."""
    found = {other: outcome_of(k, "does not fire") for other, k in {**CHECKS, **CREDITS}.items()}
    found[name] = outcome_of(kind, outcome, cause)
    checks, credits = ({other: found[other] for other in table} for table in (CHECKS, CREDITS))
    rule = rulings([Facts(Checks(checks, True), None, {}, credits)])[name]
    rule = rule._replace(numbers=rule.numbers and phrase(kind, slots_of(kind, outcome)))
    shown = outcome if isinstance(kind, Check) else OF_CREDITS[outcome]
    said = [rule.may, rule.may_not]
    return [
        f"{shown}{f', {cause}' * bool(cause)}",
        *(text.replace("|", "\\|") or "nothing" for text in said),
    ]


def slots_of(kind: Criterion, outcome: str) -> dict[str, str]:
    """Return letters for the numbers of a sentence of one network, and the default limit."""
    points = " points" * (kind.unit == "points")
    value = f"*x*{points} {'below' if outcome == 'fires' else 'above'}" if points else "*x*"
    limit, interval = "0" if kind.unit == "nats" else "*c*", ""
    if isinstance(kind, Check):
        limit = f"{DiagnosticThresholds().limits[kind.limit] * kind.scale:g}{points}"
        interval = "95 % interval *a* to *b*"
    accuracies = {"accuracy": "*p* %", "frozen": "*q* %"}
    return {
        "scope": "one network",
        "value": value,
        "limit": limit,
        "interval": interval,
    } | accuracies


def rows(table: dict[str, Criterion], outcomes: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield the rows of every criterion of a table, its label before the first."""
    for name, kind in table.items():
        label = f"**{kind.label}**"
        for outcome in outcomes:
            for cause in list(kind.advice if kind.causes and outcome == "fires" else [""]):
                yield [label, *cells(name, kind, outcome, cause)]
                label = ""


def sentences_page() -> str:
    """Return docs/sentences.md."""
    head = ["check", "outcome", "you may write", "you may not write"]
    checks, credits = markdown(head, rows(CHECKS, OUTCOMES)), markdown(head, rows(CREDITS, tuple(
        outcome for outcome, shown in OF_CREDITS.items() if shown)))  # fmt: skip
    return f"""# Which sentence may I write?

Written by `tools/sentences.py` from the table of checks. A report prints these sentences with the numbers of your
audit: `print(report)` and `fa-audit audit` for one network, `fa-audit report my/seed*.json` over seeds, also for LaTeX.

- **Quote one verdict**, the [three-check verdict](protocol.md#which-verdict-to-quote), and name what else fires.
- **If D3 fires** or was not evaluated, write nothing about trained blocks, whatever the rest. If it does not fire,
  write about all blocks together only.
- **If D2 fires**, write nothing about the credits, whatever their cosine. A saturated loss is not a collapse.
- **A borderline check** supports neither of its sentences. Write the number with its interval.
- **One network** supports a sentence about this network. Over seeds, the margin is a mean with its t-interval; every
  other sentence has to hold for each seed. Seeds that differ support neither sentence.
- **Warnings come first.** A headline accuracy that the batches contradict, or a baseline that failed to train,
  supports no margin.
- **NaN or infinite values:** "{NOT_FINITE}" You may not write {NOTHING}

You may never write {DEEP} Of one network, you may not write {ONE}

## The checks

*x* is the value, *p* and *q* are accuracies. Over seeds *x* is a range, or the mean of margins.

{checks}

## The credits

They are compared over the blocks after the first, and only if

- they were given: otherwise, {NOT_GIVEN};
- D2 does not fire, in any seed, and no state after the first block has a gradient below its limit;
- the backward pass is the derivative of the forward pass;
- *c*, the upper end of what chance reaches, was measured: fresh feedback for the cosine, random credits for rho. For
  rho the true gradient itself must be above it; nudging counts only where rho is.

{credits}
"""


def differing() -> str:
    """Return how many measured networks that pass three checks need walk-back by four, and why."""
    runs = [read_table(path) for path in sorted(MEASURED.glob("*/runs.csv"))]
    passed = [
        text for table in runs for text in table.loc[table["three_check"] == "PASS", "four_check"]
    ]
    alone = {letter: passed.count(f"needs walk-back ({letter})") for letter in "ac"}
    others = len(passed) - passed.count("trustworthy")
    return (
        f"Of the {len(passed)} [measured](reproduction.md) networks that pass three checks, {others} need walk-back by"
        f" four: {alone['c']} for (c) alone, {alone['a']} for (a) alone."
    )


def made() -> Iterator[tuple[Path, str]]:
    """Yield the documents."""
    protocol = ROOT / "docs/protocol.md"
    yield ROOT / "docs/sentences.md", sentences_page()
    yield (
        protocol,
        filled(protocol.read_text(encoding="utf-8"), {"differing": differing()}, protocol),
    )
