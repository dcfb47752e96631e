"""Many audits as three tidy tables: one row per run; per run and layer; per run, epoch and layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.files import read_json

KEY = ("setting", "run", "seed")
TABLES = ("runs", "layers", "trajectories")


@dataclass(frozen=True)
class Tidy:
    """What a figure or a table is made from: the tidy tables of its settings.

    Attributes:
        settings: their names, in the order in which they are shown.
        runs: one row per setting, run and seed, as `runs_table` makes it.
        layers: one row per setting, run, seed and state, as `layers_table` makes it.
        trajectories: one row per setting, run, seed, epoch and state, as `trajectories_table` makes it.
    """

    settings: tuple[str, ...]
    runs: pd.DataFrame
    layers: pd.DataFrame
    trajectories: pd.DataFrame

    def of(self, setting: str) -> Tidy:
        """The part of one setting."""
        parts = {name: (table := getattr(self, name))[table["setting"] == setting] for name in TABLES}
        return Tidy((setting,), **parts)


def read_tidy(folder: str | Path, settings: Sequence[str]) -> Tidy:
    """The tables that `folder` holds of some settings, in ``{setting}/runs.csv`` and so on."""
    parts = {
        name: pd.concat(
            [pd.read_csv(Path(folder) / setting / f"{name}.csv") for setting in settings], ignore_index=True
        )
        for name in TABLES
    }
    return Tidy(tuple(settings), **parts)


def read_audits(paths: list[str]) -> list[dict[str, Any]]:
    """The audit files in the order of setting, run and seed."""
    audits = [read_json(path) for path in paths]
    return sorted(audits, key=lambda audit: [audit[key] for key in KEY])


def runs_table(audits: list[dict[str, Any]]) -> pd.DataFrame:
    """One row per run and seed: accuracy, baselines, the deciding number of every check, verdicts."""
    return pd.DataFrame([_run_row(audit) for audit in audits])


def _run_row(audit: Mapping[str, Any]) -> dict[str, Any]:
    spec, last = audit["spec"], audit["layers"][-1]
    checks = audit["checks"]
    fair = {} if audit["stopped_after"] else audit["baseline_runs"]  # baselines of a stopped run had a larger budget
    baselines = {role: run["accuracy"] for role, run in fair.items()}
    return {
        **{key: audit[key] for key in KEY},
        **{key: spec[key] for key in ("method", "dataset", "architecture")},
        **{key: spec["architecture_options"][key] for key in ("width", "depth")},
        **{key: spec[key] for key in ("epochs", "penalty", "frozen_blocks", "shallow", "random_targets")},
        "accuracy": audit["headline_acc"],
        "own_frozen_acc": baselines.get("own"),
        "bp_frozen_acc": baselines.get("bp"),
        "shallow_acc": baselines.get("shallow"),
        "max_growth": checks["scale"]["value"],
        "hidden_norm_last": last["hidden_norm"],
        "grad_norm_last": last["grad_norm"],
        "stability": checks["stability"]["value"],
        "scale_free_last": last["scale_free"],
        "deep_cosine": audit["deep"]["cosine"]["value"],
        **deep_credit(audit),
        "three_check": audit["verdict"]["three_check"],
        "four_check": audit["verdict"]["four_check"],
        "baseline": audit["verdict"]["baseline"],
        "flags": "; ".join(audit["flags"]),
        **audit["first_flags"],
        **{key: audit[key] for key in ("stopped_after", "digest", "seconds", "device", "commit")},
    }


def deep_credit(audit: Mapping[str, Any]) -> dict[str, float | None]:
    """What an audit alone knows of the credits of the blocks l >= 1, in columns; None where it could not be measured.

    Their mean cosine is not among it: a run's history has that one for every epoch.
    """
    deep = audit["deep"]
    values = {f"deep_{name}": deep[name]["value"] for name in ("clamped_cosine", "rho", "nudging")}
    return values | {"fresh_b_mean": deep["fresh_b_null"]["value"], "fresh_b_std": deep["fresh_b_null"]["std"]}


def layers_table(audits: list[dict[str, Any]]) -> pd.DataFrame:
    """One row per run, seed and state: norms, growth, float32 agreement, and the credit of the block that reads it."""
    rows = []
    for audit in audits:
        for layer, credit in zip(audit["layers"], [*audit["credit"], {}]):
            plain = {name: value for name, value in layer.items() if not isinstance(value, dict)}
            measured = {name: value for name, value in (layer | credit).items() if isinstance(value, dict)}
            rows.append({key: audit[key] for key in KEY} | plain | _flat(measured))
    return pd.DataFrame(rows)


def _flat(measured: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Measured quantities as columns: value, number of valid samples, spread of draws, and why a value is absent."""
    columns: dict[str, Any] = {}
    for name, entry in measured.items():
        columns |= {name: entry["value"], f"{name}_n_valid": entry["n_valid"], f"{name}_reason": entry.get("reason")}
        if "std" in entry:
            columns[f"{name}_std"] = entry["std"]
    return columns


def trajectories_table(paths: Mapping[tuple[str, str, int], str]) -> pd.DataFrame:
    """One row per run, seed, epoch and layer.

    Args:
        paths: trajectory file of each (setting, run, seed).
    """
    frames = []
    for key, path in sorted(paths.items()):
        frame = pd.read_csv(path)
        for position, (name, value) in enumerate(zip(KEY, key)):
            frame.insert(position, name, value)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)
