"""Tables of the measured runs, for tests of what the documents say about them."""

from functools import cache

import numpy as np
import pytest
from projects import ROOT

from fa_audit.results.measured import read_measured
from fa_audit.results.tidy import read_tidy

SEEDS = [42, 123, 456]


@cache
def read(setting, folder="measured"):
    return read_tidy([ROOT / f"reference/{folder}/{setting}/audits.json"])


@cache
def every_setting():
    """The tables of all settings of the reproduction."""
    return read_measured(ROOT / "reference/measured")


def runs(setting, folder="measured"):
    return read(setting, folder).runs.set_index(["run", "seed"])


def of(setting, run, column, seed=None, folder="measured"):
    """Return the values of a run, or the value of one of its seeds."""
    values = runs(setting, folder).loc[run][column]
    return values if seed is None else values[seed]


def near(values, *stated, decimals=3):
    """Return whether numbers are the stated ones, as far as these are written out."""
    return np.round(np.atleast_1d(values), decimals).tolist() == pytest.approx(
        list(stated), abs=1e-9
    )
