"""Tidy tables of made-up runs, for the tests of tables, and what a table prints."""

import pandas as pd

from fa_audit.experiments.spec import parse_run
from fa_audit.results.tables.formats import to_markdown
from fa_audit.results.tidy import Tidy

WORK = ["seconds", "device", "commit"]
SEEDS = (42, 123, 456)
USUAL = {
    "dataset": "cifar10", "architecture": "resmlp", "width": 256, "depth": 4, "epochs": 100,
    "accuracy": 0.5, "own_frozen_acc": 0.35, "bp_frozen_acc": 0.39, "max_growth": 2.0, "hidden_norm_last": 40.0,
    "grad_norm_last": 1e-3, "deep_cosine": 0.1, "deep_clamped_cosine": 0.1, "deep_rho": 0.2, "deep_nudging": -1e-4,
    "fresh_b_mean": 0.0, "fresh_b_std": 0.02, "three_check": "PASS", "four_check": "trustworthy",
    "first_scale_flag": None, "first_reference_flag": None, "stopped_after": None, "seconds": 36.0,
    "device": "cpu (x86_64)", "commit": "4a1641f",
}  # fmt: skip


def run(name, n=3, setting="main", **given):
    """Rows of one run with `n` seeds; every given column is one value for all seeds or a list of one per seed."""
    columns = {"penalty": parse_run(name).penalty} | USUAL | given
    columns = {key: value if isinstance(value, list) else [value] * n for key, value in columns.items()}
    digests = [f"{setting} {name} {seed}" for seed in SEEDS[:n]]
    return pd.DataFrame({"setting": setting, "run": name, "seed": SEEDS[:n], "digest": digests} | columns)


def tidy_of(*runs):
    """The tidy tables of runs, settings in the order in which they come."""
    table = pd.concat([part.astype(object) for part in runs], ignore_index=True)
    work = table[["setting", "run", "seed", *WORK]]
    return Tidy(tuple(table["setting"].unique()), table.drop(columns=WORK), pd.DataFrame(), pd.DataFrame(), work)


def cells(table):
    """The printed rows in order, each a mapping from heading to markdown text."""
    lines = [line[2:-2].split(" | ") for line in to_markdown(table).splitlines() if line.startswith("| ")]
    headings = [heading.replace("\\", "") for heading in lines[0]]
    return [dict(zip(headings, line, strict=True)) for line in lines[2:]]


def statistics(table, run, quantity, setting="main"):
    """What `values` has of one quantity of one run: statistic -> value; the seeds' values as a list under "seeds"."""
    values = table.values
    part = values[(values["setting"] == setting) & (values["run"] == run) & (values["quantity"] == quantity)]
    seeds = part[part["statistic"] == "seed"]
    return part.set_index("statistic")["value"].drop("seed").to_dict() | {"seeds": seeds["value"].tolist()}
