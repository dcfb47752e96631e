"""`fa_audit.Monitor` as a callback of Lightning."""

from typing import Any

from fa_audit.audit.monitor import Monitor
from fa_audit.core.registry import naming_extras

with naming_extras():
    from lightning.pytorch import Callback, LightningModule, Trainer


class LightningMonitor(Callback):
    """Audit after every training epoch: the module logs the monitor's metrics, and the trainer
    stops if the monitor says so.

    Checkpoints of the trainer hold the monitor's state.

    Attributes:
        monitor: the `Monitor` of the last ``fit``.
    """

    def __init__(self, **options: Any) -> None:
        """Keep the arguments of `Monitor`, which is built when ``fit`` begins; `model` defaults to
        the module.
        """
        self.options = options
        self._resumed: dict[str, Any] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        given: dict[str, Any] = {"model": pl_module, "epoch": trainer.current_epoch}
        self.monitor = Monitor(**given | self.options)
        if self._resumed:
            self.monitor.load_state_dict(self._resumed)
        self._resumed = {}

    def state_dict(self) -> dict[str, Any]:
        return self.monitor.state_dict() if hasattr(self, "monitor") else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._resumed = state_dict

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.should_stop |= self.monitor.step()
        pl_module.log_dict(self.monitor.metrics)
