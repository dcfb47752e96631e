"""Describe what a configuration may contain.

The tables of docs/configuration.md are made from these classes.

Imports no torch.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, create_model, model_validator

from fa_audit.core.errors import AuditError, shortened, unknown
from fa_audit.core.registry import ELSEWHERE, check_function, find_module
from fa_audit.core.validation import Different, Strict, validated
from fa_audit.data import DATASETS
from fa_audit.experiments.spec import (
    IN_A_FILE,
    LARGEST_OPTION,
    OWN_OPTIONS,
    PAPER,
    Seed,
    parse_run,
    short_number,
)
from fa_audit.methods.info import check_method
from fa_audit.networks import architecture_options
from fa_audit.protocol.evidence import DiagnosticThresholds, Fraction

BUDGET = ("epochs", "batch_size", "lr", "weight_decay", *OWN_OPTIONS)


def _accepted_by(check: Callable[[Any], Any]) -> AfterValidator:
    """Return a validator that keeps a value as it is; `check` may raise an error."""

    def accepted(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(accepted)


def _usual_name(text: str) -> str:
    """Return a run's name in its usual spelling."""
    run = parse_run(text)
    check_method(run.method)
    return str(run)


def _check_baseline(name: str) -> None:
    if not parse_run(name).is_baseline:
        raise AuditError(f"'{name}' is no baseline: expected '+frozen' or '+shallow'.")


def _check_model(name: str) -> None:
    """Check that the module has a file, without importing it: its code runs in jobs only."""
    module = name.partition(":")[0]
    if find_module(module, [Path.cwd(), *sys.path]) is None:
        raise AuditError(f"no file of module '{module}' in the working folder or in PYTHONPATH.")


def _check_figure_name(name: str) -> None:
    if name == "scorecard":
        raise AuditError("the workflow draws a figure 'scorecard' of its own; choose another name.")


# The names limited to 100 characters become names of files and folders, or parts of them.
Name = Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$", max_length=100)]
TableName = Annotated[str, Field(pattern="^[a-z0-9_]+$", max_length=100)]
FigureName = Annotated[TableName, _accepted_by(_check_figure_name)]
MethodName = Annotated[str, Field(pattern="^[^+]+$", max_length=100), _accepted_by(check_method)]
RunText = Annotated[str, Field(min_length=1, max_length=100)]
RunName = Annotated[RunText, AfterValidator(_usual_name)]
BaselineName = Annotated[RunName, _accepted_by(_check_baseline)]
DatasetName = Annotated[
    str,
    Field(
        max_length=100, description="name of a data set, or a user-defined package.module:function"
    ),
    _accepted_by(partial(check_function, "dataset", DATASETS)),
]
ModelName = Annotated[
    str, Field(pattern=f"^{ELSEWHERE.pattern}$", max_length=200), _accepted_by(_check_model)
]
Text = Annotated[str, Field(min_length=1)]
Option = int | float | bool | str


class Architecture(Strict, extra="allow"):
    """The architecture of a network: its name, and any of its options."""

    __pydantic_extra__: dict[str, Option]
    name: str = Field(
        max_length=100,
        description="name of an architecture, or a user-defined package.module:Class",
    )

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        known = architecture_options(self.name)
        for option, value in self.model_extra.items():
            if option not in known:
                raise unknown(f"option of {self.name}", option, known)
            _check_option(option, value, known[option])
        return self

    @property
    def options(self) -> dict[str, Any]:
        """Return every option, given or default."""
        return architecture_options(self.name) | self.model_extra


def _check_option(option: str, value: Any, default: Any) -> None:
    """Check that an option has the type of its default, or is a number > 0 if it has none."""
    if default is None:
        good = type(value) is float and 0 < value < math.inf
        expected = "a number > 0 with a point, such as 0.05"
    elif type(default) is int:
        least = min(1, default)
        good = type(value) is int and least <= value <= LARGEST_OPTION
        expected = f"an integer {least}..{LARGEST_OPTION}"
    else:
        good = type(value) is type(default)
        expected = f"a {type(default).__name__} such as {default}"
    if not good:
        raise AuditError(f"{option}: found {shortened(value)}; expected {expected}.")


class Sweep(Strict):
    """The penalty sweep of a setting: every method is trained at every penalty."""

    methods: Different[MethodName] = Field(min_length=1, description="names of methods")
    penalties: Different[Annotated[float, Field(ge=0)]] = Field(
        min_length=1, description="weights of the residual penalty, written like 0.01 or 1.0e-2"
    )


class Monitor(Strict):
    """Checks that end a training early."""

    stop_on: Different[Literal["D1", "D2", "D2@1024"]] = Field(
        min_length=1,
        description="a training ends after the epoch at which all these checks fire; D2@1024"
        " fires if the gradient norm on 1,024 samples is below D2's limit for 128 samples",
    )


_NO_MONITOR = Monitor.model_construct(stop_on=[])


class Task(Strict):
    """The network of a setting, and its data."""

    description: str = Field("", description="what the setting is for")
    dataset: DatasetName
    architecture: Architecture = Field(description="name of the architecture, and its options")


# The budget's types and defaults are those of a run specification.
Budget: Any = create_model(
    "Budget", __base__=Task, **{name: (IN_A_FILE[name], PAPER[name]) for name in BUDGET}
)


class SettingEntry(Budget):
    """One block of the configuration: one setting, or several with ``vary``."""

    seeds: Different[Seed] = Field(
        min_length=1, description="every run is trained once with each seed"
    )
    runs: Different[RunName] = Field(
        [], min_length=1, description="run names such as dfa+penalty1e-2"
    )
    sweep: Sweep = Field(
        Sweep.model_construct(methods=[], penalties=[]),
        description="methods and residual penalties; every combination is trained",
    )
    ladder: Different[MethodName] = Field(
        [],
        description="each of these methods trains only its top k blocks, for k = 1..L (L: all);"
        " k = 0 is its frozen baseline",
    )
    baselines: Different[BaselineName] = Field(
        [],
        description="frozen or shallow runs; default: bp+frozen, bp+shallow and every method's"
        " frozen run, such as dfa+frozen",
    )
    snapshots: Different[Annotated[int, Field(ge=0)]] = Field(
        [],
        description="epochs k after which every run is audited, too, as run+epoch<k>; 0: the"
        " untrained network",
    )
    monitor: Monitor = Field(
        _NO_MONITOR, description="used in place of the monitor at the top level"
    )
    vary: dict[str, Annotated[Different[Option], Field(min_length=1)]] = Field(
        {},
        min_length=1,
        description="for an option of training or of the architecture, a list of its values; one"
        " setting for every combination",
    )

    def variants(self, block: str) -> Iterator[tuple[str, SettingEntry]]:
        """Yield the name and entry of every setting in the block.

        The block ``depth_sweep`` with ``vary: {depth: [2, 4]}`` gives ``depth_sweep_depth2`` and
        ``depth_sweep_depth4``. Names spell points and signs as letters: ``tuned`` with ``vary: {lr:
        [0.003, 0.025]}`` gives ``tuned_lr3em3`` and ``tuned_lr2p5em2``.

        Raises:
            AuditError: a variant is not a valid setting, or an option of ``vary`` is also given
                outside of it.
        """
        if not self.vary:
            yield block, self
            return
        for values in product(*self.vary.values()):
            written = self.model_dump(exclude_unset=True, exclude={"vary"})
            name = block
            for option, value in zip(self.vary, values):
                place = written if option in BUDGET else written["architecture"]
                if option in place:
                    raise AuditError(f"vary.{option}: given outside 'vary', too; keep one of them.")
                place[option] = value
                name += f"_{option}{_value_name(value)}"
            yield name, validated(SettingEntry, written, "vary")

    def audited_runs(self) -> list[str]:
        """Return the names of all audited runs: the entry's runs, sweep, ladder, then snapshots.

        The sweep goes method by method, by rising penalty. The ladder trains every method with its
        top ``k`` of L blocks trainable, for k = L..1. The case k = 0 is the method's frozen
        baseline, which is among the `baseline_runs`.
        """
        runs = list(self.runs)
        for method in self.sweep.methods:
            for value in sorted(self.sweep.penalties):
                runs.append(f"{method}+penalty{short_number(value)}" if value else method)
        for method in self.ladder:
            counts = range(1, self.architecture.options["depth"])
            runs += [method, *(f"{method}+frozen{count}" for count in counts)]
        return self._with_snapshots(runs)

    def baseline_runs(self) -> list[str]:
        """Return the entry's ``baselines`` or, if this key is missing, the baselines of its runs.
        The snapshots of these baselines follow.
        """
        if "baselines" in self.model_fields_set:
            return self._with_snapshots(self.baselines)
        names = set()
        for run in map(parse_run, [*self.runs, *self.sweep.methods, *self.ladder]):
            if not run.is_baseline:
                names.update(map(str, run.baselines.values()))
        return self._with_snapshots(sorted(names))

    def _with_snapshots(self, names: list[str]) -> list[str]:
        """Add the names of all snapshots, and keep every name once."""
        found = list(names)
        for name in names:
            for epoch in sorted(self.snapshots):
                # A snapshot has no snapshots, and the snapshot of the last epoch is the run itself.
                if parse_run(name).snapshot is None and epoch != self.epochs:
                    found.append(f"{name}+epoch{epoch}")
        return list(dict.fromkeys(found))


def _value_name(value: Any) -> str:
    """Write a value for the name of a setting: ``true``, ``4``, ``2p5em2`` for 0.025, and
    ``leaky_relu`` for a text with a blank.
    """
    if isinstance(value, float):
        value = short_number(value) if value else 0
    text = str(value).lower().replace(".", "p").replace("-", "m")
    return re.sub("[^a-z0-9]", "_", text)


class ModelEntry(Strict):
    """An external model, and where its states are."""

    model: ModelName = Field(
        description="package.module:name of a function that returns the model, such as"
        " torchvision.models:resnet18",
    )
    dataset: DatasetName
    blocks: str | Annotated[Different[str], Field(min_length=1)] = Field(
        min_length=1,
        description="a pattern such as encoder.layers.*, or dotted names of modules",
    )
    reads: Literal[
        "all features", "cls token", "last token", "spatial mean", "spatial mean, channels last"
    ] = Field(description="what the head reads of a state")
    arguments: dict[str, JsonValue] = Field({}, description="keyword arguments of the model")
    weights: str | None = Field(
        None,
        min_length=1,
        max_length=1000,
        description="a safetensors file with the model's state dict; default: random weights",
    )
    seed: Seed = Field(42, description="seed of random weights")
    image_shape: list[Annotated[int, Field(ge=1, le=LARGEST_OPTION)]] | None = Field(
        None,
        min_length=3,
        max_length=3,
        description="[channels, height, width] to which the data set's images are resized",
    )
    batches: int = Field(
        10, ge=1, le=10, description="batches for check C, which is not evaluated with fewer than 8"
    )
    accuracy: Fraction | None = Field(
        None, description="accuracy on the whole test set; default: computed"
    )
    frozen_accuracy: Fraction | None = Field(
        None, description="accuracy of the method's own frozen baseline"
    )
    bp_frozen_accuracy: Fraction | None = Field(
        None, description="accuracy of the frozen baseline of backpropagation"
    )


def model_entry(models: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Return one external model's entry with every key, defaults filled in.

    Raises:
        AuditError: there is no such model, or its entry is wrong.
    """
    if name not in models:
        raise unknown("model", name, models, where="config")
    return validated(ModelEntry, models[name], f"models.{name}").model_dump()


class Artefact(Strict):
    """A figure or a table."""

    kind: str = Field(
        "",
        min_length=1,
        max_length=100,
        description="name of a figure or table, or a user-defined package.module:function; default:"
        " NAME",
    )
    settings: Different[str] = Field(
        min_length=1,
        description="settings to show, in this order; a name with 'vary' stands for all its"
        " settings",
    )
    title: str = Field(description="the title")
    runs: Different[RunText] = Field([], min_length=1, description="runs to show; default: all")


class Configuration(Strict):
    """A whole configuration."""

    data_root: str = Field(
        "data",
        min_length=1,
        max_length=1000,
        description="folder of downloaded data sets, into which missing ones are downloaded",
    )
    settings: dict[Name, SettingEntry] = Field(
        {}, min_length=1, description="settings to train and audit, by name"
    )
    models: dict[Name, ModelEntry] = Field(
        {}, min_length=1, description="external models to audit, by name"
    )
    thresholds: Annotated[dict[str, float], _accepted_by(DiagnosticThresholds.of)] = Field(
        {}, description="limits of the checks"
    )
    monitor: Monitor = Field(
        _NO_MONITOR,
        description="checks that end a training early; baselines never end early",
    )
    figures: dict[FigureName, Artefact] = Field({}, description="figures to draw, by name")
    tables: dict[TableName, Artefact] = Field({}, description="tables to build, by name")
    labels: dict[str, Text] = Field(
        {}, description="for a run or a setting, its name in figures and tables"
    )

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        if not self.settings and not self.models:
            raise AuditError("found neither settings nor models.")
        return self
