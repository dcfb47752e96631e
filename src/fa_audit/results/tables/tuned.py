"""The table of a small search: per run the setting with the best validation accuracy, beside the untuned one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from fa_audit.core.errors import AuditError, listed
from fa_audit.documents.formats import Table
from fa_audit.experiments.config import PAPER
from fa_audit.results.statistics import rank_runs
from fa_audit.results.tables.audits import ACCURACY, FOUR_CHECK, FOUR_CHECK_NOTE, THREE_CHECK, varied_sizes
from fa_audit.results.tables.rows import Column, run_table
from fa_audit.results.tidy import Tidy


class Ranks(Column):
    """A column of two ranks: of the chosen settings and, in brackets, of the untuned one."""

    def cell(self, group: pd.DataFrame, seeds: int) -> str:
        """Return the printed text of one row; arguments as for `Column.cell`."""
        return "{:.0f} ({:.0f})".format(*group[["rank", "untuned_rank"]].iloc[0])


UNTUNED = ("lr", "optimiser", "clip", "normalise", "rms_floor", "frozen_embedding")  # at the paper's values
VALIDATION, BESIDE, BESIDE_VALIDATION = (
    Column(heading, quantity, spread=(quantity, "deviation"), scale=100, decimals=1)
    for heading, quantity in (
        ("validation (%)", "validation_acc"),
        ("untuned (%)", "untuned_accuracy"),
        ("untuned validation (%)", "untuned_validation_acc"),
    )
)
TUNED = (
    *(VALIDATION, ACCURACY, BESIDE_VALIDATION, BESIDE),
    Ranks("rank (untuned)", "rank", spread=("untuned_rank", "mean")),
    *(THREE_CHECK, FOUR_CHECK),
)
TUNED_NOTE = (
    "Of the {count} settings that every run was trained in, the one with its best mean accuracy on the validation "
    "samples, which no training saw (of equal ones the first); test accuracy chooses nothing. BP and EP do not "
    "normalise credits: where that varies, their trainings repeat, as many as the others'. Untuned: the paper's "
    "options, a setting of the same search. Accuracies: mean ± sample standard deviation over seeds; ranks: by mean "
    "test accuracy among the chosen (among the untuned); verdicts: of the chosen. "
)


def tuned(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return one row per run: what was chosen, its accuracies and verdicts, and the untuned; best mean accuracy first.

    Raises:
        AuditError: a run is missing in a setting, or has no validation accuracy; or no setting is the untuned one.
    """
    runs, chosen = tidy.runs, choose(tidy)
    untuned = runs[runs["setting"] == _untuned(tidy)]
    beside = untuned.set_index(["run", "seed"])[["validation_acc", "accuracy"]].add_prefix("untuned_")
    best = runs[runs["setting"] == runs["run"].map(chosen)].join(beside, on=["run", "seed"])
    best = best.assign(rank=best["run"].map(_ranks(best)), untuned_rank=best["run"].map(_ranks(untuned)))
    shown = replace(tidy, runs=best, settings=tuple(name for name in tidy.settings if name in chosen.values()))
    caption = f"{title}. {TUNED_NOTE.format(count=len(tidy.settings))}{FOUR_CHECK_NOTE}"
    rows, varied = [(chosen[run], run) for run in rank_runs(best)], varied_sizes(runs)
    return run_table(shown, TUNED, rows=rows, caption=caption, labels=labels, varied=varied)


def choose(tidy: Tidy) -> dict[str, str]:
    """Return for every run the setting with its best mean validation accuracy; of equal ones the first."""
    means = tidy.runs.groupby(["run", "setting"])["validation_acc"].mean().unstack()[list(tidy.settings)]
    if absent := [f"{run} in {setting}" for run, setting in means.isna().stack().loc[lambda none: none].index]:
        raise AuditError(f"tuned: no validation accuracy of {listed(absent, 3)}; expected every run in every setting.")
    return means.idxmax(axis=1).to_dict()


def _untuned(tidy: Tidy) -> str:
    """Return the first setting with the paper's options."""
    options = tidy.runs.drop_duplicates("setting").set_index("setting")
    for setting in tidy.settings:
        if all(options.loc[setting, name] == PAPER[name] for name in UNTUNED):
            return setting
    paper = ", ".join(f"{name} {PAPER[name]}" for name in UNTUNED)
    raise AuditError(f"tuned: no setting has {paper}: what the chosen ones are compared with. Add it to the search.")


def _ranks(runs: pd.DataFrame) -> pd.Series:
    return runs.groupby("run")["accuracy"].mean().rank(ascending=False, method="min")
