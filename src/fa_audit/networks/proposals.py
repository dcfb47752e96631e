"""Propose descriptions of a model: modules that run one after another, with proven states between.

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

import torch
from torch import Tensor, nn

from fa_audit.core.errors import AuditError, first_line, listed
from fa_audit.networks.adapters import OneTensor, as_pair, layout_of
from fa_audit.networks.description import DescribedNetwork, describe
from fa_audit.networks.readings import reading_of
from fa_audit.networks.states import INPUT, Description, Place, matching, visited
from fa_audit.networks.trace import reads_data, untouched

TRIED = 8  # groups of modules, those with most parameters first
ENDS = 2  # modules that may read the last state
ALIKE = 0.8  # share of the largest part that counts as much as the largest
LEAST_COVERED = 0.5  # of the layers, between states that nobody named
CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
Names = tuple[str, ...]


@dataclass(frozen=True)
class Proposal:
    """A description that fits a model; its text can be pasted as Python and as YAML.

    Attributes:
        description: what `diagnose` and a configuration take.
        note: what the blocks are.
        covered: the share of the layers with parameters that lie between the states.
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
    """Return descriptions of `model` whose states are proven, the best first; empty where none is
    found.

    Candidates are the modules of one class, or the children of one container, that run one after
    another. The best has most of the model's layers between its states, and then most states. The
    model is left as it was.

    Args:
        model: any module.
        batch: inputs on the model's device, or a mapping of inputs and labels.

    Raises:
        AuditError: the model is not a Python module, or its forward fails.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> print(propose(model, torch.rand(3, 2, 2))[0])
    # 1 block with 33 % of the layers, at 1, 3
    description=Description(("1", "3"), "all features")
    <BLANKLINE>
    # the same in a configuration
    blocks: ["1", "3"]
    reads: all features
    """
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise AuditError(
            f"found {type(model).__name__}; expected a torch.nn.Module that torch.jit did not"
            " compile."
        )
    model, batch = _of_one_tensor(model, batch)
    found: dict[Description, DescribedNetwork] = {}
    inner = model.model if isinstance(model, OneTensor) else model
    with untouched(model):
        _check_runs(type(inner).__name__, model, batch)
        for names in _candidates(inner):
            network = _fitting(model, inner, names, batch)
            if network:
                found.setdefault(network.description, network)
        most = max((network.covered for network in found.values()), default=0)
        best = [network for network in found.values() if network.covered >= ALIKE * most]
        best.sort(key=lambda network: _rank(network, batch))
    return [_proposal(network, batch) for network in best]


def _check_runs(name: str, model: nn.Module, x: Tensor) -> None:
    try:
        with torch.no_grad():
            model(x.clone())
    except Exception as error:  # external code may raise anything
        raise AuditError(
            f"{name}: its own forward fails on inputs"
            f" {tuple(x.shape)} of {x.dtype}: {first_line(error)}. Give inputs that the model "
            "takes."
        ) from error


def _candidates(model: nn.Module) -> list[Names]:
    """Return the names of the modules with parameters of every class, and of the children of every
    container.
    """
    modules = dict(model.named_modules())
    groups: dict[Any, list[str]] = defaultdict(list)
    for name, module in modules.items():
        if not name or next(module.parameters(), None) is None:
            continue
        groups[type(module)].append(name)
        parent = name.rpartition(".")[0]
        if isinstance(modules[parent], CONTAINERS):
            groups[parent].append(name)
    outermost = dict.fromkeys(map(_outermost, groups.values()))

    def parameters(names: Names) -> int:
        return sum(part.numel() for name in names for part in modules[name].parameters())

    return sorted(outermost, key=parameters, reverse=True)[:TRIED]


def _outermost(names: Sequence[str]) -> Names:
    """Leave out modules within others."""
    found = []
    for name in names:
        if not any(name.startswith(f"{other}.") for other in names):
            found.append(name)
    return tuple(found)


def _fitting(
    model: nn.Module, inner: nn.Module, names: Names, x: Tensor
) -> DescribedNetwork | None:
    """Describe the model by modules whose states are whole: by their outputs, or by their inputs if
    these have more layers between them.

    A module that reads the data is the embedding, one that returns the outputs is the head; states
    lie between the others.
    """
    pattern = _pattern(inner, names)
    rest: Names = ()
    found: list[DescribedNetwork] = []
    # Where a norm or a sum lies between blocks, only inputs are whole, and the head's is the last.
    for blocks in (pattern, *_by_inputs(model, inner, pattern, names, x)):
        try:
            network = describe(model, Description(blocks), x)
            states, _, logits = network.chain(x)
        except AuditError:
            continue
        ends = states[-1].shape == logits.shape and torch.equal(states[-1], logits.detach())
        if ends or reads_data(states[0], x):
            outer = network.names[-1 if ends else 0].removeprefix(INPUT)
            rest = rest or tuple(name for name in names if name != outer)
        elif network.depth and None not in network.past[:-1]:
            found.append(network)
            if blocks == pattern and isinstance(pattern, str):
                break  # from the first input to the last output
    if found:
        return max(found, key=lambda network: network.covered)
    if 0 < len(rest) < len(names):
        return _fitting(model, inner, rest, x)
    return None


def _by_inputs(
    model: nn.Module, inner: nn.Module, pattern: str | Names, names: Names, x: Tensor
) -> list[Names]:
    """Return descriptions by the inputs of modules, and of one that runs after the last of them."""
    entered: list[str] = []
    every = [Place(module, name, True) for name, module in inner.named_modules() if name]
    with torch.no_grad(), visited(every, lambda place, _: entered.append(place.name)):
        model(x.clone())
    last = max((index for index, name in enumerate(entered) if name in names), default=-1)
    later = [name for name in dict.fromkeys(entered[last + 1 :]) if "." not in name]
    patterns = (pattern,) if isinstance(pattern, str) else pattern
    inputs = [INPUT + each for each in patterns]
    return [(*inputs, INPUT + name) for name in later[:ENDS]] if last >= 0 else []


@torch.no_grad()
def _rank(network: DescribedNetwork, x: Tensor) -> tuple[bool, int, bool]:
    """Return a sort key, the best first: states alike, many blocks, one name."""
    _, states = network(x, return_hidden=True)
    uneven = len({h.dim() for h in states}) > 1
    return uneven, -network.depth, not isinstance(network.description.blocks, str)


def _proposal(network: DescribedNetwork, x: Tensor) -> Proposal:
    blocks = "1 block" if network.depth == 1 else f"{network.depth} blocks"
    places = listed(network.names, 3)
    return Proposal(
        replace(network.description, reads=reading_of(network, x)),
        f"{blocks} with {100 * network.covered:.0f} % of the layers, at {places}",
        network.covered,
    )


# --- readings ---


def fitting_reading(model: nn.Module, blocks: str | tuple[str, ...], batch: Any) -> str:
    """Return what the head reads of the last state; all features if `batch` has no inputs."""
    pair = isinstance(batch, list | tuple) and len(batch) == 2
    model, x = _of_one_tensor(model, batch[0] if pair else batch)
    if not isinstance(x, Tensor):
        return "all features"
    return reading_of(describe(model, Description(blocks, partial=True), x), x)


def _of_one_tensor(model: nn.Module, batch: Any) -> tuple[nn.Module, Any]:
    """Adapt a model to one tensor in place of a mapping; return model and tensor, or both
    unchanged.
    """
    if isinstance(batch, Mapping):
        return OneTensor(model, layout_of(batch)), as_pair(batch)[0]
    return model, batch


# --- patterns ---


def _pattern(model: nn.Module, names: Names) -> str | Names:
    """Return the shortest patterns that match exactly these modules: one for all, or one a
    container.
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
    parts = [name.split(".") for name in names]
    if len(names) == 1 or len(set(map(len, parts))) > 1:
        return ""
    # A pattern may match other modules, too: then names stand for themselves.
    *outer, last = map(_shared, zip(*parts))
    for end in ("*", last):
        pattern = ".".join([*outer, end])
        if matching(model, pattern) == names:
            return pattern
    return ""


def _shared(column: tuple[str, ...]) -> str:
    """Return the pattern for one part of all names: ``layer*`` for layer1 and layer2."""
    return column[0] if len(set(column)) == 1 else commonprefix(column) + "*"  # noqa: RUF071 - parts, not paths
