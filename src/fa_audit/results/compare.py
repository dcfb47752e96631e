"""User audits among measured runs: their place in their network and budget, and the nearest run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from fa_audit.documents.formats import to_text
from fa_audit.results.own_audits import OTHERS
from fa_audit.results.standings import nature, of_run, with_margins
from fa_audit.results.tables.leaderboard import IN_A_TERMINAL, leaderboard
from fa_audit.results.tidy import Tidy, side_of

NEIGHBOURS = 2  # rows shown on either side
MARGIN = "margin over frozen"  # compares within one network and budget only
UNITS = {  # what runs are compared by -> the difference that counts as 1, and how it is printed
    MARGIN: (5.0, "5 points"),
    "log10 max growth": (1.0, "1 decade"),
    "log10 B ||g_L||": (1.0, "1 decade"),
    "cross-batch stability": (0.1, "0.1"),
    "deep cosine": (0.2, "0.2"),
    "deep rho": (0.2, "0.2"),
}
Key = tuple[str, str]  # setting and run


def signatures(tidy: Tidy) -> pd.DataFrame:
    """Return the means over the seeds of what runs are compared by, a row per (setting, run); NaN
    without a value.

    Gradients are multiplied by the size of their batch, so that audits on batches of different
    sizes compare.

    Args:
        tidy: tables `with_margins`.
    """
    runs = tidy.runs
    credit = [f"{name}{side_of(runs, name)}" for name in ("deep_cosine", "deep_rho")]
    growth, *others = (runs[name].astype(float) for name in ("max_growth", "stability", *credit))
    gradient = runs["scale_free_last"].astype(float) / runs["hidden_norm_last"].astype(float)
    with np.errstate(divide="ignore"):
        values = 100 * runs["margin"], np.log10(growth), np.log10(gradient), *others
    return pd.DataFrame(dict(zip(UNITS, values))).groupby([runs["setting"], runs["run"]]).mean()


def differences(values: pd.DataFrame, own: Key) -> pd.DataFrame:
    """Return how many units every run differs from one's own in each quantity; NaN where one of
    them has none.
    """
    return (values - values.loc[own]).abs() / [UNITS[name][0] for name in values]


def distances(units: pd.DataFrame) -> pd.Series:
    """Return the root mean square of the differences over the quantities that both runs have; NaN
    without any.
    """
    return np.sqrt((units**2).mean(axis=1))


def comparison_text(tidy: Tidy, own: Key, measured: Sequence[Key]) -> str:
    """Return the place of a user's run, if anything is comparable, and what is nearest to it, for a
    terminal.

    Other runs are those of its network and budget; without any, all of them, by what compares
    across networks.

    Args:
        tidy: measured runs and one's own.
        own: setting and run of the user's audit.
        measured: settings and runs of the others.
    """
    ranked = with_margins(tidy)
    values = signatures(ranked)
    same = [key for key in measured if key[0] == own[0]]
    values = values if same else values.drop(columns=MARGIN)
    placed = _place(tidy, own, same) if same else _range(tidy, values, own, measured)
    return "\n".join([*placed, "", *_nearest(ranked, values, own, same or measured)]) + "\n"


def _place(tidy: Tidy, own: Key, same: Sequence[Key]) -> Iterator[str]:
    """Yield the row between its neighbours in the same network and budget."""
    setting, run = own
    accuracies = tidy.runs.groupby(["setting", "run"])["accuracy"].mean().loc[[*same, own]]
    order = list(accuracies.sort_values(ascending=False, kind="stable").index)
    at = order.index(own)
    yield f"{run}: place {at + 1} of {len(order)} by accuracy, among the measured runs of {setting}."
    first = max(0, at - NEIGHBOURS)
    heading, *lines = _rows(tidy, order[first : at + NEIGHBOURS + 1])
    yield f"\n       {heading}"
    for place, line in enumerate(lines, first + 1):
        yield f"{'>' if place == at + 1 else ' '} {place:>3}  {line}"


def _rows(tidy: Tidy, keys: Sequence[Key]) -> list[str]:
    """Return lines of the leaderboard, its headings first."""
    return to_text(
        leaderboard(tidy, title="", labels={}, columns=IN_A_TERMINAL, rows=keys)
    ).splitlines()


def _range(tidy: Tidy, values: pd.DataFrame, own: Key, measured: Sequence[Key]) -> Iterator[str]:
    """Yield the run's row, and its quantities beside the smallest and largest of all measured runs."""
    setting, run = own
    yield f"{run}: no place: nothing is measured on this network and budget, and margins compare only within one."
    if setting == OTHERS:
        yield "Without a specification nothing is known of its network, data, budget or learning rate."
    yield from ("", *_rows(tidy, [own]))
    yield f"\n  {'':<22}{'yours':>10}  measured, other networks or budgets"
    finite = values[np.isfinite(values)]
    for name, here in finite.loc[own].dropna().items():
        others = finite.loc[list(measured), name]
        if others.notna().any():
            yield f"  {name:<22}{here:>+10.3g}  {others.min():+.3g} to {others.max():+.3g}"


def _nearest(
    ranked: Tidy, values: pd.DataFrame, own: Key, measured: Sequence[Key]
) -> Iterator[str]:
    units = differences(values, own).loc[list(measured)]
    far = distances(units).dropna()
    if far.empty:
        yield f"{own[1]}: no measured run has a quantity in common with it: none is nearest."
        return
    setting, run = found = far.idxmin()
    group, own_units = of_run(ranked, setting, run), units.loc[found].dropna()
    seeds = ", ".join(map(str, group["seed"]))
    yield (
        f"Nearest measured run: {run} ({nature(group.iloc[0])}) in {setting}, seeds {seeds}: {far[found]:.2f} units"
        f" away, root mean square of {len(own_units)} quantities."
    )
    yield f"  {'':<22}{'yours':>10}{'measured':>10}{'units':>8}  a unit is"
    for name, count in own_units.sort_values(ascending=False, kind="stable").items():
        here, there = values.loc[own, name], values.loc[found, name]
        yield f"  {name:<22}{here:>+10.3g}{there:>+10.3g}{count:>8.2f}  {UNITS[name][1]}"
    yield f"They differ most in {own_units.idxmax()}." if far[found] else "They do not differ."
    if missing := [name for name in values if name not in own_units]:
        yield f"Not compared, since one of them has none: {', '.join(missing)}."
