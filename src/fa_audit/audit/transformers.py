"""`fa_audit.Monitor` as a callback of Hugging Face's Trainer."""

from typing import Any

from fa_audit.audit.monitor import Monitor
from fa_audit.core.registry import naming_extras

with naming_extras():
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState


class TrainerMonitor(TrainerCallback):
    """Audit after every epoch: the trainer logs the monitor's metrics, and stops if the monitor
    says so.

    Attributes:
        monitor: the `Monitor` of the last ``train()``.
    """

    def __init__(self, trainer: Trainer, **options: Any) -> None:
        """Keep the arguments of `Monitor`, which is built when ``train()`` begins; `model` defaults
        to the trainer's.
        """
        self.trainer, self.options = trainer, options

    def on_train_begin(
        self, args: Any, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        self.monitor = Monitor(
            **{"model": given["model"], "epoch": round(state.epoch or 0)} | self.options
        )

    def on_epoch_end(
        self, args: Any, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        """Audit the model, log the monitor's metrics, and stop if the monitor says so."""
        control.should_training_stop |= self.monitor.step()
        # Logging clears should_log, which the trainer needs to log its own numbers of this epoch.
        waiting = control.should_log
        self.trainer.log(self.monitor.metrics)
        control.should_log = waiting
