"""Tables with a row per run: main audit, settings side by side, variations, penalties, fresh
feedback, a search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from fa_audit.core.errors import AuditError, listed
from fa_audit.documents.formats import Table
from fa_audit.experiments.config import PAPER
from fa_audit.experiments.spec import OWN_OPTIONS, short_number
from fa_audit.methods.info import stated
from fa_audit.protocol.checks import CHECKS
from fa_audit.results.statistics import rank_runs, with_margin, without_penalty
from fa_audit.results.tables.rows import FOUR_CHECK, THREE_CHECK, Column, by_setting, run_table
from fa_audit.results.tidy import Tidy, side_of


def mean_and_deviation(heading: str, quantity: str, *, decimals: int, **options: Any) -> Column:
    """Return a column of means ± the sample deviation of the same quantity; options as of `Column`."""
    return Column(heading, quantity, spread=(quantity, "deviation"), decimals=decimals, **options)


ACCURACY = mean_and_deviation("accuracy (%)", "accuracy", decimals=1, scale=100)
OWN_FROZEN = Column("own frozen (%)", "own_frozen_acc", scale=100, decimals=1)
DEEP_COSINE = mean_and_deviation("deep cosine", "deep_cosine", decimals=3)
GROWTH = Column("max growth", "max_growth", "max")
GRADIENT = Column("median ||g_L||", "grad_norm_last", "median")
REGIME = (
    *(GROWTH, GRADIENT),
    *(
        mean_and_deviation(
            f"{CHECKS[name].paper} from epoch", f"first_{name}_flag", decimals=1, absent="never"
        )
        for name in ("scale", "reference")
    ),
)
REGIME_NOTE = (
    "growth: largest over seeds; ||g_L||: median over seeds; first epoch at which D1 and D2 fire: mean ± sample "
    "standard deviation over the seeds in which they do (how many, if not all)."
)
FOUR_CHECK_NOTE = (
    "Four-check: one verdict for all seeds, of the checks' mean distances from their limits, and how many seeds agree; "
    "borderline: the distances' t-interval contains 0 (growth and gradient in decades, others as differences)."
)

MAIN_AUDIT = (
    ACCURACY,
    OWN_FROZEN,
    Column("margin (points)", "margin", scale=100, decimals=1, signed=True),
    Column("bp+frozen (%)", "bp_frozen_acc", scale=100, decimals=1),
    *(GROWTH, GRADIENT, THREE_CHECK, FOUR_CHECK),
)
MAIN_AUDIT_NOTE = (
    "Accuracy: mean ± sample standard deviation over seeds; frozen baselines: means over seeds; margin: accuracy "
    "minus own frozen baseline, seed by seed; growth: largest over seeds; ||g_L||: median over seeds. "
    f"{FOUR_CHECK_NOTE}"
)


def main_audit(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return accuracy, frozen baselines, scale, reference and verdicts of one setting, best mean
    accuracy first.
    """
    audited = replace(tidy, runs=with_margin(tidy.runs))
    return run_table(
        audited,
        MAIN_AUDIT,
        rows=by_setting(tidy),
        caption=f"{title}. {MAIN_AUDIT_NOTE}",
        labels=labels,
    )


COMPARISON = (ACCURACY, OWN_FROZEN, *REGIME, THREE_CHECK, FOUR_CHECK)
COMPARISON_NOTE = (
    "Accuracy: mean ± sample standard deviation over seeds; own frozen baseline of the same setting: mean over seeds; "
    f"{REGIME_NOTE} {FOUR_CHECK_NOTE}"
)


def comparison(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return settings (architectures, data sets, controls) in their order, in each the best mean
    accuracy first.
    """
    return run_table(
        tidy,
        COMPARISON,
        rows=by_setting(tidy),
        caption=f"{title}. {COMPARISON_NOTE}",
        labels=labels,
    )


SIZES = ["width", "depth", "epochs", "lr", *OWN_OPTIONS]
VARIATION = (ACCURACY, OWN_FROZEN, DEEP_COSINE, *REGIME, THREE_CHECK)
VARIATION_NOTE = (
    "Accuracy and deep cosine (credit with gradient, mean over samples and over blocks l >= 1): "
    "mean ± sample standard deviation over seeds; own frozen baseline of the same network and budget: mean over seeds; "
    f"{REGIME_NOTE}"
)


def variation(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return runs by mean accuracy over all settings, in each the settings by what varies, rising.

    Settings differ in width, depth, epochs or options of training; others are led by their labels.
    """
    order, varied = rank_runs(tidy.runs), _differing(tidy.runs)
    settings = tidy.runs.drop_duplicates("setting").set_index("setting")
    varied = (
        [] if varied and settings.duplicated(varied).any() else varied
    )  # no two of them share it
    sizes = settings[varied]
    rows = sorted(by_setting(tidy), key=lambda row: (order.index(row[1]), *sizes.loc[row[0]]))
    caption = f"{title}. {VARIATION_NOTE}"
    return run_table(tidy, VARIATION, rows=rows, caption=caption, labels=labels, varied=varied)


def _differing(runs: pd.DataFrame) -> list[str]:
    return [name for name in SIZES if name in runs and runs[name].nunique() > 1]


PENALTY = (
    ACCURACY,
    DEEP_COSINE,
    Column("fresh-B null", "fresh_b_mean", spread=("fresh_b_std", "mean"), decimals=3),
    mean_and_deviation("deep rho", "deep_rho", decimals=3),
    Column("nudging (nats)", "deep_nudging"),
    GROWTH,
    Column("median ||h_L||", "hidden_norm_last", "median"),
    *(GRADIENT, THREE_CHECK),
)
PENALTY_NOTE = (
    "Accuracy, deep cosine (credit with gradient) and deep rho (perturbation correlation): mean ± sample standard "
    "deviation over seeds; fresh-B null (the deep cosine with 20 feedback draws that the network has never seen): mean "
    "± standard deviation of the draws, both averaged over seeds; nudging (change of the loss by a step along the "
    "credit, negative where it helps): mean over seeds; growth: largest over seeds; ||h_L||, ||g_L||: median over "
    "seeds. Deep: mean over the blocks l >= 1."
)


def penalty(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return one row per method and penalty: methods by mean accuracy over all penalties, the
    penalty rising.

    Labels are those of methods, i.e. of runs without their penalty.
    """
    penalties = tidy.runs.set_index("run")["penalty"].to_dict()
    methods = {run: without_penalty(run) for run in penalties}
    order = rank_runs(tidy.runs.assign(run=tidy.runs["run"].map(methods)))
    runs = sorted(penalties, key=lambda run: (order.index(methods[run]), penalties[run]))
    texts = {run: short_number(value) if value else "0" for run, value in penalties.items()}
    named = {run: f"{labels.get(methods[run], methods[run])}, {texts[run]}" for run in runs}
    rows = [(tidy.settings[0], run) for run in runs]
    table = run_table(tidy, PENALTY, rows=rows, caption=f"{title}. {PENALTY_NOTE}", labels=named)
    return replace(table, columns=("method, penalty", *table.columns[1:]))


# The cosine with the training feedback is that of float32 credits: draws that differ by less do not
# differ.
RESOLUTION = 1e-6
NULL_CALIBRATION = (
    ACCURACY,
    DEEP_COSINE,
    mean_and_deviation("null mean", "fresh_b_mean", decimals=3),
    Column("null deviation", "fresh_b_std", decimals=3),
    mean_and_deviation("z", "z", decimals=1, signed=True),
    mean_and_deviation("clamped cosine", "deep_clamped_cosine", decimals=3),
    GRADIENT,
)
NULL_CALIBRATION_NOTE = (
    "Deep cosine: credit of the training feedback with the gradient, without epsilon, mean over the blocks l >= 1; "
    "null: mean and sample standard deviation of the same over 20 feedback draws that the network has never seen; z: "
    "deep cosine minus null mean, in null deviations, seed by seed (of 20 fresh draws 19 lie within ±1.96); clamped "
    "cosine: the deep cosine with norms clamped at 1e-8. All are means over seeds, ± their sample standard deviation; "
    "||g_L||: median over seeds. Methods without random feedback have no null, and draws that all give the same cosine "
    "no z."
)


def null_calibration(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return deep cosines beside those of other feedback: settings in their order, best mean
    accuracy first.
    """
    names = ("deep_cosine", "fresh_b_mean", "fresh_b_std")
    side = side_of(tidy.runs, *names)
    cosine, mean, deviation = (tidy.runs[f"{name}{side}"].astype(float) for name in names)
    z = (cosine - mean) / deviation.where(
        deviation > RESOLUTION
    )  # NaN where the null has no deviation
    calibrated = replace(tidy, runs=tidy.runs.assign(z=z))
    caption = f"{title}. {NULL_CALIBRATION_NOTE}"
    return run_table(
        calibrated, NULL_CALIBRATION, rows=by_setting(tidy), caption=caption, labels=labels
    )


class Ranks(Column):
    """A column of two ranks: of the chosen settings and, in brackets, of the untuned one."""

    def cell(self, group: pd.DataFrame, seeds: int) -> str:
        """Return the printed text of one row; arguments as for `Column.cell`."""
        return "{:.0f} ({:.0f})".format(*group[["rank", "untuned_rank"]].iloc[0])


UNTUNED = (
    "lr",
    "optimiser",
    "clip",
    "normalise",
    "rms_floor",
    "frozen_embedding",
)  # at the paper's values
TUNED = (
    mean_and_deviation("validation (%)", "validation_acc", decimals=1, scale=100),
    ACCURACY,
    mean_and_deviation("untuned validation (%)", "untuned_validation_acc", decimals=1, scale=100),
    mean_and_deviation("untuned (%)", "untuned_accuracy", decimals=1, scale=100),
    Ranks("rank (untuned)", "rank", spread=("untuned_rank", "mean")),
    *(THREE_CHECK, FOUR_CHECK),
)
TUNED_NOTE = (
    "Of the settings of a run's search, the one with its best mean accuracy on the validation samples, which no "
    "training saw (of equal ones the first); test accuracy chooses nothing. Untuned: the paper's options, a setting of "
    "the same search. Accuracies: mean ± sample standard deviation over seeds; ranks: by mean test accuracy among the "
    "chosen (among the untuned); verdicts: of the chosen. "
)


def tuned(tidy: Tidy, *, title: str, labels: Mapping[str, str]) -> Table:
    """Return one row per run: what was chosen, its accuracies and verdicts, and the untuned; best
    mean accuracy first.

    Raises:
        AuditError: a run is missing in a setting, or has no validation accuracy; or no setting is
            the untuned one.
    """
    runs, chosen = tidy.runs, choose(tidy)
    paper = (runs[list(UNTUNED)] == [PAPER[name] for name in UNTUNED]).all(axis=1)
    untuned = runs[paper].drop_duplicates(["run", "seed"])
    if lacking := sorted({*chosen} - {*untuned["run"]}):
        options = ", ".join(f"{name} {PAPER[name]}" for name in UNTUNED)
        found = f"tuned: no setting of {listed(lacking, 3)} has {options}"
        raise AuditError(f"{found}, with which the chosen ones are compared. Add one.")
    beside = untuned.set_index(["run", "seed"])[["validation_acc", "accuracy"]].add_prefix(
        "untuned_"
    )
    best = runs[runs["setting"] == runs["run"].map(chosen)].join(beside, on=["run", "seed"])
    best = best.assign(
        rank=best["run"].map(_ranks(best)), untuned_rank=best["run"].map(_ranks(untuned))
    )
    best["normalise"] = best["normalise"].where(
        [stated(method).normalises for method in best["method"]], "never"
    )
    shown = replace(
        tidy, runs=best, settings=tuple(name for name in tidy.settings if name in chosen.values())
    )
    caption = f"{title}. {TUNED_NOTE}{FOUR_CHECK_NOTE}"
    rows = [(chosen[run], run) for run in rank_runs(best)]
    return run_table(
        shown, TUNED, rows=rows, caption=caption, labels=labels, varied=_differing(runs)
    )


def choose(tidy: Tidy) -> dict[str, str]:
    """Return for every run the setting with its best mean validation accuracy; of equal ones the
    first.

    Runs that share a setting are of one search, whose settings each of them must have.
    """
    means = tidy.runs.groupby(["run", "setting"])["validation_acc"].mean().unstack()
    means = means.reindex(columns=list(tidy.settings))
    searched = pd.crosstab(tidy.runs["run"], tidy.runs["setting"]).reindex(
        columns=list(tidy.settings), fill_value=0
    )
    due = searched @ searched.T @ searched > 0
    if absent := [
        f"{run} in {setting}"
        for run, setting in (means.isna() & due).stack().loc[lambda it: it].index
    ]:
        raise AuditError(
            f"tuned: no validation accuracy of {listed(absent, 3)}; expected every run in every setting."
        )
    return means.idxmax(axis=1).to_dict()


def _ranks(runs: pd.DataFrame) -> pd.Series:
    return runs.groupby("run")["accuracy"].mean().rank(ascending=False, method="min")
