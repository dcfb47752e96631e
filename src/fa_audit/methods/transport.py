"""Send gradients back through other weights than those of the forward pass.

Every matrix and kernel W of blocks and head has a feedback partner of the same shape, and the
gradient at a layer's input uses the partner, also within a block. Activations, normalisations and
skips are exact. W learns from the gradient that arrives at its layer's output, as in
backpropagation. If every partner equals its W, all gradients are those of backpropagation. Used by
`fa_layerwise`, `usf`, `frsf`, `brsf`, `weight_mirror` and `kolen_pollack`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fa_audit.core.errors import AuditError, listed
from fa_audit.methods.method import Credits, Method, Network, Trace

LAYERS = (F.linear, F.conv2d)


def partnered_weights(network: Network) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield every matrix and kernel of blocks and head, with its name; `_` replaces the dots."""
    for part in ("blocks", "head"):
        for name, parameter in getattr(network, part).named_parameters():
            if parameter.dim() > 1:
                yield f"{part}.{name}".replace(".", "_"), parameter


class Partners(nn.Module):
    """A random partner of equal shape for every weight of blocks and head: ``N(0, 1 / fan_in)``."""

    def __init__(self, network: Network, generator: torch.Generator) -> None:
        super().__init__()
        for name, weight in partnered_weights(network):
            self.register_buffer(name, torch.empty_like(weight))
        self.redraw(generator)

    def redraw(self, generator: torch.Generator) -> None:
        """Draw every partner anew, on the generator's device."""
        for buffer in self.buffers():
            drawn = torch.randn(buffer.shape, generator=generator, device=generator.device)
            buffer.copy_(drawn * fan_in(buffer) ** -0.5)


def fan_in(weight: Tensor) -> int:
    """Return how many inputs each output sums, for a matrix ``(out, in)`` or a kernel ``(out, in,
    kh, kw)``.
    """
    return weight[0].numel()


class Transported(Method):
    """A method whose gradients travel back through `partners` instead of the weights."""

    def partners(self, network: Network, state: Any) -> Mapping[nn.Parameter, Tensor]:
        """Map every weight of `partnered_weights` to its partner of the same shape; by default the
        tensor of its name in `state`.
        """
        # state_dict() holds parameters (Kolen-Pollack's partners) and buffers (all other partners).
        partners = state.state_dict()
        return {weight: partners[name] for name, weight in partnered_weights(network)}

    def passing(self, network: Network, state: Any) -> FeedbackWeights:
        """Return a context in which gradients travel back through the partners."""
        return FeedbackWeights(self.partners(network, state))

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Carry the gradient of the batch-mean loss down through the partners of head and blocks.

        Raises:
            AuditError: a weight reaches neither F.linear nor F.conv2d, so that its partner is
                not used.
        """
        partners = self.partners(network, state)
        top = trace.head_input.detach().requires_grad_()
        with torch.enable_grad(), FeedbackWeights(partners) as passed:
            loss = F.cross_entropy(network.head(top), labels)
            (credit,) = torch.autograd.grad(loss, top)
            descending = [credit]
            for layer in reversed(range(network.depth)):
                h = trace.states[layer].detach().requires_grad_()
                following = network.split(layer, h)[1]
                (credit,) = torch.autograd.grad(following, h, credit)
                descending.append(credit)
        # If no F.linear or F.conv2d uses a weight, the credit goes through the weight itself.
        unused = partners.keys() - passed.used
        bypassed = [name for name, p in network.named_parameters() if p in unused]
        if bypassed:
            raise AuditError(
                f"{type(network).__name__}: no linear layer or convolution uses"
                f" the weight {listed(bypassed)}, so its feedback partner is not used; expected"
                " blocks and a head that pass every weight to F.linear or F.conv2d, as nn.Linear"
                " and nn.Conv2d do."
            )
        return Credits.bottom_up(map(network.read_gradient, reversed(descending)), batch_mean=True)


class FeedbackWeights(TorchFunctionMode):
    """Send the gradients of linear layers and convolutions through partners of their weights.

    Outputs do not change. `used` collects the weights whose partners were used.
    """

    def __init__(self, feedback: Mapping[nn.Parameter, Tensor]) -> None:
        super().__init__()
        self.feedback = feedback
        self.used: set[nn.Parameter] = set()

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        # nn.Linear and nn.Conv2d pass their weight as the second positional argument.
        if function not in LAYERS or len(args) < 2 or args[1] not in self.feedback:
            return function(*args, **kwargs)
        x, weight, *rest = args
        self.used.add(weight)
        # Weight and bias get their own gradients here; x.detach() sends nothing further down.
        value = function(x.detach(), weight, *rest, **kwargs)
        named = {name: _detached(part) for name, part in kwargs.items()}
        back = function(x, self.feedback[weight], *map(_detached, rest), **named)
        # The bracket is zero, and takes the gradient back to x through the partner.
        return value + (back - back.detach())


def _detached(part: Any) -> Any:
    return part.detach() if isinstance(part, Tensor) else part
