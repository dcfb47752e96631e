"""Many audits as tidy tables: one row per run; per run and layer; per run, epoch and layer; what each run took.

What a training took has a table of its own: it differs every time, and what is made from the others does not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from fa_audit.audit.audit_file import read_audit
from fa_audit.core.errors import AuditError
from fa_audit.core.files import read_json, sha256_of, write_json, write_text

KEY = ("setting", "run", "seed")
OF_A_RUN = (*KEY, "spec", "digest", "baseline_runs", "stopped_after", "seconds", "device", "commit")
TABLES = ("runs", "layers", "trajectories", "work")
DIGESTS = "sha256.json"  # beside the tables of a setting: a table cut at the end of a line looks like a shorter one


@dataclass(frozen=True)
class Tidy:
    """What a figure or a table is made from: the tidy tables of its settings.

    Attributes:
        settings: their names, in the order in which they are shown.
        runs: one row per setting, run and seed, as `runs_table` makes it.
        layers: one row per setting, run, seed and state, as `layers_table` makes it.
        trajectories: one row per setting, run, seed, epoch and state, as `trajectories_table` makes it.
        work: one row per setting, run and seed, as `work_table` makes it; empty for kinds that do not read it.
    """

    settings: tuple[str, ...]
    runs: pd.DataFrame
    layers: pd.DataFrame
    trajectories: pd.DataFrame
    work: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=KEY))

    def of(self, setting: str) -> Tidy:
        """The part of one setting."""
        parts = {name: (table := getattr(self, name))[table["setting"] == setting] for name in TABLES}
        return Tidy((setting,), **parts)

    def mean_cosine(self) -> pd.Series:
        """The cosine between credit and gradient averaged over the blocks that have one, in the order of `runs`."""
        means = self.layers.groupby(list(KEY))["cosine"].mean()
        keys = pd.MultiIndex.from_frame(self.runs[list(KEY)])
        return pd.Series(means.reindex(keys).to_numpy(float), index=self.runs.index)


def read_tidy(paths: Sequence[str | Path]) -> Tidy:
    """The tables in files such as ``results/tidy/{setting}/runs.csv``, the settings in the order of their files.

    Raises:
        AuditError: a file is not as `write_tables` left it.
    """
    files: dict[str, list[Path]] = defaultdict(list)
    for path in map(Path, paths):
        files[path.stem].append(path)
    tables = {name: pd.concat(map(read_table, group), ignore_index=True) for name, group in files.items()}
    return Tidy(tuple(dict.fromkeys(path.parent.name for path in files["runs"])), **tables)


def write_tables(tables: Mapping[str, pd.DataFrame], digests: str | Path) -> None:
    """Write tables to the given paths in one folder, and there what `read_table` compares them with."""
    for path, table in tables.items():
        write_text(path, table.to_csv(index=False))
    write_json(digests, {Path(path).name: sha256_of(path) for path in tables})


def read_table(path: str | Path) -> pd.DataFrame:
    """A table that `write_tables` wrote.

    Raises:
        AuditError: it was cut short or altered.
    """
    digests = Path(path).with_name(DIGESTS)
    recorded = read_json(digests)
    if not isinstance(recorded, dict) or recorded.get(Path(path).name) != sha256_of(path):
        raise AuditError(
            f"{path}: cut short or altered since it was made (its SHA-256 is not the one in {digests}). Delete both and"
            " run snakemake again."
        )
    return pd.read_csv(path)


def read_audits(paths: Sequence[str | Path]) -> list[dict[str, Any]]:
    """The workflow's audits in the order of setting, run and seed.

    Raises:
        AuditError: a file is no audit, not one that the workflow writes now, or of another run than its path says.
    """
    return sorted(map(_read, paths), key=lambda audit: [audit[key] for key in KEY])


def _read(path: str | Path) -> dict[str, Any]:
    audit = read_audit(path)
    if missing := [key for key in OF_A_RUN if key not in audit]:
        raise AuditError(
            f"{path}: missing {', '.join(missing)}; expected an audit as the workflow writes it: delete the file, then"
            " run snakemake again."
        )
    check_path(path, "{setting}/{run}/seed{seed}".format(**audit))
    return audit


def check_path(path: str | Path, found: str) -> None:
    """Compare the run that a file is of, written ``{setting}/{run}/seed{seed}``, with the one that its path names.

    Raises:
        AuditError: they differ.
    """
    if found != (expected := "/".join(Path(path).parent.parts[-2:]) + f"/{Path(path).stem}"):
        raise AuditError(
            f"{path}: of {found}; expected the run of its path, {expected}. Delete it and run snakemake again."
        )


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
        **{key: audit[key] for key in ("stopped_after", "digest")},
    }


def work_table(audits: list[dict[str, Any]]) -> pd.DataFrame:
    """One row per run and seed: the seconds that its training took, on which device, by the code of which commit."""
    return pd.DataFrame([{key: audit[key] for key in (*KEY, "seconds", "device", "commit")} for audit in audits])


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
