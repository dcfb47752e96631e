"""Define the interface of a method: it turns a forward trace into credits.

The engine in `training/learner.py` does the rest.

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

# `as X` exports them again: methods import all types of their functions from this module.
from fa_audit.networks.network import Network as Network
from fa_audit.networks.trace import Trace as Trace


@dataclass(frozen=True)
class Credits:
    """The teaching signals of one batch, as vectors ``(B, d)`` in place of loss gradients.

    Attributes:
        blocks: ``a_0..a_{L-1}``; ``a_l`` is assigned to the output ``f_l`` of block l.
        embedding: the credit of ``h_0``.
        normalise: divide each credit by its per-sample root mean square before learning from it;
            otherwise credits must be gradients of single samples' losses.
        batch_mean: the credits are gradients of the batch-mean loss, which are B times smaller; a
            training that does not normalise multiplies them by B.
        objective: a scalar, averaged over the batch, that embedding, blocks and the state's
            parameters descend instead of ``<f_l, r(a_l)>``; for methods with other states than the
            forward pass, or with losses of their own. Credits are then only audited.
    """

    blocks: tuple[Tensor, ...]
    embedding: Tensor
    normalise: bool = True
    batch_mean: bool = False
    objective: Tensor | None = None

    @classmethod
    def bottom_up(cls, vectors: Iterable[Tensor], **given: Any) -> Credits:
        """Build credits from vectors, the embedding's first; `given` has the other fields."""
        embedding, *blocks = vectors
        return cls(tuple(blocks), embedding, **given)

    def by_name(self) -> dict[str, Tensor]:
        """Return the credits by the names of what they train, bottom to top."""
        blocks = {f"block {layer}": a for layer, a in enumerate(self.blocks)}
        return {"embedding": self.embedding} | blocks


@dataclass(frozen=True)
class Method:
    """A training method; its fields are its constants.

    A method must define `credits`; the other functions do nothing by default. A user-defined class
    may also assign the texts and costs of `MethodInfo` (`fa_audit.methods.info`).

    Attributes:
        end_to_end: learn from the global loss by ordinary backpropagation. `credits` is then only
            audited.
        random_feedback: `init_state` draws feedback at random, so that fresh draws give
            the null distribution of its cosine.
        across_samples: a sample's credit depends on other samples of its batch, for instance
            through centred errors or negatives.
        own_objective: `Credits.objective` is another loss than the network's, as in forward-forward
            and layer-wise training. Credits are gradients of its parts, and the objective must
            separate right labels from wrong ones.
        greedy: blocks learn one after another, and stay as they are after their turn.
        decays_state: the optimiser's weight decay also acts on the parameters of the state.
        equal_widths: the method treats all states alike, so that blocks may not change their shape.
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
        """Return the method's state, such as feedback matrices and auxiliary nets; empty by
        default.

        Checkpoints save its buffers and parameters. `auxiliary_loss` or `Credits.objective` trains
        its parameters.
        """
        return nn.Module()

    def passing(self, network: Network, state: Any) -> AbstractContextManager[Any]:
        """Return a context for the training's forward pass.

        It may change the gradients that go back inside blocks and head; by default they are exact.
        """
        return nullcontext()

    def credits(self, network: Network, trace: Trace, labels: Tensor, state: Any) -> Credits:
        """Compute the detached credits of one batch, as a pure function of the arguments.

        It may run parts of the network again: the engine protects running statistics of BatchNorm.

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
            randomness: a generator for noise, on the network's device. It gives the same draws
                after a resume.
        """
        return None

    def begin_epoch(self, state: Any, progress: float) -> None:
        """Prepare for an epoch; `progress` is the finished fraction of the training, ``0 <=
        progress < 1``.
        """

    def update_state(self, network: Network, state: Any, randomness: torch.Generator) -> None:
        """Update the state between a minibatch's gradients and the optimiser's step.

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
        """Return for every block the auxiliary net's distance from its target, ``(B,)``; None by
        default.
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
        shapes: the shape of every matrix.
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
    """Seed the initial weights of torch's layers from `generator`, inside this context."""
    # Torch's layers draw from the global stream and take no generator.
    return seeded(int(torch.randint(2**62, (), generator=generator)))


def state_widths(network: Network) -> list[int]:
    """Return the length ``d`` of the vector of every state ``h_0..h_L``."""
    return [network.width_of(layer) for layer in range(len(network.blocks) + 1)]


def output_error(trace: Trace, labels: Tensor) -> Tensor:
    """Return ``e = softmax(logits) - y``, ``(B, C)``, detached: every sample's loss gradient at its
    logits.
    """
    logits = trace.logits.detach()
    return logits.softmax(dim=-1) - one_hot(labels, logits)


def one_hot(labels: Tensor, logits: Tensor) -> Tensor:
    """Return one-hot labels ``(B, C)`` in the type of `logits`, without torch's wait for the
    device.
    """
    # F.one_hot reads the largest label on the host, which a step on a GPU would wait for.
    classes = torch.arange(logits.shape[-1], device=labels.device)
    return (labels[:, None] == classes).to(logits.dtype)


def top_gradient(trace: Trace, labels: Tensor) -> Tensor:
    """Return ``dCE/dh_L`` of the batch-mean cross-entropy, shaped like the state, and keep the
    graph.
    """
    return loss_gradients(trace, labels, (trace.head_input,))[0] / len(labels)


def loss_gradients(trace: Trace, labels: Tensor, at: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return gradients of every sample's cross-entropy at tensors of the trace, and keep the graph."""
    # A sum: a sample's gradient does not shrink with the batch.
    loss = F.cross_entropy(trace.logits, labels, reduction="sum")
    return torch.autograd.grad(loss, at, retain_graph=True)


def added(terms: Iterable[Tensor]) -> Tensor:
    """Add tensors of one shape in their order."""
    return sum(terms)  # type: ignore[return-value]
