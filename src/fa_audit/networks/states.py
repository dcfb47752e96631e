"""Find the states of a model, which are tensors at places of its own forward pass.

A place is a `HookPoint` in the model's code, a call of ``mark`` in a function that runs the model,
or the input or output of a module. A block is the computation between two states.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fa_audit.core.errors import AuditError, printable, shortened
from fa_audit.networks.trace import equal

INPUT = "input:"
_NEAR = 4  # names in an error


class HookPoint(nn.Identity):
    """Mark a hidden state in a model's own forward pass: ``h = self.hook(h)``.

    It returns its input, so that a training has the same bits with and without it. Every call marks
    a state, in the order of the calls; one instance may be called many times.
    """


Mark = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Description:
    """Where the states of a model are.

    Attributes:
        blocks: one name of modules, such as ``"layers.*"``: ``h_0`` is the input of the first,
            ``h_{l+1}`` the output of each. Where the model's own code changes an output before it
            is the next one's input (a skip, a norm, an activation), states are the inputs, and the
            last one is what the next module reads. Several names, such as ``["embed",
            "layers.*"]``: the outputs of these modules, or their inputs, as in ``"input:norms.*"``;
            every call is a state. In a name ``*`` matches one or more characters other than dots.
            Empty: the `HookPoint` modules of the model.
        reads: which vector of a state the head reads: ``"all features"``, ``"cls token"`` (the
            first one of ``(B, T, d)``), ``"last token"``, ``"spatial mean"`` (of ``(B, d, H, W)``,
            or of the tokens) or ``"spatial mean, channels last"`` (of ``(B, H, W, d)``). None: as
            the outputs show.
        partial: audit states that other paths bypass; the report names the share that goes past
            them.
        forward: ``forward(model, x, mark)`` runs a model that cannot be edited and returns its
            outputs, with ``h = mark(h)`` at every state; in place of `blocks`.
    """

    blocks: str | Sequence[str] = ()
    reads: str | None = "all features"
    partial: bool = False
    forward: Callable[[nn.Module, Any, Mark], Any] | None = None

    def __post_init__(self) -> None:
        names = [self.blocks] if isinstance(self.blocks, str) else self.blocks
        texts = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
        if not texts or not isinstance(self.reads, str | None):
            raise AuditError(f"description: found {shortened(self)}; expected names of modules.")
        if names and self.forward is not None:
            raise AuditError("description: found blocks and forward=; expected one of the two.")


class Place(NamedTuple):
    """The output of a module, or its first input; `once`: in its first call alone."""

    module: nn.Module
    name: str
    is_input: bool = False
    once: bool = False

    def __str__(self) -> str:
        return INPUT * self.is_input + self.name


# What happens to a state: it may be noted, changed, or replaced by what is returned.
Visit = Callable[[Place, Any], Any]


# --- the walk


@contextmanager
def visited(places: Sequence[Place], visit: Visit) -> Iterator[None]:
    """Call ``h = visit(place, h)`` whenever a forward pass reaches a place."""
    with ExitStack() as afterwards:
        for place in places:
            afterwards.enter_context(_watched(place, visit))
        yield


@contextmanager
def _watched(place: Place, visit: Visit) -> Iterator[None]:
    # Hooks of torch would miss a model that calls `layer.forward(h)`.
    module = place.module
    forward, own = module.forward, vars(module).get("forward")
    calls = 0

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
        elif named:
            first = next(iter(named))
            named[first] = visit(place, named[first])
        return forward(*given, **named)

    module.forward = watched
    try:
        yield
    finally:
        del module.forward
        if own is not None:
            module.forward = own


def _visit_output(place: Place, visit: Visit, returned: Any) -> Any:
    if not isinstance(returned, tuple | list) or not returned:
        return visit(place, returned)
    h = visit(place, returned[0])
    if h is returned[0]:
        return returned
    parts = [h, *returned[1:]]
    # A named tuple is not made of one argument.
    return returned._make(parts) if hasattr(returned, "_make") else type(returned)(parts)


def order_of(model: nn.Module, run: Callable[[], Any]) -> list[Place]:
    """Return the inputs of a model's modules in the order in which a forward pass, `run`, reaches
    them.
    """
    order = []

    def visit(place: Place, h: Any) -> Any:
        order.append(place)
        return h

    every = [Place(module, name, True) for name, module in model.named_modules() if name]
    with visited(every, visit), torch.no_grad():
        run()
    return order


# --- names


def hook_points(model: nn.Module) -> list[Place]:
    """Return the `HookPoint` modules of a model as places."""
    modules = model.named_modules()
    return [Place(part, name) for name, part in modules if isinstance(part, HookPoint)]


def places_of(model: nn.Module, names: Sequence[str]) -> list[Place]:
    """Return the places that names and patterns mean.

    Raises:
        AuditError: a name is not that of a module.
    """
    found: dict[tuple[nn.Module, bool], Place] = {}
    for entry in names:
        bare = entry.removeprefix(INPUT)
        for module, name in matching(model, bare).items():
            # A module with several names is one place.
            found.setdefault((module, bare != entry), Place(module, name, bare != entry))
    return list(found.values())


def matching(model: nn.Module, entry: str) -> dict[nn.Module, str]:
    """Return the modules that match a name or pattern, each with the first of its names that does.

    Raises:
        AuditError: none does.
    """
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
            f" {', '.join(near) or 'none'}."
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
    returned: list[Any] = []  # by the last block, and a copy, since the model may go on in place
    handed_on: list[bool] = []

    def visit(place: Place, h: Any) -> Any:
        if not place.is_input:
            returned[:] = [h, h.clone() if isinstance(h, Tensor) else h]
        elif returned:
            output, copied = returned
            resized = place is reader and getattr(h, "shape", None) != output.shape
            handed_on.append(resized or (h is output and equal(h, copied)))
        return h

    # Behind a single block only the head can tell.
    after = [reader] if reader and len(ran) == 1 else []
    with visited([*inputs, *outputs, *after], visit), torch.no_grad():
        run()
    if all(handed_on):
        return [ran[0]._replace(once=True), *outputs]
    return [*inputs, reader] if reader else inputs


def reader_of(order: Sequence[Place], blocks: Collection[nn.Module]) -> Place | None:
    """Return the first module of the head: it runs once, behind the blocks, and is of another kind
    than the norms and activations that run between them.

    Args:
        order: of a pass.
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
        # What is within a module that is not the head's is not the head's, either.
        inside.update(place.module.modules())
    return None


def _kind(place: Place) -> tuple[type[nn.Module], str]:
    """Return the class of a place's module, and what contains it."""
    return type(place.module), place.name.rpartition(".")[0]
