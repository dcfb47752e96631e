"""A network with the method that trains it, and one step of learning."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.core.errors import AuditError, shortened
from fa_audit.core.randomness import seeded
from fa_audit.core.registry import call, naming_errors
from fa_audit.core.vectors import normalised
from fa_audit.experiments.spec import RunSpec
from fa_audit.methods import METHODS
from fa_audit.methods.method import Credits, Method, load_method
from fa_audit.networks import ARCHITECTURES
from fa_audit.networks.network import Network
from fa_audit.networks.trace import Trace, keeping_statistics, trace, untouched
from fa_audit.training.optimiser import Optimiser


@dataclass(frozen=True)
class Learner:
    """A network, the method that trains it, and the method's state."""

    spec: RunSpec
    image_shape: tuple[int, ...]  # (C, H, W)
    network: Network
    method: Method
    state: nn.Module

    @property
    def parts(self) -> nn.ModuleDict:
        """Return network and state as one module, which holds all tensors of the learner."""
        return nn.ModuleDict({"network": self.network, "state": self.state})

    def to(self, device: torch.device | str) -> Learner:
        """Move network and state (in place) to `device`."""
        self.parts.to(device)
        return self

    def trace(self, x: Tensor) -> Trace:
        """Run the network on a batch; only end-to-end methods get a graph that spans all parts."""
        with self.method.passing(self.network, self.state):
            return trace(self.network, x, local=not self.method.end_to_end)

    def train_mode(self) -> None:
        """Set training mode, except for frozen parts, whose normalisation statistics stay as they
        are.
        """
        self.network.train()
        # Running statistics change even without gradients, except in evaluation mode.
        self.network.embed.train(not self.spec.frozen_embedding)
        for block in self.network.blocks[: self.spec.frozen_blocks]:
            block.eval()

    def optimiser(self) -> Optimiser:
        """Return the optimiser of all parameters that learn; frozen ones are left out."""
        decay = self.spec.weight_decay
        state_decay = decay if self.method.decays_state else 0.0
        groups = [
            (_learning(self.network), decay, 1.0),
            (_learning(self.state), state_decay, self.method.state_rate),
        ]
        return Optimiser(groups, self.spec.lr, self.spec.optimiser, self._clips())

    def _clips(self) -> list[tuple[list[nn.Parameter], float]]:
        """Return groups of parameters, each with the norm to which its gradients are clipped."""
        network, spec, state = self.network, self.spec, list(self.state.parameters())
        if spec.clip:
            return [([*network.parameters(), *state], spec.clip)]
        if not spec.clip_groups:
            return []
        groups = [list(part.parameters()) for part in (network.embed, *network.blocks)]
        body = {parameter for group in groups for parameter in group}
        # A user-defined network may have parameters outside its parts: they join the head's.
        rest = [parameter for parameter in network.parameters() if parameter not in body]
        return [(group, spec.clip_groups) for group in (*groups, rest, state)]


def _learning(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]


@contextmanager
def naming_own_code(spec: RunSpec) -> Iterator[None]:
    """Turn an exception in a user-defined method or network into an error that names the line.

    Raises:
        AuditError: user-defined code failed inside this context.
    """
    network = naming_errors("architecture", ARCHITECTURES, spec.architecture, inside=True)
    with network, naming_errors("method", METHODS, spec.method, inside=True):
        yield


def build(
    spec: RunSpec, image_shape: tuple[int, ...], classes: int, method: Method | None = None
) -> Learner:
    """Build the untrained learner of a specification, on the CPU; the same seed gives the same
    bits.

    Args:
        method: an instance to use in place of the method that `spec.method` names.

    Raises:
        AuditError: unknown architecture or method, an invalid user-defined one, a method that does
            not fit the network, or more frozen blocks than there are.
    """
    options = dict(spec.architecture_options)
    if spec.shallow:
        options["depth"] = 0
    method = method or load_method(spec.method)
    # The order matters: the seed's stream gives the weights first, then the feedback.
    with seeded(spec.seed):
        network = call(
            "architecture",
            ARCHITECTURES,
            spec.architecture,
            Network,
            image_shape=image_shape,
            classes=classes,
            **options,
        )
        network.image_shape = image_shape
        if spec.architecture not in ARCHITECTURES:
            with naming_errors("architecture", ARCHITECTURES, spec.architecture):
                _check_network(spec.architecture, network, classes, options.get("depth"))
        if method.equal_widths and network.reshapes:
            raise AuditError(
                f"method '{spec.method}' reads all states alike (equal_widths); found blocks of"
                f" '{spec.architecture}' that change the shape of their states. Train this network"
                " with another method."
            )
        with naming_errors("method", METHODS, spec.method):
            state = method.init_state(network, torch.default_generator)
    if not isinstance(state, nn.Module):
        raise AuditError(
            f"method '{spec.method}': init_state returned {shortened(state)}; expected a"
            " torch.nn.Module that holds what the method keeps."
        )
    if spec.frozen_blocks > network.depth:
        raise AuditError(
            f"frozen_blocks: found {spec.frozen_blocks}; the network has {network.depth} blocks."
        )
    # Freeze after `init_state`, which must not see frozen parameters.
    network.blocks[: spec.frozen_blocks].requires_grad_(False)
    if spec.frozen_embedding:
        network.embed.requires_grad_(False)
    return Learner(spec, image_shape, network, method, state)


def _check_network(name: str, network: Network, classes: int, depth: int | None) -> None:
    """Check on two blank images that a user-defined network has the interface of `Network`.

    Args:
        depth: the requested number of blocks; None for the default.

    Raises:
        AuditError: the network has other classes or blocks than requested, or other logits or
            states than it declares.
    """
    with untouched(network), torch.no_grad():
        logits, states = network(torch.zeros(2, *network.image_shape), return_hidden=True)
        vectors = [tuple(network.read(h).shape) for h in states]
    blocks = network.depth
    widths = network.widths or (network.width,) * (blocks + 1)
    # Each entry has a name, the found value and the expected value.
    properties = [
        ("classes", network.classes, classes),
        ("logits", tuple(logits.shape), (2, classes)),
        ("blocks", blocks, blocks if depth is None else depth),
        ("vector shapes", vectors, [(2, width) for width in widths]),
        ("reshapes", network.reshapes, network.reshapes or len(set(widths)) > 1),
    ]
    for what, found, expected in properties:
        if found != expected:
            raise AuditError(
                f"architecture '{name}': found {what} {found} for two images of {classes} classes;"
                f" expected {expected}."
            )


def check_credits(learner: Learner, x: Tensor, labels: Tensor) -> None:
    """Check the method's credits on one minibatch before the training, and leave everything
    unchanged.

    Raises:
        AuditError: the credits are not one finite tensor ``(B, d)`` of the network's type for each
            block and for the embedding.
    """
    # `untouched` restores the random streams, too, so the training's draws do not change.
    with untouched(learner.network), naming_errors("method", METHODS, learner.spec.method):
        checked_credits(learner, x, labels, strict=True)


def checked_credits(learner: Learner, x: Tensor, labels: Tensor, *, strict: bool) -> Credits:
    """Return the credits of a batch.

    Args:
        strict: also refuse NaN, infinities and another type than the network's.

    Raises:
        AuditError: the credits are not one tensor ``(B, d)`` for each block and for the embedding.
    """
    network, run = learner.network, learner.trace(x)
    credits = learner.method.credits(network, run, labels, learner.state)
    problem = credits_problem(network, credits, len(x), run.logits.dtype if strict else None)
    if problem:
        raise AuditError(
            f"method '{learner.spec.method}': on a batch of {len(x)} its credits are {problem};"
            f" expected {network.depth} for the blocks and 1 for the embedding, each"
            f" ({len(x)}, d) with d of {network.widths or network.width}, finite and of the"
            " network's type. Correct `credits`; fa_audit.testing.check_method finds more."
        )
    return credits


def credits_problem(
    network: Network, credits: Credits, rows: int, dtype: torch.dtype | None
) -> str:
    """Return what is wrong with the credits of a batch, or an empty text.

    Without this check, credits of a wrong shape would broadcast, train and be audited.

    Args:
        dtype: the type that the credits must have; they must then be finite, too. None, as in
            audits, accepts any type, and also NaN and infinity.
    """
    if not isinstance(credits, Credits):
        return f"{type(credits).__name__}, not Credits"
    if not isinstance(credits.blocks, tuple | list):
        return f"a {type(credits.blocks).__name__} for the blocks, not a tuple"
    if len(credits.blocks) != network.depth:
        return f"{len(credits.blocks)} for {network.depth} blocks"
    for layer, (name, a) in enumerate(credits.by_name().items()):
        if not isinstance(a, Tensor):
            return f"{type(a).__name__} for {name}"
        fits = a.shape == (rows, network.width_of(layer)) and dtype in (None, a.dtype)
        if a.is_sparse or not fits:
            return f"{tuple(a.shape)} of {a.dtype} ({a.layout}) for {name}"
        if dtype and not a.isfinite().all():
            return f"NaN or infinite for {name}"
    loss = credits.objective
    if dtype and loss is not None and (loss.dim() or not loss.isfinite()):
        return f"with an objective of shape {tuple(loss.shape)} that is not a finite scalar"
    return ""


def learn(
    learner: Learner, x: Tensor, labels: Tensor, randomness: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Accumulate every parameter's gradient for one minibatch; return its loss and number of hits.

    One forward and one backward pass serve the whole network. A local method's loss is a sum of
    terms, and each reaches one part of the network: the head's cross-entropy, ``mean_B <f_l,
    r(a_l)>`` for every block, and ``mean_B <h_0, r(a_embed)>``; r normalises a credit. The backward
    pass starts from the gradients of these terms at ``f_l`` and ``h_0`` (`teaching_signal`).

    Args:
        randomness: a generator for the method's noise, on the network's device.
    """
    method, state = learner.method, learner.state
    run = learner.trace(x)
    cross_entropy = F.cross_entropy(run.logits, labels)
    # A method may run parts of the network again, but BatchNorm must count the batch only once.
    with keeping_statistics(learner.network):
        auxiliary = method.auxiliary_loss(learner.network, run, labels, state, randomness)
        if auxiliary is not None:
            # Without `inputs`, gradients could reach parts of the network that are not detached.
            auxiliary.backward(inputs=_learning(state))
        terms = [(cross_entropy, None), *_penalty(learner, run), *_teaching(learner, run, labels)]
    # One backward pass from all terms: a local term's graph reaches only its own part.
    outputs, signals = zip(*terms, strict=True)
    torch.autograd.backward(outputs, signals)
    # After the gradients, before the optimiser's step: Kolen-Pollack copies gradients here.
    method.update_state(learner.network, state, randomness)
    return cross_entropy.detach(), (run.logits.detach().argmax(dim=-1) == labels).sum()


# A tensor where the backward pass starts, and the gradient there; None stands for 1.
_Term = tuple[Tensor, Tensor | None]


def _penalty(learner: Learner, run: Trace) -> list[_Term]:
    """Return the residual penalty of the trainable blocks, if there are any."""
    # A frozen block's residual has no graph, and torch refuses a backward pass from it.
    residuals = run.residuals[learner.spec.frozen_blocks :]
    if not learner.spec.penalty or not residuals:
        return []
    return [(learner.spec.penalty * residual_energy(residuals), None)]


def _teaching(learner: Learner, run: Trace, labels: Tensor) -> list[_Term]:
    """Return the terms that train embedding and blocks; none if the method is `end_to_end`."""
    method, first = learner.method, learner.spec.frozen_blocks
    if method.end_to_end:
        return []
    credits = method.credits(learner.network, run, labels, learner.state)
    # If there is an objective, it trains the network, and credits are only audited.
    if credits.objective is not None:
        return [(credits.objective, None)]
    outputs = (run.states[0], *run.residuals[first:])
    targets = (credits.embedding, *credits.blocks[first:])
    floor = learner.spec.rms_floor if learner.spec.normalise and credits.normalise else None
    if floor is None and credits.batch_mean:
        # Gradients of a mean over B samples are B times shorter than those of single samples.
        targets = tuple(a * len(a) for a in targets)
    return [(h, teaching_signal(h, a, floor)) for h, a in zip(outputs, targets, strict=True)]


def teaching_signal(output: Tensor, credit: Tensor, floor: float | None) -> Tensor:
    """Return the gradient of ``mean <output, r(credit)>`` at `output`, shaped like `output`.

    The mean is over samples, and over tokens or positions if the state has them; every token or
    position gets the same credit.

    Args:
        output: ``(B, d)``, ``(B, T, d)`` or ``(B, d, H, W)``.
        credit: ``(B, d)``.
        floor: ``r(a) = a / (rms(a) + floor)``; None: ``r(a) = a``.
    """
    signal = credit if floor is None else normalised(credit, floor)
    # Divide by the number of tokens or positions, and by the number of samples.
    signal = signal * (credit.numel() / output.numel() / len(credit))
    return Network.lift(signal, output).expand_as(output)


def residual_energy(residuals: tuple[Tensor, ...]) -> Tensor:
    """Return ``sum_l mean ||f_l||^2``; the mean is over samples and tokens or positions."""
    return sum(f.square().sum(1 if f.dim() == 4 else -1).mean() for f in residuals)
