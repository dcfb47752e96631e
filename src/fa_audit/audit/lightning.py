"""`fa_audit.Monitor` as a callback of Lightning."""

from typing import Any

from fa_audit.audit.monitor import Monitor
from fa_audit.core.extras import naming_extras

with naming_extras():
    from lightning.pytorch import Callback, LightningModule, Trainer


class LightningMonitor(Callback):
    """A `Monitor` that steps after every training epoch: the module logs its metrics, and the trainer stops.

    Attributes:
        monitor: of the last ``fit``.
    """

    def __init__(self, **options: Any) -> None:
        """Keep the arguments of the monitor; it is made when a training begins, by default for its module."""
        self.options = options

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.monitor = Monitor(**dict[str, Any](model=pl_module, epoch=trainer.current_epoch) | self.options)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.should_stop |= self.monitor.step()
        pl_module.log_dict(self.monitor.metrics)
