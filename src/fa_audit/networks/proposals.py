"""Propose descriptions of a model: modules that run one after the other, between which all states
are proven.

Shapes: B batch, d features, T tokens.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
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

TRIED, ENDS = (
    8,
    2,
)  # groups of modules, those with most parameters first; modules that may read the last state
ALIKE = 0.8  # a chain with this share of the largest part is as good as the largest, and other things decide
LEAST_COVERED = 0.5  # of the layers, between states that nobody named
CONTAINERS = ("Sequential", "ModuleList", "ModuleDict")


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
class _Fit:
    """The model as described by some modules, the names of their classes, and whether states differ
    in dimensions.
    """

    network: DescribedNetwork
    kinds: tuple[str, ...]
    uneven: bool


def propose(model: nn.Module, batch: Any) -> list[Proposal]:
    """Return descriptions of `model` whose states are proven, the best first; empty where none is
    found.

    Candidates are all modules of one class, and all children of one container, that run one after
    the other. Best is what has most of the model's layers between its states, then what has most
    states. The model is left as it was.

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
            f"found {type(model).__name__}; expected a torch.nn.Module that torch.jit did not compile."
        )
    model, batch = _of_one_tensor(model, batch)
    inner = model.model if isinstance(model, OneTensor) else model
    with untouched(model):
        _check_runs(model, batch)
        every = [_fitting(model, inner, names, batch) for names in _candidates(inner)]
    found = list({fit.network.description: fit for fit in every if fit}.values())
    most = max((fit.network.covered for fit in found), default=0)
    best = [fit for fit in found if fit.network.covered >= ALIKE * most]
    return [_proposal(inner, fit) for fit in sorted(best, key=_rank)]


def _check_runs(model: nn.Module, x: Tensor) -> None:
    try:
        with torch.no_grad():
            model(x.clone())
    except Exception as error:  # external code may raise anything
        raise AuditError(
            f"{type(model).__name__}: its own forward fails on inputs {tuple(x.shape)} of {x.dtype}:"
            f" {first_line(error)}. Give inputs that the model takes."
        ) from error


def _candidates(model: nn.Module) -> list[tuple[str, ...]]:
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
        if isinstance(modules[parent], nn.ModuleList | nn.Sequential | nn.ModuleDict):
            groups[parent].append(name)
    outermost = dict.fromkeys(map(_outermost, groups.values()))
    return sorted(outermost, key=lambda names: -_parameters(modules, names))[:TRIED]


def _parameters(modules: Mapping[str, nn.Module], names: tuple[str, ...]) -> int:
    return sum(parameter.numel() for name in names for parameter in modules[name].parameters())


def _fitting(model: nn.Module, inner: nn.Module, names: tuple[str, ...], x: Tensor) -> _Fit | None:
    """Return the description of some modules whose states are whole: by their outputs, or inputs
    where more is between.

    Modules that read the data or return the outputs are the embedding and the head: without them,
    states are between the others.
    """
    kinds = tuple(sorted({type(inner.get_submodule(name)).__name__ for name in names}))
    pattern = _pattern(inner, names)
    rest: tuple[str, ...] = ()
    found: list[_Fit] = []
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
            found.append(_Fit(network, kinds, len({h.dim() for h in states}) > 1))
            if blocks == pattern and isinstance(
                pattern, str
            ):  # from the first input to the last output
                break
    if not found:
        return _fitting(model, inner, rest, x) if 0 < len(rest) < len(names) else None
    best = max(found, key=lambda fit: fit.network.covered)
    best.network.read_by(reading_of(best.network, x))
    return best


def _by_inputs(
    model: nn.Module,
    inner: nn.Module,
    pattern: str | tuple[str, ...],
    names: tuple[str, ...],
    x: Tensor,
) -> list[tuple[str, ...]]:
    """Return descriptions by the inputs of modules, and of one that runs after the last of them."""
    entered: list[str] = []
    every = [Place(module, name, True) for name, module in inner.named_modules() if name]
    with torch.no_grad(), visited(every, lambda place, _: entered.append(place.name)):
        model(x.clone())
    last = max((index for index, name in enumerate(entered) if name in names), default=-1)
    later = [name for name in dict.fromkeys(entered[last + 1 :]) if "." not in name]
    inputs = [INPUT + each for each in ((pattern,) if isinstance(pattern, str) else pattern)]
    return [(*inputs, INPUT + name) for name in later[:ENDS]] if last >= 0 else []


def _rank(fit: _Fit) -> tuple[bool, int, bool, bool]:
    """Return a sort key, the best first: states alike, many blocks, one name, one class that is no
    mere container.
    """
    several = not isinstance(fit.network.description.blocks, str)
    return fit.uneven, -fit.network.depth, several, len(fit.kinds) > 1 or fit.kinds[0] in CONTAINERS


def _proposal(inner: nn.Module, fit: _Fit) -> Proposal:
    network, count = fit.network, fit.network.depth
    note = f"{count} {'block' if count == 1 else 'blocks'} with {100 * network.covered:.0f} % of the layers, at "
    return Proposal(
        replace(network.description, reads=network.reads),
        note + listed(network.names, 3),
        network.covered,
    )


def _outermost(names: list[str]) -> tuple[str, ...]:
    return tuple(
        name for name in names if not any(name != other and _is_in(name, other) for other in names)
    )


def _is_in(name: str, block: str) -> bool:
    return f"{name}.".startswith(f"{block}.")


# --- readings --------------------------------------------------------------------------------------------------------


def fitting_reading(model: nn.Module, blocks: str | tuple[str, ...], batch: Any) -> str:
    """Return what the head reads of the last state of some blocks; all features where batches have
    no inputs.
    """
    model, x = _of_one_tensor(
        model, batch[0] if isinstance(batch, list | tuple) and len(batch) == 2 else batch
    )
    if not isinstance(x, Tensor):
        return "all features"
    return reading_of(describe(model, Description(blocks, partial=True), x), x)


def _of_one_tensor(model: nn.Module, batch: Any) -> tuple[nn.Module, Any]:
    """Return a model that takes one tensor in place of a mapping, and the tensor; anything else as
    it is.
    """
    return (
        (OneTensor(model, layout_of(batch)), as_pair(batch)[0])
        if isinstance(batch, Mapping)
        else (model, batch)
    )


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
            if matching(model, pattern := ".".join([*outer, end])) == names:
                return pattern
    return ""


def _shared(column: tuple[str, ...]) -> str:
    """Return the pattern for all the parts of names in one place: ``layer*`` for layer1 and layer2."""
    return column[0] if len(set(column)) == 1 else commonprefix(column) + "*"  # noqa: RUF071 - parts, not paths
