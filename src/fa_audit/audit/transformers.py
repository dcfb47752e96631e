"""`fa_audit.Monitor` as a callback of Hugging Face's Trainer."""

from typing import Any

from fa_audit.audit.monitor import Monitor
from fa_audit.core.extras import naming_extras

with naming_extras():
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState


class TrainerMonitor(TrainerCallback):
    """A `Monitor` that steps after every epoch: the trainer logs its metrics, and stops.

    Attributes:
        monitor: of the last ``train()``.
    """

    def __init__(self, trainer: Trainer, **options: Any) -> None:
        """Keep what to make the monitor with, when a training begins: any of its arguments; by default of the model."""
        self.trainer, self.options = trainer, options

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        self.monitor = Monitor(**{"model": given["model"], "epoch": round(state.epoch or 0)} | self.options)

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **given: Any) -> None:
        control.should_training_stop |= self.monitor.step()
        waiting = (
            control.should_log
        )  # which logging clears: the trainer's own numbers of the epoch are yet to be logged
        self.trainer.log(self.monitor.metrics)
        control.should_log = waiting
