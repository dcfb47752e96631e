"""Carry credit down through a block's own layers, with other weights on the way back.

The sign-symmetric family, weight mirror and Kolen-Pollack use it: every matrix and kernel W of a
block has a feedback partner of the same shape, and gradients at the layer's input use the partner.
Activations, normalisations and skips are exact. If every partner equals its W, credits are those of
backpropagation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fa_audit.core.errors import AuditError, listed
from fa_audit.methods.method import Credits, Network, Trace, top_gradient

LAYERS = (F.linear, F.conv2d)


def block_weights(network: Network) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield every matrix and kernel inside the blocks, under a name that a buffer can have."""
    for name, parameter in network.blocks.named_parameters():
        if parameter.dim() > 1:
            yield name.replace(".", "_"), parameter


class Partners(nn.Module):
    """A random partner of every weight of the blocks, shaped like it: ``N(0, 1 / fan_in)``."""

    def __init__(self, network: Network, generator: torch.Generator) -> None:
        super().__init__()
        for name, weight in block_weights(network):
            self.register_buffer(name, torch.empty_like(weight, requires_grad=False))
        self.redraw(generator)

    def redraw(self, generator: torch.Generator) -> None:
        """Draw every partner anew, on the generator's device."""
        for buffer in self.buffers():
            drawn = torch.randn(buffer.shape, generator=generator, device=generator.device)
            buffer.copy_(drawn * fan_in(buffer) ** -0.5)


def fan_in(weight: Tensor) -> int:
    """Return the number of inputs that each output of a matrix ``(out, in)`` or kernel ``(out, in,
    kh, kw)`` sums.
    """
    return weight[0].numel()


def transported_credits(
    network: Network, trace: Trace, labels: Tensor, feedback: Mapping[nn.Parameter, Tensor]
) -> Credits:
    """Carry the exact output gradient of the batch-mean loss down through `feedback`, block by
    block.

    Args:
        feedback: maps a weight to its partner of the same shape.

        Raises:
        AuditError: a weight is not used by a linear layer or convolution; the weight itself would
            then carry the credit.
    """
    credit = top_gradient(trace, labels)
    descending = [credit]
    for layer in reversed(range(len(network.blocks))):
        block, h = network.blocks[layer], trace.states[layer].detach().requires_grad_()
        with torch.enable_grad(), _FeedbackWeights(feedback) as passed:
            following = network.split(layer, h)[1]
        # A weight that no layer passes would carry the credit itself.
        learning = {p: name for name, p in block.named_parameters() if p in feedback}
        bypassed = [name for p, name in learning.items() if p not in passed.used]
        if bypassed:
            raise AuditError(
                f"{type(block).__name__}: no linear layer or convolution passes {listed(bypassed)},"
                " so its feedback carries nothing; expected blocks that call F.linear or F.conv2d"
                " with it (nn.Linear and nn.Conv2d do)."
            )
        (credit,) = torch.autograd.grad(following, h, credit)
        descending.append(credit)
    return Credits.bottom_up(map(network.read_gradient, reversed(descending)), batch_mean=True)


class _FeedbackWeights(TorchFunctionMode):
    """Make linear layers and convolutions compute with their weights, but send gradients through
    partners.
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
        # Forward with the weight itself, so that activations are those of the network.
        with torch.no_grad():
            value = function(x, weight, *rest, **kwargs)
        back = function(x, self.feedback[weight], *rest, **kwargs)
        # The bracket is zero and carries the gradient.
        return value + (back - back.detach())
