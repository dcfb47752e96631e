"""`Monitor` in Lightning and in Hugging Face's Trainer: its metrics in the framework's log,
warnings, and an end.
"""

import logging
import sys
from importlib import import_module

import pytest
import torch
import torch.nn.functional as F
from test_own_networks import Chain
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fa_audit import Description, DiagnosticThresholds, diagnose
from fa_audit.core.errors import AuditError

BLOCKS, ENCODER = (
    Description("layers.*", "all features"),
    Description("bert.encoder.layer.*", "cls token"),
)
SEEN = {
    "thresholds": DiagnosticThresholds(h_norm_explosion_ratio=1e-6),
    "stop_on": "D1",
}  # D1 fires
X, Y = torch.randn(64, 6, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 3
TOKENS = {
    "input_ids": torch.arange(320).reshape(64, 5),
    "attention_mask": torch.ones(64, 5, dtype=torch.int64),
}

LIGHTNING = pytest.mark.filterwarnings(  # its own; the last where Slurm is installed
    "ignore:.*does not have many workers",
    "ignore:.*treespec, LeafSpec",
    "ignore:.*srun.*is available",
)


def network():
    return Chain(nn.Linear(6, 8), [nn.Linear(8, 8) for _ in range(2)], nn.Linear(8, 3))


def fitted_by_lightning(**options):
    """Train on the CPU for two epochs; return the trainer and the monitor."""
    import lightning.pytorch as pl

    from fa_audit.audit.lightning import LightningMonitor

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = network()

        def training_step(self, batch):
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(0)
    module, loader = Module(), DataLoader(TensorDataset(X, Y), 16)
    given = {"model": module.net, "eval_batches": [(X, Y)], "description": BLOCKS}
    callback = LightningMonitor(**given | options)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", callbacks=[callback], enable_checkpointing=False, **quiet
    )
    trainer.fit(module, loader)
    return trainer, callback.monitor


def fitted_by_transformers(folder, **options):
    """Train a small BERT on the CPU for two epochs; return the trainer and the monitor."""
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    from fa_audit.audit.transformers import TrainerMonitor

    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    model = BertForSequenceClassification(BertConfig(vocab_size=320, num_labels=3, **sizes))
    samples = [
        {name: part[i] for name, part in TOKENS.items()} | {"labels": Y[i]} for i in range(len(Y))
    ]
    arguments = TrainingArguments(
        str(folder), num_train_epochs=2, use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no",
        logging_strategy="epoch", eval_strategy="epoch", learning_rate=0.01,
    )  # fmt: skip
    trainer = Trainer(model, arguments, train_dataset=samples, eval_dataset=samples)
    first = next(iter(trainer.get_eval_dataloader()))
    callback = TrainerMonitor(trainer, eval_batches=[first], description=ENCODER, **options)
    trainer.add_callback(callback)
    trainer.train()
    return trainer, callback.monitor


@LIGHTNING
def test_lightning_logs_every_epoch_and_ends():
    trainer, monitor = fitted_by_lightning()
    assert trainer.current_epoch == 2
    assert [row["epoch"] for row in monitor.history] == [0] * 3 + [1] * 3 + [2] * 3
    report = diagnose(trainer.model.net, [(X, Y)], None, description=BLOCKS)
    assert [row["hidden_norm"] for row in monitor.history[-3:]] == report.residual_norms
    logged = {name: value.item() for name, value in trainer.callback_metrics.items()}
    assert logged == pytest.approx(monitor.metrics)
    with pytest.warns(UserWarning, match="epoch 1: "):
        trainer, monitor = fitted_by_lightning(**SEEN)
    assert trainer.current_epoch == 1 and monitor.stopped


def test_hugging_face_s_trainer_logs_every_epoch_and_ends(tmp_path):
    trainer, monitor = fitted_by_transformers(tmp_path)
    report = diagnose(
        trainer.model, [next(iter(trainer.get_eval_dataloader()))], None, description=ENCODER
    )
    assert [
        row["grad_norm"] for row in monitor.history[-3:]
    ] == report.bp_grad_norms and monitor.epoch == 2
    log = trainer.state.log_history
    ours = [row for row in log if "fa_audit/D1" in row]
    assert [row["epoch"] for row in ours] == [1, 2] and ours[1]["fa_audit/loss"] == monitor.history[
        -1
    ]["loss"]
    assert (
        len([row for row in log if "loss" in row])
        == len([row for row in log if "eval_loss" in row])
        == 2
    )
    with pytest.warns(UserWarning, match="epoch 1: "):
        trainer, monitor = fitted_by_transformers(tmp_path, **SEEN)
    assert trainer.state.epoch == 1 and monitor.stopped
    assert len([row for row in trainer.state.log_history if "loss" in row]) == 1


@pytest.mark.parametrize("package", ["lightning", "transformers"])
def test_without_the_package_its_extra_is_named(package, monkeypatch):
    for name in (package, f"{package}.pytorch"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it raises ModuleNotFoundError
    monkeypatch.delitem(sys.modules, f"fa_audit.audit.{package}", raising=False)
    with pytest.raises(AuditError, match=rf"'{package}' is not installed.*fa-audit\[{package}\]"):
        import_module(f"fa_audit.audit.{package}")


@LIGHTNING
def test_lightning_s_checkpoints_hold_the_monitor(tmp_path):
    from fa_audit.audit.lightning import LightningMonitor

    trainer, monitor = fitted_by_lightning()
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    callback = LightningMonitor(model=network(), eval_batches=[(X, Y)], description=BLOCKS)
    kept = torch.load(tmp_path / "last.ckpt", weights_only=True)["callbacks"]["LightningMonitor"]
    callback.load_state_dict(kept)
    callback.on_train_start(trainer, None)
    assert callback.monitor.history == monitor.history and callback.monitor.epoch == 2
    assert callback.state_dict() == kept == monitor.state_dict()
