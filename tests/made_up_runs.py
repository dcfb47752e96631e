"""Tidy tables of made-up networks, for the tests of figures and tables, and what a table prints."""

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd

from fa_audit.documents.formats import to_markdown
from fa_audit.experiments.paths import TIDY
from fa_audit.experiments.spec import parse_run
from fa_audit.protocol.checks import CHECKS, Outcome
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.protocol.judge import FOUR
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
    own = {"three_check_borderline": False, "four_check_borderline": False}
    for letter, check in zip("abcde", FOUR.checks):
        own |= {f"{check}_fires": letter in fires, f"{check}_borderline": False}
        own |= {f"{check}_distance": -1.0 if letter in fires else 1.0}
        own |= {f"{check}_interval_low": None, f"{check}_interval_high": None}
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
    rows = []
    for place, seed in enumerate(SEEDS[:n]):
        own = {key: v[place] if isinstance(v, list) else v for key, v in given.items()}
        rows.append(network(name, seed=seed, **own))
    return rows


def several(runs, *, seeds=SEEDS, setting="main", **given):
    """Networks of several runs, name -> columns, whose numbers all differ a little."""
    varied = ["accuracy", "own_frozen_acc", "max_growth", "grad_norm_last", "stability"]
    varied += ["deep_cosine", "deep_rho", "deep_nudging"]
    rows = []
    for (rank, (name, columns)), seed in itertools.product(enumerate(runs.items()), seeds):
        row = network(name, setting=setting, seed=seed, **columns | given)
        shift = 1 - rank / 50 + seed / 1e4
        rows.append(row | {key: row[key] * shift for key in varied})
    return rows


def tidy_of(*rows):
    """The tidy tables of networks, or lists of them; settings in the order in which they come.

    Norms grow from block to block and from epoch to epoch up to those of the last state; accuracies
    rise evenly.
    """
    rows = list(itertools.chain(*(part if isinstance(part, list) else [part] for part in rows)))
    keys = [{name: row[name] for name in ("setting", "run", "seed")} for row in rows]
    layers, history = [], []
    for key, row in zip(keys, rows):
        blocks = len(row["cosines"])
        hidden, grad = row["hidden_norm_last"], row["grad_norm_last"] / 1e-3
        for layer, cosine in enumerate([*row["cosines"], np.nan]):
            grad_norm = 1e-3 * grad ** min(1, 2 * layer / blocks)
            clamped = cosine * min(1, grad_norm / 1e-8)
            found = {
                "cosine": cosine,
                "cosine_at_input": cosine,
                "rho_float32_at_input": cosine / 2,
            }
            found |= {"clamped_cosine": clamped, "clamped_cosine_at_input": clamped}
            found |= {"grad_norm": grad_norm, "hidden_norm": 4.0 * (hidden / 4) ** (layer / blocks)}
            layers.append(key | {"layer": layer} | found)
        for epoch, loss in enumerate(row["losses"], 1):
            part = epoch / len(row["losses"])
            of_epoch = {"train_loss": loss, "test_accuracy": row["accuracy"] * part}
            for layer in range(row["depth"] + 1):
                share = part * layer / row["depth"]
                norms = {
                    "hidden_norm": 15 * (hidden / 15) ** share,
                    "grad_norm": 1e-3 * grad**share,
                }
                history.append(key | {"epoch": epoch, "layer": layer} | of_epoch | norms)
    table = pd.DataFrame(rows).drop(columns=["cosines", "losses"])
    table["audit"] = list(map(audit_of, rows))
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
    return Tidy(tidy.settings, *(getattr(tidy, name).iloc[::-1] for name in TIDY))


def cells(table):
    """The printed rows in order, each a mapping from heading to markdown text."""
    _, _, heading, _, *lines = to_markdown(table).splitlines()
    headings = heading.replace("\\", "")[2:-2].split(" | ")
    return [dict(zip(headings, line[2:-2].split(" | "), strict=True)) for line in lines]
