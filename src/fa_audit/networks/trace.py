"""Run a network, and return its states, residuals and reference gradients.

Shapes: B batch, d width, L blocks, C classes. A state is ``(B, d)``, ``(B, T, d)`` or ``(B, d, H,
W)``.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fa_audit.core.errors import AuditError, first_line
from fa_audit.networks.network import Network

# Takes logits (B, C) and labels, and returns a scalar, the mean over the batch.
LossFunction = Callable[[Tensor, Tensor], Tensor]
SMALL = 2**20  # tensors in plain attributes are restored if they have at most so many entries
CONTAINERS = (dict, OrderedDict, list, set, deque)  # attributes whose contents are restored


@dataclass(frozen=True)
class Trace:
    """One forward pass.

    Attributes:
        states: ``h_0..h_L``.
        residuals: ``f_0..f_{L-1}``; in a local trace the graph of ``f_l`` reaches only block l.
        head_input: the head's input: ``h_L``, or in a local trace a leaf equal to it.
        logits: ``(B, C)``.
        x: the embedding's input.
    """

    states: tuple[Tensor, ...]
    residuals: tuple[Tensor, ...]
    head_input: Tensor
    logits: Tensor
    x: Tensor


def trace(network: Network, x: Tensor, *, local: bool) -> Trace:
    """Run `network` once on `x`.

    Args:
        local: cut the graph before every block and before the head, so that one backward pass of a
            sum of local losses gives each part its own gradient only. Otherwise the graph spans the
            whole network.
    """
    # A copy, since a network may work on its input in place.
    embedded = network.embed(x.clone())
    if torch.is_grad_enabled() and not embedded.requires_grad:
        # A frozen embedding has no graph, but the gradient at h_0 is still needed.
        embedded = embedded.detach().requires_grad_()
    states, residuals = [embedded], []
    for layer in range(network.depth):
        h = states[-1].detach() if local else states[-1]
        # `split`, not the block itself, knows how the residual is added to the state.
        residual, following = network.split(layer, h)
        residuals.append(residual)
        states.append(following)
    # A leaf in a local trace, so that the head's loss gives the last block no gradient.
    head_input = states[-1].detach().requires_grad_() if local else states[-1]
    return Trace(tuple(states), tuple(residuals), head_input, network.head(head_input), x)


@dataclass(frozen=True)
class Reference:
    """States and true gradients of a batch, with which credits are compared.

    Attributes:
        states: vectors of ``h_0..h_L``, each ``(B, d)``.
        gradients: ``g_l = d loss / d h_l`` of the batch's loss, each ``(B, d)``.
        logits: ``(B, C)``.
        finite: whether all logits, states and gradients at the states are finite, even in tokens
            that the vectors leave out.
        positions: how many positions each state's vector averages; 1 if it averages none.
            `gradients` are sums over these positions; divide by this number for means.
        loss: loss of the batch.
        at_logits: gradient of the loss at the logits, ``(B, C)``.
    """

    states: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]
    logits: Tensor
    finite: bool
    positions: tuple[int, ...]
    loss: float
    at_logits: Tensor


def reference(
    network: Network, x: Tensor, labels: Tensor, loss_fn: LossFunction = F.cross_entropy
) -> Reference:
    """Run a batch, and return its states and the true gradient at every state.

    It does not change ``.grad``, and works with frozen parameters and inside ``torch.no_grad()``.
    The whole batch runs at once, because a loss need not be a mean over samples.

    Raises:
        AuditError: the loss fails or is not a scalar.
    """
    with torch.enable_grad():
        # A copy, since a network may work on its input in place.
        states, points, logits = network.chain(x.clone())
        loss = scalar_loss(loss_fn, logits, labels)
        # The gradient at the logits shows whether the loss is almost zero.
        *gradients, at_logits = _gradients(loss, [*points, logits])
    tensors = (*states, *gradients, logits)
    positions = []
    for g in gradients:
        # `read_gradient` sums a gradient over positions, so ones give the number of positions.
        ones = network.read_gradient(torch.ones_like(g[:1]))
        positions.append(int(ones.flatten()[0]))
    return Reference(
        states=tuple(map(network.read, states)),
        gradients=tuple(map(network.read_gradient, gradients)),
        logits=logits.detach(),
        finite=all(bool(tensor.isfinite().all()) for tensor in tensors),
        positions=tuple(positions),
        loss=loss.item(),
        at_logits=at_logits,
    )


def _gradients(loss: Tensor, points: list[Tensor]) -> tuple[Tensor, ...]:
    """Return the gradients of the loss at `points`; raise an error if one has none."""
    try:
        return torch.autograd.grad(loss, points)
    except Exception as error:  # external code may raise anything
        raise AuditError(
            f"the loss has no gradient at some state: {first_line(error)}. Expected a forward"
            " pass without torch.no_grad, detach, activation checkpointing or changes in place"
            " between the states, and a loss that depends on the logits."
        ) from error


def scalar_loss(loss_fn: LossFunction, logits: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of a batch; `loss_fn` gets a copy of the labels, which it may change.

    Raises:
        AuditError: `loss_fn` fails, or does not return a scalar that depends on the logits.
    """
    expected = "expected a function of logits and labels that returns the mean loss as one number"
    try:
        loss = loss_fn(logits, labels.clone())
    except Exception as error:  # external code may raise anything
        given = f"logits {tuple(logits.shape)} and {labels.dtype} labels {tuple(labels.shape)}"
        raise AuditError(
            f"loss_fn: on {given} it failed: {first_line(error)}; {expected}."
        ) from error
    if not isinstance(loss, Tensor) or loss.numel() != 1 or loss.is_complex():
        raise AuditError(f"loss_fn: it returned {shown(loss)}; {expected}.")
    if logits.requires_grad and not loss.requires_grad:
        raise AuditError(
            f"loss_fn: it returned a number without a gradient; {expected}, computed by torch."
        )
    return loss


@torch.no_grad()
def outputs_of(network: Network, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return outputs ``(B, ...)`` and the vectors of all states, each ``(B, d)``."""
    logits, states = network(x.clone(), return_hidden=True)
    return logits, [network.read(h) for h in states]


@dataclass(frozen=True)
class Forward:
    """One batch after a forward pass: labels ``(B,)``; logits ``(B, C)`` and ``h_0`` ``(B, d)``, both
    in float64.
    """

    labels: Tensor
    logits: Tensor
    embedded: Tensor


def forward(network: Network, batches: Iterable[tuple[Tensor, Tensor]]) -> list[Forward]:
    """Run every batch forward once, and leave the network as it was."""
    passes = []
    with untouched(network):
        for x, labels in batches:
            logits, states = outputs_of(network, x)
            passes.append(Forward(labels.to(torch.int64), logits.double(), states[0].double()))
    return passes


@torch.no_grad()
def runs_on(network: Network, x: Tensor) -> bool:
    """Return whether a network runs on these inputs; some networks need batches of a fixed size."""
    try:
        # If a network folds samples into another dimension, it runs, but its rows are not samples.
        return len(network(x.clone())) == len(x)
    except Exception:  # external code may raise anything
        return False


def reads_data(network: Network, h: Tensor, x: Tensor) -> bool:
    """Return whether a state holds the data itself, possibly reshaped, cast or normalised."""
    if h.numel() != x.numel():
        return False
    # An embedding without parameters only flattens, casts or normalises the data.
    return not getattr(network, "embeds", True) or torch.equal(
        h.detach().flatten().to(x), x.flatten()
    )


def logits_of(answer: Any) -> Any:
    """Return the attribute or entry ``logits`` of a model's output, or else the output itself."""
    return (
        answer.get("logits", answer)
        if isinstance(answer, Mapping)
        else getattr(answer, "logits", answer)
    )


def shown(value: object) -> str:
    """Format a value for an error: its kind, and a tensor's shape."""
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {value.dtype}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} ({', '.join(type(part).__name__ for part in value)})"
    return "nothing" if value is None else type(value).__name__


def is_dense(value: Any) -> bool:
    """Return whether a value is a dense tensor with data; one on the meta device has none."""
    strided = isinstance(value, Tensor) and value.layout == torch.strided
    return strided and not (value.is_nested or value.is_meta)


def owned_by(model: nn.Module) -> tuple[Tensor, ...]:
    """Return all tensors of a model: parameters, buffers, and those in plain attributes."""
    return (*model.parameters(), *model.buffers(), *_kept(model))


def _kept(model: nn.Module) -> list[Tensor]:
    """Return the tensors that modules keep as plain attributes, alone or in containers."""
    # Registered tensors count as seen. A container that holds itself is walked only once.
    seen = set(map(id, (*model.parameters(), *model.buffers())))
    kept: list[Tensor] = []
    values: list[Any] = [vars(module) for module in model.modules()]
    while values:
        value = values.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            kept.append(value)
        elif isinstance(value, dict):
            values.extend(value.values())
        elif isinstance(value, list | tuple | deque):
            values.extend(value)
    return kept


@contextmanager
def in_double(
    network: Network, x: Tensor, targets: Tensor, loss_fn: LossFunction
) -> Iterator[tuple[Network, Tensor, Tensor, LossFunction]]:
    """Yield float64 copies of a network, its inputs, targets and loss.

    A module that cannot be copied is converted itself, and converted back at the end.
    """
    # Tokens and class labels stay integers.
    x, targets = (part.double() if part.is_floating_point() else part for part in (x, targets))
    with ExitStack() as afterwards:
        if isinstance(loss_fn, nn.Module):
            loss_fn = afterwards.enter_context(_doubled(loss_fn))
        yield afterwards.enter_context(_doubled(network)), x, targets, loss_fn


@contextmanager
def _doubled(module: nn.Module) -> Iterator[Any]:
    """Yield a float64 copy of a module, or the module itself in float64 if it cannot be copied."""
    kept = {}
    for tensor in _kept(module):
        # deepcopy refuses tensors with a graph, so it gets copies of them, keyed by id.
        double = tensor.detach().double() if tensor.is_floating_point() else tensor.detach().clone()
        kept[id(tensor)] = double
    # Autograd functions held as instances cannot be copied at all.
    twin = None
    with suppress(Exception):  # external code may raise anything
        twin = copy.deepcopy(module, kept).double()
    if twin is not None:
        yield twin
        return
    # Keyed by id: one tensor may have several names.
    contents = {id(t): (t, t.data) for t in owned_by(module) if t.is_floating_point()}
    try:
        for tensor, content in contents.values():
            # Change only the content: modules and autograd functions hold the tensor itself.
            tensor.data = content.double()
        yield module
    finally:
        for tensor, content in contents.values():
            tensor.data = content


def accuracy_of(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Return the fraction of samples that `model` classifies correctly in evaluation mode."""
    right = samples = 0
    with untouched(model), torch.no_grad():
        for x, labels in batches:
            hits = logits_of(model(x.clone())).argmax(dim=-1) == labels
            right += int(hits.sum())
            samples += len(hits)
    return right / samples


@contextmanager
def keeping_statistics(model: nn.Module) -> Iterator[None]:
    """Protect the running statistics of BatchNorm layers from forward passes inside this context.

    Layers in training mode go on normalising by the statistics of the batch.
    """
    recording: list[Any] = [
        m for m in model.modules() if m.training and getattr(m, "track_running_stats", False)
    ]
    # Evaluation mode would not do: it normalises by the running statistics.
    for module in recording:
        module.track_running_stats = False
    try:
        yield
    finally:
        for module in recording:
            module.track_running_stats = True


def equal(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have the same shape, type and values; NaN equals NaN."""
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    # Only NaN differs from itself.
    return bool(((one == other) | ((one != one) & (other != other))).all())


def share_between(network: Network, x: Tensor) -> float:
    """Return the share of all parameters that ``h_L`` depends on and ``h_0`` does not."""
    parameters = [p for p in network.parameters() if p.is_floating_point() and not p.is_inference()]
    frozen = [p for p in parameters if not p.requires_grad]
    for p in frozen:
        p.requires_grad_(True)
    try:
        with untouched(network), torch.enable_grad():
            _, states = network(x.clone(), return_hidden=True)
            embedding, above = _reached_by(states[0]), _reached_by(states[-1])
    finally:
        for p in frozen:
            p.requires_grad_(False)
    inside = sum(p.numel() for p in parameters if p in above and p not in embedding)
    return inside / max(1, sum(p.numel() for p in parameters))


def _reached_by(h: Tensor) -> set[Tensor]:
    """Return the leaves on which a tensor depends, by its graph. No backward pass runs: it could
    fail where training never needs it, as after changes in place of frozen parts.
    """
    return {node.variable for node in nodes_of(h) if hasattr(node, "variable")}


def nodes_of(output: Tensor) -> Iterator[Any]:
    """Yield every node of a tensor's graph once."""
    # A loop, since graphs are deeper than Python's stack.
    seen, waiting = set(), [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        waiting += [before for before, _ in node.next_functions]


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Put `model` in evaluation mode, and restore it exactly at the end.

    Restores every module's attributes (mode, hooks, children, parameters, buffers, counters), the
    contents of buffers and small tensors, and the random streams, both global and the model's own.
    """
    modules = list(model.modules())
    modes = [module.training for module in modules]
    # Restore in place: optimisers and users hold the same dictionaries, lists and tensors.
    kept: list[tuple[Any, Any]] = []
    streams = []
    for module in modules:
        kept.append((vars(module), dict(vars(module))))
        for part in vars(module).values():
            if type(part) in CONTAINERS:
                kept.append((part, copy.copy(part)))
            elif isinstance(part, torch.Generator):
                streams.append((part, part.get_state()))
    # Keep all buffers. Of other tensors leave out large ones, which would take too much memory,
    # and those with a graph: restoring them in place would break a backward pass of the user.
    small = [one for one in _kept(model) if one.numel() <= SMALL and one.grad_fn is None]
    tensors = filter(is_dense, (*model.buffers(), *small))
    contents = [(tensor, tensor.detach().clone()) for tensor in tensors]
    # Reading the random state of a GPU would start CUDA in a process that does not use it.
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    # Attention's fast path, which runs only if nothing needs a gradient, drops padded tokens.
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.random.fork_rng(devices=devices):
            _evaluate(model)
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for present, found in kept:
            present.clear()
            (present.extend if isinstance(found, list | deque) else present.update)(found)
        # TorchScript keeps its mode outside of its attributes.
        for module, training in zip(modules, modes):
            module.training = training
        with torch.no_grad():
            for tensor, content in contents:
                # Unchanged tensors are left alone: writing raises their version, which would break
                # a user's graph that needs them. A cache may have grown, hence the resizing.
                if not equal(tensor, content):
                    tensor.resize_(content.shape).copy_(content)
        for stream, state in streams:
            stream.set_state(state)


def _evaluate(model: nn.Module) -> None:
    """Switch to evaluation mode, even if a module overrides ``train``."""
    try:
        model.eval()
    except Exception:  # external code may raise anything
        for module in model.modules():
            module.training = False
