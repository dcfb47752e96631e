"""Uses of the public API as a typed program makes them: `make lint` checks this file with mypy
--strict.
"""

from typing import assert_type

from torch import Tensor, nn

from fa_audit import (
    Description,
    DiagnosticReport,
    DiagnosticThresholds,
    FAProtocol,
    Monitor,
    diagnose,
)
from fa_audit.methods.method import Credits, Method
from fa_audit.networks.network import Network
from fa_audit.networks.trace import Trace
from fa_audit.testing import check_method


class Zero(Method):
    def credits(self, network: Network, trace: Trace, labels: Tensor, state: nn.Module) -> Credits:
        return Credits(tuple(0 * f.detach() for f in trace.residuals), 0 * trace.states[0].detach())


def audited(model: nn.Module, x: Tensor, labels: Tensor) -> DiagnosticReport:
    check_method(Zero)
    where = Description(("1", "2"), reads="all features")
    report = diagnose(
        model, [(x, labels)], 0.9, 0.5, thresholds=DiagnosticThresholds(), description=where
    )
    assert_type(report.verdict, str)
    assert_type(report.residual_norms, list[float])
    monitor = Monitor(model, [(x, labels)], description=where, stop_on=("D1", "D2"))
    assert_type(monitor.step(), bool)
    assert_type(monitor.metrics, dict[str, float])
    return (
        FAProtocol(model, x, labels, description=where)
        .run(frozen_baseline_acc=0.5, test_acc=0.9)
        .report
    )
