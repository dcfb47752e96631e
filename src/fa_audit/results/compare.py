"""Place audits of one's own among measured runs: between which they stand, and which is nearest and why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from fa_audit.results.own_audits import OTHERS
from fa_audit.results.standings import nature, of_run, with_margins
from fa_audit.results.tables.formats import to_text
from fa_audit.results.tables.leaderboard import IN_A_TERMINAL, leaderboard
from fa_audit.results.tidy import Tidy

NEIGHBOURS = 2  # rows shown on either side


@dataclass(frozen=True)
class Quantity:
    """What runs are compared by.

    Attributes:
        column: of `signature`.
        unit: the difference that counts as 1.
        words: the unit as it is printed.
        scale: of printed values.
    """

    column: str
    unit: float
    words: str
    scale: float = 1


QUANTITIES = {
    "margin over frozen": Quantity("margin", 0.05, "5 points", 100),
    "log10 max growth": Quantity("log_growth", 1.0, "1 decade"),
    "log10 B ||g_L||": Quantity("log_gradient", 1.0, "1 decade"),
    "cross-batch stability": Quantity("stability", 0.1, "0.1"),
    "deep cosine": Quantity("deep_cosine", 0.2, "0.2"),
    "deep rho": Quantity("deep_rho", 0.2, "0.2"),
}


@dataclass(frozen=True)
class Nearest:
    """The measured run that is nearest to one of one's own.

    Attributes:
        setting, run: which it is.
        distance: root mean square of the differences in units, over the quantities that both have.
        values: of each of them, by its name in `QUANTITIES`: one's own, the measured one, their difference in units.
    """

    setting: str
    run: str
    distance: float
    values: Mapping[str, tuple[float, float, float]]


def signature(group: pd.DataFrame) -> dict[str, float]:
    """Return the means over the seeds of what runs are compared by; NaN where nothing was measured.

    Gradients are multiplied by the size of their batch, so that audits on batches of different sizes compare.
    """
    gradients = group["scale_free_last"] / group["hidden_norm_last"]
    rows = group.assign(log_growth=group["max_growth"].map(_log10), log_gradient=gradients.map(_log10))
    return {entry.column: float(rows[entry.column].astype(float).mean()) for entry in QUANTITIES.values()}


def _log10(value: float) -> float:
    return math.log10(value) if value > 0 else -math.inf if value == 0 else math.nan


def nearest(tidy: Tidy, own: tuple[str, str], others: list[tuple[str, str]]) -> Nearest | None:
    """Return the nearest of other runs; of equally near ones the first, and None where none has a common quantity.

    Args:
        tidy: tables `with_margins`.
        own: setting and run.
        others: settings and runs of those that are compared.
    """
    mine = signature(of_run(tidy, *own))
    found = []
    for key in others:
        values = dict(_differences(mine, signature(of_run(tidy, *key))))
        if values:
            square = sum(units**2 for _, _, units in values.values()) / len(values)
            found.append(Nearest(*key, math.sqrt(square), values))
    return min(found, key=lambda entry: entry.distance, default=None)


def _differences(
    mine: Mapping[str, float], theirs: Mapping[str, float]
) -> Iterator[tuple[str, tuple[float, float, float]]]:
    for name, entry in QUANTITIES.items():
        here, there = mine[entry.column], theirs[entry.column]
        if not (math.isnan(here) or math.isnan(there)):
            yield name, (here, there, 0.0 if here == there else abs(here - there) / entry.unit)


# --- as text ---------------------------------------------------------------------------------------------------------


def comparison_text(tidy: Tidy, own: tuple[str, str], measured: list[tuple[str, str]]) -> str:
    """Return where a run of one's own stands, and what is nearest to it, for a terminal.

    Args:
        tidy: measured runs and one's own.
        own: setting and run of one's own.
        measured: settings and runs of the others.
    """
    ranked = with_margins(tidy)
    return "\n".join([*_place(tidy, ranked, own, measured), "", *_nearest(ranked, own, measured)]) + "\n"


def _place(tidy: Tidy, ranked: Tidy, own: tuple[str, str], measured: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the run's row between its neighbours, among the runs of its network, or all where none is measured."""
    setting, run = own
    same = [key for key in measured if key[0] == setting]
    among = f"measured runs of {setting}" if same else "measured runs of all networks, since none is of its own"
    if of_run(ranked, *own)["margin"].isna().all():
        yield f"{run}: not placed: without the accuracy of its frozen baseline there is no margin to rank it by."
        return
    order = _by_margin(ranked, [*(same or measured), own])
    at = order.index(own)
    yield f"{run}: place {at + 1} of {len(order)} by margin over frozen blocks, among the {among}."
    if setting == OTHERS:
        yield "Without a specification nothing is known of its network, data, budget or learning rate."
    first = max(0, at - NEIGHBOURS)
    yield ""
    rows = order[first : at + NEIGHBOURS + 1]
    table = leaderboard(tidy, title="", labels={}, columns=IN_A_TERMINAL, rows=rows)
    for index, line in enumerate(to_text(table).splitlines()):
        rank = f"{first + index:>3}" if index else "   "
        yield f"{'>' if first + index == at + 1 and index else ' '} {rank}  {line}"


def _by_margin(ranked: Tidy, keys: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return runs of any setting, the largest mean margin first, those without one left out."""
    margins = {key: of_run(ranked, *key)["margin"].mean() for key in keys}
    return sorted((key for key in keys if not math.isnan(margins[key])), key=lambda key: -margins[key])


def _nearest(ranked: Tidy, own: tuple[str, str], measured: list[tuple[str, str]]) -> Iterator[str]:
    found = nearest(ranked, own, measured)
    if found is None:
        yield f"{own[1]}: no measured run has a quantity in common with it: none is nearest."
        return
    group = of_run(ranked, found.setting, found.run)
    seeds, what = ", ".join(map(str, group["seed"])), nature(group.iloc[0])
    yield (
        f"Nearest measured run: {found.run} ({what}) in {found.setting}, seeds {seeds}: {found.distance:.2f} units"
        f" away, root mean square of {len(found.values)} quantities."
    )
    yield f"  {'':<22}{'yours':>10}{'measured':>10}{'units':>8}  a unit is"
    for name, (here, there, units) in sorted(found.values.items(), key=lambda item: -item[1][2]):
        scale = QUANTITIES[name].scale
        yield f"  {name:<22}{scale * here:>+10.3g}{scale * there:>+10.3g}{units:>8.2f}  {QUANTITIES[name].words}"
    most = max(found.values, key=lambda name: found.values[name][2])
    yield f"They differ most in {most}." if found.distance else "They do not differ."
    if missing := [name for name in QUANTITIES if name not in found.values]:
        yield f"Not compared, since one of them has none: {', '.join(missing)}."
