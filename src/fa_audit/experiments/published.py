"""Read the published numbers, each with its quantity and experiment.

Imports no torch or pandas, since the workflow reads these numbers when it plans.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from fa_audit.core.errors import AuditError, unknown
from fa_audit.core.provided import provided
from fa_audit.core.validation import Different, Strict, validated
from fa_audit.experiments.config import RunName, Text
from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.grid import Grid
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.read_grid import read_grid
from fa_audit.experiments.spec import SAMPLES, Seed
from fa_audit.protocol.checks import CHECKS
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.protocol.judge import FOUR, THREE

FILE = "reference/published.yaml"
PAPER_LIMITS = {
    name: limit for name, limit in DiagnosticThresholds().limits.items() if name != "saturation"
}


# --- the quantities


NEVER = "never"  # the value of a quantity such as first_scale_flag if there is no such epoch
BATCH = 128  # samples of an audit
LAYER, EPOCH = ("layer",), ("epoch",)
_NUMBER, _FIRST, _FLAG = (), (NEVER,), (True, False)
_OF_A_RUN = (*(check.column for check in CHECKS.values()), "accuracy", "own_frozen_acc",
             "bp_frozen_acc", "hidden_norm_last", "identity_distance", "identity_cosine",
             "mean_clamped_cosine_at_input", "deep_clamped_cosine_at_input", "deep_rho_at_input",
             "deep_rho_bp_at_input", "deep_rho_random_at_input", "deep_nudging_at_input",
             "fresh_b_mean_at_input", "fresh_b_std_at_input")  # fmt: skip
_OF_A_LAYER = ("hidden_norm", "grad_norm", "credit_norm", "residual_ratio", "displacement",
               "cosine_to_embedding", "clamped_cosine_at_input")  # fmt: skip
# Of these, and of the growth in a block, the last is that of block L - 1, not of state L.
_OF_A_BLOCK = ("residual_ratio", "credit_norm", "clamped_cosine_at_input", "growth")
_FLAGS = (*(f"{check}_fires" for check in FOUR.checks), "by_cosine")
# Columns of the tidy tables with which a published number may be compared, grouped by the fields
# (`layer`, `epoch`) that an `Entry` for them must have. A column's tuple lists its values that are
# not numbers: the words of a verdict, true and false of a flag, `NEVER` of an epoch that may not
# exist.
QUANTITIES: dict[tuple[str, ...], dict[str, tuple[Any, ...]]] = {
    (): {
        **dict.fromkeys(_OF_A_RUN, _NUMBER),
        **dict.fromkeys(("first_scale_flag", "first_reference_flag", "stopped_after"), _FIRST),
        **dict.fromkeys(_FLAGS, _FLAG),
        "three_check": tuple(THREE.words.values()),
        "four_check": tuple(FOUR.words.values()),
    },
    LAYER: dict.fromkeys(_OF_A_LAYER, _NUMBER),
    EPOCH: dict.fromkeys(("test_accuracy", "train_loss"), _NUMBER),
    EPOCH + LAYER: dict.fromkeys(("hidden_norm", "grad_norm", "growth"), _NUMBER),
}
# Quantities that audits also measure on 256 and 1,024 samples (`SAMPLES`), in columns such as
# grad_norm_1024. The first flag follows from the norms of a training's epochs.
OF_SAMPLES = ("hidden_norm", "grad_norm", "residual_ratio", "displacement", "cosine_to_embedding",
              "first_reference_flag")  # fmt: skip


# --- the entries

_Answer = bool | Text
_KINDS = {  # kind of a number -> the keys that it may have besides those of every number
    "value": {"value", "deviation", "tolerance", "minus", "over"},
    "magnitude": {"value", "deviation", "minus", "over"},
    "bound": {"above", "below", "minus", "over"},
    "verdict": {"value"},
    "order": set(),
}


class Entry(Strict):
    """A published number.

    Attributes:
        quantity: a column of the tidy tables.
        run: the run that the number belongs to; for kind ``order``, a list, best first.
        layer: index of the state or block, if the quantity needs one.
        epoch: epoch of the trajectory, if the quantity needs one.
        samples: number of test samples on which the number was measured.
        kind: the rule by which it is compared (docs/reproduction.md).
        value: a number; for a verdict, one of its answers in `QUANTITIES`.
        deviation: standard deviation over the `n` averaged numbers, if it is published.
        tolerance: the difference to allow if the published number or ours has no deviation.
        above, below: a bound; every seed must lie above it, or below it.
        minus, over: another run, whose quantity is subtracted from that of `run`, or divides it,
            seed by seed.
        values: the numbers of single seeds, if they are published.
        seeds: the seeds of our runs to compare with.
        repeats: what this number restates, in words; it is then not counted.
        decides: whether the scorecard should say if this number tells the setting's script from the
            paper's other scripts.
    """

    quantity: str
    setting: str
    run: RunName | Different[RunName]
    layer: int | None = Field(None, ge=0)
    epoch: int | None = Field(None, ge=1)
    samples: int = Field(BATCH, ge=1)
    kind: Literal["value", "magnitude", "bound", "verdict", "order"]
    value: float | _Answer | None = None
    deviation: float | None = Field(None, ge=0)
    tolerance: float | None = Field(None, gt=0)
    above: float | None = None
    below: float | None = None
    minus: RunName | None = None
    over: RunName | None = None
    n: int = Field(ge=1)
    values: dict[Seed, float | _Answer] = Field({})
    seeds: Different[Seed] = Field([42, 123, 456], min_length=1)
    source: Text
    claim: Text | None = None
    repeats: Text | None = None
    decides: bool = False
    note: str = ""

    @property
    def runs(self) -> list[str]:
        """Return the entry's run, as a list; for kind ``order``, all its runs, best first."""
        return [self.run] if isinstance(self.run, str) else self.run

    @property
    def all_runs(self) -> list[str]:
        """Return `runs`, and the run that `minus` or `over` names, if any."""
        return [*self.runs, *filter(None, [self.minus, self.over])]

    @property
    def whose(self) -> str:
        """Return the runs as text, such as ``dfa minus bp``, or ``bp > dfa`` for an order."""
        if self.kind == "order":
            return " > ".join(self.runs)
        return (" minus " if self.minus else " over ").join(self.all_runs)

    @property
    def key(self) -> str:
        """Return the entry's name in explanations: ``main_audit dfa grad_norm layer 1``."""
        parts = [self.setting, self.whose, self.quantity]
        parts += [f"{name} {getattr(self, name)}" for name in self.places]
        return " ".join(parts)

    @property
    def published(self) -> float | str:
        """Return what was published: a number, an answer, a limit or an order."""
        if self.kind == "bound":
            return f"< {self.below:g}" if self.above is None else f"> {self.above:g}"
        return self.whose if self.kind == "order" else plain(self.value)

    @property
    def places(self) -> tuple[str, ...]:
        """Return which of the fields ``epoch`` and ``layer`` the entry has."""
        return tuple(name for name in (*EPOCH, *LAYER) if getattr(self, name) is not None)

    @property
    def answers(self) -> tuple[Any, ...]:
        """Return the answers that a verdict on this quantity may give; see `QUANTITIES`."""
        return QUANTITIES[self.places][self.quantity]

    def run_keys(self) -> Iterator[RunKey]:
        """Yield our runs that the number is compared with."""
        return (RunKey(self.setting, run, seed) for run in self.all_runs for seed in self.seeds)

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        given = self.model_fields_set & set().union(*_KINDS.values())
        strange = sorted(given - _KINDS[self.kind])
        if strange:
            raise AuditError(f"a {self.kind} has no {', '.join(strange)}; remove it.")
        number = isinstance(self.value, float)
        expected = {
            "value": (number and self.tolerance is not None, "a number and a tolerance"),
            "magnitude": (number and self.value, "a number other than 0"),
            "bound": ((self.above is None) != (self.below is None), "either above or below"),
            "verdict": (self.value is not None, "true, false or a text"),
            "order": (len(self.runs) > 1, "two runs or more"),
        }
        fits, needed = expected[self.kind]
        if not fits or (self.minus and self.over):
            found = "."
            if isinstance(self.value, str):
                found = f"; found the text {self.value!r}; write a number as 0.5 or 1.0e-8."
            raise AuditError(
                f"expected of a {self.kind}: {needed}, and at most one of minus, over{found}"
            )
        if self.kind != "order" and not isinstance(self.run, str):
            raise AuditError(f"found runs {self.run}; expected of a {self.kind}: one run.")
        return self

    @model_validator(mode="after")
    def _has_a_quantity(self) -> Self:
        known = QUANTITIES[self.places]
        if self.quantity not in known:
            of = f"quantity of {' and '.join(self.places) or 'a run'}"
            raise unknown(of, self.quantity, known, where="published numbers")
        measured = self.quantity in OF_SAMPLES and self.samples in SAMPLES
        if self.samples != BATCH and not measured:
            raise AuditError(f"{self.quantity} of {self.samples} samples is not measured.")
        answers = list(map(plain, self.answers))
        if self.kind == "verdict" and self.published not in answers:
            expected = f"one of {answers}" if answers else "another kind: it is a number"
            raise AuditError(f"{self.quantity}: found {self.published}; expected {expected}.")
        if self.kind != "verdict" and self.answers not in (_NUMBER, _FIRST):
            raise AuditError(f"{self.quantity} is a verdict.")
        return self


def plain(value: Any) -> Any:
    """Return booleans and None as lower-case text, and anything else unchanged."""
    return str(value).lower() if isinstance(value, bool) or value is None else value


# --- the file

_ScriptName = Annotated[str, Field(pattern=r"^[\w-]+$")]
_OF_ENTRIES = {"runs", "seeds", "sweep", "ladder", "vary", "baselines"}


class Experiment(Strict, extra="allow"):
    """A published experiment. Extra fields are the keys of a setting in a configuration, without
    those that name runs and seeds, since entries name them.

    Attributes:
        script: the paper's script that is assumed to have trained the networks.
        reason: why this script is assumed.
        excluded: why its numbers are shown but not counted; empty if they count.
    """

    script: _ScriptName
    reason: Text
    excluded: Text | None = None

    @model_validator(mode="after")
    def _names_no_runs(self) -> Self:
        found = sorted(_OF_ENTRIES & self.model_extra.keys())
        if found:
            raise AuditError(f"found {', '.join(found)}; entries name runs and seeds: remove it.")
        return self


class Published(Strict):
    """All published numbers, in the order of the file.

    Attributes:
        claims: the paper's claims by name.
        scripts: for every script, the options of its trainings, unless a setting has its own.
        released: the released script; default the last one.
    """

    claims: dict[str, Text] = Field({})
    scripts: dict[_ScriptName, dict[str, Any]] = Field(min_length=1)
    released: _ScriptName | None = None
    settings: dict[str, Experiment] = Field(min_length=1)
    entries: list[Entry] = Field(min_length=1)

    @property
    def released_script(self) -> str:
        """Return the script that was released."""
        return self.released or list(self.scripts)[-1]

    @cached_property
    def experiments(self) -> Mapping[str, Grid]:
        """Return a grid for every script: the runs of all entries, as this script trains them."""
        runs, seeds = defaultdict(set), defaultdict(set)
        for key in self.run_keys():
            runs[key.setting].add(key.run)
            seeds[key.setting].add(key.seed)
        grids = {}
        for script, shared in self.scripts.items():
            settings = {}
            for name in runs:
                own = {"runs": sorted(runs[name]), "seeds": sorted(seeds[name])}
                settings[name] = {**shared, **self.settings[name].model_extra, **own}
            # Errors of a setting name the script instead of a line.
            grids[script] = read_grid(
                {"settings": settings}, where=lambda place, script=script: f"script {script}"
            )
        return grids

    def spec(self, key: RunKey, script: str = "") -> dict[str, Any]:
        """Return the specification by which a script of the paper trains a run, as JSON types.

        Args:
            script: the script's name; default the setting's `Experiment.script`.
        """
        return self.experiments[script or self.settings[key.setting].script].spec(key).to_dict()

    def specs(self, entry: Entry, script: str) -> dict[str, dict[str, Any]]:
        """Map each run of an entry to the specification by which `script` trains it."""
        seed = entry.seeds[0]
        return {run: self.spec(RunKey(entry.setting, run, seed), script) for run in entry.all_runs}

    def run_keys(self) -> list[RunKey]:
        """Return the runs and seeds with which published numbers are compared, each once."""
        return list(dict.fromkeys(key for entry in self.entries for key in entry.run_keys()))

    def run_keys_in(self, grid: Grid) -> list[RunKey]:
        """Return the runs of `grid` whose training equals that of a published run under one of the
        paper's scripts.
        """
        wanted = set()
        for experiment in self.experiments.values():
            wanted |= {experiment.spec(key) for key in self.run_keys()}
        found = []
        for key in grid.run_keys("runs"):
            spec = grid.spec(key)
            # A monitor changes numbers only if it ends a training.
            if spec in wanted or replace(spec, monitor=()) in wanted:
                found.append(key)
        return found

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        seen = {}
        for position, entry in enumerate(self.entries):
            where = f"entries.{position}"
            if entry.setting not in self.settings:
                raise unknown("setting", entry.setting, self.settings, where=where)
            if entry.claim is not None and entry.claim not in self.claims:
                raise unknown("claim", entry.claim, self.claims, where=where)
            # Two entries are the same if they differ only in their numbers and sources.
            same = (entry.key, entry.samples, entry.kind, entry.above is None, entry.repeats)
            first = seen.setdefault((*same, *sorted(entry.seeds)), where)
            if first != where:
                raise AuditError(f"{where}: the same as {first}; keep one.")
        for script in (self.released_script, *(each.script for each in self.settings.values())):
            if script not in self.scripts:
                raise unknown("script", script, self.scripts, where="settings")
        return self

    @model_validator(mode="after")
    def _has_every_layer_and_epoch(self) -> Self:
        for position, entry in enumerate(self.entries):
            specs = self.specs(entry, self.settings[entry.setting].script)
            for run, spec in specs.items():  # fails if a setting is wrong
                depth = 0 if spec["shallow"] else spec["architecture_options"]["depth"]
                last = {
                    "layer": depth - (entry.quantity in _OF_A_BLOCK),
                    "epoch": spec.get("snapshot", spec["epochs"]),
                }
                for name in entry.places:
                    found = getattr(entry, name)
                    if found > last[name]:
                        raise AuditError(
                            f"entries.{position}: {entry.quantity}: found {name} {found}; expected"
                            f" at most {last[name]}, the last of '{run}'."
                        )
        return self


def identity(spec: Mapping[str, Any]) -> str:
    """Return a key that is equal for specifications that differ in the seed only."""
    return json.dumps({**spec, "seed": None}, sort_keys=True)


def read_published_file(path: str | Path) -> Published:
    """Read a file of published numbers.

    Raises:
        AuditError: lists the first five problems, each with its place; or as in `load_config`.
    """
    raw, line_of = load_config(provided(path))
    return validated(Published, raw, str(path), line_of)
