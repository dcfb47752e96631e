"""Wrap any module as a `Network`, from an explicit description of its blocks and of what its head reads.

The model's own forward pass runs unchanged: ``h_0`` is what the first block is given, ``h_{l+1}`` what block l returns.
Where a block returns what the model then adds to that block's input, as the next block's input shows, ``h_{l+1}`` is
the sum, whose gradient is that of the addend. Nothing is guessed beyond that; what does not fit is an error.

Shapes: B batch, d features, T tokens, C classes.
"""

from __future__ import annotations

import difflib
import math
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from fa_audit.core.errors import AuditError, first_line, printable, unknown
from fa_audit.core.progress import following
from fa_audit.networks.adapters import OneTensor
from fa_audit.networks.network import Network
from fa_audit.networks.trace import (
    Description,
    Observation,
    first_of,
    logits_of,
    observe,
    overwritten,
    owned_by,
    trace,
    untouched,
    with_first,
)

CHUNK_VALUES = 2**20  # input values at a time: six images of 3 x 224 x 224, so that a ViT-B/16 fits into a few GB
EXACT = 1e-3  # relative error of a sum of float32 gradients
MIXED = 1e-2  # relative to the largest logit: kernels that sum in another order stay far below
PROBE = 3  # samples that a description is tried on
# The shapes that a state can have and, by its number of dimensions, the dimensions that its vector averages.
READS: dict[str, tuple[str, dict[int, tuple[int, ...]]]] = {
    "all features": ("(B, ...)", dict.fromkeys(range(2, 7), ())),
    "cls token": ("(B, T, d) or (B, d)", {2: (), 3: ()}),
    "last token": ("(B, T, d) or (B, d)", {2: (), 3: ()}),
    "spatial mean": ("(B, d, H, W), (B, T, d), (B, d, T) or (B, d)", {2: (), 3: (1,), 4: (2, 3), 5: (2, 3, 4)}),
    "spatial mean, channels last": ("(B, H, W, d), (B, T, d) or (B, d)", {2: (), 3: (1,), 4: (1, 2), 5: (1, 2, 3)}),
}
CHANNELS_FIRST = (2,)  # what "spatial mean" averages of (B, d, T), which heads of 1d convolutions read
# Readings of one token: its index, its name, and all the others.
TOKENS = {"cls token": (0, "first", slice(1, None)), "last token": (-1, "last", slice(None, -1))}


def describe(model: nn.Module, description: Description, x: Tensor) -> DescribedNetwork:
    """Return a view of `model` that shares its parameters and runs its own forward pass.

    Args:
        model: any module whose forward takes one batch and returns logits ``(B, C)``.
        x: a batch of inputs on the model's device; the description is tried on a few of them.

    Raises:
        AuditError: the description does not fit; the message names what was found.
    """
    network = DescribedNetwork(model, description)
    with untouched(network):
        found = network.probe(x[:PROBE])
    vars(network).update(found)
    return network


class DescribedNetwork(Network):
    """Run a described model. It has no `embed`, `head` or `split` of its own: only whole passes.

    Attributes:
        names: dotted names of the blocks.
        added: for every block, whether the model adds what the block returns to the block's input.
        averaged: by the number of dimensions of a state, those that its vector averages.
        chunk: samples that run at once; the whole batch where logits depend on what else is in it.
        loses_paths: whether paths from ``h_0`` begin before the first block, where its gradient cannot follow them.
    """

    skip = "none"

    def __init__(self, model: nn.Module, description: Description) -> None:
        super().__init__()
        if description.reads not in READS:
            raise unknown("vector of a state", description.reads, READS, where="reads")
        self.model, self.reads = model, description.reads
        self.shapes, self.averaged = READS[self.reads]
        self.names = _resolved(model, description.blocks)
        self.blocks = nn.ModuleList(model.get_submodule(name) for name in self.names)
        self.added = (False,) * len(self.names)
        self.loses_paths = False

    def read(self, h: Tensor) -> Tensor:
        return self._vector(h, torch.mean)

    def read_gradient(self, g: Tensor) -> Tensor:
        return self._vector(g, torch.sum)

    def _vector(self, h: Tensor, over: Callable[..., Tensor]) -> Tensor:
        if positions := self.averaged[h.dim()]:
            return over(h, dim=positions)
        if self.reads in TOKENS and h.dim() == 3:
            return h[:, TOKENS[self.reads][0]].clone()  # a view would keep the state of every chunk in memory
        return h.flatten(1)

    def shift(self, h: Tensor, delta: Tensor) -> Tensor:
        """Return the state `h` with the vector that is read from it moved by `delta` ``(B, d)``, shaped like `h`."""
        if positions := self.averaged[h.dim()]:
            for position in positions:
                delta = delta.unsqueeze(position)
            return h + delta
        if self.reads in TOKENS and h.dim() == 3:
            moved = h.clone()
            moved[:, TOKENS[self.reads][0]] += delta
            return moved
        return h + delta.view_as(h)

    def chain(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        seen = self._observe(x)
        return [seen.start, *(returned for _, returned in seen.outputs)], seen.answer

    def states_at(self, points: list[Tensor]) -> list[Tensor]:
        states = [points[0].detach()]
        for added, point in zip(self.added, points[1:]):
            states.append(states[-1] + point.detach() if added else point.detach())
        return states

    def forward(self, x: Tensor, return_hidden: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Return the model's logits ``(B, C)``; with `return_hidden` also the states, detached."""
        if not return_hidden:
            return logits_of(self.model(x.clone()))  # a model may work on its input in place
        points, logits = self.chain(x)
        return logits.detach(), self.states_at(points)

    def probe(self, x: Tensor) -> dict[str, Any]:
        """Try the description on a few inputs; return the attributes that they show.

        Raises:
            AuditError: the blocks do not form a chain that ends in the logits, or the head reads another vector.
        """
        seen = self._observe(x)
        if seen.checkpointed:
            raise self._error(
                "its blocks run under torch.utils.checkpoint, which runs them again in the backward pass. Expected"
                " plain ones: turn activation checkpointing off for the audit."
            )
        points = [seen.start, *(returned for _, returned in seen.outputs)]
        with torch.enable_grad():
            self._check_chain([*points, seen.answer])
        self._check_head(x, seen)
        last = max((layer for layer, point in enumerate(points) if point.dim() == 3), default=0)
        maps = self.reads == "spatial mean" and points[last].dim() == 3
        maps = maps and self.any_order(x, CHANNELS_FIRST, last) and not self.any_order(x, (1,), last)
        return {
            "added": self._added(seen, points),
            "averaged": self.averaged | ({3: CHANNELS_FIRST} if maps else {}),
            "loses_paths": self._has_earlier_paths(x, seen),
            "chunk": sys.maxsize if self._mixes_samples(x) else max(1, CHUNK_VALUES // x[0].numel()),
        }

    def _added(self, seen: Observation, points: list[Tensor]) -> tuple[bool, ...]:
        """Return for every block whether the model adds what it returns to its input, as the next block's input shows.

        Raises:
            AuditError: the model does so with the first block, and nothing can be written to its input.
        """
        inputs = list(pairwise(value for _, value in seen.inputs))
        sums = [_equal(after, before, point) for (before, after), point in zip(inputs, points[1:])]
        own = [total and not _equal(after, point) for total, (_, after), point in zip(sums, inputs, points[1:])]
        self.added = (*own, False)
        added = (*own, self._adds_last(seen, points, any(own) and all(sums)))
        if added[0] and not seen.whole:
            raise self._error(
                f"the input of block '{self.names[0]}' is a parameter, or a part of another tensor that torch cannot"
                " write to, and the model adds it to what the block returns: its gradient cannot be followed. Give the"
                " block a copy of it (h = h.clone()), or choose modules that hold the addition as blocks."
            )
        return added

    def _adds_last(self, seen: Observation, points: list[Tensor], default: bool) -> bool:
        """Return whether what the last block returns is added to its input, which no later block shows.

        Gradients tell, unless they miss the skips that are known, or neither a skip nor its absence explains them.
        """
        if not _equal(seen.inputs[-1][1], self.states_at(points)[-2]) or points[-1].shape != points[-2].shape:
            return False
        *others, missing = gradients_around(points, seen.answer)
        if not all(other[True] <= EXACT for other, added in zip(others, self.added) if added):
            return default
        return next((added for added in (True, False) if missing[added] <= EXACT), default)

    def _observe(self, x: Tensor) -> Observation:
        """Record one forward pass of the model, and check that it runs on `x` and matches the description."""
        try:
            seen = observe(self.model, self.blocks, x)
        except Exception as error:  # external code may raise anything
            raise self._error(
                f"its own forward fails on inputs {tuple(x.shape)} of {x.dtype}: {first_line(error)}."
                " Expected inputs that the model takes; in a configuration image_shape changes them."
            ) from error
        self._check_order([index for index, _ in seen.outputs])
        self._check_state(f"the input of block '{self.names[0]}'", seen.start, x, "as its first argument")
        for index, returned in seen.outputs:
            self._check_state(f"the output of block '{self.names[index]}'", returned, x)
        if not are_logits(seen.answer, x):
            raise self._error(
                f"the model returns {shown(seen.answer)} for {len(x)} inputs; expected logits ({len(x)}, C), one per"
                " class."
            )
        return seen

    def _check_order(self, ran: list[int]) -> None:
        """Check that every block ran once, in the described order."""
        found = [self.names[index] for index in ran]
        for name in self.names:
            if found.count(name) != 1:
                times = f"ran {found.count(name)} times" if name in found else "did not run"
                raise self._error(
                    f"block '{name}' {times} in a forward pass; expected once. Leave it out of blocks, or fold the"
                    " passes into one (docs/recipes.md: forward-forward)."
                )
        if found != list(self.names):
            raise self._error(
                f"blocks: found that they run in the order {', '.join(found)}; the description has"
                f" {', '.join(self.names)}. List them in the order in which they run."
            )

    def _check_state(self, what: str, h: object, x: Tensor, how: str = "") -> None:
        """Check that a state is one tensor with one row per input, of a shape that `reads` can read."""
        if not isinstance(h, Tensor) or not h.is_floating_point():
            raise self._error(
                f"{what}: found {shown(h)}; expected one tensor of floating-point numbers{how and ' ' + how}."
                " Choose other modules as blocks."
            )
        if h.dim() == 0 or len(h) != len(x):
            raise self._error(
                f"{what}: found shape {tuple(h.shape)} for {len(x)} inputs; expected ({len(x)}, ...), the batch first."
                " Choose other modules as blocks."
            )
        if h.dim() not in self.averaged:
            raise self._error(
                f"{what}: found shape {tuple(h.shape)}; reads: {self.reads} expects {self.shapes}."
                f" Change reads (one of: {'; '.join(READS)}) or blocks."
            )

    def _has_earlier_paths(self, x: Tensor, seen: Observation) -> bool:
        """Return whether the model makes something of ``h_0`` before the first block runs, such as a projection.

        The gradient by the model's own tensor has those paths, that by the leaf which an audit puts there has not. Of a
        view nothing is known: the leaf is written through to its base.
        """
        edges: list[Any] = []

        def enter(module: nn.Module, given: tuple[Tensor, ...]) -> None:
            edges.extend([] if given[0]._is_view() else [torch.autograd.graph.get_gradient_edge(given[0])])

        try:
            with self.blocks[0].register_forward_pre_hook(enter), torch.enable_grad():
                logits = logits_of(self.model(x.clone().requires_grad_(x.is_floating_point()).clone()))
            (whole,) = _weighted(logits, edges)
        except Exception:  # no gradient arrives there, or none of code that works in place
            return False
        (found,) = _weighted(seen.answer, [seen.start])
        return bool((whole - found).norm() > EXACT * whole.norm())

    def _mixes_samples(self, x: Tensor) -> bool:
        """Return whether logits depend on what else is in the batch, as of BatchNorm without running statistics."""
        if len(x) < 3:
            return False
        try:
            with torch.no_grad():
                whole, part = self(x)[:-1].nan_to_num(), self(x[:-1]).nan_to_num()
        except Exception:  # external code may raise anything on a smaller batch
            return True
        return not torch.allclose(whole, part, rtol=0, atol=MIXED * float(whole.abs().max()))

    def _check_chain(self, points: list[Tensor]) -> None:
        """Check that every block influences the next one, and the last one the logits."""
        ends = [*(f"block '{name}'" for name in self.names), "the logits"]
        for index, (point, after) in enumerate(following(list(pairwise(points)), "link of blocks")):
            if not after.requires_grad or not self._depends(after, point):
                start = f"the output of block '{self.names[index - 1]}'" if index else "the input of the first block"
                raise self._error(
                    f"{start} does not influence {ends[index]}; expected a chain of blocks that ends in the logits."
                    " Leave blocks of side branches out; a detach() between them is left out in docs/recipes.md."
                )

    def _depends(self, after: Tensor, point: Tensor) -> bool:
        try:
            return torch.autograd.grad(after.sum(), point, retain_graph=True, allow_unused=True)[0] is not None
        except Exception as error:  # external code may raise anything
            raise self._error(
                f"its backward pass fails: {first_line(error)}. Expected gradients of its logits."
            ) from error

    def _check_head(self, x: Tensor, seen: Observation) -> None:
        """Check that the head reads those tokens of the last state that `reads` names."""
        top = seen.outputs[-1][1]
        if top.dim() != 3 or top.shape[1] == 1 or self.reads == "all features" or not seen.answer.isfinite().all():
            return
        alone = [name for name, (_, _, others) in TOKENS.items() if not self._is_read(x, others)]
        if alone and self.reads not in alone:
            raise self._error(
                f"reads: found {self.reads}, but the logits depend on the {TOKENS[alone[0]][1]} token of the last state"
                f" alone; expected {alone[0]}."
            )
        if not alone and self.reads in TOKENS:
            raise self._error(
                f"reads: found {self.reads}, but the logits depend on other tokens of the last state, too;"
                " expected spatial mean (of the tokens) or all features."
            )

    def any_order(self, x: Tensor, positions: tuple[int, ...], layer: int) -> bool:
        """Return whether the logits stay the same when noise in place of a state is turned round along `positions`."""

        def noise(h: Tensor) -> Tensor:
            return torch.randn(h.shape, generator=torch.Generator().manual_seed(0)).to(h)

        try:
            with torch.no_grad():
                one = self.logits_with(x, layer, noise)
                other = self.logits_with(x, layer, lambda h: noise(h).flip(positions))
        except Exception:  # external code may raise anything on noise
            return False
        return torch.allclose(one, other, rtol=0, atol=100 * torch.finfo(one.dtype).eps * one.abs().max().item())

    def _is_read(self, x: Tensor, tokens: slice) -> bool:
        """Return whether NaN in some tokens of the last state reach the logits, even through weights that are zero."""

        def spoilt(h: Tensor) -> Tensor:
            h[:, tokens] = torch.nan
            return h

        with torch.no_grad():
            return not bool(self.logits_with(x, len(self.blocks), spoilt).isfinite().all())

    def logits_with(self, x: Tensor, layer: int, change: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the logits ``(B, C)`` of a pass with `change` applied to ``h_layer``, or to what the block adds."""
        owned = () if layer else owned_by(self.model)

        def enter(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            value = change(given[0].clone())
            return None if overwritten(given[0], value, owned) else (value, *given[1:])

        def leave(module: nn.Module, given: tuple[Tensor, ...], returned: Any) -> Any:
            return with_first(returned, change(first_of(returned).clone()))

        if layer:
            handle = self.blocks[layer - 1].register_forward_hook(leave)
        else:
            handle = self.blocks[0].register_forward_pre_hook(enter)
        with handle:
            return logits_of(self.model(x.clone()))

    def _error(self, message: str) -> AuditError:
        named = self.model.model if isinstance(self.model, OneTensor) else self.model
        return AuditError(f"{type(named).__name__}: {message}")


class ShiftedPasses:
    """Passes of a described model on fixed inputs in which the vector of one state is moved.

    They stand in for a `Network` that runs on from a state, but take the shift ``(B, d)`` of its vector, not the state.
    """

    def __init__(self, network: DescribedNetwork, x: Tensor) -> None:
        self.network, self.x, self.blocks = network, x, network.blocks

    def shift(self, moved: Tensor, delta: Tensor) -> Tensor:
        return moved + delta

    def logits_from(self, layer: int, moved: Tensor) -> Tensor:
        """Return the logits ``(B, C)`` of passes in which the vector of ``h_layer`` is moved."""
        size = self.network.chunk or len(self.x)
        parts = zip(self.x.split(size), moved.split(size))
        shifts = ((x, partial(self.network.shift, delta=delta)) for x, delta in parts)
        return torch.cat([self.network.logits_with(x, layer, shift) for x, shift in shifts])


Passes = Network | ShiftedPasses  # what runs on from a state


def passes_from(network: Network, x: Tensor, vectors: Sequence[Tensor]) -> tuple[Passes, list[Tensor]]:
    """Return what runs on from the states of a pass on `x`, whose `vectors` are known, and where every run starts."""
    if isinstance(network, DescribedNetwork):
        return ShiftedPasses(network, x), [torch.zeros_like(vector) for vector in vectors]
    return network, [h.detach() for h in trace(network, x, local=True).states]


@torch.enable_grad()
def gradients_around(points: Sequence[Tensor], logits: Tensor) -> list[dict[bool, float]]:
    """Return for every block how much of the gradient at its input is not explained, without and with a skip.

    The gradient through the block is explained and, with a skip (True), the gradient at what the block returns. The
    rest is in units of the latter: NaN where that is zero, or so small that float32 loses it beside the former.
    """
    found = []
    for (before, after), (whole, top) in zip(pairwise(points), pairwise(_weighted(logits, points))):
        (through,) = torch.autograd.grad(after, before, top, retain_graph=True)
        rest, length = whole - through, top.norm() if top.norm() > EXACT * through.norm() else math.nan
        with_skip = (rest - top).norm() if rest.shape == top.shape else math.nan
        found.append({False: float(rest.norm() / length), True: float(with_skip / length)})
    return found


def _weighted(logits: Tensor, points: Sequence[Any]) -> tuple[Tensor, ...]:
    """Return the gradients at some points of a sum in which every class has another weight."""
    weights = torch.arange(1, 1 + logits.shape[-1]).to(logits).expand_as(logits)
    return torch.autograd.grad(logits, points, weights, retain_graph=True)


def _equal(total: Tensor | None, *parts: Tensor | None) -> bool:
    """Return whether `total` is the sum of `parts`, all of one shape, to the last bit."""
    if total is None or any(part is None or part.shape != total.shape for part in parts):
        return False
    return torch.allclose(total, sum(part.detach() for part in parts), rtol=0, atol=0, equal_nan=True)


def _resolved(model: nn.Module, blocks: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the blocks, patterns replaced by their matches: distinct modules, none inside another."""
    entries = (blocks,) if isinstance(blocks, str) else tuple(blocks)
    names = tuple(name for entry in entries for name in _matches(model, entry))
    if not names:
        raise AuditError(f"{type(model).__name__}: blocks: found no name; expected dotted names of modules.")
    owners: dict[nn.Module, str] = {}
    for name in names:
        if (block := model.get_submodule(name)) in owners:
            raise AuditError(
                f"{type(model).__name__}: blocks '{owners[block]}' and '{name}' are the same module; keep one."
            )
        owners[block] = name
    for name in names:
        for part in model.get_submodule(name).modules():
            if owners.get(part, name) != name:
                raise AuditError(
                    f"{type(model).__name__}: block '{owners[part]}' is inside block '{name}'; keep one of them."
                )
    return names


def _matches(model: nn.Module, entry: str) -> tuple[str, ...]:
    """Return the names of modules that match a name or pattern; an error if none does."""
    if found := matches(model, entry):
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


def matches(model: nn.Module, entry: str) -> tuple[str, ...]:
    """Return the names of modules that match a name or pattern, in the order of ``named_modules()``."""
    pattern = re.compile(r"[^.]+".join(map(re.escape, entry.split("*"))))
    found: dict[nn.Module, str] = {}
    for name, module in _named(model):
        if pattern.fullmatch(name):
            found.setdefault(module, name)  # a module with several names is one block
    return tuple(found.values())


def _named(model: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(name, module) for name, module in model.named_modules(remove_duplicate=False) if name]


def are_logits(value: object, x: Tensor) -> bool:
    """Return whether a value is a tensor of floating-point numbers ``(B, C)`` for the inputs `x`, C at least 1."""
    shaped = isinstance(value, Tensor) and value.dim() == 2 and len(value) == len(x) and value.numel() > 0
    return shaped and value.is_floating_point()


def shown(value: object) -> str:
    """Format a value for an error: its kind, and a tensor's shape."""
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {value.dtype}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} ({', '.join(type(part).__name__ for part in value)})"
    return "nothing" if value is None else type(value).__name__
