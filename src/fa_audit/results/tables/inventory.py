"""Inventory: every setting with its network, budget, runs and seeds, the time of its trainings, and
their devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from fa_audit.documents.formats import Number, Table
from fa_audit.results.statistics import whole
from fa_audit.results.tables.rows import label_of
from fa_audit.results.tidy import KEY, Tidy

COLUMNS = (
    "setting", "data set", "network (d, L)", "epochs", "runs", "seeds", "networks", "hours", "devices", "commits",
)  # fmt: skip
NOTE = (
    "d: width; L: number of blocks; networks: trained networks that are audited, one for every run and seed; hours: "
    "wall time of their trainings, one after the other. Frozen and shallow networks that others are only compared with "
    "are in neither. Commits: of the code that trained them."
)
SNAPSHOTS = "A run goes on from its snapshots, and their hours are not its own. "
SIZES = ("width", "depth", "epochs")
FACTS = ("dataset", "architecture", "device", "commit")
VALUES = ["setting", "label", "run", "quantity", "statistic", "seed", "n", "value", "text"]


def inventory(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return one row per setting, in the order in which they are listed; in the caption what they
    share counts once.

    ``values`` is tidy, with columns `VALUES`. Statistic ``seed`` is one network's own: its
    ``hours``, and as text `FACTS`. A setting has the ``sum`` of the hours, over the `n` networks
    whose time is known, the ``count`` of ``runs``, ``seeds`` and ``networks``, and the ``value`` of
    `SIZES`.
    """
    runs = tidy.runs.merge(tidy.work, on=list(KEY), how="left", validate="one_to_one")
    # A network's own epochs, without those of the snapshot from which it went on.
    rising = runs.assign(
        run=runs["run"].map(whole), seconds=runs["seconds"].astype(float)
    ).sort_values("seconds")
    runs["hours"] = rising.groupby(list(KEY))["seconds"].diff().fillna(rising["seconds"]) / 3600
    groups = {
        name: runs[runs["setting"] == name].sort_values(["run", "seed"]) for name in tidy.settings
    }
    values = [
        row
        for name, group in groups.items()
        for row in _values(group, label_of(name, group, labels))
    ]
    networks = runs.drop_duplicates("digest")
    timed = int(networks["hours"].count())
    known = "" if timed == len(networks) else f" (of {timed} of them)"
    hours = f"; {networks['hours'].sum():.2f} hours{known}" if timed else ""
    together = f"In all, what settings share counted once: {len(networks)} networks{hours}."
    snapshots = SNAPSHOTS if (runs["run"] != runs["run"].map(whole)).any() else ""
    return Table(
        caption=f"{title}. {NOTE} {snapshots}{together}",
        columns=COLUMNS,
        rows=tuple(_row(group, label_of(name, group, labels)) for name, group in groups.items()),
        values=pd.DataFrame(values, columns=VALUES).astype({"seed": "Int64", "value": float}),
    )


def _row(group: pd.DataFrame, label: str) -> tuple[str | Number, ...]:
    """Return the printed cells of one setting."""
    first = group.iloc[0]
    timed = int(group["hours"].count())
    return (
        label,
        first["dataset"],
        f"{first['architecture']} ({first['width']}, {first['depth']})",
        Number(first["epochs"], decimals=0),
        Number(group["run"].nunique(), decimals=0),
        _listed(group["seed"]),
        Number(len(group), decimals=0),
        Number(group["hours"].sum() if timed else None, decimals=2, measured=timed, of=len(group)),
        _listed(group["device"]),
        _listed(group["commit"]),
    )


def _listed(values: pd.Series) -> str:
    """Join the different values in their order, or return n/a."""
    return ", ".join(map(str, sorted(values.dropna().unique()))) or "n/a"


def _values(group: pd.DataFrame, label: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of ``values`` for one setting."""
    common = {"setting": group["setting"].iloc[0], "label": label}
    for _, network in group.iterrows():
        own = common | {"run": network["run"], "statistic": "seed", "seed": network["seed"]}
        yield own | {
            "quantity": "hours",
            "n": int(pd.notna(network["hours"])),
            "value": network["hours"],
        }
        for fact in FACTS:
            yield own | {"quantity": fact, "n": int(pd.notna(network[fact])), "text": network[fact]}
    timed = int(group["hours"].count())
    yield common | {
        "quantity": "hours",
        "statistic": "sum",
        "n": timed,
        "value": group["hours"].sum(min_count=1),
    }
    counts = {
        "runs": group["run"].nunique(),
        "seeds": group["seed"].nunique(),
        "networks": len(group),
    }
    for quantity, count in counts.items():
        yield common | {"quantity": quantity, "statistic": "count", "n": len(group), "value": count}
    for quantity in SIZES:
        yield common | {
            "quantity": quantity,
            "statistic": "value",
            "n": len(group),
            "value": group[quantity].iloc[0],
        }
