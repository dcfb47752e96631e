"""Backpropagation: every parameter follows the gradient of the global cross-entropy.

    a_l = dCE/dh_{l+1}
    (exact; used by audits only, since the engine runs ordinary autograd)

Source: Rumelhart, Hinton, Williams 1986.
Constants: none.
Cost: 1 by definition.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from fa_audit.methods.method import Credits, Method, Network, Trace, loss_gradients


class BP(Method):
    end_to_end: ClassVar[bool] = True

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        slopes = loss_gradients(trace, labels, trace.states)
        return Credits.bottom_up(map(network.read_gradient, slopes), normalise=False)
