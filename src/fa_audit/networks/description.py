"""Wrap any module as a `Network`, by a description of its states, and prove that each is whole.

The model's own forward pass runs unchanged. A state is whole if no information about the inputs
bypasses it. An exchange proves this: every sample gets the state of another sample, and the pass
runs on. The outputs must then become those of the other samples.

A model without a description and without `HookPoint` modules must follow the reference contract:
``model(x, return_hidden=True) -> (logits, [h_0..h_L])``, with ``model.blocks`` between these
states.

Shapes: B batch, d features, T tokens, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from tqdm import tqdm

from fa_audit.core.errors import AuditError, first_line, listed, unknown
from fa_audit.networks.network import Chain, Network
from fa_audit.networks.states import (
    INPUT,
    READS,
    TOKENS,
    Description,
    HookPoint,
    OneTensor,
    Place,
    Visit,
    averaged,
    check_reading,
    hook_points,
    places_of,
    places_of_blocks,
    reading_of,
    unwrapped,
    visited,
)
from fa_audit.networks.trace import (
    is_dense,
    logits_of,
    owned_by,
    runs_on,
    shown,
    untouched,
)

_FEW = 4  # samples between which states are exchanged
WHOLE = 1e-3  # largest share of the outputs' dependence on the input that may bypass a state
ALIKE = 1e-4  # relative difference of two samples' outputs below which an exchange shows nothing
ROUNDING = 1e-6  # relative change of outputs if kernels sum in another order
DIFFERENT = 1e-4  # largest relative difference between the outputs of two passes on one batch


class NotWhole(AuditError):
    """Some information about the inputs bypasses a state."""


def describe(model: nn.Module, description: Description, x: Tensor) -> DescribedNetwork:
    """Return a network that shares the parameters of `model` and runs the model's forward pass.

    Args:
        model: any module whose forward takes one batch and returns outputs ``(B, ...)``.
        x: a batch of inputs on the model's device, on which every state is tested.

    Raises:
        AuditError: a named module does not exist, the head reads another vector than described, or
            information bypasses a state; the message says how much.
    """
    network = DescribedNetwork(model, description)
    with untouched(model):
        network.find_states(x)
        network.prove(x)
        if description.reads is None:
            network.reads = reading_of(network, x)
        else:
            check_reading(network, x)
    return network


class DescribedNetwork(Network):
    """Run a described model, always in whole passes: it has no `embed`, `head` or `split`.

    Attributes:
        model: the module that a pass calls.
        inner: the model whose modules the description names.
        places: where states are taken, each place once.
        names: for ``h_0..h_L`` the names of their places; a place reached twice has two states.
        shapes: the shapes of ``h_0..h_L`` for the batch that `describe` got.
        past: for every state, how much of the outputs' dependence on the input bypasses the state:
            from 0, nothing, to 1, everything; None if samples are too alike.
        covered: of the model's layers that have parameters, the share that runs between the first
            and the last state.
        embeds, heads: whether the model may use parameters before the first state, and after the
            last.
        x: the inputs on which `logits_from` runs; `starting_states` sets them.
    """

    x: Tensor
    skip = "none"

    def __init__(self, model: nn.Module, description: Description) -> None:
        super().__init__()
        self.model, self.inner = model, unwrapped(model)
        self.description = description
        self.reads = READS[0] if description.reads is None else description.reads
        if self.reads not in READS:
            raise unknown("vector of a state", self.reads, READS, where="reads")
        self.mark = HookPoint()
        self.places: list[Place] = []
        self.names: tuple[str, ...] = ()
        self.shapes: list[torch.Size] = []
        self.past: list[float | None] = []
        self.covered = 0.0
        self.embeds = self.heads = True

    @property
    def depth(self) -> int:
        return len(self.names) - 1

    def read(self, h: Tensor) -> Tensor:
        return self._vector(h, torch.mean)

    def read_gradient(self, g: Tensor) -> Tensor:
        return self._vector(g, torch.sum)

    def _vector(self, h: Tensor, over: Callable[..., Tensor]) -> Tensor:
        if self._reads_token(h):
            return h[:, TOKENS[self.reads]].clone()  # a view would keep the whole state in memory
        positions = averaged(self.reads, h.dim())
        return over(h, dim=positions) if positions else h.flatten(1)

    def shift(self, h: Tensor, delta: Tensor) -> Tensor:
        """Add `delta` ``(B, d)`` to the vector that `read` takes from `h`; return the new state."""
        if self._reads_token(h):
            moved = h.clone()
            moved[:, TOKENS[self.reads]] += delta
            return moved
        positions = averaged(self.reads, h.dim())
        for position in positions:
            delta = delta.unsqueeze(position)
        return h + (delta if positions else delta.view_as(h))

    def _reads_token(self, h: Tensor) -> bool:
        return self.reads in TOKENS and h.dim() == 3

    # ---- passes

    def chain(self, x: Tensor) -> Chain:
        """Run one pass with a graph from ``h_0`` on; return states, graph edges and logits."""
        states: list[Tensor] = []
        points: list[Any] = []

        def visit(place: Place, h: Tensor) -> Tensor:
            # The model's own code may also read a block's input, for a skip, and would not see a
            # copy. So this tensor itself becomes the leaf if torch allows it.
            if place.is_input and not states:
                with suppress(RuntimeError):  # made in inference mode
                    h.requires_grad_()
            if not h.requires_grad and not states:
                # Nothing before h_0 needs a gradient. Multiply by 1, since a model may change h_0
                # in place, and torch refuses to change a leaf.
                h = h.detach().clone().requires_grad_() * 1
            if not h.requires_grad:
                raise self._error(
                    f"no gradient reaches state {len(states)} ({place}), which is outside the"
                    " autograd graph. Expected no detach(), no torch.no_grad() and no activation"
                    " checkpointing with use_reentrant=True between states;"
                    " docs/recipes.md shows how to leave a detach() out."
                )
            states.append(h.detach().clone())
            # If the model changes h in place later, this edge still belongs to the present value.
            points.append(get_gradient_edge(h))
            return h

        with torch.enable_grad(), _differentiable(self.model, x) as inputs:
            logits = self.run(inputs, visit)
        return Chain(states, points, logits)

    def forward(
        self, x: Tensor, return_hidden: bool = False
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Return the outputs ``(B, ...)``; with `return_hidden` also the states."""
        if not return_hidden:
            return self.run(x)
        states: list[Tensor] = []

        def visit(place: Place, h: Tensor) -> Tensor:
            # The model may change h in place later.
            states.append(h.clone())
            return h

        logits = self.run(x, visit)
        return logits, states

    def changed(
        self, x: Tensor, layer: int, change: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Run a pass with `change` applied to ``h_layer``; return the outputs and last state."""
        # Keep these tensors alive during the pass, so that no state reuses their memory.
        kept = owned_by(self.model)
        owned = _addresses(kept)
        states: list[Tensor] = []

        def visit(place: Place, h: Tensor) -> Tensor:
            if len(states) == layer:
                # Pass a copy, since `change` may write to its argument.
                value = change(h.clone())
                # Write in place, so that a skip that holds this tensor reads the new value, too.
                if not _overwritten(h, value, owned):
                    h = value
            states.append(h)
            return h

        logits = self._pass(x, visit)
        return logits, states[-1]

    def logits_from(self, layer: int, h: Tensor) -> Tensor:
        """Return the outputs ``(B, ...)`` of a pass on `x` in which `h` replaces ``h_layer``."""
        return self.changed(self.x, layer, lambda _: h)[0]

    def run(self, x: Tensor, visit: Visit = lambda place, h: h) -> Any:
        """Run a pass in which `visit` may replace every state, in order; return the outputs.

        Raises:
            AuditError: the model fails, the value at a place cannot be a state, or the pass
                reaches other states than `names`.
        """
        reached: list[str] = []

        def visit_named(place: Place, h: Tensor) -> Tensor:
            reached.append(str(place))
            return visit(place, h)

        outputs = self._pass(x, visit_named)
        if self.names and tuple(reached) != self.names:
            raise self._error(
                f"one pass reaches {len(self.names)} states ({listed(self.names, 4)}), another"
                f" {len(reached)} ({listed(reached, 4)}). Expected the same states in the same"
                " order for every batch: leave out what does not always run, and give sequences"
                " of one length."
            )
        return outputs

    def _pass(self, x: Tensor, visit: Visit) -> Any:
        """Run a pass as `run` does, but accept other states than `names`."""

        def visit_state(place: Place, h: Any) -> Tensor:
            self._check_state(place, h, len(x))
            return visit(place, h)

        try:
            with visited(self.places, visit_state):
                return self._outputs(x)
        except AuditError:
            raise
        except Exception as error:  # external code may raise anything
            raise self._error(
                f"its forward pass fails on inputs {tuple(x.shape)} of {x.dtype}:"
                f" {first_line(error)}. Expected inputs that the model takes; in a configuration"
                " image_shape sets their shape."
            ) from error

    def _outputs(self, x: Tensor) -> Any:
        own_pass = self.description.forward
        if own_pass is None:
            return logits_of(self.model(x.clone()))  # a model may work on its input in place
        inputs = self.model.parts(x) if isinstance(self.model, OneTensor) else x.clone()
        return logits_of(own_pass(self.inner, inputs, self.mark))

    def _check_state(self, place: Place, h: object, rows: int) -> None:
        """Check that a state is one tensor with one row per input, of a shape that `reads` can
        read.
        """
        if not isinstance(h, Tensor) or not h.is_floating_point():
            expected = "one tensor of floating-point numbers"
        elif h.dim() < 2 or len(h) != rows:
            expected = f"({rows}, ...), the batch first"
        elif self.reads in TOKENS and h.dim() > 3:
            expected = f"(B, T, d) or (B, d) for reads: {self.reads}"
        else:
            return
        raise self._error(
            f"'{place}': found {shown(h)} for {rows} inputs; expected {expected}. Choose other"
            " places, or put h = hook(h) with a fa_audit.HookPoint where the state is."
        )

    # ---- where the states are

    def find_states(self, x: Tensor) -> None:
        """Find the places that the description names, and the states that a pass on `x` reaches.

        Raises:
            AuditError: the pass reaches no state, a listed name does not run, or the outputs are
                not one tensor with a row for every input.
        """
        self.places = self._places(x)
        layers = []
        for part in self.inner.modules():
            # Leave out containers: the layers inside them are counted one by one.
            if list(part.parameters(recurse=False)):
                layers.append(Place(part, ""))
        names: list[str] = []
        reached: set[tuple[nn.Module, bool]] = set()
        since: set[nn.Module] = set()  # layers that ran since the last state
        between: set[nn.Module] = set()
        first: set[nn.Module] = set()

        def ran(place: Place, h: Any) -> Any:
            since.add(place.module)
            return h

        def visit(place: Place, h: Tensor) -> Tensor:
            # Layers before the first state are the embedding, those after the last are the head.
            if names:
                between.update(since)
            else:
                first.update(since)
            since.clear()
            names.append(str(place))
            reached.add((place.module, place.is_input))
            self.shapes.append(h.shape)
            return h

        with torch.no_grad(), visited(layers, ran):
            logits = self.run(x, visit)
        if not names:
            raise self._error(
                "no state was found in a forward pass. Expected a fa_audit.HookPoint in its code,"
                " h = hook(h), or names of modules that run: Description('layers.*')."
            )
        if not isinstance(self.description.blocks, str):
            for entry in self.description.blocks:
                # Compare modules, since one module may have several names.
                meant = {(place.module, place.is_input) for place in places_of(self.inner, [entry])}
                if not meant & reached:
                    raise self._error(f"'{entry}' did not run in a forward pass; leave it out.")
        self.check_outputs(logits, len(x))
        # Parameters of the model itself, outside its modules, may be used anywhere.
        anywhere = bool(list(self.inner.parameters(recurse=False)))
        self.embeds, self.heads = anywhere or bool(first), anywhere or bool(since)
        self.names = tuple(names)
        self.covered = len(between) / max(1, len(layers))
        if self.description.forward:
            self._check_same_outputs(x, logits)

    def check_outputs(self, logits: Any, expected: int) -> None:
        """Check that outputs are one tensor with a row for every input."""
        rows = len(logits) if isinstance(logits, Tensor) and logits.dim() and logits.numel() else 0
        if rows != expected or not logits.is_floating_point():
            raise self._error(
                f"the model returns {shown(logits)} for {expected} inputs; expected one tensor with"
                " a row for each, or an output that has this tensor as .logits or under 'logits'."
                " Return this tensor from a small module around the model, or from forward=."
            )

    def _places(self, x: Tensor) -> list[Place]:
        names = self.description.blocks
        if self.description.forward:
            return [Place(self.mark, "mark")]
        if not names:
            return hook_points(self.inner)
        if not isinstance(names, str):
            return places_of(self.inner, names)
        if names.startswith(INPUT):
            return places_of(self.inner, [names])
        return places_of_blocks(self.inner, names, partial(self.run, x))

    @torch.no_grad()
    def _check_same_outputs(self, x: Tensor, logits: Tensor) -> None:
        """Check that ``forward=`` has the outputs of the model's own forward, if that runs."""
        try:
            own = logits_of(self.model(x.clone()))
        except Exception:  # external code may raise anything
            return
        if isinstance(own, Tensor) and own.shape == logits.shape and apart(own, logits) > WHOLE:
            check_repeats(self, x)
            raise self._error(
                "forward= returns other outputs than the model's own forward:"
                f" {apart(own, logits):.2g} of the output norm apart. Expected the same pass, with"
                " its states marked."
            )

    @torch.no_grad()
    def prove(self, x: Tensor) -> None:
        """Measure how much of the outputs' dependence on the inputs bypasses each state.

        Raises:
            AuditError: the share that bypasses a state exceeds `WHOLE`, without ``partial=True``.
        """
        few = x[:_FEW] if runs_on(self, x[:_FEW]) else x
        logits, states = self(few, return_hidden=True)
        # The few samples may be alike, such as the first ones of a sorted data set.
        if distance(logits, logits.roll(1, 0), logits) is None:
            few = x
            logits, states = self(x, return_hidden=True)
        others, top = logits.roll(1, 0), states[-1]
        for layer in tqdm(range(len(states)), "state", leave=False, disable=None):
            # Every sample gets the state of the one before it.
            found, last = self.changed(few, layer, lambda h: h.roll(1, 0))
            share = distance(found, others, logits)
            if share is None and layer < self.depth:
                # If the outputs are alike for all samples, compare the last state.
                share = distance(last, top.roll(1, 0), top)
            self.past.append(share)
            if share is not None and share > WHOLE and not self.description.partial:
                # Noise in a pass looks like a bypass, so first check that two passes agree.
                check_repeats(self, few)
                raise NotWhole(
                    f"{type(self.inner).__name__}: state {layer} ({self.names[layer]}) is not"
                    f" whole: {100 * share:.3g} % of what the outputs know of the inputs"
                    " bypasses it. Put h = hook(h) with a fa_audit.HookPoint at a place that"
                    " nothing bypasses, or audit this state all the same: Description(...,"
                    " partial=True)."
                )

    def _error(self, message: str) -> AuditError:
        return AuditError(f"{type(self.inner).__name__}: {message}")


@torch.no_grad()
def starting_states(network: Network, x: Tensor) -> list[Tensor]:
    """Return the states ``h_0..h_L`` of a pass on `x`, for later calls of ``logits_from``."""
    if isinstance(network, DescribedNetwork):
        network.x = x
    _, states = network(x.clone(), return_hidden=True)
    return [h.detach() for h in states]


@contextmanager
def _differentiable(model: nn.Module, x: Tensor) -> Iterator[Tensor]:
    """Enable gradients of the inputs and disable those of parameters, which saves memory."""
    learning = [p for p in model.parameters() if p.requires_grad]
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield x.detach().clone().requires_grad_() * 1 if x.is_floating_point() else x
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)


def _overwritten(h: Tensor, value: Tensor, owned: frozenset[int]) -> bool:
    """Write `value` into a tensor that a model is about to use, so that every later use sees it.

    Return False if the tensor is the model's own (its address is in `owned`), or if torch does not
    allow writing, as for some views.
    """
    if _addresses([h]) & owned:
        return False
    try:
        h.copy_(value)
    except RuntimeError:
        # Torch refuses to write to an output of chunk or split, to an expanded tensor, and to one
        # made in inference mode.
        return False
    return True


def _addresses(tensors: Sequence[Tensor]) -> frozenset[int]:
    """Return the memory addresses of the dense tensors."""
    return frozenset(t.untyped_storage().data_ptr() for t in tensors if is_dense(t))


def distance(found: Tensor, expected: Tensor, own: Tensor) -> float | None:
    """Return ``||found - expected|| / ||own - expected||``, at most 1.

    `own` are the outputs before samples exchange states, `found` those after. `expected` has the
    rows of `own`, exchanged in the same way. Only finite entries count. Return None if shapes
    differ, or if `own` and `expected` are alike.
    """
    if found.shape != expected.shape:
        return None
    # Masked logits are minus infinity in every pass: compare the finite entries.
    known = found.isfinite() & expected.isfinite() & own.isfinite()
    found, expected, own = (part[known].double() for part in (found, expected, own))
    length, scale = expected.norm().item(), (own - expected).norm().item()
    if not length or scale <= ALIKE * length:
        return None
    off = (found - expected).norm().item()
    # Kernels may round a reordered batch differently, which is no bypass.
    return 0.0 if off <= ROUNDING * length else min(off / scale, 1.0)


def apart(one: Tensor, other: Tensor) -> float:
    """Return the distance of two tensors, relative to the norm of the first."""
    return ((other - one).norm() / one.norm()).item()


def check_repeats(network: Network, x: Tensor) -> None:
    """Check that two passes of a network on the same inputs have the same outputs.

    Raises:
        AuditError: they differ, so no two measurements would be of the same network.
    """
    with untouched(network), torch.no_grad():
        first, second = network(x.clone()), network(x.clone())
    finite = bool(first.isfinite().all() and second.isfinite().all())
    if finite and apart(first, second) > DIFFERENT:
        raise AuditError(
            f"{type(getattr(network, 'inner', network)).__name__}: two forward passes of the same"
            f" inputs in evaluation mode differ by {apart(first, second):.2g} of the output"
            " norm; expected no difference. Turn off dropout (training=self.training), noise and"
            " anything that changes from pass to pass."
        )


# --- models without a description -----------------------------------------------------------------


def wrap_model(model: nn.Module, x: Tensor, description: Description | None = None) -> Network:
    """Return a `Network` that shares the parameters of a model.

    Args:
        model: any module if there is a description; else a network of this package (returned as it
            is), a model with `HookPoint` modules, or one with ``blocks`` whose forward takes
            ``return_hidden=True`` (the contract at the top of this file).
        x: a batch of inputs on the model's device, on which every state is tested.

    Raises:
        AuditError: the model is none of these, or information bypasses a state; the message names
            the state and, if one fits, a description to pass.

    >>> model = nn.Module()
    >>> model.embed, model.blocks, model.head = nn.Linear(4, 8), nn.ModuleList([nn.Linear(8, 8)]), nn.Linear(8, 3)
    >>> def forward(x, return_hidden=False):
    ...     h0 = model.embed(x)
    ...     h1 = h0 + model.blocks[0](h0)
    ...     return (model.head(h1), [h0, h1]) if return_hidden else model.head(h1)
    >>> model.forward = forward
    >>> wrap_model(model, torch.eye(4)).names
    ('input:blocks.0', 'input:head')
    """
    # This package's networks have no bypass: every block reads only the state before it.
    if description is None and isinstance(model, Network):
        return model
    by_contract = description is None and not hook_points(model)
    try:
        if by_contract:
            return _by_contract(model, x)
        return describe(model, description or Description(), x)
    except AuditError as error:
        proposal = None
        if by_contract or isinstance(error, NotWhole):
            # Imported late, since `proposals` imports this module.
            from fa_audit.networks.proposals import best_proposal

            with suppress(AuditError):  # the first error already says what is wrong
                proposal = best_proposal(model, x)
        if proposal is None:
            raise
        raise type(error)(
            f"{error} Pass a description with states that nothing bypasses: {proposal.python}."
        ) from error


def _by_contract(model: nn.Module, x: Tensor) -> DescribedNetwork:
    """Describe a model by its `blocks`, and check that they lie between the states it returns."""
    if not hasattr(model, "blocks"):
        raise AuditError(
            f"{type(model).__name__}: found no states: no fa_audit.HookPoint, no description= and"
            " no blocks. Put h = hook(h) with a HookPoint where a state is, or name modules:"
            " description=Description('layers.*')."
        )
    network = describe(model, Description("blocks.*"), x)
    with untouched(model), torch.no_grad():
        logits, states = network(x, return_hidden=True)
        try:
            own_logits, hidden = model(x.clone(), return_hidden=True)
            found = f"{shown(own_logits)} and {shown(hidden)}"
            right = len(hidden) == len(states) and not apart(logits, own_logits) > DIFFERENT
        except Exception as error:  # external code may raise anything
            right, found = False, first_line(error)
    if right:
        # `hidden[-1]` may be h_L, or only the vector that the head reads: try every reading.
        for reads in (reading_of(network, x), *READS):
            network.reads = reads
            if all(_read_alike(network, *pair) for pair in zip(hidden, states)):
                return network
    raise AuditError(
        f"{type(model).__name__}: model(x, return_hidden=True) must return the logits of"
        f" model(x), and [h_0..h_L]: h_l is what block l reads, h_L what the head"
        f" reads; found {found} for the states {', '.join(network.names)}."
    )


def _read_alike(network: Network, h: Tensor, other: Tensor) -> bool:
    """Return whether two states have the same vector; entries that are not finite do not count."""
    one, other = network.read(h), network.read(other)
    if one.shape != other.shape:
        return False
    finite = one.isfinite() & other.isfinite()
    return not apart(one[finite], other[finite]) > DIFFERENT
