"""Find the states of a model, which are tensors at places of its own forward pass, and read them.

A place is a `HookPoint` in the model's code, a call of ``mark`` in a function that runs the model,
or the input or output of a module. A block is the computation between two states. The head
reads a vector of a state: all of it, one token or a mean.

Shapes: B batch, d features, T tokens.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fa_audit.core.errors import AuditError, listed, printable, shortened
from fa_audit.networks.trace import equal, untouched

INPUT = "input:"
_NEAR = 4  # similar names that an error lists
READS = (
    "all features",
    "cls token",
    "last token",
    "spatial mean",
    "spatial mean, channels last",
)
TOKENS = {"cls token": 0, "last token": -1}
OTHERS = {"cls token": slice(1, None), "last token": slice(None, -1)}  # tokens that are not read
LABELS = ("labels", "label", "targets", "y")  # keys for labels; the first one present counts
Layout = dict[str, tuple[tuple[int, ...], torch.dtype]]  # by name: shape of a row, and type


class HookPoint(nn.Identity):
    """Mark a hidden state in a model's own forward pass: ``h = self.hook(h)``.

    It returns its input, so that a training has the same bits with and without it. Every call marks
    a state, in the order of the calls; one instance may be called many times.
    """


Mark = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Description:
    """The places of a model's states.

    Attributes:
        blocks: one name that matches all blocks, such as ``"layers.*"``: ``h_0`` is the input of
            the first block, ``h_{l+1}`` the output of block l. If the model's own code changes an
            output before the next block reads it (by a skip, a norm, an activation), the blocks'
            inputs are the states, and ``h_L`` is the input of the head. Several names, such as
            ``["embed", "layers.*"]``: the outputs of these modules, or their inputs if names have
            the prefix ``input:``. Every call of a module is one state. In a name ``*`` matches one
            or more characters other than dots. Empty: the `HookPoint` modules of the model.
        reads: which vector of a state the head reads: ``"all features"``, ``"cls token"`` (the
            first one of ``(B, T, d)``), ``"last token"``, ``"spatial mean"`` (of ``(B, d, H, W)``,
            or of the tokens) or ``"spatial mean, channels last"`` (of ``(B, H, W, d)``). None: find
            out from the model's outputs.
        partial: whether to audit states that some information bypasses; the report says how much.
        forward: in place of `blocks`, a function ``forward(model, x, mark)`` that runs a model that
            cannot be edited, calls ``h = mark(h)`` at every state, and returns the outputs.
    """

    blocks: str | Sequence[str] = ()
    reads: str | None = "all features"
    partial: bool = False
    forward: Callable[[nn.Module, Any, Mark], Any] | None = None

    def __post_init__(self) -> None:
        names = [self.blocks] if isinstance(self.blocks, str) else self.blocks
        texts = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
        if not texts or not isinstance(self.reads, str | None):
            raise AuditError(
                f"description: found {shortened(self)}; expected names of modules, and text or None"
                " for reads."
            )
        if names and self.forward is not None:
            raise AuditError("description: found blocks and forward=; expected one of the two.")


class Place(NamedTuple):
    """The output of a module, or its first input; with `once` only that of its first call."""

    module: nn.Module
    name: str
    is_input: bool = False
    once: bool = False

    def __str__(self) -> str:
        return INPUT * self.is_input + self.name


# A function that notes, changes or replaces a state; it returns the state to go on with.
Visit = Callable[[Place, Any], Any]


# --- the walk -------------------------------------------------------------------------------------


@contextmanager
def visited(places: Sequence[Place], visit: Visit) -> Iterator[None]:
    """Call ``h = visit(place, h)`` whenever a forward pass reaches a place."""
    with ExitStack() as afterwards:
        for place in places:
            afterwards.enter_context(_watched(place, visit))
        yield


@contextmanager
def _watched(place: Place, visit: Visit) -> Iterator[None]:
    # Torch's hooks do not run if a model calls `layer.forward(h)`.
    module = place.module
    forward, own = module.forward, vars(module).get("forward")
    calls = 0

    # Code that inspects `watched` must find the signature of the module's `forward`.
    @wraps(forward)
    def watched(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if not place.is_input:
            return _visit_output(place, visit, forward(*given, **named))
        if place.once and calls > 1:
            return forward(*given, **named)
        if given:
            given = (visit(place, given[0]), *given[1:])
        # If all arguments are passed by name, the first is taken for the state.
        elif named:
            first = next(iter(named))
            named[first] = visit(place, named[first])
        return forward(*given, **named)

    module.forward = watched
    try:
        yield
    finally:
        # Restore `forward` only if the instance had its own; otherwise the class has the method.
        del module.forward
        if own is not None:
            module.forward = own


def _visit_output(place: Place, visit: Visit, returned: Any) -> Any:
    if not isinstance(returned, tuple | list) or not returned:
        return visit(place, returned)
    h = visit(place, returned[0])
    # If nothing changed, return the same object: the model may test for it with `is`.
    if h is returned[0]:
        return returned
    parts = [h, *returned[1:]]
    # A named tuple's class takes its fields one by one, so use `_make`.
    return returned._make(parts) if hasattr(returned, "_make") else type(returned)(parts)


def order_of(model: nn.Module, run: Callable[[], Any]) -> list[Place]:
    """Return the inputs of a model's modules in the order in which a forward pass, `run`, reaches
    them.
    """
    order = []

    def visit(place: Place, h: Any) -> Any:
        order.append(place)
        return h

    # Watch inputs, so that a container comes before its modules; its output comes after theirs.
    every = [Place(module, name, True) for name, module in model.named_modules() if name]
    with visited(every, visit), torch.no_grad():
        run()
    return order


# --- names ----------------------------------------------------------------------------------------


def hook_points(model: nn.Module) -> list[Place]:
    """Return the `HookPoint` modules of a model as places."""
    modules = model.named_modules()
    return [Place(part, name) for name, part in modules if isinstance(part, HookPoint)]


def places_of(model: nn.Module, names: Sequence[str]) -> list[Place]:
    """Return the places that `names`, which may be patterns, stand for.

    Raises:
        AuditError: a name matches no module.
    """
    found: dict[tuple[nn.Module, bool], Place] = {}
    for entry in names:
        bare = entry.removeprefix(INPUT)
        for module, name in matching(model, bare).items():
            # A module with several names is one place.
            found.setdefault((module, bare != entry), Place(module, name, bare != entry))
    return list(found.values())


def matching(model: nn.Module, entry: str) -> dict[nn.Module, str]:
    """Return the modules that match a name or pattern, each with its first matching name.

    Raises:
        AuditError: no module matches.
    """
    # One level only: "layers.*" does not match modules within the layers.
    pattern = re.compile(r"[^.]+".join(map(re.escape, entry.split("*"))))
    found: dict[nn.Module, str] = {}
    names = []
    for name, module in model.named_modules(remove_duplicate=False):
        names.append(name)
        if name and pattern.fullmatch(name):
            found.setdefault(module, name)
    if not found:
        near = difflib.get_close_matches(entry, names, _NEAR) or names[1 : _NEAR + 1]
        raise AuditError(
            f"{type(model).__name__}: blocks: '{printable(entry)}' is not a module. There are"
            f" {', '.join(near) + ', for example' if near else 'none'}."
        )
    return found


def places_of_blocks(model: nn.Module, pattern: str, run: Callable[[], Any]) -> list[Place]:
    """Return the places of the states before, between and after blocks.

    Args:
        run: runs a forward pass.

    Raises:
        AuditError: no block ran.
    """
    blocks = matching(model, pattern)
    order = order_of(model, run)
    ran = [place for place in order if place.module in blocks]
    if not ran:
        raise AuditError(
            f"{type(model).__name__}: blocks '{printable(pattern)}' did not run in a forward pass."
        )
    reader = reader_of(order, blocks)
    inputs = [Place(module, name, True) for module, name in blocks.items()]
    outputs = [Place(module, name) for module, name in blocks.items()]
    returned: list[Any] = []  # a block's output, and a copy, since the model may change it
    handed_on: list[bool] = []

    def visit(place: Place, h: Any) -> Any:
        if not place.is_input:
            returned[:] = [h, h.clone() if isinstance(h, Tensor) else h]
        elif returned:
            output, copied = returned
            # The head may flatten or pool the last block's output.
            resized = place is reader and getattr(h, "shape", None) != output.shape
            # Compare the content, too: a skip added in place changes it and keeps the object.
            handed_on.append(resized or (h is output and equal(h, copied)))
        return h

    # After a single block, only the head shows whether the block's output arrives unchanged.
    after = [reader] if reader and len(ran) == 1 else []
    with visited([*inputs, *outputs, *after], visit), torch.no_grad():
        run()
    # A block may run several times, sharing its weights: h_0 is the input of its first call.
    if all(handed_on):
        return [ran[0]._replace(once=True), *outputs]
    return [*inputs, reader] if reader else inputs


def reader_of(order: Sequence[Place], blocks: Collection[nn.Module]) -> Place | None:
    """Return the first module of the head, or None. It runs once, after the blocks, and is of
    another kind than the norms and activations that run between blocks.

    Args:
        order: the inputs of modules in the order of a pass, from `order_of`.
    """
    calls = [index for index, place in enumerate(order) if place.module in blocks]
    if not calls:
        return None
    first, last = calls[0], calls[-1]
    inside = set(order[last].module.modules())
    between = {_kind(place) for place in order[first:last] if place.module not in blocks}
    for place in order[last + 1 :]:
        if place.module in inside:
            continue
        if order.count(place) == 1 and _kind(place) not in between:
            return place
        # This module does not belong to the head, so neither do the modules inside it.
        inside.update(place.module.modules())
    return None


def _kind(place: Place) -> tuple[type[nn.Module], str]:
    """Return the class of a place's module, and the name of the parent module."""
    return type(place.module), place.name.rpartition(".")[0]


# --- readings -------------------------------------------------------------------------------------


def averaged(reads: str, dims: int) -> tuple[int, ...]:
    """Return the dimensions that `reads` averages over in a state of `dims` dimensions.

    >>> averaged("spatial mean", 4), averaged("spatial mean", 3), averaged("cls token", 3)
    ((2, 3), (1,), ())
    """
    if not reads.startswith("spatial mean"):
        return ()
    channels_last = reads.endswith("last") or dims == 3
    return tuple(range(1, dims - 1) if channels_last else range(2, dims))


def check_reading(network: Any, x: Tensor) -> None:
    """Check that the head reads the vector that the description names: a token, or a mean.

    Raises:
        AuditError: it reads something else.
    """
    reads, dims = network.reads, len(network.shapes[-1])
    if reads == "all features" or dims == 2:
        return
    means = averaged(reads, dims)
    # The dimensions of positions if the channels stood at the other end of the shape.
    channels = tuple(range(2, dims) if 1 in means else range(1, dims - 1))
    with untouched(network), torch.no_grad():
        logits = network(x)
        token = _token_of(network, x)
        unlike = means and _any_order(network, x, means) is False
        turned = unlike and _any_order(network, x, channels)
    # Outputs that are not finite do not show what the head reads.
    if not logits.isfinite().all():
        return
    if token:
        expected = token
    elif reads in TOKENS and network.shapes[-1][1] > 1:
        expected = "spatial mean (here over the tokens) or all features"
    elif turned:
        expected = f"all features, or a mean over the dimensions {listed(map(str, channels))}"
    elif unlike:
        expected = "all features"
    else:
        return
    if reads != expected:
        raise AuditError(
            f"{type(network.inner).__name__}: reads: found {reads}; the logits show that the head"
            f" reads something else of the last state. Expected {expected}."
        )


def reading_of(network: Any, x: Tensor) -> str:
    """Find out from the outputs which of `READS` the head takes from the last state."""
    dims = len(network.shapes[-1])
    with untouched(network), torch.no_grad():
        token = _token_of(network, x)
        if token:
            return token
        for mean in ("spatial mean", "spatial mean, channels last"):
            positions = averaged(mean, dims)
            if positions and _any_order(network, x, positions):
                return mean
    return "all features"


def _token_of(network: Any, x: Tensor) -> str:
    """Return the token that alone decides the outputs, by its name in `TOKENS`; empty if none does.

    All other tokens become NaN, which reaches the outputs even through weights of zero.
    """
    shape = network.shapes[-1]
    if len(shape) != 3 or shape[1] == 1:
        return ""
    for token, others in OTHERS.items():
        logits, _ = network.changed(x, network.depth, partial(_spoilt, tokens=others))
        if logits.isfinite().all():
            return token
    return ""


def _spoilt(h: Tensor, tokens: slice) -> Tensor:
    h[:, tokens] = torch.nan
    return h


def _any_order(network: Any, x: Tensor, positions: tuple[int, ...]) -> bool | None:
    """Replace the last state by noise; return whether the outputs ignore the order of positions,
    None if they are not finite.
    """

    def noise(h: Tensor) -> Tensor:
        # A real state may be equal at all positions; reordering them would then change nothing.
        return torch.randn(h.shape, generator=torch.Generator().manual_seed(0)).to(h)

    try:
        one, _ = network.changed(x, network.depth, noise)
        other, _ = network.changed(x, network.depth, lambda h: noise(h).flip(positions))
    except AuditError:
        return None
    if not one.isfinite().all():
        return None
    # A mean in another order is rounded differently.
    rounding = 100 * torch.finfo(one.dtype).eps * one.abs().max().item()
    return torch.allclose(one, other, rtol=0, atol=rounding)


# --- wrapped models, and batches of several tensors -----------------------------------------------


def check_module(model: Any) -> None:
    """Raise an `AuditError` if a model is no module, or is compiled by torch.jit."""
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise AuditError(
            f"model: found {type(model).__name__}; expected a torch.nn.Module that torch.jit did"
            " not compile."
        )


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module inside `DataParallel`, `DistributedDataParallel`, `torch.compile` or
    `OneTensor`; return any other model itself.
    """
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel, OneTensor)
    inner = model.module if isinstance(model, wrappers) else getattr(model, "_orig_mod", None)
    return unwrapped(inner) if isinstance(inner, nn.Module) else model


class OneTensor(nn.Module):
    """Split one tensor into named parts, and call a model with them.

    Attributes:
        module: the model, which takes the parts as keyword arguments.
        layout: every part's shape and type, in the order of the parts' columns in the float64
            tensor ``(B, columns)``; float64 holds integers exactly.
    """

    def __init__(self, module: nn.Module, layout: Layout) -> None:
        super().__init__()
        self.module, self.layout = module, layout

    def forward(self, x: Tensor) -> Any:
        return self.module(**self.parts(x))

    def parts(self, x: Tensor) -> dict[str, Tensor]:
        """Return the parts of `x` by name, floating-point ones in the precision of the model."""
        own = torch.float32
        for parameter in self.module.parameters():
            if parameter.is_floating_point():
                own = parameter.dtype
                break
        parts, start = {}, 0
        for name, (shape, kind) in self.layout.items():
            end = start + prod(shape)
            kind = own if kind.is_floating_point else kind
            parts[name] = x[:, start:end].reshape(-1, *shape).to(kind)
            start = end
        return parts


def layout_of(batch: Mapping[str, Any]) -> Layout:
    """Return the layout of a batch without its labels; `as_pair` joins entries in this order.

    Raises:
        AuditError: the batch is no mapping from names, lacks labels or inputs, or has an entry that
            is not a dense tensor with a row for every sample.
    """
    expected = (
        "expected inputs by name: dense tensors with equally many rows, and the labels under"
        f" {LABELS[0]!r}"
    )
    if not isinstance(batch, Mapping):
        kind = type(batch).__name__
        raise AuditError(f"eval_batches: found a {kind} beside a mapping; {expected}.")
    label = _label_of(batch)
    named = all(isinstance(name, str) for name in batch)
    rows = {_rows_of(value) for value in batch.values()}
    if not named or not label or len(batch) == 1 or len(rows) > 1 or not all(rows):
        entries = []
        for name, value in batch.items():
            entries.append(f"{name}: {type(value).__name__} {tuple(getattr(value, 'shape', ()))}")
        raise AuditError(f"eval_batches: found a mapping ({', '.join(entries)}); {expected}.")
    layout = {}
    # Batches may name their entries in another order.
    for name in sorted(batch):
        if name != label:
            layout[name] = tuple(batch[name].shape[1:]), batch[name].dtype
    return layout


def as_pair(batch: Any) -> Any:
    """Turn a batch that is a mapping into one tensor and its labels; return others unchanged."""
    if not isinstance(batch, Mapping):
        return batch
    columns = [batch[name].reshape(len(batch[name]), -1).double() for name in layout_of(batch)]
    return torch.cat(columns, dim=1), batch[_label_of(batch)]


def _rows_of(value: Any) -> int:
    dense = isinstance(value, Tensor) and value.layout is torch.strided and value.dim() > 0
    return len(value) if dense else 0


def _label_of(batch: Mapping[str, Any]) -> str:
    return next((name for name in LABELS if name in batch), "")
