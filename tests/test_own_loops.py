"""`Monitor` in a loop of one's own: the numbers of `diagnose`, warnings, an end, and a model that
is left as it was.
"""

import copy
import json
import warnings

import pytest
import torch
import torch.nn.functional as F
from networks import assert_same_bits, snapshot
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fa_audit import Description, DiagnosticThresholds, Monitor, diagnose
from fa_audit.audit.monitor import HEALTHY
from fa_audit.core.errors import AuditError

BLOCKS = Description("blocks.*", "all features")
SEEN = DiagnosticThresholds(h_norm_explosion_ratio=1e-6)  # D1 fires
X, Y = torch.randn(96, 6, generator=torch.Generator().manual_seed(0)), torch.arange(96) % 3
BATCHES = list(zip(X.split(12), Y.split(12)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        parts = (nn.Linear(8, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.2))
        self.embed, self.head = nn.Linear(6, 8), nn.Linear(8, 3)
        self.blocks = nn.Sequential(nn.Sequential(*parts), nn.Linear(8, 8))

    def forward(self, x):
        return self.head(self.blocks(self.embed(x)))


def new() -> Net:
    torch.manual_seed(3)
    return Net()


def train_one_epoch(model):
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    for x, y in zip(X.split(32), Y.split(32)):
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()


def test_every_row_is_what_diagnose_finds_and_the_model_trains_as_without_it():
    alone, model = new(), new()
    # Its batches are those of the beginning, and drawing them leaves the global stream alone.
    shuffling = DataLoader(TensorDataset(X, Y), 12, shuffle=True)
    torch.manual_seed(4)
    batches = list(shuffling)
    torch.manual_seed(4)
    monitor, expected = Monitor(model, shuffling, description=BLOCKS), []
    for epoch in range(3):
        if epoch:
            before = snapshot(model)
            assert monitor.step() is monitor.stopped is False and snapshot(model) == before
        report = diagnose(model, batches, None, description=BLOCKS)
        loss = F.cross_entropy(model.eval()(batches[0][0]), batches[0][1]).item()
        of_epoch = {"loss": loss, "stability": report.cross_batch_stability, "finite": True}
        for label, name in (("D1", "scale"), ("D2", "reference"), ("C", "stability")):
            of_epoch[label] = report.checks[name].fires
        for state in report.layers:
            row = state.model_dump(include={"layer", "hidden_norm", "grad_norm", "growth"})
            expected.append({"epoch": epoch, **row, **of_epoch})
        assert monitor.report.to_dict()["checks"] == report.to_dict()["checks"]
        for each in (alone.train(), model.train()):
            torch.manual_seed(epoch)
            train_one_epoch(each)
    assert monitor.history == expected and len(expected) == 9
    assert_same_bits(model.state_dict(), alone.state_dict())
    assert monitor.metrics["fa_audit/grad_norm_2"] == expected[-1]["grad_norm"]
    assert monitor.metrics["fa_audit/D1"] == 0 and "fa_audit/growth_2" not in monitor.metrics


def test_a_check_that_fires_is_one_warning_with_its_numbers_and_advice():
    monitor = Monitor(new(), BATCHES[:1], description=BLOCKS, thresholds=SEEN)  # none yet
    with pytest.warns(UserWarning) as found:
        assert [monitor.step() for _ in range(3)] == [False] * 3
    [warning] = found
    message = str(warning.message)
    assert warning.filename == __file__ and message.endswith(HEALTHY)
    growth = max(row["growth"] for row in monitor.history[:2])
    assert "epoch 1: D1 fires" in message and f"{growth:.3g}" in message and "1e-06" in message


@pytest.mark.parametrize(
    ("stop_on", "ends"), [("D1", True), (("D1", "C"), True), (("D1", "D2"), False), ((), False)]
)
def test_it_ends_where_all_that_it_stops_on_fires(stop_on, ends):
    limits = DiagnosticThresholds(h_norm_explosion_ratio=1e-6, stability_drift_ceiling=-1)
    monitor = Monitor(
        new(), BATCHES, description=BLOCKS, thresholds=limits, stop_on=stop_on, epoch=7
    )
    assert not monitor.stopped
    with pytest.warns(UserWarning) as found:
        assert monitor.step() is monitor.stopped is ends
    assert ("epoch 8: training ends here" in str(found[-1].message)) == ends
    assert monitor.epoch == 8 and {row["epoch"] for row in monitor.history} == {7, 8}


@pytest.mark.parametrize("stop_on", ["D2", ()])
def test_what_is_not_finite_ends_it_where_anything_does(stop_on):
    model = new()
    monitor = Monitor(model, BATCHES[:1], description=BLOCKS, stop_on=stop_on)
    model.head.weight.data[0, 0] = float("nan")
    with pytest.warns(UserWarning) as found:
        assert monitor.step() is bool(stop_on)
    assert "NaN or infinite" in str(found[0].message)
    assert monitor.history[-1]["finite"] is False


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"stop_on": "D3"}, "stop_on: unknown check 'D3'; known: C, D1, D2"),
        ({"stop_on": [["D1"]]}, "stop_on: unknown check .*; known: C, D1, D2"),
        ({"stop_on": ("D1", "C")}, "stop_on: found 'C' with 1 batches; expected 8 or more"),
        ({"description": Description("layers.*", "all features")}, "layers"),
        ({"eval_batches": []}, "eval_batches: found no batches"),
        ({"epoch": -1}, "epoch: found -1; expected an integer >= 0"),
        ({"log": 3}, "log: found 3; expected a function"),
    ],
)
def test_bad_input_is_found_before_any_training(given, words):
    with pytest.raises(AuditError, match=words):
        Monitor(**{"model": new(), "eval_batches": BATCHES[:1], "description": BLOCKS} | given)


def test_what_the_audit_has_against_the_input_is_told_at_the_beginning():
    with pytest.warns(UserWarning, match="fa-audit: The first block reads the data itself"):
        first = Description("0", "all features")
        monitor = Monitor(nn.Sequential(nn.Linear(6, 3)), BATCHES[:1], description=first)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monitor.step()


def test_a_resumed_monitor_goes_on_as_the_one_that_was_not_interrupted():
    def step(model, monitor, epochs):
        for _ in range(epochs):
            train_one_epoch(model.train())
            monitor.step()

    options = {"description": BLOCKS, "thresholds": SEEN, "stop_on": "D1"}
    torch.manual_seed(0)
    model = new()
    monitor = Monitor(model, BATCHES[:1], **options)
    with pytest.warns(UserWarning):
        step(model, monitor, 2)
    kept, stream = json.dumps(monitor.state_dict()), torch.get_rng_state()
    other = copy.deepcopy(model)
    step(model, monitor, 1)

    resumed = Monitor(other, BATCHES[:1], **options)
    resumed.load_state_dict(json.loads(kept))
    assert (resumed.epoch, resumed.stopped, len(resumed.history)) == (2, True, 9)
    torch.set_rng_state(stream)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what was said before is not said again
        step(other, resumed, 1)
    assert resumed.state_dict() == monitor.state_dict() and resumed.metrics == monitor.metrics


def test_what_is_not_a_state_of_this_monitor_is_refused():
    monitor = Monitor(new(), BATCHES[:1], description=BLOCKS)
    state = monitor.state_dict()
    for wrong in ({}, state | {"history": monitor.history[:1]}):
        with pytest.raises(AuditError, match=r"^state: found"):
            monitor.load_state_dict(wrong)
    assert monitor.state_dict() == state


def test_batches_that_are_changed_later_change_no_number():
    batches = [[part.clone() for part in batch] for batch in BATCHES[:2]]
    monitor = Monitor(new(), batches, description=BLOCKS)
    first = monitor.report
    batches[0][0].mul_(5)
    batches.clear()
    monitor.step()
    assert monitor.report.layers == first.layers
