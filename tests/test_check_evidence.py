"""make check-evidence: nothing without the data, and which numbers differ by more than seeds do."""

import subprocess
import sys

import pandas as pd
import pytest
from projects import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from check_evidence import outside


def test_without_data_it_says_so_and_stops(tmp_path):
    command = [sys.executable, ROOT / "tools/check_evidence.py", "--data", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert f"no cifar-10-batches-py in '{tmp_path}': nothing was compared" in done.stderr


@pytest.mark.parametrize(
    ("seeds", "found", "names"),
    [
        ([0.50, 0.52, 0.54], 0.61, []),  # 4.3 * 0.02 * sqrt(2) = 0.1217 around 0.50
        ([0.50, 0.52, 0.54], 0.63, ["accuracy"]),
        ([0.50], 0.55, []),  # as usual: 4.3 * 0.04 * 0.50 * sqrt(2) = 0.1217
        ([0.50], 0.63, ["accuracy"]),
        ([0.50, 0.50, 0.50], 0.5004, []),  # less than a thousandth
        ([0.50, 0.50, 0.50], 0.501, ["accuracy"]),
        ([0.50], None, []),
    ],
)
def test_a_number_may_differ_by_what_the_seeds_of_its_run_scatter(seeds, found, names):
    rows, usual = pd.DataFrame({"accuracy": seeds}), pd.Series({"accuracy": 0.04})
    assert [text.partition(":")[0] for text in outside({"accuracy": found}, rows, usual)] == names
