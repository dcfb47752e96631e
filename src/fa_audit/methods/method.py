"""Define a method: it turns one forward trace into credits; the engine in `training/learner.py`
does the rest.

Shapes: B batch, d width, L blocks, C classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.core.errors import AuditError
from fa_audit.core.randomness import seeded
from fa_audit.core.registry import load, naming_errors
from fa_audit.methods import METHODS
from fa_audit.networks.network import Network
from fa_audit.networks.trace import Trace


@dataclass(frozen=True)
class Credits:
    """The teaching signals of one batch, as vectors ``(B, d)`` in place of loss gradients.

    Attributes:
        blocks: ``a_0..a_{L-1}``; ``a_l`` is assigned to the output ``f_l`` of block l.
        embedding: the credit of ``h_0``.
        normalise: divide each credit by its per-sample root mean square before learning from it;
            otherwise the credits must be gradients of the per-sample loss.
        batch_mean: the credits are gradients of the batch-mean loss, 1 / B of per-sample ones: a
            training that does not normalise multiplies them by B.
        objective: a scalar, mean over the batch, that blocks and embedding, and parameters of the
            state that it reads, descend in place of ``<f_l, r(a_l)>``; for methods that learn at
            states other than the forward pass's, or from losses of their own. The credits are then
            audited only.
    """

    blocks: tuple[Tensor, ...]
    embedding: Tensor
    normalise: bool = True
    batch_mean: bool = False
    objective: Tensor | None = None

    def by_name(self) -> dict[str, Tensor]:
        """Return the credits by the names of what they train, bottom to top."""
        blocks = {f"block {layer}": a for layer, a in enumerate(self.blocks)}
        return {"embedding": self.embedding} | blocks


@dataclass(frozen=True)
class Method:
    """A training method; its fields are its constants.

    A method needs `credits`; the other functions have defaults that do nothing. A user-defined
    class may also assign the texts and costs of `MethodInfo` (`fa_audit.methods.info`), which has
    those of registered methods.

    Attributes:
        end_to_end: learn from the global loss by ordinary backpropagation. `credits` is then only
            audited.
        random_feedback: `init_state` draws feedback at random, so that fresh draws make a null for
            its cosine.
        across_samples: a sample's credit depends on the others of its batch, as with centred errors
            and negatives.
        own_objective: `Credits.objective` is another loss than the network's, as in forward-forward
            and layer-wise training: the credits are gradients of parts of it, which may wait; it
            must separate right labels from wrong ones.
        greedy: blocks learn one after the other, and one that has had its turn stays as it is.
        decays_state: the optimiser's weight decay acts on the parameters of the state as on those
            of the network.
        equal_widths: the method reads all states alike, so that blocks may not change their shape.
    """

    end_to_end: ClassVar[bool] = False
    random_feedback: ClassVar[bool] = False
    across_samples: ClassVar[bool] = False
    own_objective: ClassVar[bool] = False
    greedy: ClassVar[bool] = False
    decays_state: ClassVar[bool] = False
    equal_widths: ClassVar[bool] = False

    @property
    def state_rate(self) -> float:
        """The learning rate of the state's parameters, as a multiple of the run's."""
        return 1.0

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return what the method keeps beside the network: feedback matrices, auxiliary nets; here
        nothing.

        Buffers and parameters are saved with the checkpoint; parameters are trained by
        `auxiliary_loss`, or by the `Credits.objective`.
        """
        return nn.Module()

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Compute the credits of one batch, detached: a pure function of its arguments.

        It may run parts of the network again: the engine keeps the running statistics of BatchNorm
        layers meanwhile.

        Args:
            trace: local unless the method is `end_to_end`.
            labels: ``(B,)``.
            state: what `init_state` returned.
        """
        raise TypeError(f"{type(self).__name__} is a method without credits: define `credits`.")

    def auxiliary_loss(
        self,
        network: Network,
        trace: Trace,
        labels: Tensor,
        state: Any,
        randomness: torch.Generator,
    ) -> Tensor | None:
        """Return the scalar loss that the parameters of `state`, and no others, descend; None
        without such parameters.

        Args:
            randomness: a generator on the network's device for noise, the same draws after every
                resume; draw with its ``device``.
        """
        return None

    def begin_epoch(self, state: Any, progress: float) -> None:
        """Prepare for an epoch, given the fraction of training that is done, ``0 <= progress < 1``."""

    def update_state(self, network: Network, state: Any, randomness: torch.Generator) -> None:
        """Update the state after the gradients of a minibatch are computed and before the
        optimiser's step.

        For moving averages and for feedback that is redrawn or follows the network.
        """

    def bridge_residual(
        self,
        network: Network,
        trace: Trace,
        labels: Tensor,
        state: Any,
        randomness: torch.Generator,
    ) -> tuple[Tensor, ...] | None:
        """Return each block's distance ``(B,)`` of an auxiliary net from its target; None for
        methods without one.
        """
        return None


def load_method(name: str) -> Method:
    """Load a method, with its default constants, by its registered name or as
    ``package.module:ClassName``.

    Raises:
        AuditError: there is no such method, or the class is not a `Method`, or needs arguments.
    """
    found = load("method", METHODS, name)
    if not (isinstance(found, type) and issubclass(found, Method)):
        raise AuditError(
            f"method '{name}': found {found!r}; expected a subclass of fa_audit.methods.method.Method."
        )
    with naming_errors("method", METHODS, name):
        return found()


class Feedback(nn.Module):
    """Fixed random feedback matrices ``B_0, B_1, ...``, saved with the checkpoint.

    Args:
        shapes: of the matrices.
        fan_in: the side, 0 or 1, over which a credit sums: entries are ``N(0, 1 / shape[fan_in])``.
    """

    def __init__(
        self, shapes: Iterable[tuple[int, int]], fan_in: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        for index, shape in enumerate(shapes):
            drawn = torch.randn(shape, generator=generator)
            self.register_buffer(f"B{index}", drawn * shape[fan_in] ** -0.5)

    def __getitem__(self, index: int) -> Tensor:
        return self.get_buffer(f"B{index}")


def layer_seed(generator: torch.Generator) -> AbstractContextManager[None]:
    """Let torch's layers draw their initial weights from a seed that `generator` gives."""
    return seeded(int(torch.randint(2**62, (), generator=generator)))


def state_widths(network: Network) -> list[int]:
    """Return the length ``d`` of the vector of every state ``h_0..h_L``."""
    return [network.width_of(layer) for layer in range(len(network.blocks) + 1)]


def output_error(trace: Trace, labels: Tensor) -> Tensor:
    """Return ``e = softmax(logits) - y``, ``(B, C)``, detached: the per-sample loss gradient at the
    logits.
    """
    logits = trace.logits.detach()
    return logits.softmax(dim=-1) - one_hot(labels, logits)


def one_hot(labels: Tensor, logits: Tensor) -> Tensor:
    """Return ``y``, ``(B, C)``, of the type of `logits`; torch's function reads the labels on the
    host.
    """
    classes = torch.arange(logits.shape[-1], device=labels.device)
    return (labels[:, None] == classes).to(logits.dtype)


def top_gradient(trace: Trace, labels: Tensor) -> Tensor:
    """Return ``dCE/dh_L`` of the batch-mean cross-entropy, shaped like the state; the trace's graph
    stays usable.
    """
    return loss_gradients(trace, labels, (trace.head_input,))[0] / len(labels)


def loss_gradients(trace: Trace, labels: Tensor, at: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return gradients of the per-sample cross-entropy at tensors of the trace's graph, which stays
    usable.
    """
    loss = F.cross_entropy(trace.logits, labels, reduction="sum")
    return torch.autograd.grad(loss, at, retain_graph=True)


def added(terms: Iterable[Tensor]) -> Tensor:
    """Return the sum of tensors of one shape, added one after the other."""
    return sum(terms)  # type: ignore[return-value]
