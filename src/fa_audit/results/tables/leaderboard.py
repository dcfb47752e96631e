"""The leaderboard: methods x networks, by accuracy, with what trained blocks add to frozen ones and
every check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd
from tqdm import tqdm

from fa_audit.documents.formats import PLAIN, Number, Table, render
from fa_audit.experiments.spec import short_number
from fa_audit.protocol.checks import CHECKS, lettered
from fa_audit.results.standings import (
    BUSY,
    CHECKS_TEXT,
    checks_of,
    learning_rates,
    nature,
    standing,
    with_margins,
)
from fa_audit.results.tables.audits import (
    ACCURACY,
    DEEP_COSINE,
    FOUR_CHECK_NOTE,
    GRADIENT,
    GROWTH,
    OWN_FROZEN,
)
from fa_audit.results.tables.rows import (
    AnyColumn,
    Column,
    Made,
    WithInterval,
    four_check,
    run_table,
    three_check,
)
from fa_audit.results.tidy import Tidy

NOTE = (
    "Runs of a network by their accuracy, mean ± sample standard deviation over n seeds. Rank: 1 + the number of runs "
    "that are more accurate by a paired t-test over the seeds (5 %, Holm over all pairs), so that ties share a rank. "
    "Margin: accuracy minus that of the same network with the rule's own frozen blocks, and with bp+frozen, seed by "
    "seed: mean, and the 95 % t-interval over the seeds. Checks: outcome over the seeds, mean distance from the limit "
    "(a growth and b gradient in decades, c stability as a cosine, d depth in points; negative where it fires), and "
    "its 95 % interval (over seeds; of one seed, over its samples), which contains 0 where the check is borderline. "
    f"{FOUR_CHECK_NOTE} Deep cosine and rho: of the credits of blocks l >= 1, means over blocks and seeds. Seconds: "
    "mean wall time of a training; x bp: over that of bp in the same network on the same device."
)
UPPER_BOUNDS = (
    " Seconds with ≤ were measured beside other work: upper bounds; x bp is then of steps timed in"
    " turn with bp's."
)


class Pooled(Column):
    """A column whose missing values are counted among the row's own seeds; how many these are has a
    column.
    """

    def cell(self, group: pd.DataFrame, seeds: int) -> Number:
        """Return the printed number of one row."""
        return super().cell(group, len(group))


def outcomes(group: pd.DataFrame, _: int) -> str:
    """Return every check's outcome, mean distance and interval, in decades, as a cosine or in
    points.
    """
    texts = []
    for letter, check in checks_of(group).items():
        if check.mean is None:
            texts.append(f"{letter} not evaluated")
            continue
        points = CHECKS[lettered()[letter]].unit == "points"
        unit, digits = (100, ".1f") if points else (1, ".2f")
        outcome = {True: "FIRES", False: "ok", None: "not evaluated in all"}[check.fires]
        ends = (
            " ({} to {})".format(*(f"{unit * end:+{digits}}" for end in check.interval))
            if check.interval
            else ""
        )
        fewer = f" ({check.n}/{len(group)})" if check.n < len(group) else ""
        doubt = ", borderline" * check.borderline
        texts.append(f"{letter} {outcome}{doubt} {unit * check.mean:+{digits}}{ends}{fewer}")
    return ";\n".join(texts)


def fired(group: pd.DataFrame, _: int) -> str:
    """Return the letters of the checks that fire over the seeds, and in parentheses of others that
    are borderline.
    """
    checks = checks_of(group)
    fires = [letter + "?" * check.borderline for letter, check in checks.items() if check.fires]
    near = [
        f"{letter}?" for letter, check in checks.items() if check.borderline and not check.fires
    ]
    unknown = [letter for letter, check in checks.items() if check.mean is None]
    parts = [" ".join(fires) or "none", *([f"({' '.join(near)})"] if near else [])]
    return " ".join([*parts, *([f"({' '.join(unknown)} not evaluated)"] if unknown else [])])


class Cost(Pooled):
    """Mean seconds of a training, with ≤ where other work lengthened one of them, and how many
    times bp's they are.
    """

    def cell(self, group: pd.DataFrame, seeds: int) -> str:
        """Return the printed text of one row."""
        times = group["cost"].mean()
        bound = "≤ " if group[BUSY].eq(True).any() else ""
        seconds = render(replace(super().cell(group, seeds), deviation=None), PLAIN)
        return bound + seconds + ("" if pd.isna(times) else f" ({times:.2f})")


ACCURACIES = (Pooled(**vars(ACCURACY)), Pooled(**vars(OWN_FROZEN)))
WORTH = (
    Made("rank", lambda group, _: str(group["rank"].iloc[0])),
    Made("what it is", lambda group, _: nature(group.iloc[0])),
    Made("n", lambda group, _: Number(len(group), decimals=0)),
    *ACCURACIES,
    WithInterval("margin, points [95 %]", "margin", scale=100, decimals=1, signed=True),
    WithInterval("over bp+frozen", "bp_margin", scale=100, decimals=1, signed=True),
)
CREDIT = (
    Pooled("deep cosine", "deep_cosine", decimals=2),
    Pooled("deep rho", "deep_rho", decimals=2),
)
FIRES = Made("checks that fire", fired)
RATE = Made(
    "lr",
    lambda group, _: (
        ", ".join(short_number(rate) for rate in sorted(set(group["lr"].dropna()))) or "unknown"
    ),
)
COST = Cost("seconds (x bp)", "seconds", spread=("cost", "mean"), decimals=0)
VERDICTS = Made(
    "verdicts",
    lambda group, _: f"{three_check(group, len(group))};\n{four_check(group, len(group))}",
)
SHOWN = (*WORTH, Made("checks", outcomes), VERDICTS, *CREDIT, RATE, COST)
IN_A_TERMINAL = (*WORTH, FIRES, COST)


def leaderboard(
    tidy: Tidy,
    *,
    title: str,
    labels: Mapping[str, str],
    columns: Sequence[AnyColumn] = SHOWN,
    rows: Sequence[tuple[str, str]] = (),
) -> Table:
    """Return one row per network and run, in each network the highest accuracy first.

    Args:
        rows: settings and runs, if not all of them, in their order.
    """
    ranked = with_margins(tidy)
    bounds = UPPER_BOUNDS if ranked.runs[BUSY].eq(True).any() else ""
    caption = f"{title}. {NOTE}{bounds} {learning_rates(tidy, labels)}"
    runs = tqdm(rows or standing(ranked), "run", leave=False, disable=None)
    return run_table(ranked, columns, rows=runs, caption=caption, labels=labels)


MARGIN = Pooled("margin (points)", "margin", scale=100, decimals=1, signed=True)
AUDITS = (*ACCURACIES, MARGIN, GROWTH, GRADIENT)
AUDITS_NOTE = (
    "Accuracy: mean ± sample standard deviation over seeds; margin: accuracy minus that of the same network with "
    "frozen blocks; growth: largest over seeds; ||g_L||: median over seeds; deep cosine: credit with gradient, mean "
    f"over samples and over blocks l >= 1. Checks that fire over the seeds: {CHECKS_TEXT}; ?: borderline."
)


def audits(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return one narrow row per run, as `leaderboard` sorts them; with cosines where some run has
    one.
    """
    ranked = with_margins(tidy)
    columns = (*AUDITS, *([DEEP_COSINE] if tidy.has("deep_cosine") else []), FIRES)
    return run_table(
        ranked, columns, rows=standing(ranked), caption=f"{title}. {AUDITS_NOTE}", labels=labels
    )
