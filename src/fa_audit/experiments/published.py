"""The published numbers: what each one is, to which experiment it belongs, by which rule it is
compared.

Imports no torch and no pandas: the workflow plans with it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from fa_audit.core.errors import AuditError, shortened, unknown
from fa_audit.core.provided import provided
from fa_audit.core.validation import Different, Strict, config_error, validated
from fa_audit.experiments.config import RunName, Text
from fa_audit.experiments.config_file import LineOf, load_config
from fa_audit.experiments.grid import Grid
from fa_audit.experiments.paths import AT_INPUT, IDENTITY, RunKey
from fa_audit.experiments.read_grid import NO_LINES, read_grid
from fa_audit.experiments.spec import SAMPLES
from fa_audit.protocol.checks import lettered
from fa_audit.protocol.limits import DiagnosticThresholds

FILE = "reference/published.yaml"
SEEDS = (42, 123, 456)
PAPER_LIMITS = {
    name: limit for name, limit in DiagnosticThresholds().limits.items() if name != "saturation"
}


# --- the quantities --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quantity:
    """Where the tidy tables have a quantity, and what it can be.

    Attributes:
        table: ``runs``, ``layers`` or ``trajectories``.
        column: its name there, or of what the scorecard makes of several columns.
        places: which of ``epoch`` and ``layer`` an entry names.
        answers: what a verdict on it can be; none where it is a number.
        number: whether it is a number as well.
    """

    table: str
    column: str
    places: tuple[str, ...] = ()
    answers: tuple[bool | str, ...] = ()
    number: bool = True


NEVER = "never"  # the verdict where no such epoch exists
BATCH = 128  # the audits' samples
FLAG: dict[str, Any] = {"answers": (True, False), "number": False}
LAYER, EPOCH = ("layer",), ("epoch",)
# The paper's credit metrics are those at the blocks' inputs.
AT_INPUTS = ("mean_clamped_cosine", "deep_clamped_cosine", "deep_rho", "deep_rho_bp", "deep_rho_random", "deep_nudging",
             "fresh_b_mean", "fresh_b_std")  # fmt: skip
OF_A_RUN = ("accuracy", "own_margin", "bp_margin", "hidden_norm_last", "grad_norm_last", "max_growth", "stability",
            "identity_distance", "identity_cosine")  # fmt: skip
QUANTITIES: dict[str, Quantity] = {
    **{name: Quantity("runs", name) for name in OF_A_RUN},
    **{f"{kind}_accuracy": Quantity("runs", f"{kind}_acc") for kind in ("own_frozen", "bp_frozen")},
    **{name: Quantity("runs", name + AT_INPUT) for name in AT_INPUTS},
    **{name: Quantity("runs", name, answers=(NEVER,))
       for name in ("first_scale_flag", "first_reference_flag", "stopped_after")},
    **{f"{check}_flag": Quantity("runs", f"{check}_fires", **FLAG) for check in lettered().values()},
    "walked_back_by_cosine": Quantity("runs", "by_cosine", **FLAG),
    "three_check_verdict": Quantity("runs", "three_check", (), ("PASS", "FAIL", "INCOMPLETE"), number=False),
    "four_check_verdict": Quantity(
        "runs", "four_check", (), ("trustworthy", "needs walk-back", "incomplete"), number=False),
    **{name: Quantity("layers", name, LAYER) for name in ("hidden_norm", "grad_norm", "credit_norm", "residual_ratio")},
    "clamped_cosine": Quantity("layers", f"clamped_cosine{AT_INPUT}", LAYER),
    "epoch_accuracy": Quantity("trajectories", "test_accuracy", EPOCH),
    "epoch_train_loss": Quantity("trajectories", "train_loss", EPOCH),
    **{f"epoch_{name}": Quantity("trajectories", name, (*EPOCH, *LAYER))
       for name in ("hidden_norm", "grad_norm", "growth")},
}  # fmt: skip
# Quantities that are also measured on other numbers of samples: the table, and its column for 128
# of them.
OF_SAMPLES = {
    **{name: ("layers", name) for name in ("hidden_norm", "grad_norm", "residual_ratio")},
    **{f"{name}_last": ("layers", name) for name in ("hidden_norm", "grad_norm")},
    **{f"identity_{name}": ("layers", of) for name, of in IDENTITY.items()},
    "epoch_grad_norm": ("trajectories", "grad_norm"),
    "first_reference_flag": ("runs", "first_reference_flag"),
}

# --- the entries, each with its rule
# ---------------------------------------------------------------------------------

Seed = Annotated[int, Field(ge=0, description="an integer >= 0")]
Samples = Annotated[
    int, Field(ge=1, description=f"an integer >= 1: test samples (default {BATCH}, as in audits)")
]
Answer = Annotated[bool | Text, Field(description="true, false or a text")]
Deviation = Annotated[
    float | None,
    Field(
        ge=0,
        description="a number >= 0 (sample deviation of the n numbers), or null where none was published",
    ),
]


KINDS: dict[
    str, tuple[tuple[str, ...], tuple[str, ...]]
] = {  # kind -> keys that it needs, and may have beside them
    "value": (("value", "deviation", "tolerance"), ("minus", "over")),
    "magnitude": (("value", "deviation"), ("minus", "over")),
    "bound": ((), ("above", "below", "minus", "over")),
    "verdict": (("value",), ()),
    "order": ((), ()),
}


class Entry(Strict):
    """a mapping with at least quantity, setting, run, kind, n and source"""

    quantity: str = Field(description="the name of a quantity")
    setting: str = Field(description="the name of one of the settings")
    run: RunName | Different[RunName] = Field(
        description="a run name; for an order a list of them, best first"
    )
    layer: int | None = Field(None, ge=0, description="an integer >= 0: of a state or a block")
    epoch: int | None = Field(
        None, ge=0, description="an integer >= 0: of a quantity of the trajectory"
    )
    kind: Literal["value", "magnitude", "bound", "verdict", "order"] = Field(
        description="value (within two pooled deviations, or a tolerance), magnitude (within a factor of 2), bound"
        " (that every seed keeps), verdict (equal) or order (of means)"
    )
    value: float | Answer | None = Field(
        None, description="a number; of a verdict true, false or a text"
    )
    deviation: Deviation = None
    tolerance: float | None = Field(None, gt=0, description="a number > 0")
    above: float | None = Field(None, description="a number: every seed lies above it")
    below: float | None = Field(None, description="a number: every seed lies below it")
    minus: RunName | None = Field(
        None, description="a run name: its quantity is subtracted, seed by seed"
    )
    over: RunName | None = Field(None, description="a run name: its quantity divides, seed by seed")
    n: int = Field(ge=1, description="an integer >= 1: how many numbers the value averages")
    source: Text = Field(description="a text: where it was published")
    seeds: Different[Seed] = Field(
        list(SEEDS),
        min_length=1,
        description="a non-empty list of different integers >= 0: audits to compare with",
    )
    values: dict[Seed, float | Answer] = Field(
        {}, description="a mapping from seeds to published numbers"
    )
    claim: Text | None = Field(None, description="the name of one of the claims")
    repeats: Text | None = Field(
        None, description="a text: which other numbers say the same, so that it is not counted"
    )
    decides: bool = Field(
        False,
        description="true or false: whether it is the number that should tell the setting's script from others",
    )
    samples: Samples = BATCH
    note: str = Field("", description="a text: other ways to read the source")

    @property
    def runs(self) -> tuple[str, ...]:
        """Return whose number it is: one run, or for an order all of them, best first."""
        return (self.run,) if isinstance(self.run, str) else tuple(self.run)

    @property
    def other(self) -> tuple[str, str] | None:
        """Return how it is set against another run, ``minus`` or ``over``, and that run."""
        return next(
            ((word, run) for word in ("minus", "over") if (run := getattr(self, word))), None
        )

    @property
    def all_runs(self) -> list[str]:
        """Return the runs, and the one that is subtracted or divides, each once."""
        return list(dict.fromkeys((*self.runs, *(self.other or ())[1:])))

    @property
    def whose(self) -> str:
        """Return the runs as text, with the one that is subtracted or divides."""
        return " ".join([" > ".join(self.runs), *(self.other or ())])

    @property
    def key(self) -> str:
        """Return the text by which an explanation names it, such as ``main_audit dfa grad_norm
        layer 1``.
        """
        places = [
            f"{name} {getattr(self, name)}"
            for name in ("layer", "epoch")
            if getattr(self, name) is not None
        ]
        return " ".join([self.setting, self.whose, self.quantity, *places])

    def run_keys(self) -> Iterator[RunKey]:
        """Yield the audits that it is compared with."""
        return (RunKey(self.setting, run, seed) for run in self.all_runs for seed in self.seeds)

    @property
    def published(self) -> float | str:
        """Return what was published: a number, an answer, a limit or an order."""
        if self.kind == "bound":
            return f"> {self.above:g}" if self.above is not None else f"< {self.below:g}"
        return self.whose if self.kind == "order" else plain(self.value)

    def allows(self, found: float) -> bool:
        """Return whether a number keeps the limit of a bound."""
        return found > self.above if self.above is not None else found < self.below

    @property
    def place(self) -> Quantity:
        """Return where the tables have it, for its number of samples."""
        known = QUANTITIES[self.quantity]
        if self.samples == BATCH:
            return known
        table, column = OF_SAMPLES[self.quantity]
        places = LAYER if table == "layers" else known.places
        return replace(known, table=table, column=f"{column}_{self.samples}", places=places)


def at_most(number: float, limit: float) -> bool:
    """Compare decimal numbers by ``<=``: 0.635 - 0.615 is 0.02, whatever binary fractions make of
    it.
    """
    return number <= limit or math.isclose(number, limit, rel_tol=1e-9)


def plain(value: Any) -> Any:
    """Return a flag as text; a number or a text as it is."""
    return str(value).lower() if isinstance(value, bool) or value is None else value


# --- the file --------------------------------------------------------------------------------------------------------


ScriptName = Annotated[str, Field(pattern=r"^[\w-]+$", description="the name of a script")]


class Experiment(Strict, extra="allow"):
    """a published experiment: a mapping with script, reason, and the keys of a configuration's
    setting
    """

    script: ScriptName
    reason: Text = Field(description="a text: why it is of that script")
    excluded: Text | None = Field(
        None, description="a text: why its numbers are shown and not counted"
    )


class PublishedFile(Strict):
    """a mapping with the keys 'claims', 'scripts', 'released', 'settings' and 'entries'"""

    claims: dict[str, Text] = Field(
        {}, description="a mapping from the name of each claim to its sentence"
    )
    scripts: dict[ScriptName, dict[str, Any]] = Field(
        min_length=1,
        description="one or more named scripts, each with the keys of a setting that its trainings share",
    )
    released: Text | None = Field(
        None, description="the name of the script that was released; default the last one"
    )
    settings: dict[str, Experiment] = Field(
        min_length=1,
        description="one or more named experiments, written like the settings of a configuration, with script and"
        " reason, and excluded where they are not counted; their runs and seeds are those of the entries",
    )
    entries: list[Entry] = Field(min_length=1, description="a non-empty list of published numbers")


@dataclass(frozen=True)
class Published:
    """All published numbers.

    Attributes:
        entries: in the order of the file.
        claims: what the paper says, by name, in the order of the file.
        scripts: what the trainings of each script share, as keys of a setting.
        released: the name of the released one.
        settings: the experiments' scripts, and why they are of these.
        experiments: by script, the experiments as that script trains them, with the runs and seeds
            of the entries.
    """

    entries: tuple[Entry, ...]
    claims: Mapping[str, str]
    scripts: Mapping[str, Mapping[str, Any]]
    released: str
    settings: Mapping[str, Experiment]
    experiments: Mapping[str, Grid]

    def spec(self, key: RunKey, script: str = "") -> dict[str, Any]:
        """Return the specification of a run as its own script trains it, or as another one does, as
        JSON types.
        """
        return self.experiments[script or self.settings[key.setting].script].spec(key).to_dict()

    def run_keys(self) -> list[RunKey]:
        """Return the runs and seeds that published numbers are of."""
        return list(dict.fromkeys(key for entry in self.entries for key in entry.run_keys()))

    def run_keys_in(self, grid: Grid) -> list[RunKey]:
        """Return the audits of a configuration whose specification is that of a published number,
        by any script.
        """
        wanted = {
            identity(self.spec(key, script), key.seed)
            for key in self.run_keys()
            for script in self.experiments
        }
        specs = {key: grid.spec(key) for key in grid.run_keys("runs")}
        both = {key: (spec, replace(spec, monitor=())) for key, spec in specs.items()}
        return [
            key
            for key, own in both.items()
            if wanted & {identity(spec.to_dict(), key.seed) for spec in own}
        ]


def identity(spec: Mapping[str, Any], seed: int | None = None) -> str:
    """Return what makes two runs the same experiment: the specification, with the seed only if it
    is given.
    """
    return json.dumps({**spec, "seed": seed}, sort_keys=True)


def read_published(raw: Any, where: str = FILE, line_of: LineOf = NO_LINES) -> Published:
    """Check the parsed file of published numbers, of the name `where`, and make it a value.

    Args:
        line_of: the line of everything in it, as `load_config` gives it.

    Raises:
        AuditError: one message that lists the problems (the first five), each with its place, what
            was found and what is valid.
    """
    read = validated(PublishedFile, raw, where, line_of)
    if problems := list(_problems(read)):
        raise config_error(where, problems, line_of)
    try:
        experiments = {script: _trained_by(script, read) for script in read.scripts}
    except AuditError as error:
        raise AuditError(f"{where}: {str(error).removeprefix('config: ')}") from error
    released = read.released or list(read.scripts)[-1]
    return Published(
        tuple(read.entries), read.claims, read.scripts, released, read.settings, experiments
    )


def _trained_by(script: str, read: PublishedFile) -> Grid:
    """Return every experiment as a script trains it."""
    keys = [key for entry in read.entries for key in entry.run_keys()]
    settings = {}
    for name, experiment in read.settings.items():
        own = [key for key in keys if key.setting == name]
        settings[name] = {
            **(experiment.model_extra or {}),
            **read.scripts[script],
            "runs": sorted({key.run for key in own}),
            "seeds": sorted({key.seed for key in own}),
        }
    return read_grid({"settings": settings})


def read_published_file(path: str | Path) -> Published:
    """Read a file of published numbers; errors as in `read_published` and `load_config`."""
    raw, line_of = load_config(provided(path))
    return read_published(raw, str(path), line_of)


def _problems(read: PublishedFile) -> Iterator[str]:
    """Yield the problems that types cannot express."""
    seen: dict[str, int] = {}
    for position, entry in enumerate(read.entries):
        where = f"entries.{position}"
        yield from chain(
            _kind_problems(where, entry),
            _entry_problems(where, entry, read),
            _answer_problems(where, entry),
        )
        # All but the numbers and where they come from.
        own = json.dumps(
            [entry.key, entry.kind, entry.above is None, sorted(entry.seeds), entry.repeats]
        )
        if own in seen:
            yield f"{where}: the same as entries.{seen[own]}; keep one of them."
        seen.setdefault(own, position)
    for name in sorted(read.settings.keys() - {entry.setting for entry in read.entries}):
        yield f"settings.{name}: no entry belongs to it; remove it."
    if read.released and read.released not in read.scripts:
        yield str(unknown("script", read.released, read.scripts, where="released"))
    for name, experiment in read.settings.items():
        if experiment.script not in read.scripts:
            yield str(unknown("script", experiment.script, read.scripts, where=f"settings.{name}"))
    for name in sorted(read.claims.keys() - {entry.claim for entry in read.entries}):
        yield f"claims.{name}: no entry belongs to it; name it in one, or remove it."


def _kind_problems(where: str, entry: Entry) -> Iterator[str]:
    """Yield keys that an entry of its kind lacks or must not have, and values of another type."""
    needed, more = KINDS[entry.kind]
    given = entry.model_fields_set & {name for names in KINDS.values() for name in chain(*names)}
    if missing := [name for name in needed if name not in given]:
        yield f"{where}: missing {', '.join(missing)}; expected in a {entry.kind}."
    for name in sorted(given - {*needed, *more}):
        yield f"{where}: a {entry.kind} has no {name}; remove it."
    magnitude = entry.kind == "magnitude"
    if "deviation" in needed and (
        not isinstance(entry.value, float) or (magnitude and not entry.value)
    ):
        expected = "a number other than 0" if magnitude else "a number"
        yield f"{where}.value: found {shortened(entry.value)}; expected {expected}."
    if (entry.kind == "order") != (len(entry.runs) > 1):
        expected = (
            "a list of two or more different run names" if entry.kind == "order" else "a run name"
        )
        yield f"{where}.run: found {shortened(entry.run)}; expected {expected}."


def _entry_problems(where: str, entry: Entry, read: PublishedFile) -> Iterator[str]:
    """Yield names that the file does not have, and keys that exclude each other."""
    if entry.setting not in read.settings:
        yield str(unknown("setting", entry.setting, read.settings, where=where))
    if entry.claim is not None and entry.claim not in read.claims:
        yield str(unknown("claim", entry.claim, read.claims, where=where))
    if entry.minus and entry.over:
        yield f"{where}: found minus and over; expected one of them."
    if entry.kind == "bound" and (entry.above is None) == (entry.below is None):
        yield f"{where}: found {'neither' if entry.above is None else 'both'}; expected above or below."


def _answer_problems(where: str, entry: Entry) -> Iterator[str]:
    """Yield an unknown quantity, and places, samples, kinds and values that it does not have."""
    if entry.quantity not in QUANTITIES:
        yield str(unknown("quantity", entry.quantity, QUANTITIES, where=where))
        return
    quantity, verdict = QUANTITIES[entry.quantity], entry.kind == "verdict"
    for place, named in (("layer", "a layer"), ("epoch", "an epoch")):
        if (place in quantity.places) != (getattr(entry, place) is not None):
            yield f"{where}: {entry.quantity} {f'needs {named}' if place in quantity.places else f'has no {place}'}."
    if entry.samples != BATCH and not (entry.quantity in OF_SAMPLES and entry.samples in SAMPLES):
        yield f"{where}.samples: {entry.quantity} of {entry.samples} samples is not measured; remove it."
    if not (quantity.answers if verdict else quantity.number):
        yield f"{where}: {entry.quantity} is {'a' if quantity.answers else 'no'} verdict; found kind {entry.kind}."
    elif verdict and entry.published not in (
        known := [plain(answer) for answer in quantity.answers]
    ):
        yield f"{where}.value: found '{entry.published}'; expected {' or '.join(known)}."
