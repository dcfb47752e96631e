"""Describe what a configuration may contain; schemas/ and docs/configuration.md are generated from
it.

The description of a field completes the sentence "found ...; expected ...". Imports no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, create_model, model_validator
from pydantic_core import PydanticCustomError

from fa_audit.core.errors import AuditError, unknown
from fa_audit.core.registry import ELSEWHERE, check_function, find_module
from fa_audit.core.validation import Different, Strict, validated
from fa_audit.data import DATASETS
from fa_audit.experiments.spec import (
    IN_A_FILE,
    LARGEST,
    LARGEST_OPTION,
    OWN_OPTIONS,
    RunSpec,
    parse_run,
    short_number,
)
from fa_audit.methods.info import check_method
from fa_audit.networks import architecture_options
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.limits import DiagnosticThresholds

BUDGET = ("epochs", "batch_size", "lr", "weight_decay", *OWN_OPTIONS)
PAPER = {field.name: field.default for field in fields(RunSpec)}
VALUE = "a number, true, false or the name of an optimiser"
LIMITS = DiagnosticThresholds().limits


def _other_than(*names: str) -> AfterValidator:
    """Return a validator that refuses some names."""

    def check(name: str) -> None:
        if name in names:
            raise PydanticCustomError("name", "another name")

    return _accepted_by(check)


def _accepted_by(check: Callable[[str], Any]) -> AfterValidator:
    """Return a validator that leaves a name as it is unless `check` raises an error."""

    def accepted(name: str) -> str:
        check(name)
        return name

    return AfterValidator(accepted)


def _usual_name(text: str) -> str:
    """Return a run's name in its usual spelling."""
    run = parse_run(text)
    check_method(run.method)
    return str(run)


def _check_baseline(name: str) -> None:
    if not parse_run(name).is_baseline:
        raise AuditError(
            f"'{name}' is not a baseline; expected '+frozen' or '+shallow', or list it under runs."
        )


def _check_model(name: str) -> None:
    if find_module(module := name.partition(":")[0], sys.path) is None:
        raise AuditError(
            f"no file of the module '{module}' in the working folder or in PYTHONPATH."
        )


# Names become names of files.
A_NAME = "a name of at most 100 lower-case letters, digits and _"
Name = Annotated[
    str,
    Field(pattern="^[a-z][a-z0-9_]*$", max_length=100, description=f"{A_NAME}, the first a letter"),
]
TableName = Annotated[str, Field(pattern="^[a-z0-9_]+$", max_length=100, description=A_NAME)]
FigureName = Annotated[
    TableName, _other_than("scorecard"), Field(description=f"{A_NAME}, other than scorecard")
]
MethodName = Annotated[
    str,
    Field(pattern="^[^+]+$", max_length=100, description="the name of a method"),
    _accepted_by(check_method),
]
RunText = Annotated[
    str, Field(min_length=1, max_length=100, description="a run name such as dfa+penalty1e-2")
]
RunName = Annotated[RunText, AfterValidator(_usual_name)]
BaselineName = Annotated[
    RunName, Field(description="a run name such as dfa+frozen"), _accepted_by(_check_baseline)
]
DatasetName = Annotated[
    str,
    Field(
        max_length=100,
        description="the name of a data set, or a user-defined package.module:function",
    ),
    _accepted_by(partial(check_function, "dataset", DATASETS)),
]
SettingName = Annotated[str, Field(description="the name of a setting")]
Text = Annotated[str, Field(min_length=1, description="a text")]
OptionName = Annotated[
    str,
    _other_than("name", "weight_decay"),
    Field(description="epochs, batch_size, lr, an option of training or one of the architecture"),
]
ArgumentName = Annotated[
    str, Field(description="the name of an argument, quoted if it looks like a number")
]
Argument = Annotated[
    JsonValue, Field(description="a finite number, text, true, false, null, a list or a mapping")
]
Option = Annotated[int | float | bool | str, Field(description="a number, text, true or false")]
Module = Annotated[str, Field(min_length=1, description="a dotted name of a module")]
AnEpoch = Annotated[int, Field(ge=0, le=100000, description="an integer 0..100000")]
ASeed = Annotated[int, Field(ge=0, le=LARGEST, description=f"an integer from 0 to {LARGEST}")]
Penalty = Annotated[float, Field(ge=0, description="a number >= 0, written like 0.01 or 1.0e-2")]
Pixels = Annotated[
    int, Field(ge=1, le=LARGEST_OPTION, description=f"an integer 1..{LARGEST_OPTION}")
]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Architecture(Strict, extra="allow"):
    """A network: its name and any of its options."""

    __pydantic_extra__: dict[str, Option]
    name: Annotated[str, _accepted_by(architecture_options)] = Field(
        max_length=100,
        description="the name of an architecture, or a user-defined package.module:Class",
    )

    @property
    def written(self) -> dict[str, Any]:
        """Return the options that are written."""
        return self.model_extra or {}

    @property
    def options(self) -> dict[str, Any]:
        """Return every option, written or by default."""
        return architecture_options(self.name) | self.written


class Sweep(Strict):
    """The penalty sweep of a setting."""

    methods: Different[MethodName] = Field(
        min_length=1, description="a non-empty list of different method names"
    )
    penalties: Different[Penalty] = Field(
        min_length=1, description="a non-empty list of different numbers >= 0: lambda"
    )


class Monitor(Strict):
    """Checks that end a training early."""

    stop_on: Different[
        Annotated[Literal["D1", "D2", "D2@1024"], Field(description="D1, D2 or D2@1024")]
    ] = Field(
        min_length=1,
        description="a non-empty list of different checks, of D1, D2 and D2@1024 (on 1,024 samples)",
    )


NO_MONITOR = Monitor.model_construct(stop_on=[])


class Task(Strict):
    """The network of a setting, and its data."""

    description: str = Field("", description="a text")
    dataset: DatasetName
    architecture: Architecture = Field(
        description="a mapping with the key 'name' and the architecture's options"
    )


# Ranges and descriptions are those of a specification.
Budget: Any = create_model(
    "Budget", __base__=Task, **{name: (IN_A_FILE[name], PAPER[name]) for name in BUDGET}
)


class SettingEntry(Budget):
    """One block of the configuration: one setting, or several with ``vary``."""

    seeds: Different[ASeed] = Field(
        min_length=1, description=f"a non-empty list of different integers from 0 to {LARGEST}"
    )
    runs: Different[RunName] = Field(
        [],
        min_length=1,
        description="a non-empty list of different run names such as dfa+penalty1e-2",
    )
    sweep: Sweep = Field(
        Sweep.model_construct(methods=[], penalties=[]),
        description="a mapping with the keys 'methods' and 'penalties': every method is trained at every penalty",
    )
    ladder: Different[MethodName] = Field(
        [],
        description="a list of different method names: each is trained with its top 1..L blocks trainable",
    )
    baselines: Different[BaselineName] = Field(
        [],
        description="a list of different frozen or shallow runs such as dfa+frozen; by default bp+frozen, bp+shallow"
        " and every method's own",
    )
    snapshots: Different[AnEpoch] = Field(
        [],
        description="a list of different epochs, none above 'epochs': every run and baseline is audited after each of"
        " them, too, as run+epoch<k>; 0 is the untrained network",
    )
    monitor: Monitor = Field(
        NO_MONITOR,
        description="a mapping with the key 'stop_on', in place of the configuration's monitor",
    )
    vary: dict[
        OptionName,
        Annotated[
            Different[
                Annotated[int | float | bool | Literal["adamw", "sgd"], Field(description=VALUE)]
            ],
            Field(min_length=1, description="a non-empty list of different values"),
        ],
    ] = Field(
        {},
        min_length=1,
        description="a mapping of epochs, lr, or options of training or of the architecture to lists of values: one"
        " setting for each value, or combination of values",
    )

    def expanded(self, block: str) -> dict[str, SettingEntry]:
        """Return the settings that the block stands for, one for every combination of the values
        under ``vary``.

        ``depth_sweep`` with ``vary: {depth: [2, 4]}`` gives ``depth_sweep_depth2`` and
        ``depth_sweep_depth4``; names hold no points and signs, so that ``tuned`` with ``vary: {lr:
        [0.003, 0.025]}`` gives ``tuned_lr3em3`` and ``tuned_lr2p5em2``.
        """
        settings = {}
        for values in product(*self.vary.values()):
            chosen = dict(zip(self.vary, values))
            budget = {key: value for key, value in chosen.items() if key in BUDGET}
            options = {key: value for key, value in chosen.items() if key not in BUDGET}
            network = self.architecture.model_copy(update=options)
            name = "_".join(
                [block, *(f"{option}{_named(value)}" for option, value in chosen.items())]
            )
            settings[name] = self.model_copy(update=budget | {"architecture": network})
        return settings

    def run_names(self) -> dict[str, list[str]]:
        """Return the names of the runs, by the part of the configuration that asks for them.

        The sweep is every method at every penalty. The depth-utility ladder of a method is the
        method with its top ``k`` blocks trainable, k = L..1; its last rung, k = 0, is the method's
        frozen baseline. A setting that names no baselines gets those that its runs need, and the
        shallow network. Each has its snapshots, too.
        """
        penalties = [
            f"+penalty{short_number(value)}" if value else ""
            for value in sorted(self.sweep.penalties)
        ]
        rungs = ["", *(f"+frozen{count}" for count in range(1, self.architecture.options["depth"]))]
        names = {
            "runs": list(self.runs),
            "sweep": [method + penalty for method in self.sweep.methods for penalty in penalties],
            "ladder": [method + rung for method in self.ladder for rung in rungs],
        }
        names["baselines"] = self.compared_with()
        epochs = [epoch for epoch in sorted(self.snapshots) if epoch < self.epochs]
        for found in names.values():
            whole = [run for run in map(parse_run, found) if run.snapshot is None]
            added = (str(replace(run, snapshot=epoch)) for run in whole for epoch in epochs)
            found += [run for run in added if run not in found]
        return names

    def compared_with(self) -> list[str]:
        """Return the baselines, written or by default, without their snapshots.

        By default they are what the runs that are not baselines themselves are compared with.
        """
        if "baselines" in self.model_fields_set:
            return list(self.baselines)
        runs = map(parse_run, [*self.runs, *self.sweep.methods, *self.ladder])
        return sorted(
            {str(found) for run in runs if not run.is_baseline for found in run.baselines.values()}
        )


def _named(value: Any) -> str:
    """Return how a value is written in the name of a setting: ``true``, ``4``, ``2p5em2`` for
    0.025.
    """
    if isinstance(value, float):
        value = short_number(value) if value else 0
    return str(value).lower().replace(".", "p").replace("-", "m")


class ModelEntry(Strict):
    """An external model and how to read it."""

    model: Annotated[str, _accepted_by(_check_model)] = Field(
        pattern=f"^{ELSEWHERE.pattern}$",
        max_length=200,
        description="package.module:name of what makes the model, such as torchvision.models:resnet18",
    )
    dataset: DatasetName
    blocks: Module | Annotated[Different[Module], Field(min_length=1)] = Field(
        description="a pattern such as encoder.layers.*, or a non-empty list of different dotted names of modules"
    )
    reads: Literal[
        "all features", "cls token", "last token", "spatial mean", "spatial mean, channels last"
    ] = Field(
        description="one of: all features; cls token; last token; spatial mean; spatial mean, channels last"
    )
    arguments: dict[ArgumentName, Argument] = Field(
        {}, description="a mapping: keyword arguments of it"
    )
    weights: str | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="a safetensors file with the model's state dict (default: random weights)",
    )
    seed: int = Field(
        42, ge=0, le=LARGEST, description=f"an integer from 0 to {LARGEST}: of random weights"
    )
    image_shape: list[Pixels] | None = Field(
        None,
        min_length=3,
        max_length=3,
        description="[channels, height, width], integers 1..8192, to which the data set's images are brought",
    )
    batches: int = Field(
        10,
        ge=1,
        le=10,
        description="an integer 1..10: batches for the cross-batch stability, which needs 8",
    )
    accuracy: Fraction | None = Field(
        None, description="a fraction 0..1: accuracy on the whole test set (default: computed)"
    )
    frozen_accuracy: Fraction | None = Field(
        None, description="a fraction 0..1: accuracy with blocks frozen at initialisation"
    )
    bp_frozen_accuracy: Fraction | None = Field(
        None, description="a fraction 0..1: the same, the rest trained by backpropagation"
    )


def model_entry(models: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Return one external model's entry with every key, defaults filled in.

    Raises:
        AuditError: there is no such model, or its entry is wrong.
    """
    if name not in models:
        raise (
            unknown("model", name, models, where="config")
            if models
            else AuditError("config: it has no models.")
        )
    return validated(ModelEntry, models[name], f"models.{name}").model_dump()


# The range of a limit, by the unit of its check.
LIMIT_RANGES: dict[str, tuple[dict[str, float], str]] = {
    "factor": ({"gt": 0}, "a number > 0"),
    "cosine": ({"ge": -1, "le": 1}, "a number from -1 to 1"),
    "points": ({"gt": -1, "lt": 1}, "a fraction between -1 and 1 (0.02 is 2 points)"),
}


def _limit(name: str, default: float) -> tuple[Any, float]:
    """Return type and default of a limit; only saturation does not belong to a check."""
    unit, meaning = "factor", "a small gradient is called saturated below it"
    if check := next((check for check in CHECKS.values() if check.limit == name), None):
        unit, meaning = check.unit, f"{check.paper or check.label} fires {check.side} it"
    bounds, expected = LIMIT_RANGES[unit]
    return Annotated[float, Field(**bounds, description=f"{expected}: {meaning}")], default


Thresholds = create_model(
    "Thresholds",
    __base__=Strict,
    __doc__="Limits of the checks.",
    **{name: _limit(name, default) for name, default in LIMITS.items()},
)


class Artefact(Strict):
    """a mapping with the keys 'settings' and 'title'"""

    kind: str = Field(
        "",
        max_length=100,
        description="the name of a figure or table, or user-defined package.module:function (default: the entry's own"
        " name)",
    )
    settings: Different[SettingName] = Field(
        min_length=1,
        description="a non-empty list of different settings, or of blocks with 'vary', in the order in which they are"
        " shown",
    )
    title: str = Field(description="a text")
    runs: Different[RunText] = Field(
        [],
        min_length=1,
        description="a non-empty list of different run names: the only ones shown (default: all)",
    )


ASetting = Annotated[
    SettingEntry,
    Field(
        description="a mapping with at least dataset, architecture and seeds, and runs, a sweep or a ladder"
    ),
]
AModel = Annotated[
    ModelEntry, Field(description="a mapping with at least model, dataset, blocks and reads")
]


class Configuration(Strict):
    """a mapping with the key 'settings', 'models' or both"""

    data_root: str = Field(
        "data",
        min_length=1,
        max_length=1000,
        description="a folder that holds, or will receive, downloaded data sets",
    )
    settings: dict[Name, ASetting] = Field(
        {}, min_length=1, description="one or more named settings"
    )
    models: dict[Name, AModel] = Field({}, min_length=1, description="one or more named models")
    thresholds: Thresholds = Field(
        Thresholds(), description="limits of the checks (docs/protocol.md)"
    )
    monitor: Monitor = Field(
        NO_MONITOR,
        description="a mapping with the key 'stop_on': trainings (not baselines) end after the first epoch at which"
        " all these checks fire",
    )
    figures: dict[FigureName, Artefact] = Field(
        {}, description="figures to draw: name -> settings and title"
    )
    tables: dict[TableName, Artefact] = Field(
        {}, description="tables to build: name -> settings and title"
    )
    labels: dict[Annotated[str, Field(description="the name of a run or of a setting")], Text] = (
        Field(
            {}, description="how runs and settings are called in figures and tables: name -> text"
        )
    )

    @model_validator(mode="after")
    def _asks_for_something(self) -> Configuration:
        if not self.settings and not self.models:
            raise PydanticCustomError("empty", "settings or models")
        return self

    def expanded(self) -> Iterator[tuple[str, str, SettingEntry]]:
        """Yield name, block and entry of every setting, including those that ``vary`` makes."""
        for block, entry in self.settings.items():
            yield from ((name, block, setting) for name, setting in entry.expanded(block).items())
