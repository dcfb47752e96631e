"""Where the states of a model are: places in its own forward pass.

A state is a tensor at a place. Places are named by `HookPoint` modules in the model's code, by a
function that runs the model, or by the outputs and inputs of modules. A block is what lies between
two states.
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

from fa_audit.core.errors import AuditError, printable
from fa_audit.networks.trace import is_dense

INPUT = "input:"


class HookPoint(nn.Identity):
    """A place in a model's own forward pass at which a hidden state is: ``h = self.hook(h)``.

    It returns its input, so that a training has the same bits with and without it. Every call is a
    state, in the order in which they occur; one instance may be called many times.
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
            found.setdefault(
                (place.module, place.is_input), place
            )  # a module with several names is one place
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
    """Call ``visit(place, h)`` whenever a forward pass reaches a place; what it returns takes the
    place of `h`.
    """
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
    """Run the hooks of a module also where a model calls ``module.forward(h)``."""
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
    """Return what a module returns, with another state in it."""
    if not isinstance(returned, tuple | list):
        return h
    if hasattr(returned, "_fields"):
        named: Any = returned
        return named._replace(**{named._fields[0]: h})
    return type(returned)([h, *returned[1:]])


def overwritten(h: Tensor, value: Tensor, owned: frozenset[int] = frozenset()) -> bool:
    """Write `value` into a tensor that a model is about to use, so that every use of it sees the
    value.

    Return False where that is impossible: for tensors that the model owns, by their addresses, and
    some views.
    """
    if storages([h]) & owned:
        return False
    try:
        h.copy_(value)
    except (
        RuntimeError
    ):  # several views of one tensor, an expanded one, or one made in inference mode
        return False
    return True


def storages(values: Any) -> frozenset[int]:
    """Return the addresses in memory of the dense tensors among some values."""
    return frozenset(value.untyped_storage().data_ptr() for value in values if is_dense(value))


# --- names -----------------------------------------------------------------------------------------------------------


def places_of_blocks(model: nn.Module, pattern: str, run: Callable[[], Any]) -> list[Place]:
    """Return the places of states that blocks are between.

    Args:
        run: runs a forward pass.

    Raises:
        AuditError: no block ran.
    """
    blocks = {model.get_submodule(name): name for name in matches(model, pattern)}
    seen = _calls(model, blocks, run)
    if not seen.calls:
        raise AuditError(
            f"{type(model).__name__}: blocks '{printable(pattern)}' did not run in a forward pass."
        )
    first, *others = [call.module for call in seen.calls]
    followed = [
        _same(call.returned, after.given) for call, after in zip(seen.calls, seen.calls[1:])
    ]
    reader, last = seen.reader(), seen.calls[-1].returned
    if reader and not others and isinstance(last, Tensor):
        followed = [last.shape != reader.given.shape or _same(last, reader.given)]
    if all(followed) and first not in others:
        return [
            Place(first, blocks[first], True),
            *(Place(block, name, False) for block, name in blocks.items()),
        ]
    inputs = [Place(block, name, True) for block, name in blocks.items()]
    return [*inputs, Place(reader.module, seen.names[reader.module], True)] if reader else inputs


class _Call(NamedTuple):
    module: nn.Module
    given: Any
    returned: Any = None


@dataclass
class _Calls:
    """A forward pass: calls of blocks, and of other modules before them, between them and after the
    last one.
    """

    names: dict[nn.Module, str]
    calls: list[_Call]
    before: set[nn.Module]
    between: list[_Call]
    after: list[_Call]

    def reader(self) -> _Call | None:
        """Return the head's first module: it did not run before, nor another one of its container
        between blocks.
        """
        between = {call.module for call in self.between}
        containers = {self._container(module) for module in between} - {""}
        times = Counter(call.module for call in self.after)
        for call in self.after:
            runs_once = times[call.module] == 1 and call.module not in between | self.before
            if runs_once and self._container(call.module) not in containers:
                return call
        return None

    def _container(self, module: nn.Module) -> str:
        return self.names[module].rpartition(".")[0]


def _calls(model: nn.Module, blocks: Mapping[nn.Module, str], run: Callable[[], Any]) -> _Calls:
    seen = _Calls({module: name for name, module in model.named_modules()}, [], set(), [], [])
    opened: list[_Call] = []

    def visit(place: Place, h: Any) -> None:
        value = h.detach().clone() if isinstance(h, Tensor) else h
        if place.module not in blocks:
            if not seen.calls:
                seen.before.add(place.module)
            elif not opened and isinstance(h, Tensor):
                seen.after.append(_Call(place.module, value))
        elif place.is_input:
            opened.append(_Call(place.module, value))
            seen.between += seen.after
            seen.after.clear()
        else:
            seen.calls.append(opened.pop()._replace(returned=value))

    both = [Place(block, name, side) for block, name in blocks.items() for side in (True, False)]
    rest = [
        Place(part, name, True)
        for name, part in model.named_modules()
        if name and part not in blocks
    ]
    with visited([*both, *rest], visit), torch.no_grad():
        run()
    return seen


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
    if found := matching(model, entry):
        return found
    module, place = model, "the model"  # the innermost that a prefix of the name reaches
    for index, part in enumerate(path := entry.split("."), 1):
        if part not in (children := dict(module.named_children())):
            break
        module, place = children[part], f"'{'.'.join(path[:index])}'"
    near = difflib.get_close_matches(entry, [name for name, _ in _named(model)], n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise AuditError(
        f"{type(model).__name__}: blocks: '{printable(entry)}' is not a module; {place} has:"
        f" {', '.join(name for name, _ in module.named_children()) or 'none'}.{hint}"
    )


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
