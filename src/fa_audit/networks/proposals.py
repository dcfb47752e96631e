"""Propose descriptions of a model: modules in sequence, with states that nothing bypasses.

Shapes: B batch, d features, T tokens.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from os.path import commonprefix
from typing import Any

from torch import Tensor, nn

from fa_audit.core.errors import AuditError, listed, shortened, unknown
from fa_audit.networks.description import DescribedNetwork, describe
from fa_audit.networks.states import (
    INPUT,
    READS,
    Description,
    OneTensor,
    Place,
    as_pair,
    check_module,
    layout_of,
    matching,
    order_of,
    reader_of,
    reading_of,
    unwrapped,
)
from fa_audit.networks.trace import equal, reads_data, untouched

_TRIED = 8  # groups of modules that are tried, those with most parameters first
ALIKE = 0.8  # least coverage of a description, as a multiple of the largest
_LEAST_COVERED = 0.5  # least coverage of a proposal that `best_proposal` returns
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
Names = tuple[str, ...]


@dataclass(frozen=True)
class Proposal:
    """A description that fits a model; its text can be pasted as Python and as YAML.

    Attributes:
        description: the description, for `diagnose` or a configuration.
        note: the number of blocks, their share of the layers, and where the states are.
        covered: share of the layers between the first and the last state; only layers with
            parameters count.
    """

    description: Description
    note: str
    covered: float

    @property
    def python(self) -> str:
        """Return the argument of `diagnose`, such as ``description=Description("layers.*", "cls
        token")``.
        """
        blocks = self.description.blocks
        if isinstance(blocks, tuple):
            comma = "," if len(blocks) == 1 else ""
            shown = f"({', '.join(map(json.dumps, blocks))}{comma})"
        else:
            shown = json.dumps(blocks)
        return f"description=Description({shown}, {json.dumps(self.description.reads)})"

    @property
    def yaml(self) -> str:
        """Return the lines for an entry of a configuration's ``models:``."""
        return f"blocks: {json.dumps(self.description.blocks)}\nreads: {self.description.reads}"

    def __str__(self) -> str:
        return f"# {self.note}\n{self.python}\n\n# the same in a configuration\n{self.yaml}"


def propose(model: nn.Module, batch: Any) -> list[Proposal]:
    """Find descriptions of `model` in which nothing bypasses a state; return the best first.

    Candidates are the modules of one class, or the children of one container, that run one after
    another. A description is kept if it covers at least 0.8 times as many layers as the
    description that covers most. Descriptions whose states all have the same number of dimensions
    come before the others; among equals, more blocks come before fewer. The model is left as it
    was.

    Args:
        model: any module.
        batch: inputs on the model's device, or a mapping of inputs and labels.

    Raises:
        AuditError: the model is not a `torch.nn.Module`, is compiled by torch.jit, or fails; or the
            batch is neither a tensor nor a mapping.

    >>> import torch
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> print(propose(model, torch.rand(3, 2, 2))[0])
    # 1 block holds 33 % of the layers; states at 1, 3
    description=Description(("1", "3"), "all features")
    <BLANKLINE>
    # the same in a configuration
    blocks: ["1", "3"]
    reads: all features
    """
    check_module(model)
    x = batch
    if isinstance(batch, Mapping):
        model, x = OneTensor(model, layout_of(batch)), as_pair(batch)[0]
    elif not isinstance(x, Tensor):
        raise AuditError(
            f"batch: found {shortened(batch)}; expected a tensor of inputs, or a mapping."
        )
    inner = unwrapped(model)
    found: dict[Description, DescribedNetwork] = {}
    with untouched(model):
        whole = DescribedNetwork(model, Description())
        order = order_of(inner, lambda: whole.check_outputs(whole.run(x), len(x)))
        for names in _candidates(inner):
            network = _fitting(model, names, order, x)
            if network:
                found.setdefault(network.description, network)
        most = max((network.covered for network in found.values()), default=0)
        best = [network for network in found.values() if network.covered >= ALIKE * most]
        best.sort(key=_rank)
        return [_proposal(network, x) for network in best]


def best_proposal(model: nn.Module, batch: Any, reads: str | None = None) -> Proposal | None:
    """Return the first proposal with at least half of the layers between its states, or None.

    If `reads` is given, consider only proposals whose head reads this vector.

    Raises:
        AuditError: `reads` is unknown.
    """
    if reads not in (None, *READS):
        raise unknown("vector of a state", reads, READS, where="reads")
    for proposal in propose(model, batch):
        fits = reads in (None, proposal.description.reads)
        if fits and proposal.covered >= _LEAST_COVERED:
            return proposal
    return None


def _candidates(model: nn.Module) -> list[Names]:
    """Group the modules with parameters by class and by container; return the names of each group.

    A module inside another module of its group is left out. Groups with most parameters come first.
    """
    modules = dict(model.named_modules())
    groups: dict[Any, list[str]] = defaultdict(list)
    for name, module in modules.items():
        # A module without parameters does not learn, so an audit can say nothing of it.
        if name and list(module.parameters()):
            parent = name.rpartition(".")[0]
            groups[type(module)].append(name)
            if isinstance(modules[parent], CONTAINERS):
                groups[parent].append(name)
    sizes: dict[Names, int] = {}
    for group in groups.values():
        names = []
        size = 0
        for name in group:
            # A module's name comes before those of the modules within it.
            if not any(name.startswith(f"{other}.") for other in names):
                names.append(name)
                size += sum(p.numel() for p in modules[name].parameters())
        sizes[tuple(names)] = size
    return sorted(sizes, key=sizes.__getitem__, reverse=True)[:_TRIED]


def _fitting(
    model: nn.Module, names: Names, order: Sequence[Place], x: Tensor
) -> DescribedNetwork | None:
    """Describe the model by the modules `names`; return None if information bypasses the states.

    If one pattern matches all modules, `Description` decides whether their inputs or outputs are
    the states. Otherwise both are tried, and the description that covers more layers is kept. Data
    and outputs are not states: if nothing fits, the module that reads the data (embedding) or
    returns the outputs (head) is left out, and the remaining modules are tried.
    """
    inner = unwrapped(model)
    pattern = _pattern(inner, names)
    options = [pattern]
    modules = [inner.get_submodule(name) for name in names]
    # Leave out nested modules other than the blocks: a module inside a head does not read the last
    # state.
    outermost = [place for place in order if place.module in modules or "." not in place.name]
    reader = reader_of(outermost, modules)
    if reader and not isinstance(pattern, str):
        # If a norm or a sum lies between blocks, the inputs of the blocks are the states.
        inputs = [INPUT + each for each in pattern]
        options.append((*inputs, str(reader)))
    outer = ""
    found: list[DescribedNetwork] = []
    for blocks in options:
        try:
            network = describe(model, Description(blocks), x)
            states, _, logits = network.chain(x)
        except AuditError:
            continue
        # The outputs and the data pass the test for bypasses, but are not hidden states.
        if equal(states[-1], logits.detach()) or (
            not network.heads and states[-1].shape == logits.shape
        ):
            outer = outer or network.names[-1]
        elif reads_data(network, states[0], x):
            outer = outer or network.names[0]
        elif network.depth and None not in network.past[:-1]:
            found.append(network)
    if found:
        return max(found, key=lambda network: network.covered)
    rest = tuple(name for name in names if name != outer.removeprefix(INPUT))
    return _fitting(model, rest, order, x) if 0 < len(rest) < len(names) else None


def _rank(network: DescribedNetwork) -> tuple[bool, int, bool]:
    """Return a sort key by three criteria: states that all have the same number of dimensions come
    first, then more blocks before fewer, then one name or pattern before several.
    """
    uneven = len(set(map(len, network.shapes))) > 1
    return uneven, -network.depth, not isinstance(network.description.blocks, str)


def _proposal(network: DescribedNetwork, x: Tensor) -> Proposal:
    blocks = "1 block holds" if network.depth == 1 else f"{network.depth} blocks hold"
    places = listed(network.names, 3)
    return Proposal(
        replace(network.description, reads=reading_of(network, x)),
        f"{blocks} {100 * network.covered:.0f} % of the layers; states at {places}",
        network.covered,
    )


# --- patterns ---


def _pattern(model: nn.Module, names: Names) -> str | Names:
    """Return patterns that match exactly these modules: one for all, else one for each container.
    Modules that no pattern fits keep their names.
    """
    whole = _general(model, names)
    if whole:
        return whole
    entries: list[str] = []
    for _, group in groupby(names, lambda name: name.rpartition(".")[0]):
        some = tuple(group)
        pattern = _general(model, some)
        entries += [pattern] if pattern else some
    return tuple(entries)


def _general(model: nn.Module, names: Names) -> str:
    """Return a pattern that matches exactly these modules in this order; empty if there is none."""
    if len(names) == 1:
        return names[0]
    parts = [name.split(".") for name in names]
    if len(set(map(len, parts))) > 1:
        return ""
    *outer, last = map(_shared, zip(*parts))
    for end in ("*", last):
        pattern = ".".join([*outer, end])
        if tuple(matching(model, pattern).values()) == names:
            return pattern
    return ""


def _shared(column: tuple[str, ...]) -> str:
    """Return a pattern for all parts in `column`: ``layer*`` for layer1 and layer2."""
    return column[0] if len(set(column)) == 1 else commonprefix(column) + "*"  # noqa: RUF071 - parts, not paths
