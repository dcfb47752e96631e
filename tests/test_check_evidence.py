"""make check-evidence: nothing without the data, and which numbers differ by more than seeds do."""

import sys
from types import SimpleNamespace

import pytest
from check_evidence import differences, main


def test_without_data_it_says_so_and_stops(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["check_evidence.py", "--data", str(tmp_path)])
    with pytest.raises(SystemExit, match=f"no cifar-10-batches-py in '{tmp_path}'"):
        main()


@pytest.mark.parametrize(
    ("kind", "seeds", "found", "differs"),
    [
        ("value", [0.50, 0.52, 0.54], 0.61, False),  # 4.3 * 0.02 * sqrt(2) = 0.1217 around 0.50
        ("value", [0.50, 0.52, 0.54], 0.63, True),
        ("value", [0.50], 0.64, False),  # as usual: 4.3 * 0.05 * 0.50 * sqrt(2) = 0.1521
        ("value", [0.50], 0.66, True),
        ("value", [0.50, 0.50, 0.50], 0.5004, False),  # less than a thousandth
        ("value", [0.50, 0.50, 0.50], 0.501, True),
        ("value", [0.50], float("nan"), True),  # lost
        ("value", [float("nan")], 0.5, False),  # not measured
        ("verdict", ["true"], "true", False),
        ("verdict", ["true"], "false", True),
    ],
)
def test_a_number_may_differ_by_what_the_seeds_of_its_run_scatter(kind, seeds, found, differs):
    entry = SimpleNamespace(kind=kind, key="a run's number")
    assert bool([*differences(entry, {0: found}, dict(enumerate(seeds)))]) == differs
