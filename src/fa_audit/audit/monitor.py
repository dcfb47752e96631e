"""Monitor a training: audit after every epoch, warn when a check fires, and stop if asked to."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.audit.diagnose import diagnose
from fa_audit.audit.diagnostics import Batch
from fa_audit.audit.inputs import as_found, check_count, check_model, is_count, take_batches
from fa_audit.core.errors import AuditError, shortened, unknown
from fa_audit.networks.states import Description
from fa_audit.networks.trace import LossFunction
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.protocol.intervals import FEWEST
from fa_audit.protocol.sentences import NOT_FINITE, RETRAIN

# Checks by label, without those that need accuracies, which a monitor is not given.
FOLLOWED = {check.label: name for name, check in CHECKS.items() if check.unit != "points"}
_OF_STATES = ("hidden_norm", "grad_norm", "growth")
HEALTHY = "docs/monitor.md shows the numbers of healthy networks."


class Monitor:
    """Audit a network after every epoch of its training, in a loop of any kind::

        monitor = Monitor(model, test_batches[:1], description=blocks, stop_on=("D1", "D2"))
        for epoch in range(epochs):
            train_one_epoch(model)
            if monitor.step():
                break

    Numbers are those of `diagnose`, and the model is left as it was found. A check warns once, when
    it first fires.

    Attributes:
        history: a row per epoch and state; the first epoch is the model as it was given. Columns
            ``epoch``, ``layer``, ``hidden_norm``, ``grad_norm``, ``growth`` (None for the last
            state); and, repeated for every state, ``loss``, ``stability``, ``finite``, and whether
            ``D1``, ``D2`` and ``C`` fire (None: not evaluated).
        report: the `DiagnosticReport` of the last epoch.
        epoch: the last audited epoch.
        stopped: whether `stop_on` ends the training at the last audited epoch.
    """

    def __init__(
        self,
        model: nn.Module,
        eval_batches: Iterable[Batch],
        *,
        description: Description | None = None,
        loss_fn: LossFunction = F.cross_entropy,
        thresholds: DiagnosticThresholds | None = None,
        stop_on: Collection[str] = (),
        epoch: int = 0,
        log: Callable[[dict[str, float], int], Any] | None = None,
    ) -> None:
        """Audit the model as it is now, so that bad input is found before training.

        Args:
            model, description, loss_fn, thresholds: as for `diagnose`.
            eval_batches: the first 10 batches are copied. Norms, gradients and loss come from the
                first batch, C from all copied ones; C needs 8 or more.
            stop_on: one or more of ``"D1"``, ``"D2"`` and ``"C"``: `step` returns True once all of
                them fire, or once a state, gradient or logit is not finite. Without `stop_on`
                it always returns False.
            epoch: the number of epochs that the model was trained for already.
            log: called after every step as ``log(metrics, epoch)``.

        Raises:
            AuditError: as `diagnose`; a check in `stop_on` is unknown, or is C with fewer than 8
                batches; `epoch` is not an integer >= 0; or `log` is not a function.
        """
        several = isinstance(stop_on, Iterable) and not isinstance(stop_on, str)
        self.stop_on: tuple[Any, ...] = tuple(stop_on) if several else (stop_on,)
        for name in self.stop_on:
            if name not in list(FOLLOWED):  # a list also takes what has no hash
                raise unknown("check", name, FOLLOWED, where="stop_on")
        epoch = check_count("epoch", epoch, 0)
        if log is not None and not callable(log):
            expected = "expected a function of a mapping and an epoch"
            raise AuditError(f"log: found {shortened(log)}; {expected}.")
        check_model(model, description)
        # Batches are taken inside `as_found`, since a DataLoader draws from the global stream.
        with as_found(model):
            batches = [_copied(batch) for batch in take_batches("eval_batches", eval_batches)]
        self._diagnose = partial(
            diagnose,
            model,
            batches,
            None,
            description=description,
            loss_fn=loss_fn,
            thresholds=thresholds,
        )
        self.history: list[dict[str, Any]] = []
        self.stopped = False
        # Subjects of earlier warnings, which are not repeated.
        self._warned: set[str] = set()
        self._log = log
        self._look(epoch)
        found = self.report.batches
        if "C" in self.stop_on and found < FEWEST:
            expected = f"expected {FEWEST} or more of similar size"
            raise AuditError(f"stop_on: found 'C' with {found} batches; {expected}.")
        for warning in self.report.warnings:
            warnings.warn(f"fa-audit: {warning}", stacklevel=2)

    def step(self) -> bool:
        """Audit the model; call this after every epoch. Return whether to end the training now."""
        last = self._look(self.epoch + 1)
        all_fire = all(last[check] for check in self.stop_on)
        self.stopped = bool(self.stop_on) and (all_fire or not last["finite"])
        for name, sentence in self._findings():
            if name in self._warned:
                continue
            hint = "" if self._warned else f" {HEALTHY}"
            warnings.warn(f"fa-audit: epoch {self.epoch}: {sentence}{hint}", stacklevel=2)
            self._warned.add(name)
        if self._log:
            self._log(self.metrics, self.epoch)
        return self.stopped

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint, in types that JSON and
        ``torch.load(weights_only=True)`` know.
        """
        kept = {
            "history": self.history,
            "epoch": self.epoch,
            "stopped": self.stopped,
            "warned": sorted(self._warned),
        }
        return copy.deepcopy(kept)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`: history and epoch go on, and no warning is repeated.

        Raises:
            AuditError: `state` is not from `state_dict`, or its history and this model differ in
                the number of hidden states.
        """
        known = isinstance(state, Mapping) and state.keys() == self.state_dict().keys()
        if not known or not is_count(state["epoch"]):
            expected = "expected what Monitor.state_dict() returns"
            raise AuditError(f"state: found {shortened(state)}; {expected}.")
        # A history with another number of states belongs to another model.
        layers = {row["layer"] for row in state["history"]}
        states = len(self.report.layers)
        if layers != set(range(states)):
            expected = f"expected {states}, as this model has"
            raise AuditError(f"state: found a history of {len(layers)} states; {expected}.")
        self.history = copy.deepcopy(state["history"])
        self.epoch, self.stopped = state["epoch"], state["stopped"]
        self._warned = set(state["warned"])

    @property
    def metrics(self) -> dict[str, float]:
        """Return the last epoch's numbers for a logger, by names such as ``fa_audit/grad_norm_4``.

        A check is 1 if it fires, else 0; numbers that were not measured are left out.
        """
        metrics = {}
        for row in self.history:
            if row["epoch"] != self.epoch:
                continue
            for name, value in row.items():
                # Numbers of the whole epoch, such as the loss, are the same in all of its rows.
                key = f"{name}_{row['layer']}" if name in _OF_STATES else name
                if value is not None and name not in ("epoch", "layer"):
                    metrics[f"fa_audit/{key}"] = float(value)
        return metrics

    def _look(self, epoch: int) -> dict[str, Any]:
        """Audit the model after an epoch, append its rows to `history`, and return the last row."""
        report = self.report = self._diagnose()
        self.epoch = epoch
        of_epoch: dict[str, Any] = {
            "loss": report.loss,
            "stability": report.stability.value,
            "finite": report.finite,
        }
        for label, name in FOLLOWED.items():
            of_epoch[label] = report.checks[name].fires
        for state in report.layers:
            norms = {name: getattr(state, name) for name in _OF_STATES}
            self.history.append({"epoch": self.epoch, "layer": state.layer, **norms, **of_epoch})
        return self.history[-1]

    def _findings(self) -> Iterator[tuple[str, str]]:
        """Yield warnings about this epoch as pairs of subject and text."""
        if not self.report.finite:
            yield "finite", f"{NOT_FINITE} {RETRAIN}"
        for name in FOLLOWED.values():
            kind, found = CHECKS[name], self.report.checks[name]
            if found.fires:
                where = f"{found.value:.3g}, {kind.side} its limit of {found.threshold:.3g}"
                sentence = f"{kind.label} fires: {kind.quantity} is {where}."
                yield name, f"{sentence} {kind.remedy(found.cause)}"
        if self.stopped:
            yield "end", f"training ends here (stop_on={self.stop_on})."


def _copied(part: Any) -> Any:
    """Copy the tensors of a batch. Anything else is returned unchanged: `diagnose` refuses it."""
    if isinstance(part, Tensor):
        return part.detach().clone()
    if isinstance(part, Mapping):
        return {name: _copied(value) for name, value in part.items()}
    return tuple(map(_copied, part)) if isinstance(part, list | tuple) else part
