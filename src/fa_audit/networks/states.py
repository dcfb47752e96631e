"""Find the states of a model, which are tensors at places of its own forward pass.

A place is a `HookPoint` in the model's code, a call of ``mark`` in a function that runs the model,
or the input or output of a module. A block is the computation between two states.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fa_audit.core.errors import AuditError, printable, shortened
from fa_audit.networks.trace import is_dense

INPUT = "input:"
NEAR = 4  # names in an error


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
            or of the tokens) or ``"spatial mean, channels last"`` (of ``(B, H, W, d)``).
        partial: audit states that other paths bypass; the report names the share that goes past
            them.
        forward: ``forward(model, x, mark)`` runs a model that cannot be edited and returns its
            outputs, with ``h = mark(h)`` at every state; in place of `blocks`.
    """

    blocks: str | Sequence[str] = ()
    reads: str = "all features"
    partial: bool = False
    forward: Callable[[nn.Module, Any, Mark], Any] | None = None

    def __post_init__(self) -> None:
        names = [self.blocks] if isinstance(self.blocks, str) else self.blocks
        texts = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
        if not texts or not isinstance(self.reads, str):
            raise AuditError(f"description: found {shortened(self)}; expected names of modules.")
        if names and self.forward is not None:
            raise AuditError("description: found blocks and forward=; expected one of the two.")


class Place(NamedTuple):
    """The output or the first input of a module."""

    module: nn.Module
    name: str
    is_input: bool

    def __str__(self) -> str:
        return INPUT * self.is_input + self.name


def places_of(model: nn.Module, names: Sequence[str]) -> list[Place]:
    """Return the places that names and patterns mean.

    Raises:
        AuditError: a name is not that of a module.
    """
    found: dict[tuple[nn.Module, bool], Place] = {}
    for name in names:
        bare = name.removeprefix(INPUT)
        for each in matches(model, bare):
            place = Place(model.get_submodule(each), each, bare != name)
            # A module with several names is one place.
            found.setdefault((place.module, place.is_input), place)
    return list(found.values())


def hook_points(model: nn.Module) -> list[Place]:
    """Return the `HookPoint` modules of a model as places."""
    return [
        Place(part, name, False)
        for name, part in model.named_modules()
        if isinstance(part, HookPoint)
    ]


@contextmanager
def visited(
    places: Sequence[Place], visit: Callable[[Place, Tensor], Tensor | None]
) -> Iterator[None]:
    """Call ``visit(place, h)`` whenever a forward pass reaches a place; its result replaces `h`."""
    with ExitStack() as hooks:
        for place in places:
            if place.is_input:
                hook = place.module.register_forward_pre_hook(
                    partial(_enter, place, visit), with_kwargs=True
                )
            else:
                hook = place.module.register_forward_hook(partial(_leave, place, visit))
            hooks.enter_context(hook)
        for module in dict.fromkeys(place.module for place in places):
            hooks.enter_context(_called_through_hooks(module))
        yield


def _enter(place: Place, visit: Any, module: nn.Module, given: Any, named: Any) -> Any:
    # The first input is the state, by position or by name.
    if given:
        changed = visit(place, given[0])
        return None if changed is None else ((changed, *given[1:]), named)
    first = next(iter(named), "")
    changed = visit(place, named.get(first))
    return None if changed is None else (given, {**named, first: changed})


def _leave(place: Place, visit: Any, module: nn.Module, given: Any, returned: Any) -> Any:
    changed = visit(place, first_of(returned))
    return None if changed is None else with_first(returned, changed)


@contextmanager
def _called_through_hooks(module: nn.Module) -> Iterator[None]:
    """Run a module's hooks even if the model calls ``module.forward(h)``."""
    # An instance may have a forward of its own, which is put back.
    forward, own, inside = module.forward, vars(module).get("forward"), []

    def through_hooks(*given: Any, **named: Any) -> Any:
        if inside:
            inside.pop()
            return forward(*given, **named)
        return module(*given, **named)

    with module.register_forward_pre_hook(lambda *_: inside.append(True)):
        module.forward = through_hooks
        try:
            yield
        finally:
            del module.forward
            if own is not None:
                module.forward = own


def first_of(returned: Any) -> Any:
    """Return the state that a module returns, alone or first in a tuple or list."""
    return returned[0] if isinstance(returned, tuple | list) and returned else returned


def with_first(returned: Any, h: Tensor) -> Any:
    """Replace the state in what a module returned."""
    if not isinstance(returned, tuple | list):
        return h
    if hasattr(returned, "_fields"):
        named: Any = returned
        return named._replace(**{named._fields[0]: h})
    return type(returned)([h, *returned[1:]])


def overwritten(h: Tensor, value: Tensor, owned: frozenset[int] = frozenset()) -> bool:
    """Write `value` into a tensor that a model is about to use, so that every use of it sees the
    value.

    Return False if that is impossible: for tensors that the model owns, and for some views.
    """
    if storages([h]) & owned:
        return False
    try:
        h.copy_(value)
    except RuntimeError:
        # Several views of one tensor, an expanded one, or one made in inference mode.
        return False
    return True


def storages(values: Any) -> frozenset[int]:
    """Return the memory addresses of the dense tensors in `values`."""
    return frozenset(value.untyped_storage().data_ptr() for value in values if is_dense(value))


# --- names ---


def places_of_blocks(model: nn.Module, pattern: str, run: Callable[[], Any]) -> list[Place]:
    """Return the places of the states before, between and after blocks.

    Args:
        run: runs a forward pass.

    Raises:
        AuditError: no block ran.
    """
    blocks = {model.get_submodule(name): name for name in matches(model, pattern)}
    # One pass tells whether the model's own code changes an output before the next block reads it.
    order = _Order(model, blocks)
    with visited(order.places, order.visit), torch.no_grad():
        run()
    if not order.ran:
        raise AuditError(
            f"{type(model).__name__}: blocks '{printable(pattern)}' did not run in a forward pass."
        )
    first, *others = order.ran
    reader, unchanged = order.reader()
    handed_on = [*order.handed_on]
    if reader and not others:
        handed_on.append(unchanged)
    # A block that runs again would have its input for a state twice: as its own and as an output.
    if all(handed_on) and first not in others:
        outputs = [Place(block, name, False) for block, name in blocks.items()]
        return [Place(first, blocks[first], True), *outputs]
    inputs = [Place(block, name, True) for block, name in blocks.items()]
    return [*inputs, reader] if reader else inputs


class _Order:
    """Record the order in which a forward pass runs blocks, and the modules between and after them.

    Attributes:
        places: places to visit.
        ran: the blocks, in the order of their calls.
        handed_on: for every block but the first, whether its input is the previous block's output.
    """

    def __init__(self, model: nn.Module, blocks: Mapping[nn.Module, str]) -> None:
        self.blocks = blocks
        self.ran: list[nn.Module] = []
        self.handed_on: list[bool] = []
        self._inside = 0  # blocks that have not returned yet
        self._returned: Any = None  # by the last block
        self._entered: Counter[nn.Module] = Counter()
        self._after: list[tuple[Place, bool]] = []  # since the last block; do they read its output
        self._between: set[str] = set()  # containers of modules between blocks
        self.places = []
        for name, module in model.named_modules():
            if module in blocks:
                self.places.append(Place(module, blocks[module], False))
            if name:
                self.places.append(Place(module, blocks.get(module, name), True))

    def visit(self, place: Place, h: Any) -> None:
        if place.module not in self.blocks:
            self._entered[place.module] += 1
            if self.ran and not self._inside and isinstance(h, Tensor):
                returned = self._returned
                alike = isinstance(returned, Tensor) and returned.shape == h.shape
                self._after.append((place, not alike or _same(returned, h)))
        elif place.is_input:
            if self.ran:
                self.handed_on.append(_same(self._returned, h))
            self._inside += 1
            self._between.update(_container(after.name) for after, _ in self._after)
            self._after.clear()
        else:
            self.ran.append(place.module)
            self._inside -= 1
            # A copy, since the model may go on in place.
            self._returned = h.detach().clone() if isinstance(h, Tensor) else h

    def reader(self) -> tuple[Place | None, bool]:
        """Return the input of the head's first module, and whether it is the last block's output.

        The head runs once. Norms and activations in a list with one entry a block are not the head.
        """
        for place, unchanged in self._after:
            container = _container(place.name)
            between = bool(container) and container in self._between
            if self._entered[place.module] == 1 and not between:
                return place, unchanged
        return None, True


def _container(name: str) -> str:
    return name.rpartition(".")[0]


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are one tensor, to the last bit."""
    if not (isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape):
        return False
    return torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def matches(model: nn.Module, entry: str) -> tuple[str, ...]:
    """Return the names of modules that match a name or pattern, in the order of
    ``named_modules()``.

    Raises:
        AuditError: none does.
    """
    found = matching(model, entry)
    if not found:
        names = [name for name, _ in _named(model)]
        near = difflib.get_close_matches(entry, names, NEAR) or names[:NEAR]
        raise AuditError(
            f"{type(model).__name__}: blocks: '{printable(entry)}' is not a module. There are"
            f" {', '.join(near) or 'none'}."
        )
    return found


def matching(model: nn.Module, entry: str) -> tuple[str, ...]:
    """Return the names of modules that match a name or pattern; a module with several names has its
    first.
    """
    pattern = re.compile(r"[^.]+".join(map(re.escape, entry.split("*"))))
    found: dict[nn.Module, str] = {}
    for name, module in _named(model):
        if pattern.fullmatch(name):
            found.setdefault(module, name)
    return tuple(found.values())


def _named(model: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(name, module) for name, module in model.named_modules(remove_duplicate=False) if name]
