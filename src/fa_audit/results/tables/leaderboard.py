"""The leaderboard: methods x networks, by what trained blocks add to frozen ones, with every check and its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from fa_audit.results.over_seeds import CheckOverSeeds
from fa_audit.results.standings import BUSY, checks_of, learning_rates, nature, standing, with_margins
from fa_audit.results.statistics import summarise
from fa_audit.results.tables.audits import ACCURACY, FOUR_CHECK, FOUR_CHECK_NOTE, OWN_FROZEN, THREE_CHECK
from fa_audit.results.tables.formats import Number, Table
from fa_audit.results.tables.rows import AnyColumn, Column, run_table
from fa_audit.results.tidy import Tidy

POINTS = 100
NAMES = {"a": "growth (a), decades", "b": "gradient (b), decades", "c": "stability (c)", "d": "depth (d), points"}
NOTE = (
    "Runs of a network by their margin: accuracy minus that of the same network with frozen blocks, seed by seed; those "
    "without a frozen baseline last. Accuracy: mean ± sample standard deviation over n seeds; interval: 95 % "
    "t-interval of the margin over the seeds. Checks: outcome over the seeds, mean distance from the limit (negative "
    "where it fires), its 95 % interval (over seeds; of one seed, over its samples), and whether that contains the "
    f"limit (borderline). {FOUR_CHECK_NOTE} Seconds: mean wall time of a training; x bp: over that of bp in the same "
    "network on the same device."
)
UPPER_BOUNDS = " Seconds with ≤ were measured beside other work: upper bounds, and their ratios are rough."


@dataclass(frozen=True)
class Nature:
    """What a run is: a method as published, a baseline, or one with a penalty, random targets and the like."""

    heading: str

    def cell(self, group: pd.DataFrame, seeds: int) -> str:
        """Return the printed text of one row."""
        return nature(group.iloc[0])


@dataclass(frozen=True)
class Seeds:
    """How many seeds a row pools."""

    heading: str

    def cell(self, group: pd.DataFrame, seeds: int) -> Number:
        """Return the printed number of one row."""
        return Number(len(group), decimals=0)


@dataclass(frozen=True)
class Ends:
    """The 95 % t-interval of the margin, in points."""

    heading: str

    def cell(self, group: pd.DataFrame, seeds: int) -> str:
        """Return the printed text of one row."""
        known = group["margin"].dropna()
        ends = summarise(known).interval if len(known) else None
        return "{:+.1f} to {:+.1f}".format(*(POINTS * end for end in ends)) if ends else "none"


@dataclass(frozen=True)
class Outcome:
    """One check over the seeds: its outcome, mean distance from the limit with interval, and whether it is borderline."""

    heading: str
    letter: str

    def cell(self, group: pd.DataFrame, seeds: int) -> str:
        """Return the printed text of one row."""
        check = checks_of(group)[self.letter]
        missing = f" ({check.n}/{seeds})" if 0 < check.n < seeds else ""
        return outcome_text(check, self.letter) + missing


@dataclass(frozen=True)
class Fired:
    """The letters of the checks that fire over the seeds, and in parentheses of others that are borderline."""

    heading: str

    def cell(self, group: pd.DataFrame, seeds: int) -> str:
        """Return the printed text of one row."""
        checks = checks_of(group)
        fired = [letter + "?" * check.borderline for letter, check in checks.items() if check.fires]
        near = [f"{letter}?" for letter, check in checks.items() if check.borderline and not check.fires]
        unknown = [letter for letter, check in checks.items() if check.fires is None]
        parts = [" ".join(fired) or "none", *([f"({' '.join(near)})"] if near else [])]
        return " ".join([*parts, *([f"({' '.join(unknown)} not evaluated)"] if unknown else [])])


@dataclass(frozen=True)
class Seconds(Column):
    """Mean seconds of a training, an upper bound where other work lengthened one of them."""

    def cell(self, group: pd.DataFrame, seeds: int) -> Number:
        """Return the printed number of one row."""
        return replace(super().cell(group, seeds), at_most=bool(group[BUSY].eq(True).any()))


SHOWN = (
    Nature("what it is"),
    Seeds("n"),
    ACCURACY,
    OWN_FROZEN,
    Column("margin (points)", "margin", scale=POINTS, decimals=1, signed=True),
    Ends("95 % interval"),
    *(Outcome(heading, letter) for letter, heading in NAMES.items()),
    THREE_CHECK,
    FOUR_CHECK,
    Seconds("seconds", "seconds", decimals=0),
    Column("x bp", "cost", decimals=2),
)
IN_A_TERMINAL = (*SHOWN[:6], Fired("checks that fire"), *SHOWN[-2:])


def leaderboard(tidy: Tidy, *, title: str, labels: Mapping[str, str], columns: Sequence[AnyColumn] = SHOWN) -> Table:
    """Return one row per network and run, in each network the largest margin over frozen blocks first."""
    ranked = with_margins(tidy)
    bounds = UPPER_BOUNDS if ranked.runs[BUSY].eq(True).any() else ""
    caption = f"{title}. {NOTE}{bounds} {learning_rates(tidy, labels)}"
    return run_table(ranked, columns, rows=standing(ranked), caption=caption, labels=labels)


def outcome_text(check: CheckOverSeeds, letter: str) -> str:
    """Return outcome, mean distance from the limit and its interval, in decades, as a cosine or in points."""
    if check.mean is None:
        return "not evaluated"
    unit = POINTS if letter == "d" else 1
    digits = ".1f" if letter == "d" else ".2f"
    outcome = {True: "FIRES", False: "ok", None: "not evaluated"}[check.fires] + ", borderline" * check.borderline
    ends = check.interval and " ({} to {})".format(*(f"{unit * end:+{digits}}" for end in check.interval))
    return f"{outcome} {unit * check.mean:+{digits}}{ends or ''}"
