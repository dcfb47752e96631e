"""Honest evaluation of feedback alignment and other local-credit learning.

The names below are imported on first use, so that planning a grid needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fa_audit.audit.diagnose import diagnose
    from fa_audit.audit.monitor import Monitor
    from fa_audit.audit.paper import (
        FAProtocol,
        bp_grad_norms,
        cross_batch_direction_stability,
        residual_norms,
    )
    from fa_audit.core.errors import AuditError
    from fa_audit.networks.states import Description, HookPoint
    from fa_audit.protocol.audit import DiagnosticReport
    from fa_audit.protocol.evidence import DiagnosticThresholds

__version__ = "0.1.0"

_EXPORTS = {
    "AuditError": "fa_audit.core.errors",
    "diagnose": "fa_audit.audit.diagnose",
    "Monitor": "fa_audit.audit.monitor",
    "FAProtocol": "fa_audit.audit.paper",
    "residual_norms": "fa_audit.audit.paper",
    "bp_grad_norms": "fa_audit.audit.paper",
    "cross_batch_direction_stability": "fa_audit.audit.paper",
    "DiagnosticReport": "fa_audit.protocol.audit",
    "DiagnosticThresholds": "fa_audit.protocol.evidence",
    "Description": "fa_audit.networks.states",
    "HookPoint": "fa_audit.networks.states",
}
__all__ = [
    "AuditError",
    "Description",
    "DiagnosticReport",
    "DiagnosticThresholds",
    "FAProtocol",
    "HookPoint",
    "Monitor",
    "bp_grad_norms",
    "cross_batch_direction_stability",
    "diagnose",
    "residual_norms",
]


def __dir__() -> list[str]:
    return sorted([*globals(), *_EXPORTS])


if not TYPE_CHECKING:  # a type checker would take __getattr__ to mean that every name exists

    def __getattr__(name: str) -> object:
        if name not in _EXPORTS:
            raise AttributeError(f"module 'fa_audit' has no attribute '{name}'")
        return getattr(import_module(_EXPORTS[name]), name)
