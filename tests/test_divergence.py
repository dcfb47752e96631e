"""NaN and infinities in training: a fault of the machine leaves no trace, a divergence is a result."""

import math
from dataclasses import dataclass, replace

import pytest

from fa_audit.methods.dfa import DFA
from fa_audit.training.checkpoint import Resume, save_checkpoint
from fa_audit.training.loop import train


@dataclass(frozen=True)
class Faulty(DFA):
    """DFA whose credits are `value` in the steps that `bad` has, counted by its calls."""

    value: float = math.nan
    bad: tuple = ()

    def credits(self, network, trace, labels, state):
        found = super().credits(network, trace, labels, state)
        if not network.training:  # an observation, not a step
            return found
        state.step = getattr(state, "step", -1) + 1
        blocks = [a * self.value for a in found.blocks] if state.step in self.bad else found.blocks
        return replace(found, blocks=blocks)


def bits(trained, path):
    save_checkpoint(replace(trained.learner, method=DFA()), path)
    return path.read_bytes()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("step", [0, 3, 5, 7])
def test_a_fault_that_does_not_come_again_leaves_no_trace(make_spec, dataset, tmp_path, caplog, step, value):
    spec = make_spec("dfa", epochs=3)  # of four steps each
    whole, hit = train(spec, dataset), train(spec, dataset, method=Faulty(value=value, bad=(step,)))
    assert hit.history == whole.history and bits(hit, tmp_path / "a") == bits(whole, tmp_path / "b")
    assert f"epoch {step // 4 + 1} left values that are not finite" in caplog.text
    assert "a fault of the machine" in caplog.text


def test_a_divergence_is_recorded_once_and_resumed_to_the_same_bits(make_spec, dataset, tmp_path, caplog):
    spec = make_spec("dfa", epochs=4)
    always = Faulty(bad=tuple(range(5, 100)))
    diverged = train(spec, dataset, method=always, resume=Resume(tmp_path / "resume", "same"))
    assert caplog.text.count("left values that are not finite") == caplog.text.count("the training diverged") == 1
    losses = [row["train_loss"] for row in diverged.history if row["layer"] == 0]
    assert [math.isfinite(loss) for loss in losses] == [True, False, False, False]
    again = train(spec, dataset, method=always, resume=Resume(tmp_path / "resume", "same"))
    assert str(again.history) == str(diverged.history)
    assert bits(again, tmp_path / "a") == bits(diverged, tmp_path / "b")
