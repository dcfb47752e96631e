"""The diagnostic protocol: is this network's accuracy earned by its trained depth, is its reference gradient valid?"""

from fa_audit.protocol.doors import FAProtocol, diagnose
from fa_audit.protocol.report import DiagnosticReport
from fa_audit.thresholds import Thresholds

__all__ = ["DiagnosticReport", "FAProtocol", "Thresholds", "diagnose"]
