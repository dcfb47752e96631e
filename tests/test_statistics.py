"""Statistics over seeds against numbers worked out by hand; the order of runs."""

import math

import pandas as pd
import pytest

from fa_audit.core.errors import AuditError
from fa_audit.results.statistics import Summary, rank_runs, summarise


def test_mean_sample_deviation_and_t_interval_by_hand():
    found = summarise([1.0, 2.0, 6.0])  # squared distances from 3: 4 + 1 + 9 = 14, over n - 1 = 2
    half = (
        4.302652729911275 * math.sqrt(7) / math.sqrt(3)
    )  # the 97.5 % point of Student's t, 2 degrees of freedom
    assert (found.n, found.mean, found.deviation) == (
        3,
        3.0,
        pytest.approx(math.sqrt(7), rel=1e-14),
    )
    assert found.interval == pytest.approx((3 - half, 3 + half), rel=1e-10)
    assert summarise([0.5]) == Summary(1, 0.5, None, None) and summarise([0.5] * 3) == Summary(
        3, 0.5, 0, (0.5, 0.5)
    )


@pytest.mark.parametrize("values", [[], [0.5, math.nan], [0.5, math.inf], [-math.inf]])
def test_what_is_not_a_number_is_never_dropped(values):
    with pytest.raises(AuditError, match="finite"):
        summarise(values)


def test_runs_are_ranked_by_mean_accuracy_then_name():
    accuracies = {
        "low": [0.1, 0.2],
        "unknown": [math.nan, math.nan],
        "b": [0.5, 0.7],
        "a": [0.6, 0.6],
        "top": [0.9],
    }
    rows = [
        {"run": run, "accuracy": value} for run, values in accuracies.items() for value in values
    ]
    assert rank_runs(pd.DataFrame(rows)) == ["top", "a", "b", "low", "unknown"]
    assert rank_runs(pd.DataFrame(rows[::-1])) == ["top", "a", "b", "low", "unknown"]
