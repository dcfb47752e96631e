"""Find custom operations between a network's input and its loss, in the graph of one forward pass.

The backward pass of torch's own operations is the derivative of their forward pass by construction.
That of a custom operation may be anything, so `fa_audit.audit.backward` compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks_of_all
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

PACKAGE = f"{__name__.partition('.')[0]}."
# A hook on a node needs the node.
HOOKS = {"register_hook": "a hook on a tensor", "grad_fn": "access to grad_fn"}


def custom_parts(module: nn.Module, run: Callable[[], Tensor]) -> list[str]:
    """Name everything that may make gradients differ from the derivative of the loss.

    Nothing is named if only torch's own operations run.

    Hooks on parameters are left out: they change no gradient of a state.

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

    It sees what Python code calls, not what runs inside of an operation of torch.
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
        # Before the call, since detach_ ends it.
        given = tree_leaves((args, kwargs))
        carried = any(_is_value(leaf) and _carries(leaf) for leaf in given)
        returned = func(*args, **(kwargs or {}))
        if carried and not _caller().startswith(PACKAGE):
            self.found.update(_cuts(func, returned))
        return returned


def _caller() -> str:
    """Return the module whose code called an operation, directly or through torch's graph helpers."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_globals.get("__name__") == "torch.autograd.graph":
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


def _cuts(func: Any, returned: Any) -> Iterator[str]:
    """Name what a call on a tensor with gradients does to the graph."""
    name = getattr(func, "__name__", "")
    if name in ("__get__", "__set__"):  # of an attribute
        name = func.__self__.__name__ + ("=" if name == "__set__" else "")
    if name in HOOKS:
        yield HOOKS[name]
    if torch._C._autograd._top_saved_tensors_default_hooks(True):
        yield "hooks on saved tensors"
    if name.endswith("_like") or name.startswith("new_"):  # of the shape alone
        return
    values = [leaf for leaf in tree_leaves(returned) if _is_value(leaf)]
    if not torch.is_grad_enabled() and (values or name == "__setitem__"):
        yield "work without gradients"
    elif name == "data=" or not all(map(_carries, values)):
        yield f"{name} of a tensor with gradients"


def _is_value(leaf: object) -> bool:
    return isinstance(leaf, float) or (isinstance(leaf, Tensor) and leaf.is_floating_point())


def _carries(value: Tensor | float) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _functions(output: Tensor) -> Iterator[str]:
    """Name the operations in a tensor's graph whose backward pass is Python or an extension's code."""
    seen, waiting = set(), [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            made_by = getattr(node, "_forward_cls", type(node))
            yield f"{made_by.__module__}.{made_by.__qualname__}"
        elif "CppNode" in node.name():
            yield node.name()
        waiting += [following for following, _ in node.next_functions]


def _hooked(module: nn.Module) -> Iterator[str]:
    """Name the modules with backward hooks, and those into which a `_Watch` cannot look."""
    if hooks_of_all._global_backward_hooks or hooks_of_all._global_backward_pre_hooks:
        yield "a backward hook on all modules"
    for part in module.modules():
        if part._backward_hooks or part._backward_pre_hooks:
            yield f"a backward hook on {type(part).__name__}"
        if isinstance(part, torch.jit.ScriptModule):
            yield "TorchScript"
