"""What can make an audit of an external model wrong without any check firing: found, and refused or named."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fa_audit.audit.diagnostics import Diagnostics
from fa_audit.core.errors import AuditError, first_line, listed, shortened
from fa_audit.networks.network import Network
from fa_audit.networks.trace import untouched

SAMPLES = 8  # of the first batch, on which a forward pass is repeated
DIFFERENT = 1e-4  # relative to the largest logit; kernels that sum in another order stay far below
SUM_TO_ONE = 1e-3
FLOAT32_ERROR = 1e-2  # median relative error of the gradients above which float32 is named as a cause
NARROW = (torch.float16, torch.bfloat16)

UNUSABLE: tuple[tuple[Callable[[Tensor], bool], str], ...] = (  # parameters and buffers, and what is wrong with them
    (is_lazy, "lazy parameters without a shape; run the model once on a batch before."),
    (
        lambda tensor: tensor.is_meta,
        "parameters on the meta device, which have no values; expected a model with its weights loaded"
        " (model.to_empty(device=...), then load_state_dict).",
    ),
    (
        Tensor.is_inference,
        "parameters made in torch.inference_mode(), which have no gradients; expected a model made outside of it, or a"
        " copy.deepcopy of this one made outside.",
    ),
    (lambda tensor: tensor.layout != torch.strided, "sparse parameters or buffers; expected dense ones (to_dense())."),
)


def check_model(model: Any, description: Any = None) -> None:
    """Check that a model can be run at all, and that its description is one.

    Raises:
        AuditError: it is no module, is compiled by torch.jit, or has no values; or the description is something else.
    """
    if not isinstance(model, nn.Module):
        raise AuditError(f"model: found {type(model).__name__}; expected a torch.nn.Module.")
    if isinstance(model, torch.jit.ScriptModule):
        raise AuditError("found a model compiled by torch.jit; expected the Python module that it was made from.")
    tensors = [*model.parameters(), *model.buffers()]
    for unusable, problem in UNUSABLE:
        if any(map(unusable, tensors)):
            raise AuditError(f"{type(model).__name__}: found {problem}")
    blocks, reads = getattr(description, "blocks", None), getattr(description, "reads", None)
    names = [reads, blocks] if isinstance(blocks, str) else [reads, *blocks] if isinstance(blocks, list | tuple) else []
    if description is not None and not (names and all(isinstance(name, str) for name in names)):
        raise AuditError(
            f"description: found {shortened(description)}; expected Description(blocks, reads), the blocks as names of"
            " modules, for example Description('layers.*', 'cls token')."
        )


def listed_batches(name: str, batches: Any) -> Iterator[Any]:
    """Yield the evaluation batches; generators of a DataLoader and its sampler are left as they were.

    Raises:
        AuditError: they cannot be gone through.
    """
    if not isinstance(batches, Iterable):
        raise AuditError(f"{name}: found {shortened(batches)}; expected a list or a DataLoader of pairs (x, labels).")
    given = [getattr(part, "generator", None) for part in (batches, getattr(batches, "sampler", None))]
    states = [(stream, stream.get_state()) for stream in given if isinstance(stream, torch.Generator)]
    try:
        yield from batches
    except Exception as error:  # external code may raise anything
        raise AuditError(f"{name}: going through it fails: {first_line(error)}.") from error
    finally:
        for stream, state in states:
            stream.set_state(state)


def is_count(value: Any) -> bool:
    """Return whether a value is an integer and no boolean."""
    return isinstance(value, Integral) and not isinstance(value, bool)


@contextmanager
def as_found(model: nn.Module) -> Iterator[None]:
    """Leave the model's parameters, their ``.grad`` and the global random streams as they were, whatever it does.

    Inside, no parameter has a ``.grad``. Everything else about a model is the care of `untouched`.

    Raises:
        AuditError: the forward pass changed parameters: no two passes are of the same network.
    """
    streams = random.getstate(), np.random.get_state(), torch.get_rng_state()
    parameters = [(name, p, p.data, p.data.clone(), p.requires_grad, p.grad) for name, p in model.named_parameters()]
    for _, p, *_ in parameters:
        p.grad = None
    try:
        yield
    finally:
        random.setstate(streams[0])
        np.random.set_state(streams[1])
        torch.set_rng_state(streams[2])
        changed = [name for name, p, _, found, *_ in parameters if not _same(p.data, found)]
        for name, p, data, found, learns, grad in parameters:
            p.requires_grad_(learns)
            p.data, p.grad = data.copy_(found) if name in changed else data, grad
    if changed:
        raise AuditError(
            f"{type(model).__name__}: its forward pass changes {listed(changed, 3)} in evaluation mode; expected one"
            " that leaves parameters alone. Compute what it needs without writing to them."
        )


def _same(one: Tensor, other: Tensor) -> bool:
    return (one.shape, one.dtype) == (other.shape, other.dtype) and torch.allclose(
        one, other, rtol=0, atol=0, equal_nan=True
    )


def look_at(network: Network, x: Tensor, *, logits: bool = True) -> tuple[int, list[str]]:
    """Run a network twice on a few inputs; return its number of classes, and warnings about what it computes.

    Args:
        logits: whether its outputs are taken for logits.

    Raises:
        AuditError: the two passes differ.
    """
    few = x[:SAMPLES]
    with untouched(network):
        points, first = network.chain(few.clone())
        with torch.no_grad():
            second = network(few.clone())
    first = first.detach()
    if (distance := _distance(first, second)) > DIFFERENT:
        raise AuditError(
            f"{_name(network)}: two forward passes of the same inputs in evaluation mode differ by {distance:.2g} of"
            " the largest logit; expected the same logits. Turn off dropout (training=self.training), noise and"
            " whatever counts passes."
        )
    shapes = [tuple(point.shape) for point in points]
    found = [
        _probabilities(second) if logits else "",
        _narrow(network, [*points, second]),
        _transposed(network, shapes),
    ]
    return second.shape[-1], [warning for warning in found if warning]


def _name(network: Network) -> str:
    return type(getattr(network, "model", network)).__name__


def _distance(one: Tensor, other: Tensor) -> float:
    """Return the largest difference relative to the largest entry; 0 where either is not finite everywhere."""
    if one.shape != other.shape:
        return float("inf")
    if not (one.isfinite().all() and other.isfinite().all()):
        return 0.0
    return ((one - other).abs().max() / one.abs().max().clamp_min(torch.finfo(one.dtype).tiny)).item()


def _probabilities(logits: Tensor) -> str:
    ones = (logits.double().sum(dim=-1) - 1).abs() <= SUM_TO_ONE
    if logits.shape[-1] < 2 or not (ones.all() and (logits >= 0).all()):
        return ""
    return (
        "The outputs look like probabilities (none is negative, every row sums to 1) and were taken for logits:"
        " gradients and checks are those of a second softmax. Audit the model without its last softmax."
    )


def _narrow(network: Network, computed: list[Tensor]) -> str:
    kinds = {tensor.dtype for tensor in (*network.parameters(), *network.buffers(), *computed)}
    if not (narrow := sorted(str(kind).removeprefix("torch.") for kind in kinds if kind in NARROW)):
        return ""
    return (
        f"The model computes in {' and '.join(narrow)}: gradients below its smallest number vanish, so that (b) and (c)"
        " may be about its type. Audit model.float()."
    )


def _transposed(network: Network, shapes: list[tuple[int, ...]]) -> str:
    """Warn of maps whose equal sides are not the dimensions that are averaged."""
    reads = getattr(network, "reads", "spatial mean")
    maps = {layer: shape for layer, shape in enumerate(shapes) if len(shape) == 4 and reads.startswith("spatial mean")}
    for layer, (_, one, two, three) in maps.items():
        if one != three and two == {"spatial mean": one}.get(reads, three):
            other = "spatial mean" if two == three else "spatial mean, channels last"
            return (
                f"State {layer} is (B, {one}, {two}, {three}), which looks like maps with channels"
                f" {'first' if two == three else 'last'}, but its '{reads}' was audited. If so, describe the model with"
                f" reads: {other}."
            )
    return ""


def precision_warnings(evidence: Diagnostics) -> list[str]:
    """Warn of gradients that float32 does not resolve: more than 1 % away from those in float64."""
    errors = {layer.layer: layer.float32_error.value for layer in evidence.layers}
    worst = max((layer for layer, error in errors.items() if error is not None), key=errors.get, default=None)
    if worst is None or errors[worst] <= FLOAT32_ERROR:
        return []
    return [
        f"The gradient at state {worst} is {errors[worst]:.2g} of its length away from the one computed in float64"
        f" (more than {FLOAT32_ERROR:g}): what is concluded from gradients there is about rounding."
    ]
