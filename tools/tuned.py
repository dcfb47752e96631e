"""Print the learning rate and normalisation that every rule chose in a search.

python tools/tuned.py RESULTS ... [--table FILE]

RESULTS is a folder of results, or a table that --table wrote, such as reference/board_search.csv.
Several may be given, since a search may be trained in parts. In a folder, the trainings with
held-out samples belong to the search (`validation` in a configuration such as configs/board.yaml).
A rule, and likewise its frozen baseline, chooses the learning rate and normalisation with the best
mean accuracy on the held-out samples, and the smallest rate if several are equally good. Test
accuracy plays no part in this.

A choice is at the edge if it is the smallest or the largest rate that this rule has tried: a better
one may lie outside. The last column is the name of a run that trains with this choice.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.experiments.spec import parse_run

CHOICE = ["lr", "normalise"]
RULE = ["network", "run"]


def network_of(spec: Mapping[str, Any]) -> str:
    """Return a specification's network and epochs in words."""
    sizes = [f"{name} {size}" for name, size in spec["architecture_options"].items()]
    return f"{', '.join([spec['architecture'], *sizes])}; {spec['epochs']} epochs"


def search_of(results: Path) -> pd.DataFrame:
    """Return a row for every training with held-out samples."""
    rows = []
    for path in sorted(results.glob("checkpoints/*/*/seed*.json")):
        training = json.loads(path.read_text(encoding="utf-8"))
        accuracy = training.get("validation_accuracy")
        if accuracy is None:
            continue
        spec = training["spec"]
        # A specification leaves out `normalise` at its default.
        choice = (spec["lr"], spec.get("normalise", True))
        rows.append((network_of(spec), path.parent.name, *choice, spec["seed"], accuracy))
    return pd.DataFrame(rows, columns=[*RULE, *CHOICE, "seed", "validation_acc"])


def choices(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a row for every run of every network: the best `CHOICE`, its accuracy on the held-out
    samples, how many choices were tried, and whether its rate is the smallest or largest tried.
    """
    tried = runs.groupby([*RULE, *CHOICE])["validation_acc"].mean().reset_index()
    best = tried.loc[tried.groupby(RULE)["validation_acc"].idxmax()].set_index(RULE)
    of_run = tried.groupby(RULE)
    lowest, highest = of_run["lr"].min(), of_run["lr"].max()
    at_edge = (best["lr"] == lowest) | (best["lr"] == highest)
    return best.assign(tried=of_run.size(), at_edge=at_edge).reset_index()


def name_of(run: str, lr: float, normalise: bool) -> str:
    """Return the name of a run that trains with the chosen learning rate and normalisation."""
    return str(replace(parse_run(run), lr=lr, unnormalised=not normalise))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, nargs="+", metavar="RESULTS")
    parser.add_argument("--table", type=Path, metavar="FILE", help="also write every choice tried")
    options = parser.parse_args()
    parts = [pd.read_csv(path) if path.is_file() else search_of(path) for path in options.results]
    found = pd.concat(parts).drop_duplicates()
    if options.table:
        order = [*RULE, *CHOICE]
        found.sort_values(order).to_csv(options.table, index=False, lineterminator="\n")
    if found.empty:
        raise SystemExit("tuned: found no trainings with held-out samples.")
    for network, rows in choices(found).groupby("network"):
        print(network)
        rows = rows.sort_values("validation_acc", ascending=False)
        names = map(name_of, rows["run"], rows["lr"], rows["normalise"])
        shown = pd.DataFrame({
            "rule": rows["run"],
            "validation (%)": (100 * rows["validation_acc"]).round(1),
            "tried": rows["tried"],
            "edge": rows["at_edge"].map({True: "edge", False: ""}),
            "chosen": list(names),
        })  # fmt: skip
        print(shown.to_string(index=False), end="\n\n")


if __name__ == "__main__":
    main()
