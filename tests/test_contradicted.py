"""An accuracy that the batches contradict: no margin is evaluated, whoever writes the verdict."""

import pytest
import torch
from torch import nn

from fa_audit import Description, diagnose
from fa_audit.protocol.audit import Audit
from fa_audit.protocol.checks import LEAST_LIKELY, chance
from fa_audit.results.own_audits import read_own, user_audits
from fa_audit.results.standings import with_standings

BLOCKS = Description(["1", "2"], "all features")
OPEN = {
    "three_check": "INCOMPLETE(D3 not evaluated)",
    "four_check": "incomplete (D3 not evaluated)",
}
RIGHT, SAMPLES = 85, 800  # of the network below


@pytest.fixture(scope="module")
def network():
    """A network that was not trained, and batches of as many samples as its test set has."""
    torch.manual_seed(1)
    blocks = (nn.Sequential(nn.Linear(48, 48), nn.ReLU()) for _ in range(2))
    model = nn.Sequential(nn.Linear(64, 48), *blocks, nn.Linear(48, 10))
    return model, [(torch.randn(100, 64), torch.randint(10, (100,))) for _ in range(8)]


def audited(network, accuracy, frozen=0.02):
    given = {"bp_frozen_acc": frozen, "test_samples": SAMPLES, "description": BLOCKS}
    return diagnose(*network, accuracy, frozen, **given)


def test_no_margin_is_evaluated_in_an_audit_its_file_or_its_table(network, tmp_path):
    report, path = audited(network, 0.9), tmp_path / "audit.json"
    report.write(path)
    for audit in (report, Audit.read(path)):
        assert audit.hits == (RIGHT, SAMPLES)
        assert OPEN.items() <= audit.to_dict()["verdict"].items()
        for name in ("depth", "depth_strict"):
            assert audit.checks[name].fires is audit.checks[name].value is None
    row = with_standings(user_audits(read_own([path]))).runs.iloc[0]
    assert {name: row[name] for name in OPEN} == OPEN and row[["margin", "bp_margin"]].isna().all()


def test_the_verdict_changes_where_the_chance_falls_below_a_millionth(network):
    accuracies = [RIGHT / SAMPLES + step / 1000 for step in range(300)]
    likely = [chance((RIGHT, SAMPLES), accuracy) >= LEAST_LIKELY for accuracy in accuracies]
    first = likely.index(False)
    assert all(likely[:first]) and not any(likely[first:])
    for accuracy, verdict in zip(accuracies[first - 1 : first + 1], ("PASS", OPEN["three_check"])):
        report = audited(network, accuracy)
        assert report.three_check_verdict == verdict
        codes = [warning.code for warning in report.warnings]
        assert codes == ([] if verdict == "PASS" else ["unlikely accuracy"])
