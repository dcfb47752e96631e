"""Tidy tables of made-up networks, for the tests of figures and tables, and what a table prints."""

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd

from fa_audit.documents.formats import to_markdown
from fa_audit.experiments.spec import parse_run
from fa_audit.protocol.checks import CHECKS, Outcome, four_checks
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.results.tidy import Tidy

SEEDS = (42, 123, 456)
WORK = ["seconds", "device", "commit"]
CREDITS = (
    "deep_cosine",
    "deep_clamped_cosine",
    "deep_rho",
    "deep_nudging",
    "fresh_b_mean",
    "fresh_b_std",
)
LONG = "credit_bridge+penalty1e-2+random_targets"
HEALTHY = {
    "dataset": "cifar10", "architecture": "resmlp", "width": 256, "depth": 4, "epochs": 100, "frozen_blocks": 0,
    "shallow": False, "random_targets": False, "finite": True, "bp_frozen_acc": 0.39,
    "depth_strict_fires": None, "depth_strict_borderline": False, "shallow_acc": 0.38,
    "hidden_norm_last": 40.0, "grad_norm_last": 1e-3, "fresh_b_mean": 0.0, "fresh_b_std": 0.02,
    "three_check": "PASS", "four_check": "trustworthy", "first_scale_flag": None, "first_reference_flag": None,
    "stopped_after": None, "seconds": 36.0, "device": "cpu (x86_64)", "commit": "4a1641f", "accuracy": 0.6,
    "own_frozen_acc": 0.4, "max_growth": 1.5, "stability": 0.05, "deep_cosine": 0.8, "deep_clamped_cosine": 0.1,
    "deep_rho": 0.7, "deep_nudging": -0.01, "lr": 1e-3, "optimiser": "adamw", "clip": 0.0, "normalise": True,
    "rms_floor": 1e-6, "samples": 128, "frozen_embedding": False, "validation": 0.1, "validation_acc": 0.62,
}  # fmt: skip
EXPLODED = {"accuracy": 0.3, "own_frozen_acc": 0.35, "max_growth": 1.2e4, "hidden_norm_last": 1e6, "fires": "abcd",
            "grad_norm_last": 2e-9, "stability": 0.45, "deep_nudging": -2.4e-10, "deep_cosine": -0.01,
            "deep_rho": 0.02, "three_check": "FAIL(D1+D2+D3)", "four_check": "needs walk-back (a, b, c, d)",
            "cosines": (0.4, -0.01), "first_scale_flag": 2, "first_reference_flag": 3}  # fmt: skip


def network(run, *, setting="main", seed=42, fires="", **found):
    """One network: a row of the runs table, healthy but for what is given.

    Args:
        fires: of ``abcd``, the checks D1, D2, C and D3 (in this order) that fire; `None` for a
            check not evaluated is given by its column.
        found: columns; and `cosines` per block, `losses` per epoch.
    """
    own = {
        f"{check}_fires": letter in fires for letter, check in zip("abcde", four_checks().values())
    }
    own |= {
        f"{check}_distance": -1.0 if own[f"{check}_fires"] else 1.0
        for check in four_checks().values()
    }
    own |= {
        f"{check}_{end}": None
        for check in four_checks().values()
        for end in ("interval_low", "interval_high")
    }
    own |= {
        f"{name}_borderline": False
        for name in (*four_checks().values(), "three_check", "four_check")
    }
    own |= {"setting": setting, "run": run, "seed": seed, "method": run.partition("+")[0]}
    own |= {"penalty": parse_run(run).penalty, "digest": f"{setting} {run} {seed}"}
    return HEALTHY | {"cosines": (0.8, 0.8), "losses": (2.0, 1.5, 1.0)} | own | found


def audit_of(row):
    """What the judge reads of a network: its row's outcomes."""
    checks = {}
    for name, kind in CHECKS.items():
        low, high = (row.get(f"{name}_interval_{end}") for end in ("low", "high"))
        limit = DiagnosticThresholds().limits[kind.limit]
        fires, far = row.get(f"{name}_fires"), row.get(f"{name}_distance")
        interval = None if low is None else (low, high)
        checks[name] = Outcome(None, limit, fires, far, interval=interval)
    return SimpleNamespace(checks=checks, finite=row["finite"], label=row["seed"])


def run(name, n=3, **given):
    """Networks of one run with `n` seeds; a list that is given has one value for each of them."""
    return [
        network(
            name, seed=seed, **{k: v[i] if isinstance(v, list) else v for k, v in given.items()}
        )
        for i, seed in enumerate(SEEDS[:n])
    ]


def several(runs, *, seeds=SEEDS, setting="main", **given):
    """Networks of several runs, name -> columns, whose numbers all differ a little."""
    varied = ("accuracy", "own_frozen_acc", "max_growth", "grad_norm_last", "stability")
    rows = []
    for (rank, (name, columns)), seed in itertools.product(enumerate(runs.items()), seeds):
        row = network(name, setting=setting, seed=seed, **columns | given)
        shift = 1 - rank / 50 + seed / 1e4
        rows.append(
            row
            | {
                key: row[key] * shift
                for key in (*varied, "deep_cosine", "deep_rho", "deep_nudging")
            }
        )
    return rows


def tidy_of(*rows):
    """The tidy tables of networks, or lists of them; settings in the order in which they come.

    Norms grow from block to block and from epoch to epoch up to those of the last state; accuracies
    rise evenly.
    """
    rows = [row for part in rows for row in (part if isinstance(part, list) else [part])]
    keys = [{name: row[name] for name in ("setting", "run", "seed")} for row in rows]
    layers = [
        key | {"layer": i, "cosine": cosine, "clamped_cosine": cosine * min(1, grad_norm / 1e-8),
               "cosine_at_input": cosine, "clamped_cosine_at_input": cosine * min(1, grad_norm / 1e-8),
               "rho_float32_at_input": cosine / 2, "grad_norm": grad_norm,
               "hidden_norm": 4.0 * (row["hidden_norm_last"] / 4) ** (i / len(row["cosines"]))}
        for key, row in zip(keys, rows) for i, cosine in enumerate([*row["cosines"], np.nan])
        for grad_norm in [1e-3 * (row["grad_norm_last"] / 1e-3) ** min(1, 2 * i / len(row["cosines"]))]
    ]  # fmt: skip
    history = [
        key | {"epoch": epoch, "layer": layer, "train_loss": loss, "test_accuracy": row["accuracy"] * part,
               "hidden_norm": 15 * (row["hidden_norm_last"] / 15) ** (part * layer / row["depth"]),
               "grad_norm": 1e-3 * (row["grad_norm_last"] / 1e-3) ** (part * layer / row["depth"])}
        for key, row in zip(keys, rows) for epoch, loss in enumerate(row["losses"], 1)
        for part in [epoch / len(row["losses"])] for layer in range(row["depth"] + 1)
    ]  # fmt: skip
    table = pd.DataFrame(
        [{k: v for k, v in row.items() if k not in ("cosines", "losses")} for row in rows]
    ).assign(audit=list(map(audit_of, rows)))
    # As of `runs_table`.
    table = table.astype(dict.fromkeys(table.columns[table.isna().all()], float))
    for name, baseline in (("depth", "own_frozen_acc"), ("depth_strict", "bp_frozen_acc")):
        margin = table["accuracy"] - table[baseline]
        table[CHECKS[name].column] = margin.where(table[f"{name}_fires"].notna())
    table = table.rename(columns={name: f"{name}_at_input" for name in CREDITS})
    settings, work = tuple(table["setting"].unique()), table[["setting", "run", "seed", *WORK]]
    return Tidy(
        settings, table.drop(columns=WORK), pd.DataFrame(layers), pd.DataFrame(history), work
    )


def backwards(tidy):
    """The same tables, the last row first."""
    return Tidy(
        tidy.settings,
        *(getattr(tidy, name).iloc[::-1] for name in ("runs", "layers", "trajectories", "work")),
    )


def cells(table):
    """The printed rows in order, each a mapping from heading to markdown text."""
    lines = [
        line[2:-2].split(" | ") for line in to_markdown(table).splitlines() if line.startswith("| ")
    ]
    headings = [heading.replace("\\", "") for heading in lines[0]]
    return [dict(zip(headings, line, strict=True)) for line in lines[2:]]
