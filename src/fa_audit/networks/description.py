"""Wrap any module as a `Network`, by a description of where its states are; every state is proven.

The model's own forward pass runs unchanged. A state is proven by exchange: the states of other
samples of the batch are written into its place, and the pass runs on. If the outputs are then those
of the other samples, nothing that the model knows of its inputs goes past the state.

Shapes: B batch, d features, T tokens, C classes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from tqdm import tqdm

from fa_audit.core.errors import AuditError, first_line, unknown
from fa_audit.networks.adapters import OneTensor
from fa_audit.networks.network import Chain, Network
from fa_audit.networks.readings import READS, TOKENS, check_reading
from fa_audit.networks.states import (
    INPUT,
    Description,
    HookPoint,
    Place,
    hook_points,
    overwritten,
    places_of,
    places_of_blocks,
    storages,
    visited,
)
from fa_audit.networks.trace import logits_of, owned_by, runs_on, trace, untouched

FEW = 4  # samples between which states are exchanged
WHOLE = 1e-3  # share of the outputs' dependence on the input above which a state is bypassed
ROUNDING = (
    1e-6  # of outputs, relative to their length: what kernels that sum in another order change
)
ALIKE = 1e-4  # likewise, difference of the outputs of two samples below which it tells nothing


class NotWhole(AuditError):
    """A state that a part of the model goes past."""


def describe(model: nn.Module, description: Description, x: Tensor) -> DescribedNetwork:
    """Return a view of `model` that shares its parameters and runs its own forward pass.

    Args:
        model: any module whose forward takes one batch and returns outputs ``(B, ...)``.
        x: a batch of inputs on the model's device, with which the states are proven.

    Raises:
        AuditError: there are no such places, the head reads another vector, or a state is not
            whole; the message names the share that goes past it.
    """
    network = DescribedNetwork(model, description)
    with untouched(model):
        network.find_places(x)
        network.prove(x)
        check_reading(network, x)
        network.covered = network.share_of_layers(x)
    return network


class DescribedNetwork(Network):
    """Run a described model. It has no `embed`, `head` or `split` of its own: only whole passes.

    Attributes:
        model: what is called.
        inner: the model whose modules the description names.
        places: where the states are; a place that is reached several times has several states.
        names: the places of ``h_0..h_L``, in the order in which a pass reaches them.
        past: for every state, the share of the outputs' dependence on the input that goes past it:
            0 for a whole state, 1 where nothing passes through it; None where nothing can be told.
        covered: the share of the model's layers with parameters that run between the first state
            and the last.
    """

    skip = "none"
    chunk = sys.maxsize

    def __init__(self, model: nn.Module, description: Description) -> None:
        super().__init__()
        self.model, self.description = model, description
        self.read_by(description.reads)
        self.inner = model.model if isinstance(model, OneTensor) else model
        self.mark = HookPoint()
        self.places: list[Place] = []
        self.names: tuple[str, ...] = ()
        self.past: list[float | None] = []
        self.covered = 0.0

    def read_by(self, reads: str) -> None:
        """Choose the vector that is read of a state.

        Raises:
            AuditError: it is not one of `READS`.
        """
        if reads not in READS:
            raise unknown("vector of a state", reads, READS, where="reads")
        self.reads, (self.shapes, self.averaged) = reads, READS[reads]

    @property
    def depth(self) -> int:
        return len(self.names) - 1

    def read(self, h: Tensor) -> Tensor:
        return self._vector(h, torch.mean)

    def read_gradient(self, g: Tensor) -> Tensor:
        return self._vector(g, torch.sum)

    def _vector(self, h: Tensor, over: Callable[..., Tensor]) -> Tensor:
        if positions := self.averaged[h.dim()]:
            return over(h, dim=positions)
        if self.reads in TOKENS and h.dim() == 3:
            return h[:, TOKENS[self.reads]].clone()  # a view would keep the whole state in memory
        return h.flatten(1)

    def shift(self, h: Tensor, delta: Tensor) -> Tensor:
        """Return the state `h` with the vector that is read from it moved by `delta` ``(B, d)``,
        shaped like `h`.
        """
        if positions := self.averaged[h.dim()]:
            for position in positions:
                delta = delta.unsqueeze(position)
            return h + delta
        if self.reads in TOKENS and h.dim() == 3:
            moved = h.clone()
            moved[:, TOKENS[self.reads]] += delta
            return moved
        return h + delta.view_as(h)

    # ---- passes

    def chain(self, x: Tensor) -> Chain:
        states: list[Tensor] = []
        points: list[Any] = []

        def visit(place: Place, h: Tensor) -> Tensor | None:
            begun = None
            needs_none = h.requires_grad or states
            if not (
                needs_none or (place.is_input and _made_leaf(h))
            ):  # what comes before h_0 needs no gradient
                begun = (
                    h.detach().clone().requires_grad_() * 1
                )  # which the model may change in place
            h = h if begun is None else begun
            if not h.requires_grad:
                raise self._error(
                    f"no gradient reaches state {len(states)} ({place}) from the states before. Expected a forward pass"
                    " without detach(), torch.no_grad() and activation checkpointing with use_reentrant=True between"
                    " states; docs/recipes.md has a way to leave a detach() out."
                )
            states.append(h.detach().clone())
            points.append(get_gradient_edge(h))
            return begun

        with torch.enable_grad(), _differentiable(self.model, x) as inputs:
            logits = self._run(inputs, visit)
        return Chain(states, points, logits)

    def forward(
        self, x: Tensor, return_hidden: bool = False
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Return the model's outputs ``(B, ...)``; with `return_hidden` also the states, detached."""
        if not return_hidden:
            return self._outputs(x)
        states, logits = self.states_of(x)
        return logits.detach(), states

    def logits_with(self, x: Tensor, layer: int, change: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the outputs of a pass with `change` applied to ``h_layer``."""
        return self._changed(x, layer, change)[1]

    def _changed(
        self, x: Tensor, layer: int, change: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the last state and the outputs of such a pass."""
        kept = owned_by(
            self.model
        )  # held during the pass, so that no state gets the memory of one that is cleared
        owned = storages(kept)
        states: list[Tensor] = []

        def visit(place: Place, h: Tensor) -> Tensor | None:
            value = change(h.clone()) if len(states) == layer else None
            if value is not None and overwritten(
                h, value, owned
            ):  # in place: a skip may use the same tensor
                value = None
            states.append(h if value is None else value)
            return value

        logits = self._run(x, visit)
        return states[-1], logits

    def states_of(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the states, detached, and the outputs of a pass."""
        states: list[Tensor] = []
        logits = self._run(x, lambda place, h: states.append(h.detach().clone()))
        return states, logits

    def _run(self, x: Tensor, visit: Callable[[Place, Tensor], Tensor | None]) -> Any:
        """Run the model and visit every state, in order.

        Raises:
            AuditError: the model fails, or what is at a place is no state.
        """

        def checked(place: Place, h: Any) -> Tensor | None:
            self._check_state(f"'{place}'" if place.name else "mark", h, len(x))
            return visit(place, h)

        try:
            with visited(self.places, checked):
                return self._outputs(x)
        except AuditError:
            raise
        except Exception as error:  # external code may raise anything
            raise self._error(
                f"its own forward fails on inputs {tuple(x.shape)} of {x.dtype}: {first_line(error)}."
                " Expected inputs that the model takes; in a configuration image_shape changes them."
            ) from error

    def _outputs(self, x: Tensor) -> Any:
        run = self.description.forward
        if run is None:
            return logits_of(self.model(x.clone()))  # a model may work on its input in place
        inputs = dict(self.model.parts(x)) if isinstance(self.model, OneTensor) else x.clone()
        return logits_of(run(self.inner, inputs, self.mark))

    def _check_state(self, what: str, h: object, rows: int) -> None:
        """Check that a state is one tensor with one row per input, of a shape that `reads` can
        read.
        """
        if not isinstance(h, Tensor) or not h.is_floating_point():
            raise self._error(
                f"{what}: found {shown(h)}; expected one tensor of floating-point numbers. Choose other places, or put"
                " h = hook(h) with a fa_audit.HookPoint where the state is."
            )
        if h.dim() == 0 or len(h) != rows:
            raise self._error(
                f"{what}: found shape {tuple(h.shape)} for {rows} inputs; expected ({rows}, ...), the batch first."
                " Choose other places."
            )
        if h.dim() not in self.averaged:
            raise self._error(
                f"{what}: found shape {tuple(h.shape)}; reads: {self.reads} expects {self.shapes}."
                f" Change reads (one of: {'; '.join(READS)}) or the places."
            )

    # ---- where the states are

    def find_places(self, x: Tensor) -> None:
        """Find the places in a pass of a whole batch, as it was given.

        Raises:
            AuditError: the pass reaches none, or its outputs are not one tensor with a row for
                every input.
        """
        described = self.description
        if described.forward is not None:
            self.places = [Place(self.mark, "", False)]
        elif isinstance(described.blocks, str) and not described.blocks.startswith(INPUT):
            self.places = places_of_blocks(
                self.inner, described.blocks, partial(self._run, x, lambda *_: None)
            )
        elif names := described.blocks:
            self.places = places_of(self.inner, [names] if isinstance(names, str) else names)
        else:
            self.places = hook_points(self.inner)
        reached: list[str] = []
        with torch.no_grad():
            logits = self._run(x, lambda place, h: reached.append(str(place) or "mark"))
        if not reached:
            raise self._error(
                "no state was found in a forward pass. Expected a fa_audit.HookPoint in its code, h = hook(h), or names"
                " of modules that run: Description('layers.*')."
            )
        rows = len(logits) if isinstance(logits, Tensor) and logits.dim() and logits.numel() else 0
        if rows != len(x) or not logits.is_floating_point():
            raise self._error(
                f"the model returns {shown(logits)} for {len(x)} inputs; expected a row for each."
            )
        self.names = tuple(reached)
        if described.forward is not None:
            self._check_same_outputs(x, logits)

    @torch.no_grad()
    def _check_same_outputs(self, x: Tensor, logits: Tensor) -> None:
        """Raise an error if the model's own forward, where it has one for these inputs, has other
        outputs.
        """
        try:
            own = logits_of(self.model(x.clone()))
        except Exception:  # external code may raise anything
            return
        if not isinstance(own, Tensor) or own.shape != logits.shape:
            return
        off = ((own - logits).norm() / own.norm()).item()
        if off > WHOLE:
            self._check_repeats(x, logits)
            raise self._error(
                f"forward= returns other outputs than the model's own forward: {off:.2g} of their length apart."
                " Expected the same pass, with its states marked."
            )

    @torch.no_grad()
    def prove(self, x: Tensor) -> None:
        """Measure for every state the share of what the outputs know of the inputs that goes past
        it.

        Raises:
            AuditError: a state is not whole, and the description is not of partial ones.
        """
        few = x[:FEW] if runs_on(self, x[:FEW]) else x
        first = self.states_of(few)
        if len(few) < len(x) and distance(first[1], first[1].roll(1, 0), first[1]) is None:
            few, first = x, self.states_of(x)  # a few samples may be alike
        states, logits = first
        self.past = []
        for layer in tqdm(range(len(states)), "state", leave=False, disable=None):
            last, found = self._changed(few, layer, lambda h: h.roll(1, 0))
            share = distance(found, logits.roll(1, 0), logits)
            if (
                share is None and layer < self.depth
            ):  # the outputs do not tell samples apart: what the head reads may
                share = distance(last, states[-1].roll(1, 0), states[-1])
            self.past.append(share)
            if share is not None and share > WHOLE and not self.description.partial:
                self._check_repeats(few, logits)
                raise NotWhole(
                    f"{type(self.inner).__name__}: state {layer} ({self.names[layer]}) is not whole:"
                    f" {100 * min(share, 1):.3g} % of what the outputs know of the inputs goes past it. Put h = hook(h)"
                    " with a fa_audit.HookPoint where everything passes, or audit it all the same: Description(...,"
                    " partial=True)."
                )

    def _check_repeats(self, x: Tensor, logits: Tensor) -> None:
        """Raise an error if another pass on the same inputs has other outputs: then no exchange
        proves anything.
        """
        off = (self._run(x, lambda *_: None) - logits).norm().item()
        if off > ROUNDING * logits.norm().item():
            raise self._error(
                "two forward passes of the same inputs in evaluation mode have different outputs; expected the same."
                " Turn off dropout (training=self.training), noise and whatever counts passes."
            )

    def share_of_layers(self, x: Tensor) -> float:
        """Return the share of the layers with parameters that run between the first state and the
        last.
        """
        layers = [
            part
            for part in self.inner.modules()
            if next(part.parameters(recurse=False), None) is not None
        ]
        between: set[nn.Module] = set()
        ended: list[nn.Module] = []  # since the last state

        def visit(place: Place, h: Tensor) -> None:
            between.update(ended if begun else ())
            begun.append(place)
            ended.clear()

        begun: list[Place] = []
        outputs = [Place(layer, "", False) for layer in layers]
        with torch.no_grad(), visited(outputs, lambda place, _: ended.append(place.module)):
            self._run(x, visit)
        return len(between) / len(layers) if layers else 0.0

    def _error(self, message: str) -> AuditError:
        return AuditError(f"{type(self.inner).__name__}: {message}")


class ShiftedPasses:
    """Passes of a described model on fixed inputs in which the vector of one state is moved.

    They stand in for a `Network` that runs on from a state, but take the shift ``(B, d)`` of its
    vector, not the state.
    """

    def __init__(self, network: DescribedNetwork, x: Tensor) -> None:
        self.network, self.x = network, x

    def shift(self, moved: Tensor, delta: Tensor) -> Tensor:
        return moved + delta

    def logits_from(self, layer: int, moved: Tensor) -> Tensor:
        """Return the outputs ``(B, ...)`` of passes in which the vector of ``h_layer`` is moved."""
        return self.network.logits_with(self.x, layer, partial(self.network.shift, delta=moved))


Passes = Network | ShiftedPasses  # what runs on from a state


def passes_from(
    network: Network, x: Tensor, vectors: Sequence[Tensor]
) -> tuple[Passes, list[Tensor]]:
    """Return what runs on from the states of a pass on `x`, whose `vectors` are known, and where
    every run starts.
    """
    if isinstance(network, DescribedNetwork):
        return ShiftedPasses(network, x), [torch.zeros_like(vector) for vector in vectors]
    return network, [h.detach() for h in trace(network, x, local=True).states]


@contextmanager
def _differentiable(model: nn.Module, x: Tensor) -> Iterator[Tensor]:
    """Give gradients to inputs and none to parameters, which saves the memory of theirs."""
    learning = [p for p in model.parameters() if p.requires_grad]
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield x.detach().clone().requires_grad_() * 1 if x.is_floating_point() else x
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)


def _made_leaf(h: Tensor) -> bool:
    """Let a tensor have a gradient, so that every use of it counts; False where torch does not
    allow it.
    """
    try:
        h.requires_grad_()
    except RuntimeError:  # made in inference mode
        return False
    return True


def distance(found: Tensor, expected: Tensor, own: Tensor) -> float | None:
    """Return how far `found` is from what is expected, relative to the distance of `own` from that.

    None where these two are alike, or not finite.
    """
    if found.shape != expected.shape:
        return None
    known = found.isfinite() & expected.isfinite() & own.isfinite()
    found, expected, own = (part[known].double() for part in (found, expected, own))
    length, scale = expected.norm().item(), (own - expected).norm().item()
    if not length or scale <= ALIKE * length:
        return None
    off = (found - expected).norm().item()
    return 0.0 if off <= ROUNDING * length else off / scale


def shown(value: object) -> str:
    """Format a value for an error: its kind, and a tensor's shape."""
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {value.dtype}"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__} ({', '.join(type(part).__name__ for part in value)})"
    return "nothing" if value is None else type(value).__name__
