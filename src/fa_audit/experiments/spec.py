"""Training runs: the name that people write (`dfa+penalty1e-2`) and the full specification behind
it.

Imports no torch: the workflow builds its whole plan from these objects.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import Field, create_model

from fa_audit.core.errors import AuditError, unknown
from fa_audit.core.files import digest_of
from fa_audit.core.validation import Strict, validated

_FLAGS = ("unnormalised", "shallow", "random_targets")
_RUN_OPTIONS = ("penalty<number>", "lr<number>", "frozen", "frozen<k>", "epoch<k>", *_FLAGS)
# Plain decimals, with or without an exponent; Python's float() also reads 1_0 and nan.
_NUMBER = r"(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"
# Fields of the same name and meaning in a run and in its specification.
SHARED = ("method", "penalty", "shallow", "random_targets", "snapshot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A method and its options, e.g. ``Run(method="dfa", penalty=0.01)`` for ``dfa+penalty1e-2``.

    Attributes:
        method: name of the training method.
        penalty: residual penalty ``lambda`` >= 0.
        lr: the run's own learning rate; None takes the setting's.
        unnormalised: learn from credits without normalising them, whatever the setting says.
        frozen: number of leading blocks kept at initialisation; ``-1`` means all of them.
        shallow: drop the blocks altogether.
        random_targets: train on fresh uniform labels.
        snapshot: stop after this epoch of the schedule; 0 is the untrained network, None the last.
    """

    method: str
    penalty: float = 0.0
    lr: float | None = None
    unnormalised: bool = False
    frozen: int = 0
    shallow: bool = False
    random_targets: bool = False
    snapshot: int | None = None

    def __str__(self) -> str:
        parts = [self.method]
        if self.penalty:
            parts.append(f"penalty{short_number(self.penalty)}")
        if self.lr:
            parts.append(f"lr{short_number(self.lr)}")
        if self.unnormalised:
            parts.append("unnormalised")
        if self.frozen:
            parts.append(f"frozen{self.frozen}" if self.frozen > 0 else "frozen")
        parts += [flag for flag in ("shallow", "random_targets") if getattr(self, flag)]
        if self.snapshot is not None:
            parts.append(f"epoch{self.snapshot}")
        return "+".join(parts)

    def spec(self, *, depth: int, **common: Any) -> RunSpec:
        """Return the full specification of this run in a network of `depth` blocks.

        `common` has the other fields of `RunSpec`.
        """
        if self.lr:
            common["lr"] = self.lr
        if self.unnormalised:
            common["normalise"] = False
        own = {name: getattr(self, name) for name in SHARED}
        return RunSpec(**own, frozen_blocks=depth if self.frozen < 0 else self.frozen, **common)

    @property
    def whole(self) -> Run:
        """Return this run without ``epoch<k>``: it trains to the last epoch."""
        return replace(self, snapshot=None)

    @property
    def until(self) -> float:
        """Return the snapshot's epoch; infinity for a run that is no snapshot."""
        return math.inf if self.snapshot is None else self.snapshot

    @property
    def is_baseline(self) -> bool:
        """Return whether the run has the option ``frozen`` (all blocks) or ``shallow``."""
        return self.frozen < 0 or self.shallow

    @property
    def untuned(self) -> Run:
        """Return this run without the options ``lr`` and ``unnormalised``."""
        return replace(self, lr=None, unnormalised=False)

    @property
    def baselines(self) -> dict[str, Run]:
        """Return this run's baselines after the same epoch, by role; a setting may lack them.

        ``own``: the blocks stay at initialisation and the same method trains the rest, on true
        targets and without a penalty, which acts on blocks only. ``bp``: the same, by
        backpropagation. ``shallow``: as ``bp``, without blocks. All share the run's learning rate
        and normalisation of credits, unless a setting lists a baseline with another learning rate
        (`Setting.baselines_of`).
        """
        bp = replace(self, method="bp", penalty=0.0, frozen=-1, shallow=False, random_targets=False)
        return {
            "own": replace(bp, method=self.method),
            "bp": bp,
            "shallow": replace(bp, frozen=0, shallow=True),
        }


def run_of(spec: RunSpec, depth: int) -> Run:
    """Return the run of a specification in a network of `depth` blocks, without the options that a
    setting can have for all its runs: learning rate and normalisation.
    """
    frozen = -1 if 0 < spec.frozen_blocks == depth else spec.frozen_blocks
    options = {name: getattr(spec, name) for name in SHARED}
    return Run(**options, frozen=0 if spec.shallow else frozen)


def short_number(value: float) -> str:
    """Return the shortest scientific spelling of a positive number: 0.01 -> ``1e-2``, 0.025 ->
    ``2.5e-2``.
    """
    digits, exponent = f"{Decimal(repr(value)).normalize():e}".split("e")
    return f"{digits}e{int(exponent)}"


@lru_cache(maxsize=4096)
def parse_run(text: str) -> Run:
    """Read a run name; the inverse of ``str(run)``, and tolerant of other spellings of a number.

    >>> parse_run("dfa+penalty0.01").penalty
    0.01
    >>> str(parse_run("dfa+epoch5+frozen+unnormalised+lr.003"))
    'dfa+lr3e-3+unnormalised+frozen+epoch5'

    Raises:
        AuditError: an unknown, repeated or contradictory option, or a number out of range.
    """
    method, *options = text.split("+")
    chosen: dict[str, Any] = {}
    for option in options:
        name, value = _parse_option(option, text)
        if name in chosen:
            raise AuditError(f"run '{text}': option '{option}' repeats an earlier one; keep one.")
        chosen[name] = value
    run = Run(method=method, **chosen)
    if run.shallow and (run.frozen or run.penalty):
        raise AuditError(f"run '{text}': 'shallow' leaves no blocks to freeze or penalise.")
    return run


def _parse_option(option: str, text: str) -> tuple[str, Any]:
    if option in _FLAGS:
        return option, True
    if option == "frozen":
        return "frozen", -1
    if re.fullmatch(r"frozen[1-9]\d{0,8}", option):
        return "frozen", int(option.removeprefix("frozen"))
    if re.fullmatch(r"epoch(0|[1-9]\d{0,5})", option):
        return "snapshot", int(option.removeprefix("epoch"))
    for name in ("penalty", "lr"):
        if option.startswith(name):
            return name, _parse_number(name, option.removeprefix(name), text)
    raise unknown("option", option, _RUN_OPTIONS, where=f"run '{text}'")


def _parse_number(name: str, number: str, text: str) -> float:
    value = float(number) if re.fullmatch(_NUMBER, number) else math.inf
    # 1e999 matches the pattern, too, and is infinite.
    if value == math.inf or (name == "lr" and value == 0):
        raise AuditError(
            f"run '{text}': found {name} '{number}'; expected a finite number >= 0, or > 0 for lr,"
            f" written like {name}1e-2."
        )
    return value


# Largest value of an architecture's option, so that no file makes anyone build an endless network.
LARGEST_OPTION = 8192
# Largest seed: torch takes 64 bits, but readers of JSON may take fewer.
LARGEST = 2**31 - 1
# Numbers of test images on which audits also measure norms, since some published norms use them.
SAMPLES = (256, 1024)
# Text without line breaks, control characters and direction marks: it is printed on one line.
Text = Annotated[str, Field(pattern=r"^(?:[^\p{C}\p{Z}]| )*$")]
Seed = Annotated[int, Field(ge=0, le=LARGEST)]
_OptionNumber = (
    Annotated[int, Field(le=LARGEST_OPTION)] | Annotated[float, Field(le=LARGEST_OPTION)]
)
# Options for departures from the paper's training; a specification lists only those that it sets.
OWN_OPTIONS = (
    "optimiser",
    "clip",
    "clip_groups",
    "normalise",
    "rms_floor",
    "frozen_embedding",
    "validation",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """Everything that decides the bits of a trained network. Defaults are the paper's (section
    'Training').

    The annotated types of the training options also check and describe these options in
    configurations and on the command line.

    Attributes:
        dataset, architecture, method: names.
        architecture_options: sorted ``(name, value)`` pairs; the value None takes the
            architecture's default.
        penalty: ``lambda`` of ``lambda * mean_B ||f_l||^2``.
        frozen_blocks: the first ``k`` blocks stay at initialisation.
        shallow: no blocks at all.
        random_targets: fresh uniform labels in every minibatch.
        batch_size: the last batch of an epoch may be smaller.
        lr: the learning rate before its cosine decay to 0.
        weight_decay: added to the gradient in SGD.
        seed: fixes initialisation, feedback matrices, shuffling, augmentation and noise.
        clip, clip_groups: both also clip the gradients of the method's own parameters.
        validation: share of the training set, its last samples, that is held out of training.
        snapshot: training ends after this epoch, while the schedule keeps its length `epochs`; None
            trains all epochs.
        monitor: checks (``"D1"``, ``"D2"``, ``"D2@1024"``) and their limits, sorted; training ends
            after the first epoch at which all of them fire. Empty: it never ends early.

    Raises:
        AuditError: a number of the wrong type or out of range.
    """

    dataset: Text
    architecture: Text
    architecture_options: tuple[tuple[str, Any], ...] = ()
    method: Text
    penalty: Annotated[float, Field(ge=0)] = 0.0
    frozen_blocks: Seed = 0
    shallow: bool = False
    random_targets: bool = False
    epochs: Annotated[
        int,
        Field(
            ge=0,
            le=100_000,
            description="passes over the training set; 0 leaves the network untrained",
        ),
    ] = 100
    batch_size: Annotated[int, Field(ge=1, le=65536, description="images per step")] = 128
    lr: Annotated[
        float,
        Field(
            gt=0,
            description="learning rate, such as 1.0e-3: lr (1 + cos(pi e / epochs)) / 2 in epoch e, from 0",
        ),
    ] = 1e-3
    weight_decay: Annotated[
        float,
        Field(
            ge=0,
            description="weight decay, decoupled with adamw, added to the gradient with sgd; "
            "a method's own nets decay only if its rule says so",
        ),
    ] = 0.01
    seed: Seed = 42
    optimiser: Annotated[
        Literal["adamw", "sgd"],
        Field(description="adamw, or sgd with momentum 0.9"),
    ] = "adamw"
    clip: Annotated[
        float,
        Field(ge=0, description="clip all gradients together to this norm; 0 does not clip"),
    ] = 0.0
    clip_groups: Annotated[
        float,
        Field(
            ge=0,
            description="clip the gradient of each part (embedding, each block, head, the method's"
            " own nets) to this norm; 0 does not clip",
        ),
    ] = 0.0
    normalise: Annotated[
        bool,
        Field(description="divide credits by their root mean square, unless the method opts out"),
    ] = True
    rms_floor: Annotated[
        float, Field(ge=0, description="added to the root mean square by which credits are divided")
    ] = 1e-6
    frozen_embedding: Annotated[bool, Field(description="keep the embedding at initialisation")] = (
        False
    )
    validation: Annotated[
        float,
        Field(ge=0, lt=1, description="fraction of the training set held out for model selection"),
    ] = 0.0
    snapshot: Seed | None = None
    monitor: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        options = tuple(pair for pair in self.architecture_options if pair[1] is not None)
        object.__setattr__(self, "architecture_options", options)
        validated(SpecFile, self.to_dict(), "run specification")
        # Turn 1 into 1.0 and -0.0 into 0.0, or equal specifications would have different digests.
        for field in fields(self):
            if type(field.default) is float:
                object.__setattr__(self, field.name, float(getattr(self, field.name)) + 0.0)
        if self.clip and self.clip_groups:
            raise AuditError(
                f"run specification: found clip {self.clip} and clip_groups {self.clip_groups};"
                " expected one: clip for all gradients together, clip_groups for each group."
            )
        if self.snapshot is not None and self.snapshot > self.epochs:
            raise AuditError(
                f"run specification: snapshot: found epoch {self.snapshot}; expected one of the"
                f" schedule, 0..{self.epochs}."
            )
        # The last epoch's snapshot is the run itself.
        if self.snapshot == self.epochs:
            object.__setattr__(self, "snapshot", None)

    def to_dict(self) -> dict[str, Any]:
        """Return the specification as plain JSON types, for ``RunSpec.from_dict``; options in
        `DEPARTURES` are left out at their defaults.
        """
        values = {}
        for name in _FIELDS:
            value = getattr(self, name)
            if name not in DEPARTURES or value != DEPARTURES[name]:
                values[name] = value
        for name in _PAIRS:
            values[name] = dict(values[name])
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunSpec:
        """Rebuild a specification from its dictionary.

        Raises:
            AuditError: a field is missing or unknown, or its value is of the wrong type or out of
                range.
        """
        validated(SpecFile, values, "run specification")
        given = dict(values)
        for name in _PAIRS:
            given[name] = tuple(sorted(given[name].items()))
        return cls(**given)

    def with_run(self, run: Run) -> RunSpec:
        """Return another run's specification: same network, data, budget and seed, without a
        monitor.
        """
        depth = dict(self.architecture_options).get("depth", 0)
        of_a_run = (*SHARED, "frozen_blocks", "monitor")
        common = {name: getattr(self, name) for name in _FIELDS if name not in of_a_run}
        return run.spec(depth=depth, **common)

    @property
    def last_epoch(self) -> int:
        """Return the epoch after which training ends unless a monitor ends it earlier; 0 trains
        nothing.
        """
        return self.epochs if self.snapshot is None else self.snapshot

    @property
    def digest(self) -> str:
        """Return the eight hexadecimal digits that name this specification in provenance."""
        return digest_of(self.to_dict())[:8]


# Fields that hold pairs. In a file they are mappings.
_PAIRS = {
    "architecture_options": dict[Text, _OptionNumber | bool | Text],
    "monitor": dict[Text, float],
}
PAPER = {field.name: field.default for field in fields(RunSpec)}
_FIELDS = tuple(PAPER)
DEPARTURES = {name: PAPER[name] for name in (*OWN_OPTIONS, "snapshot")}
# Type and range of every field, as stored in a file.
IN_A_FILE: dict[str, Any] = {**get_type_hints(RunSpec, include_extras=True), **_PAIRS}
SpecFile = create_model(
    "SpecFile",
    __base__=Strict,
    __doc__="the specification of a run",
    **{name: (IN_A_FILE[name], DEPARTURES.get(name, ...)) for name in _FIELDS},
)
