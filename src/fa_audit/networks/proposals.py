"""Propose descriptions of a model: find its chains of blocks, and try which reading of their states fits.

Shapes: B batch, d features, T tokens.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from os.path import commonprefix
from typing import Any

import torch
from torch import Tensor, nn

from fa_audit.core.errors import AuditError, first_line
from fa_audit.networks.adapters import as_pair, by_name
from fa_audit.networks.description import (
    CHANNELS_FIRST,
    EXACT,
    READS,
    TOKENS,
    DescribedNetwork,
    describe,
    gradients_around,
    matches,
    shown,
)
from fa_audit.networks.trace import Description, reads_data, untouched

SAMPLES = 2  # on which descriptions are tried
TRIED = 8  # chains, those with the largest part of the model first
ALIKE = 0.8  # a chain with this share of the largest part is as good as the largest, and other things decide
CONTAINERS = ("Sequential", "ModuleList", "ModuleDict")


@dataclass(frozen=True)
class Proposal:
    """A description that fits a model; its text can be pasted as Python and as YAML.

    Attributes:
        description: what `diagnose` and a configuration take.
        note: what the blocks are, and what to know before using it.
    """

    description: Description
    note: str

    @property
    def python(self) -> str:
        """Return the argument of `diagnose`, such as ``description=Description("layers.*", "cls token")``."""
        blocks = self.description.blocks
        if isinstance(blocks, tuple):
            shown = f"({', '.join(map(json.dumps, blocks))}{',' * (len(blocks) == 1)})"
        else:
            shown = json.dumps(blocks)
        return f"description=Description({shown}, {json.dumps(self.description.reads)})"

    @property
    def yaml(self) -> str:
        """Return the lines for an entry of a configuration's ``models:``."""
        return f"blocks: {json.dumps(self.description.blocks)}\nreads: {self.description.reads}"

    def __str__(self) -> str:
        return f"# {self.note}\n{self.python}\n\n# the same in a configuration\n{self.yaml}"


@dataclass(frozen=True)
class _Chain:
    """Modules that may be the blocks of a model."""

    names: tuple[str, ...]  # in the order in which they ran
    share: float  # of the model's modules with parameters of their own, the fraction inside these
    kinds: tuple[str, ...]  # names of their classes


@dataclass(frozen=True)
class _Fit:
    """A chain, the model as described by it, and whether its states are all that each part knows of the earlier."""

    chain: _Chain
    network: DescribedNetwork
    whole: bool


def propose(model: nn.Module, x: Tensor) -> list[Proposal]:
    """Return descriptions that fit `model`, the best first; empty where none is found.

    Candidates are all modules of one class, and all children of one container, that run once each. Where there are
    better ones, candidates are left out whose states a part of the model bypasses, or which hold less of the model.
    The model is left as it was found.

    Args:
        model: any module whose forward takes one batch and returns logits ``(B, C)``.
        x: a batch of inputs on the model's device, of which a few are used.

    Raises:
        AuditError: the model is not a Python module, its forward fails on `x`, or it does not return logits.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> print(propose(model, torch.rand(3, 2, 2))[0])
    # 1 block (Linear) with 33 % of the layers
    description=Description(("3",), "all features")
    <BLANKLINE>
    # the same in a configuration
    blocks: ["3"]
    reads: all features
    """
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise AuditError(f"found {type(model).__name__}; expected a torch.nn.Module that torch.jit did not compile.")
    x = x[:SAMPLES]
    with untouched(model):
        ran = _ran_once(model, x)
        chains = sorted(_chains(model, ran), key=lambda chain: (len(chain.names) == 1, -chain.share))
        found = list(_fitting(model, chains[:TRIED], x))
    whole = [fit for fit in found if fit.whole] or found
    least = ALIKE * max((fit.chain.share for fit in whole), default=0)
    return [_proposal(fit) for fit in sorted(whole, key=_rank) if fit.chain.share >= least]


def _fitting(model: nn.Module, chains: list[_Chain], x: Tensor) -> Iterator[_Fit]:
    """Yield the chains that fit; where one has whole states, no much smaller one and no single block about as large."""
    most = 0.0
    for chain in chains:
        if chain.share < (most / ALIKE if len(chain.names) == 1 else most * ALIKE):
            continue
        try:
            network = _described(model, chain.names, x)
            fit = _Fit(chain, network, _cuts(network, x))
        except Exception:  # most chains fit no description, and with states of noise external code may raise anything
            continue
        most = max(most, chain.share) if fit.whole else most
        yield fit


def _rank(fit: _Fit) -> tuple[bool, int]:
    """Return a sort key, the best first: many blocks of one class that is more than a container."""
    kinds = fit.chain.kinds
    return len(kinds) > 1 or kinds[0] in CONTAINERS, -len(fit.chain.names)


def _proposal(fit: _Fit) -> Proposal:
    chain, network = fit.chain, fit.network
    count, kinds = len(chain.names), ", ".join(chain.kinds)
    note = f"{count} {'block' if count == 1 else 'blocks'} ({kinds}) with {100 * chain.share:.0f} % of the layers"
    if any(network.added):
        note += "; the model adds what they return to their input"
    if not fit.whole:
        note += "; a part of the model bypasses their states, so that growth across a block says less"
    return Proposal(Description(_pattern(network.model, chain.names), network.reads), note)


# --- chains ----------------------------------------------------------------------------------------------------------


def _ran_once(model: nn.Module, x: Tensor) -> list[str]:
    """Return the modules that can be blocks, in the order in which they end in a forward pass, which must succeed.

    They run once and do not read the data itself, their input and their output is a tensor of floating-point numbers
    with one row for every sample, and their output is not the logits already.
    """
    calls: dict[nn.Module, list[tuple[tuple[Any, ...], Any]]] = defaultdict(list)
    try:
        with ExitStack() as hooks, torch.no_grad():
            for part in model.modules():
                hook = part.register_forward_hook(lambda part, given, out: calls[part].append((given[:1], out)))
                hooks.enter_context(hook)
            logits = model(x.clone())
    except Exception as error:  # external code may raise anything
        raise AuditError(
            f"{type(model).__name__}: its own forward fails on inputs {tuple(x.shape)} of {x.dtype}:"
            f" {first_line(error)}. Give inputs that the model takes."
        ) from error
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        raise AuditError(f"{type(model).__name__} returns {shown(logits)}; expected logits (B, C), one per class.")
    names = {module: name for name, module in model.named_modules()}
    return [names[module] for module, found in calls.items() if len(found) == 1 and _is_block(found[0], x, logits)]


def _is_block(call: tuple[tuple[Any, ...], Any], x: Tensor, logits: Tensor) -> bool:
    """Return whether a module can be a block; a layer that reads the data itself is the embedding."""
    given, returned = call
    if not given or (isinstance(given[0], Tensor) and reads_data(given[0], x)):
        return False
    for h in (*given, returned):
        if not isinstance(h, Tensor) or not h.is_floating_point() or h.dim() < 2 or len(h) != len(logits):
            return False
    return returned is not logits and not torch.equal(returned, logits)


def _chains(model: nn.Module, ran: list[str]) -> Iterator[_Chain]:
    """Yield candidates: the modules of every class, and the children of every container, that can be blocks."""
    modules = dict(model.named_modules())
    names = [name for name in ran if name and any(True for _ in modules[name].parameters())]
    groups: dict[Any, list[str]] = defaultdict(list)
    for name in names:
        groups[type(modules[name])].append(name)
        parent = name.rpartition(".")[0]
        if isinstance(modules[parent], nn.ModuleList | nn.Sequential | nn.ModuleDict):
            groups[parent].append(name)
    own = [name for name, module in modules.items() if next(module.parameters(recurse=False), None) is not None]
    for group in dict.fromkeys(map(_outermost, groups.values())):
        inside = sum(any(_is_in(name, block) for block in group) for name in own)
        yield _Chain(group, inside / len(own), tuple(sorted({type(modules[name]).__name__ for name in group})))


def _outermost(names: list[str]) -> tuple[str, ...]:
    return tuple(name for name in names if not any(name != other and _is_in(name, other) for other in names))


def _is_in(name: str, block: str) -> bool:
    return f"{name}.".startswith(f"{block}.")


# --- readings --------------------------------------------------------------------------------------------------------


def fitting_reading(model: nn.Module, blocks: tuple[str, ...], batches: Sequence[Any]) -> str:
    """Return the most special reading that fits some blocks of a model; all features where batches have no inputs."""
    batch = batches[0] if batches else ()
    if isinstance(batch, Mapping):
        model, description = by_name(model, Description(blocks, ""), batch)
        blocks, batch = tuple(description.blocks), as_pair(batch)
    if not isinstance(batch, list | tuple) or len(batch) != 2 or not isinstance(batch[0], Tensor):
        return "all features"
    with untouched(model):
        return _described(model, blocks, batch[0][:SAMPLES]).reads


def _described(model: nn.Module, blocks: tuple[str, ...], x: Tensor) -> DescribedNetwork:
    """Return the model as described by its blocks and the most special reading that fits; an error if none does."""
    network = describe(model, Description(blocks, "all features"), x)
    for reads in _readings(network, x, [point.dim() for point in network.chain(x)[0]]):
        try:
            return describe(model, Description(blocks, reads), x)
        except AuditError:
            continue
    return network


def _readings(network: DescribedNetwork, x: Tensor, dims: list[int]) -> Iterator[str]:
    """Yield special readings of states of `dims` dimensions; `describe` finds out which token is read."""
    if dims[-1] == 2 and max(dims[1:]) > 2:
        yield "spatial mean"
    if dims[-1] == 3:
        yield from TOKENS
    for name in ("spatial mean", "spatial mean, channels last"):
        positions = [READS[name][1].get(dims[-1], ()), *([CHANNELS_FIRST] if dims[-1] == 3 else [])]
        if any(each and network.any_order(x, each, len(network.blocks)) for each in positions):
            yield name


def _cuts(network: DescribedNetwork, x: Tensor) -> bool:
    """Return whether everything after a state depends on what came before it through that state alone.

    Where the model adds what a block returns to the block's input, the state, their sum, is such a cut.
    """
    if all(network.added):
        return True
    if any(network.added):
        points, logits = network.chain(x)
        missing = zip(gradients_around(points, logits), network.added)
        return all(share[added] <= EXACT for share, added in missing)
    leaves: list[Tensor] = []
    ends: list[Tensor] = []

    def cut(module: nn.Module, given: tuple[Any, ...], returned: Tensor) -> Tensor:
        ends.append(returned)
        leaves.append(returned.detach().requires_grad_())
        return leaves[-1].clone()

    with ExitStack() as hooks, torch.enable_grad():
        for block in network.blocks:
            hooks.enter_context(block.register_forward_hook(cut))
        ends.append(network.model(x.clone()))
    return not any(_depends(end, leaves[:index]) for index, end in enumerate(ends[1:]))


def _depends(end: Tensor, leaves: list[Tensor]) -> bool:
    if not end.requires_grad or not leaves:
        return False
    return any(g is not None for g in torch.autograd.grad(end.sum(), leaves, retain_graph=True, allow_unused=True))


# --- patterns --------------------------------------------------------------------------------------------------------


def _pattern(model: nn.Module, names: tuple[str, ...]) -> str | tuple[str, ...]:
    """Return the shortest patterns that mean these modules: one for all, or one for each container."""
    if whole := _general(model, names):
        return whole
    entries: list[str] = []
    for _, found in groupby(names, lambda name: name.rpartition(".")[0]):
        group = tuple(found)
        entries += [pattern] if (pattern := _general(model, group)) else group
    return tuple(entries)


def _general(model: nn.Module, names: tuple[str, ...]) -> str:
    """Return a pattern that means exactly these modules, in this order; empty where there is none."""
    parts = [name.split(".") for name in names]
    if len(names) > 1 and len(set(map(len, parts))) == 1:
        *outer, last = map(_shared, zip(*parts))
        for end in ("*", last):
            if matches(model, pattern := ".".join([*outer, end])) == names:
                return pattern
    return ""


def _shared(column: tuple[str, ...]) -> str:
    """Return the pattern for all the parts of names in one place: ``layer*`` for layer1 and layer2."""
    return column[0] if len(set(column)) == 1 else commonprefix(column) + "*"  # noqa: RUF071 - parts, not paths
