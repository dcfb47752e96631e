"""Rules with another value of their main constant, for the search of configs/board.yaml.

After learning rates and normalisation, the search tries two other values of a rule's main constant,
about a third of the default and about three times the default, unless a comment says otherwise. If
a rule has no such constant, the search tries two more learning rates.
"""

from dataclasses import dataclass

from fa_audit.methods.credit_bridge import CreditBridge
from fa_audit.methods.dtp import DTP
from fa_audit.methods.dtp_drl import DTPDRL
from fa_audit.methods.dual_propagation import DualPropagation
from fa_audit.methods.ep import EP
from fa_audit.methods.ep_symmetric import SymmetricEP
from fa_audit.methods.local_losses import LocalPredSim
from fa_audit.methods.pepita import PEPITA
from fa_audit.methods.predictive_coding import PredictiveCoding
from fa_audit.methods.state_bridge import StateBridge
from fa_audit.methods.weight_mirror import WeightMirror


@dataclass(frozen=True)
class WeakPEPITA(PEPITA):
    strength: float = 0.015


@dataclass(frozen=True)
class StrongPEPITA(PEPITA):
    strength: float = 0.15


# The mirror's rate: eta and decay change together, so that B still tends to W.
@dataclass(frozen=True)
class SlowWeightMirror(WeightMirror):
    eta: float = 0.003
    decay: float = 0.003


@dataclass(frozen=True)
class FastWeightMirror(WeightMirror):
    eta: float = 0.03
    decay: float = 0.03


# beta weights the similarity loss: 0.99 by default, at most 1, so both values tried are smaller.
@dataclass(frozen=True)
class EvenLocalPredSim(LocalPredSim):
    beta: float = 0.5


@dataclass(frozen=True)
class MoreLocalPredSim(LocalPredSim):
    beta: float = 0.9


@dataclass(frozen=True)
class SlowDTP(DTP):
    inverse_rate: float = 2.3


@dataclass(frozen=True)
class FastDTP(DTP):
    inverse_rate: float = 21.0


@dataclass(frozen=True)
class SlowDTPDRL(DTPDRL):
    inverse_rate: float = 2.3


@dataclass(frozen=True)
class FastDTPDRL(DTPDRL):
    inverse_rate: float = 21.0


# Varies the step size of relaxation, not the number of steps, which would change the cost.
@dataclass(frozen=True)
class SlowPredictiveCoding(PredictiveCoding):
    alpha: float = 0.07


@dataclass(frozen=True)
class FastPredictiveCoding(PredictiveCoding):
    alpha: float = 0.6


@dataclass(frozen=True)
class WeakDualPropagation(DualPropagation):
    beta: float = 0.003


@dataclass(frozen=True)
class StrongDualPropagation(DualPropagation):
    beta: float = 0.03


@dataclass(frozen=True)
class WeakEP(EP):
    beta: float = 0.17


@dataclass(frozen=True)
class StrongEP(EP):
    beta: float = 1.5


@dataclass(frozen=True)
class WeakSymmetricEP(SymmetricEP):
    beta: float = 0.17


@dataclass(frozen=True)
class StrongSymmetricEP(SymmetricEP):
    beta: float = 1.5


# The width of the auxiliary net: half and twice the default.
@dataclass(frozen=True)
class NarrowStateBridge(StateBridge):
    hidden: int = 128


@dataclass(frozen=True)
class WideStateBridge(StateBridge):
    hidden: int = 512


@dataclass(frozen=True)
class NearCreditBridge(CreditBridge):
    sigma: float = 0.03


@dataclass(frozen=True)
class FarCreditBridge(CreditBridge):
    sigma: float = 0.3
