"""Define the interface of a method, which turns a forward pass into credits.

The engine in `training/learner.py` trains the network with them.

Shapes: B batch, d width, L blocks, C classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.core.errors import AuditError
from fa_audit.core.randomness import seeded
from fa_audit.core.registry import load, naming_errors
from fa_audit.methods import METHODS

# `as X` re-exports the name: methods import every type that they need from this module.
from fa_audit.networks.network import Network as Network
from fa_audit.networks.trace import Trace as Trace


@dataclass(frozen=True)
class Credits:
    """The teaching signals of one batch, as vectors ``(B, d)`` in place of loss gradients.

    Attributes:
        blocks: ``a_0..a_{L-1}``; ``a_l`` is assigned to the output ``f_l`` of block l.
        embedding: the credit of ``h_0``.
        normalise: divide each credit by its per-sample root mean square before learning from it.
            If False, and without an objective, credits must be gradients of a loss, see
            `batch_mean`.
        batch_mean: the credits are gradients of the batch-mean loss, which are B times smaller than
            those of single samples' losses. A training that does not normalise multiplies them
            by B.
        objective: a scalar, averaged over the batch. Embedding, blocks and the method's parameters
            descend it instead of the credits, which are only audited. It serves methods with losses
            of their own, or with other states than those of the forward pass.
    """

    blocks: tuple[Tensor, ...]
    embedding: Tensor
    normalise: bool = True
    batch_mean: bool = False
    objective: Tensor | None = None

    @classmethod
    def bottom_up(cls, vectors: Iterable[Tensor], **given: Any) -> Credits:
        """Build credits from vectors for embedding, block 0, ...; `given` sets the other fields."""
        embedding, *blocks = vectors
        return cls(tuple(blocks), embedding, **given)

    def by_name(self) -> dict[str, Tensor]:
        """Map ``embedding``, ``block 0``, ``block 1``, ... to their credits, bottom to top."""
        blocks = {f"block {layer}": a for layer, a in enumerate(self.blocks)}
        return {"embedding": self.embedding} | blocks


@dataclass(frozen=True)
class Method:
    """A training method; its dataclass fields are its constants.

    A method must define `credits`; the other functions do nothing by default. A user-defined class
    may also assign the texts and costs of `MethodInfo` (`fa_audit.methods.info`).

    Attributes:
        end_to_end: learn from the global loss by ordinary backpropagation. `credits` is then only
            audited.
        random_feedback: `init_state` draws feedback at random. An audit draws it again to get the
            null distribution of the credits' cosine.
        across_samples: a sample's credit depends on other samples of its batch, for instance
            through centred errors or negatives.
        own_objective: credits need not lower the network's loss, as in forward-forward and
            layer-wise training. They are gradients of parts of `Credits.objective`, which must
            separate right labels from wrong ones.
        greedy: blocks learn one after another, and each stays as it is after its turn.
        decays_state: the optimiser's weight decay also acts on the parameters from `init_state`.
        equal_widths: the method needs hidden states of one shape, so no block may change it.
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
        """Return the learning rate of the method's state, divided by the run's learning rate."""
        return 1.0

    def init_state(self, network: Network, generator: torch.Generator) -> nn.Module:
        """Return the method's state, such as feedback matrices and auxiliary nets; empty by
        default.

        Checkpoints save its buffers and parameters. `auxiliary_loss`, `Credits.objective` or
        gradients that `update_state` sets train its parameters.
        """
        return nn.Module()

    def passing(self, network: Network, state: Any) -> AbstractContextManager[Any]:
        """Return the context in which a training runs its forward pass.

        The context may change gradients inside blocks and head; by default they are exact.
        """
        return nullcontext()

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Compute the detached credits of one batch, as a pure function of the arguments.

        It may run parts of the network again: the engine protects BatchNorm's running statistics.

        Args:
            trace: the forward pass, with local graphs unless the method is `end_to_end`.
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
        """Return the scalar loss that trains the parameters of `state`, and no others; None by
        default.

        Args:
            randomness: a generator for noise, on the network's device. A resumed training gets the
                same draws.
        """
        return None

    def begin_epoch(self, state: Any, progress: float) -> None:
        """Prepare for an epoch; `progress` is the finished fraction of the training, ``0 <=
        progress < 1``.
        """

    def update_state(self, network: Network, state: Any, randomness: torch.Generator) -> None:
        """Update `state` after a minibatch's backward pass and before the optimiser's step.

        Use it for moving averages, and for feedback that is redrawn or follows the network.
        """

    def bridge_residual(
        self,
        network: Network,
        trace: Trace,
        labels: Tensor,
        state: Any,
        randomness: torch.Generator,
    ) -> tuple[Tensor, ...] | None:
        """Return the auxiliary net's distance from its target at every block, ``(B,)`` each; None
        by default.
        """
        return None


def load_method(name: str) -> Method:
    """Load a method, with its default constants, by its registered name or as
    ``package.module:ClassName``.

    Raises:
        AuditError: there is no such method, the class is not a `Method`, or it needs arguments.
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
        shapes: the shape of every matrix.
        fan_in: the dimension, 0 or 1, that a product with the matrix sums over. Entries are
            ``N(0, 1 / shape[fan_in])``.
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
    """Return a context in which torch's layers draw initial weights seeded by `generator`."""
    # Torch's layers take no generator: they draw from the global random stream.
    return seeded(int(torch.randint(2**62, (), generator=generator)))


def state_widths(network: Network) -> list[int]:
    """Return the length ``d`` of the vector of every state ``h_0..h_L``."""
    return [network.width_of(layer) for layer in range(network.depth + 1)]


def output_error(trace: Trace, labels: Tensor) -> Tensor:
    """Return ``e = softmax(logits) - y``, ``(B, C)``, detached: every sample's loss gradient at its
    logits.
    """
    logits = trace.logits.detach()
    return logits.softmax(dim=-1) - one_hot(labels, logits)


def one_hot(labels: Tensor, logits: Tensor) -> Tensor:
    """Return one-hot labels ``(B, C)`` in the type of `logits`, without waiting for the device."""
    # F.one_hot reads the largest label on the host: every step would wait for the GPU.
    classes = torch.arange(logits.shape[-1], device=labels.device)
    return (labels[:, None] == classes).to(logits.dtype)


def top_gradient(trace: Trace, labels: Tensor) -> Tensor:
    """Return ``dCE/dh_L`` of the batch-mean cross-entropy, shaped like ``h_L``; keep the graph."""
    return loss_gradients(trace, labels, (trace.head_input,))[0] / len(labels)


def loss_gradients(trace: Trace, labels: Tensor, at: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return the gradients of every sample's cross-entropy at the tensors `at`; keep the graph."""
    # Summed, not averaged: a sample's gradient does not shrink with the batch.
    loss = F.cross_entropy(trace.logits, labels, reduction="sum")
    return torch.autograd.grad(loss, at, retain_graph=True)


def added(terms: Iterable[Tensor]) -> Tensor:
    """Return the sum of tensors of one shape, added in their order."""
    return sum(terms)  # type: ignore[return-value]
