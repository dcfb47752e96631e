"""Compare a network's backward pass with its forward pass: is the gradient the derivative of the
loss?

A model can replace its own backward pass: by autograd functions that implement feedback alignment,
by straight-through or surrogate gradients, by ``detach``. Only models in which `custom_parts` finds
such a part are compared.

A move is a vector that is added to a state. Shapes: B batch, d width of a state, M moves.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules import module as hooks_of_all
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from tqdm import tqdm

from fa_audit.audit.credit_metrics import loss_changes, losses_of_samples
from fa_audit.core.errors import AuditError
from fa_audit.core.randomness import generator
from fa_audit.core.vectors import sample_norms
from fa_audit.networks.description import starting_states
from fa_audit.networks.network import Network
from fa_audit.networks.trace import LossFunction, Reference, nodes_of, runs_on

SAMPLES, _CHECKED = 8, 4  # samples and directions with which every state is checked
# Step lengths relative to the state's norm; those most likely to decide come first.
STEPS = (1e-6, 1e-5, 1e-7, 1e-4, 1e-3, 1e-2)
# Slopes are taken at this relative distance from a state, which itself may be at a kink or a tie.
_AWAY = 1e-2
# A slope confirms a prediction up to this relative difference: long steps and kinks shift slopes.
TOLERANCE = 1e-3
# Two measured slopes agree if they differ by at most this fraction of each slope's distance from
# the prediction. Rounding errors do not agree: a tenfold shorter step makes them tenfold larger.
_CLOSER = 0.1
# Slopes near 0, which rounding can cause, do not count against a gradient that predicts the slope
# at another step to within this relative error.
_ROUGH = 0.3
ROUNDING = 1e-14  # error of a difference of two losses, relative to the losses or the logits
DIRECTIONS, _STEP = 32, 1e-6  # give a norm a relative standard error of 1/8


def check_backward(
    twin: Network, x: Tensor, targets: Tensor, loss_fn: LossFunction, truth: Reference
) -> dict[int, str]:
    """Find the states whose gradient is not confirmed to be the derivative of the loss.

    Near every state the loss of a few samples is computed at ``h ± step ||h_l|| v``, with random
    unit vectors v, and compared with the gradient's prediction. Agreement at one step is enough:
    longer steps cross kinks, shorter ones are lost in rounding. If no step agrees, the gradient is
    wrong only if the differences at two neighbouring steps agree with each other much better than
    with the gradient.

    Args:
        twin: the network in float64.
        x, targets, truth: a batch in float64 and its `reference`. Only the first `SAMPLES` samples
            are used, unless the network fails on so few.

    Returns:
        The states found, each with a reason: ``untrue`` if the gradient is wrong; ``rough`` if the
        differences neither confirm nor refute the gradient; ``small`` if gradient and differences
        are so small that at most one step exceeds rounding.
    """
    # A few samples suffice to show a wrong derivative. Every direction costs two passes per step.
    few = min(len(x), SAMPLES) if runs_on(twin, x[:SAMPLES]) else len(x)
    x, targets, states = x[:few], targets[:few], [h[:few] for h in truth.states]
    starts = starting_states(twin, x)
    smallest = truth.logits[:few].abs().max().item() * ROUNDING / TOLERANCE

    def loss(state: int, move: Tensor) -> Tensor:
        # `shift` adds to the (B, d) vector that the audit reads, whatever the state's shape.
        logits = twin.logits_from(state, twin.shift(starts[state], move))
        return loss_fn(logits, targets.clone())

    wrong = {}
    for state, h in enumerate(tqdm(states, "gradient at state", leave=False, disable=None)):
        predicted, found = _slopes(partial(loss, state), _moves(h, state, _CHECKED + 1), smallest)
        if found and min(_apart(slope, predicted) for slope in found) <= TOLERANCE:
            continue
        # Two slopes are needed to see whether they agree.
        if len(found) < 2:
            wrong[state] = "small"
        else:
            wrong[state] = "untrue" if _is_wrong(predicted, found) else "rough"
    return wrong


def _slopes(
    loss: Callable[[Tensor], Tensor], moves: Tensor, smallest: float
) -> tuple[Tensor, list[Tensor]]:
    """Return the slopes of `loss` along M moves: those that its gradient predicts, and those that
    central differences measure.

    The list has one tensor ``(M,)`` of measured slopes for each step that float64 resolves, the
    longest step first. No further step is tried once measured and predicted slopes agree.

    Args:
        moves: ``(M + 1, B, d)``, from `_moves`. Slopes along the first M are taken at the state
            plus `_AWAY` times the last move.
        smallest: the smallest difference of two losses that exceeds rounding.
    """
    base = (_AWAY * moves[-1]).requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(loss(base), base)
    predicted = torch.stack([(gradient * move).sum() for move in moves[:-1]])
    found = {}
    for step in STEPS:
        with torch.no_grad():
            above = [loss(base + step * move) for move in moves[:-1]]
            below = [loss(base - step * move) for move in moves[:-1]]
        # Central differences cancel the terms of even order in the step, such as the curvature.
        slope = (torch.stack(above) - torch.stack(below)).reshape(-1) / (2 * step)
        # The larger norm counts: a wrong gradient may predict 0 although the loss changes.
        larger = max(slope.norm().item(), predicted.norm().item())
        resolved = max(smallest, ROUNDING / TOLERANCE * abs(float(above[0])))
        if math.isfinite(larger) and step * larger > resolved:
            found[step] = slope
            if _apart(slope, predicted) <= TOLERANCE:
                break
    return predicted, [found[step] for step in sorted(found, reverse=True)]


def _is_wrong(predicted: Tensor, found: Sequence[Tensor]) -> bool:
    """Return whether slopes at two neighbouring step lengths agree, but not with the gradient.

    A piecewise constant loss (a staircase) has slopes of 0 at short lengths, so a nonzero gradient
    is wrong. But rounding can turn any loss into a staircase. So slopes near 0 do not count if the
    gradient roughly predicts the slope at some length.
    """
    staircase = min(_apart(slope, predicted) for slope in found) <= _ROUGH
    for one, other in pairwise(found):
        # Both slopes are far below the prediction, as on a flat part of a staircase.
        flat = max(one.norm(), other.norm()) <= _CLOSER * predicted.norm()
        off = min((one - predicted).norm(), (other - predicted).norm())
        if (one - other).norm() <= _CLOSER * off and not (flat and staircase):
            return True
    return False


def _apart(one: Tensor, other: Tensor) -> float:
    """Return the distance of two vectors, relative to the longer one."""
    return float((one - other).norm() / max(one.norm(), other.norm()))


def norms_along_directions(
    twin: Network, x: Tensor, targets: Tensor, loss_fn: LossFunction, truth: Reference, state: int
) -> float:
    """Estimate median ``||g_l||`` from changes of the loss along random directions, without a
    backward pass.

    The component of ``g_l`` along a random unit vector has the mean square ``||g_l||^2 / d``.

    Returns:
        The median for the loss averaged over samples, even if `loss_fn` returns a sum. NaN if
        `losses_of_samples` fails, or if the loss ignores every sample.
    """
    h, start = truth.states[state], starting_states(twin, x)[state]
    # Moves are relative to the state's norm, which may have any size.
    moves = _STEP * _moves(h, state, DIRECTIONS)
    try:
        losses = losses_of_samples(loss_fn, truth.logits, targets)
    except AuditError:
        return math.nan
    # Central differences: `moves` are scaled by the step already, so their factors are 1 and -1.
    above = loss_changes(twin, state, start, targets, moves, 1, losses)
    below = loss_changes(twin, state, start, targets, moves, -1, losses)
    slopes = (above - below) / 2 / moves.norm(dim=-1)
    lengths = (slopes.square().mean(dim=0) * h.shape[-1]).sqrt()
    # NaN marks samples that the loss ignores; their gradient is 0.
    counted = int((~lengths.isnan()).sum())
    return float(lengths.nan_to_num(0).median()) / counted if counted else math.nan


def _moves(h: Tensor, state: int, count: int) -> Tensor:
    """Return random moves ``(count, B, d)`` of a state ``(B, d)``.

    A move has the norm of the vector to which it is added, or 1 if that vector is zero.
    """
    lengths = sample_norms(h)
    lengths = torch.where(lengths > 0, lengths, 1)
    # Drawn on the CPU, so that every device gets the same numbers.
    randomness = generator(0, "audit", "backward", state)
    drawn = torch.randn(count, *h.shape, dtype=h.dtype, generator=randomness).to(h.device)
    return lengths[:, None] * F.normalize(drawn, dim=-1)


PACKAGE = f"{__name__.partition('.')[0]}."
# Access to grad_fn is reported, because code that hooks a graph node gets the node from grad_fn.
_HOOKS = {"register_hook": "a hook on a tensor", "grad_fn": "access to grad_fn"}


def custom_parts(module: nn.Module, run: Callable[[], Tensor]) -> list[str]:
    """Name every part of a model that may make gradients differ from the derivative of the loss.

    The list is empty if the model only chains torch operations that keep the graph. Hooks on
    parameters are left out: they change no gradient of a state.

    Args:
        module: the network, whose modules may have backward hooks.
        run: runs the network once and returns its loss, or another tensor with gradients.

    Raises:
        Exception: whatever `run` raises.
    """
    watch = _Watch()
    with torch.enable_grad(), watch:
        output = run()
    functions = {f"autograd.Function {name}" for name in _functions(output)}
    return sorted(watch.found | functions | set(_hooked(module)))


class _Watch(TorchFunctionMode):
    """Record calls that cut the graph or attach hooks to it.

    It sees the torch functions that Python code calls, not what runs inside them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        # Check the arguments before the call, since detach_ changes them.
        given = tree_leaves((args, kwargs))
        carried = any(_is_value(leaf) and _carries(leaf) for leaf in given)
        returned = func(*args, **(kwargs or {}))
        # Operations by which this package reads states are no part of the model.
        if carried and not _caller().startswith(PACKAGE):
            self.found.update(_cuts(func, returned))
        return returned


def _caller() -> str:
    """Return the module whose code called an operation, skipping torch's graph helpers."""
    # Skip this function and `__torch_function__`.
    frame = sys._getframe(2)
    while frame.f_back and frame.f_globals.get("__name__") == "torch.autograd.graph":
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


def _cuts(func: Any, returned: Any) -> Iterator[str]:
    """Name the ways in which a call on a tensor with gradients cuts the graph or hooks into it."""
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__"):  # an attribute is read or set
        name = func.__self__.__name__ + ("=" if name == "__set__" else "")
    if name in _HOOKS:
        yield _HOOKS[name]
    # These hooks may give the backward pass other tensors than the forward pass saved.
    if torch._C._autograd._top_saved_tensors_default_hooks(True):
        yield "hooks on saved tensors"
    if name.endswith("_like") or name.startswith("new_"):  # these use the shape only
        return
    values = [leaf for leaf in tree_leaves(returned) if _is_value(leaf)]
    if not torch.is_grad_enabled() and (values or name == "__setitem__"):
        yield "work without gradients"
    # A float, such as .item() returns, is outside the graph, too.
    elif name == "data=" or not all(map(_carries, values)):
        yield f"{name} of a tensor with gradients"


def _is_value(leaf: object) -> bool:
    return isinstance(leaf, float) or (isinstance(leaf, Tensor) and leaf.is_floating_point())


def _carries(value: Tensor | float) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _functions(output: Tensor) -> Iterator[str]:
    """Name the operations in a tensor's graph whose backward pass may not be the derivative."""
    for node in nodes_of(output):
        # The node of an autograd.Function in Python; `_forward_cls` is the user's class.
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            made_by = getattr(node, "_forward_cls", type(node))
            yield f"{made_by.__module__}.{made_by.__qualname__}"
        # CppNode is a user's autograd function in C++. Of torch's own operations, only fake
        # quantisation has a straight-through gradient.
        elif any(part in node.name() for part in ("CppNode", "FakeQuant", "FqHelper")):
            yield node.name()


def _hooked(module: nn.Module) -> Iterator[str]:
    """Name the modules with backward hooks, and those into which a `_Watch` cannot look."""
    if hooks_of_all._global_backward_hooks or hooks_of_all._global_backward_pre_hooks:
        yield "a backward hook on all modules"
    for part in module.modules():
        # Hooks that run before and after the module's own backward pass.
        if part._backward_hooks or part._backward_pre_hooks:
            yield f"a backward hook on {type(part).__name__}"
        if isinstance(part, torch.jit.ScriptModule):
            yield "TorchScript"
