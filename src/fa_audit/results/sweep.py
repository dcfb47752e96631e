"""Penalty sweeps as tables: how a method's run changes with ``lambda``, epoch by epoch and at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.core.errors import AuditError
from fa_audit.experiments.spec import Run
from fa_audit.results.tidy import check_path, deep_credit

KEY = ("setting", "method", "penalty", "seed")


def sweep_trajectory(trajectory: pd.DataFrame, audit: Mapping[str, Any]) -> pd.DataFrame:
    """One row per epoch: the last state's norms, the largest growth, the mean cosine of the deep credits, accuracy.

    The last epoch's row also has what the audit measured: rho, nudging, the cosine under fresh feedback, the verdict.
    The other epochs' are empty. ``deep`` means the blocks l >= 1.

    Args:
        trajectory: the run's history, columns of `fa_audit.training.loop.TRAJECTORY_COLUMNS`.
        audit: the run's audit.
    """
    epochs = trajectory.groupby("epoch")
    deep = trajectory[trajectory["layer"] >= 1].groupby("epoch")["cosine"]
    table = epochs[["hidden_norm", "grad_norm", "train_loss", "test_accuracy"]].last()
    table = table.rename(columns={"hidden_norm": "hidden_norm_last", "grad_norm": "grad_norm_last"})
    table = table.assign(max_growth=epochs["growth"].max(), deep_cosine=deep.mean()).reset_index()
    end = deep_credit(audit) | {"four_check": audit["verdict"]["four_check"]}
    for column, value in end.items():
        table[column] = pd.Series([value], index=[table.index[-1]], dtype=object)
    for position, column in enumerate(KEY):
        table.insert(position, column, (audit | audit["spec"])[column])
    return table


def read_sweep(path: str | Path) -> pd.DataFrame:
    """What `sweep_trajectory` made, in a path that ends in ``{setting}/{run}/seed{seed}.csv``.

    Raises:
        AuditError: its end is missing, which alone has a verdict, or it is of another run than its path says.
    """
    texts = {"setting": str, "method": str, "penalty": str}  # which pandas may round
    try:
        table = pd.read_csv(path, dtype=texts, keep_default_na=False, na_values=[""])
        table["penalty"] = table["penalty"].map(float)
        end = table.iloc[-1]
        run = Run(method=str(end["method"]), penalty=float(end["penalty"]))
        found = f"{end['setting']}/{run}/seed{end['seed']}"
        whole = Path(path).read_bytes().endswith(b"\n") and pd.notna(end["four_check"])
    except (ValueError, KeyError, IndexError):
        whole = False
    if not whole:
        raise AuditError(f"{path}: cut short (its last row has no verdict). Delete it and run snakemake again.")
    check_path(path, found)
    return table


def sweep_table(trajectories: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The last epoch of every trajectory, sorted by method, penalty and seed."""
    ends = pd.concat([trajectory.tail(1) for trajectory in trajectories], ignore_index=True)
    return ends.sort_values(list(KEY), ignore_index=True)
