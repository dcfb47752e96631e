"""Read the published numbers: what each one is, which experiment it belongs to, by which rule it is compared.

Imports no torch and no pandas: the workflow plans with it.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from fa_audit.core.errors import AuditError, unknown
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.core.validation import Different, Strict, config_error, validated
from fa_audit.experiments.grid import Grid, read_grid
from fa_audit.experiments.grid_checks import run_problem
from fa_audit.experiments.paths import RunKey
from fa_audit.experiments.spec import RunSpec, parse_run

FILE = "reference/published.yaml"
SEEDS = (42, 123, 456)
COUNTED, UNINFORMATIVE, REPEATS = "counted", "uninformative", "repeats"  # the status of an entry
FACTOR, SAME_ORDER = 3, 10  # of a magnitude: reproduced, and of the same order
CHANCE = 0.05  # an order that says something comes about by chance at most so often: one of four runs does
PAPER_LIMITS = {
    name: value for name, value in DiagnosticThresholds().limits.items() if name != "saturation"
}  # which is ours


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


NEVER = "never"  # the verdict on an epoch at which nothing happened
OF_A_RUN = {
    **{name: name for name in ("accuracy", "own_margin", "bp_margin", "hidden_norm_last", "grad_norm_last")},
    **{f"{kind}_accuracy": f"{kind}_acc" for kind in ("own_frozen", "bp_frozen", "shallow")},
    **{name: name for name in ("max_growth", "stability", "mean_clamped_cosine", "deep_clamped_cosine", "deep_rho")},
    **{name: name for name in ("deep_rho_bp", "deep_rho_random", "deep_nudging", "fresh_b_mean", "fresh_b_std")},
    **{name: name for name in ("identity_distance", "identity_cosine")},
}
GRADIENTS, BATCH = ("grad_norm", "grad_norm_last"), 128  # norms that fall as 1 / samples, and the audits' samples
QUANTITIES: dict[str, Quantity] = {
    **{name: Quantity("runs", column) for name, column in OF_A_RUN.items()},
    **{
        name: Quantity("runs", name, answers=(NEVER,))
        for name in ("first_scale_flag", "first_reference_flag", "stopped_after")
    },
    **{
        f"{check}_flag": Quantity("runs", f"{check}_fires", answers=(True, False), number=False)
        for check in ("scale", "reference", "stability", "depth")
    },
    **{
        f"walked_back_by_{strategy}": Quantity("runs", f"by_{strategy}", answers=(True, False), number=False)
        for strategy in ("accuracy", "cosine")
    },
    "three_check_verdict": Quantity("runs", "three_check", answers=("PASS", "FAIL", "INCOMPLETE"), number=False),
    "four_check_verdict": Quantity(
        "runs", "four_check", answers=("trustworthy", "needs walk-back", "incomplete"), number=False
    ),
    **{
        name: Quantity("layers", name, ("layer",))
        for name in ("hidden_norm", "grad_norm", "clamped_cosine", "rho", "nudging", "credit_norm", "residual_ratio")
    },
    **{
        f"epoch_{name}": Quantity("trajectories", column, ("epoch",))
        for name, column in (("accuracy", "test_accuracy"), ("train_loss", "train_loss"))
    },
    **{
        f"epoch_{name}": Quantity("trajectories", name, ("epoch", "layer"))
        for name in ("hidden_norm", "grad_norm", "growth", "cosine")
    },
}


# --- the entries, each with its rule ---------------------------------------------------------------------------------

Text = Annotated[str, Field(min_length=1, description="a text")]
RunText = Annotated[str, Field(min_length=1, description="a run name such as dfa+penalty1e-2")]
Seed = Annotated[int, Field(ge=0, description="an integer >= 0")]
ENTRY = "a mapping with at least quantity, setting, run, kind, n and source"
Answer = Annotated[bool | Text, Field(description="true, false or a text")]
Deviation = Annotated[
    float | None,
    Field(ge=0, description="a number >= 0 (sample deviation of the n numbers), or null where none was published"),
]


def _nonzero(value: float) -> float:
    if value == 0:
        raise PydanticCustomError("zero", "a number other than 0")
    return value


class Null(Strict):
    """what a null would score: a mapping with value and from"""

    value: float | Answer = Field(description="a number, true, false or a text")
    origin: Text = Field(alias="from", description="a text: where a null gets it, such as another method")


class NumberNull(Null):
    """what a null would score: a mapping with value, a number, and from"""

    value: float = Field(description="a number")


class Entry(Strict, ABC):
    """One published number; its kind says by which rule it is compared, and has the keys that the rule needs."""

    quantity: str = Field(description="the name of a quantity")
    setting: str = Field(description="the name of one of the settings")
    run: RunText | list[RunText]
    layer: int | None = Field(None, ge=0, description="an integer >= 0: of a state or a block")
    epoch: int | None = Field(None, ge=0, description="an integer >= 0: of a quantity of the trajectory")
    kind: str
    n: int = Field(ge=1, description="an integer >= 1: how many numbers stand behind the value")
    source: Text = Field(description="a text: where it was published")
    seeds: Different[Seed] = Field(
        list(SEEDS), min_length=1, description="a non-empty list of different integers >= 0: audits to compare with"
    )
    values: dict[Seed, float | Answer] = Field({}, description="a mapping from seeds to published numbers")
    claim: Text | None = Field(None, description="the name of one of the claims")
    repeats: Text | None = Field(
        None, description="a text: which other numbers say the same, so that it is not counted"
    )
    note: str = Field("", description="a text: other ways to read the source")

    @property
    def runs(self) -> tuple[str, ...]:
        """Return whose number it is: one run, or for an order all of them, best first."""
        return (self.run,) if isinstance(self.run, str) else tuple(self.run)

    @property
    def other(self) -> tuple[str, str] | None:
        """Return how it is set against another run, ``minus`` or ``over``, and that run."""
        return next(((word, run) for word in ("minus", "over") if (run := getattr(self, word, None))), None)

    @property
    def whose(self) -> str:
        """Return the runs as text, with that which is subtracted or divides."""
        return " ".join([" > ".join(self.runs), *(self.other or ())])

    @property
    def key(self) -> str:
        """Return the text by which an explanation names it, such as ``main_audit dfa grad_norm layer 1``."""
        places = [f"{name} {getattr(self, name)}" for name in ("layer", "epoch") if getattr(self, name) is not None]
        return " ".join([self.setting, self.whose, self.quantity, *places])

    @property
    def status(self) -> str:
        """Return whether it counts: ``counted``, ``uninformative`` (its null passes its rule) or ``repeats``."""
        if not self.informative():
            return UNINFORMATIVE
        return REPEATS if self.repeats else COUNTED

    def run_keys(self) -> Iterator[RunKey]:
        """Yield the audits that it is compared with."""
        runs = dict.fromkeys((*self.runs, *(self.other or ())[1:]))
        return (RunKey(self.setting, run, seed) for run in runs for seed in self.seeds)

    @property
    def published(self) -> float | str:
        """Return what was published: a number, an answer, a limit or an order."""
        return plain(getattr(self, "value", None))

    @property
    @abstractmethod
    def chance(self) -> str:
        """Return what its null scores, and which one that is."""

    @abstractmethod
    def informative(self) -> bool:
        """Return whether its null fails its rule."""

    @abstractmethod
    def rule(self) -> str:
        """Return the condition on our numbers."""


class OfOneRun(Entry, ABC):
    """What one run has, with a null."""

    run: RunText
    null: Null

    @property
    def chance(self) -> str:
        score = plain(self.null.value)
        return f"{score if isinstance(score, str) else f'{score:g}'}, {self.null.origin}"

    @abstractmethod
    def allows(self, found: Any) -> bool:
        """Return whether a number (for a bound and a verdict, of one seed) or an answer is the published one."""

    def informative(self) -> bool:
        return not self.allows(self.null.value)


class Compared(OfOneRun, ABC):
    """A number, which may be the difference or the ratio of two runs."""

    minus: RunText | None = Field(None, description="a run name: its quantity is subtracted, seed by seed")
    over: RunText | None = Field(None, description="a run name: its quantity divides, seed by seed")
    null: NumberNull


class Value(
    Compared, json_schema_extra={"description": f"{ENTRY}, and for a value with value, deviation, tolerance, null"}
):
    """A number, compared within a tolerance."""

    kind: Literal["value"] = Field(description="value, magnitude, bound, verdict or order")
    value: float = Field(description="a number")
    deviation: Deviation
    tolerance: float = Field(gt=0, description="a number > 0")

    def allows(self, found: float) -> bool:
        return at_most(abs(found - self.value), self.tolerance)

    def rule(self) -> str:
        return f"|mean - {self.value:g}| <= {self.tolerance:g}"


class Magnitude(
    Compared, json_schema_extra={"description": f"{ENTRY}, and for a magnitude with value, deviation, null"}
):
    """A number, compared by its factor."""

    kind: Literal["magnitude"]
    value: Annotated[float, AfterValidator(_nonzero)] = Field(description="a number other than 0")
    deviation: Deviation
    samples: int = Field(
        BATCH,
        ge=1,
        description=f"an integer >= 1: of the mean loss whose gradient it is (default {BATCH}, as in audits)",
    )

    factor: ClassVar[int] = FACTOR

    def allows(self, found: float) -> bool:
        return self.within(found, self.factor)

    def within(self, found: float, factor: float) -> bool:
        """Return whether a number has the same sign and lies within a factor."""
        ratio = found / self.value
        return ratio > 0 and at_most(max(ratio, 1 / ratio), factor)

    def rule(self) -> str:
        batch = f", a gradient of {self.samples} samples" if self.samples != BATCH else ""
        return f"mean within a factor of {FACTOR} of {self.value:g}{batch}"

    def brought(self, found: float) -> float:
        """Return an audit's gradient as of the mean loss of as many samples as the published one's."""
        return found * BATCH / self.samples


class Bound(Compared, json_schema_extra={"description": f"{ENTRY}, and for a bound with above or below, null"}):
    """A limit that every seed keeps."""

    kind: Literal["bound"]
    above: float | None = Field(None, description="a number: every seed lies above it")
    below: float | None = Field(None, description="a number: every seed lies below it")

    def allows(self, found: float) -> bool:
        return found > self.above if self.above is not None else found < self.below

    def rule(self) -> str:
        return f"every seed {self.published}"

    @property
    def published(self) -> str:
        return f"> {self.above:g}" if self.above is not None else f"< {self.below:g}"


class Verdict(OfOneRun, json_schema_extra={"description": f"{ENTRY}, and for a verdict with value, null"}):
    """A verdict, compared for equality."""

    kind: Literal["verdict"]
    value: Answer

    def allows(self, found: Any) -> bool:
        return plain(found) == plain(self.value)

    def rule(self) -> str:
        return f"every seed {plain(self.value)}"


class Order(Entry, json_schema_extra={"description": ENTRY}):
    """An order of runs, compared by their means."""

    kind: Literal["order"]
    run: Different[RunText] = Field(min_length=2, description="a list of two or more different run names, best first")

    def rule(self) -> str:
        return "means fall in this order"

    @property
    def published(self) -> str:
        return self.whose

    @property
    def chance(self) -> str:
        return f"1/{math.factorial(len(self.runs))}, chance"

    def informative(self) -> bool:
        return 1 / math.factorial(len(self.runs)) <= CHANCE


def at_most(number: float, limit: float) -> bool:
    """Compare decimal numbers by ``<=``: 0.635 - 0.615 is 0.02, whatever binary fractions make of it."""
    return number <= limit or math.isclose(number, limit, rel_tol=1e-9)


def plain(value: Any) -> Any:
    """Return a flag as text; a number or a text as it is."""
    return str(value).lower() if isinstance(value, bool) or value is None else value


def _kind(body: Any) -> str:
    """Return the tag of an entry's kind; that of a value, which names all kinds, where there is no such kind."""
    kind = body.get("kind") if isinstance(body, Mapping) else getattr(body, "kind", None)
    return f"kind {kind if kind in ('magnitude', 'bound', 'verdict', 'order') else 'value'}"


AnyEntry = Annotated[
    Annotated[Value, Tag("kind value")]
    | Annotated[Magnitude, Tag("kind magnitude")]
    | Annotated[Bound, Tag("kind bound")]
    | Annotated[Verdict, Tag("kind verdict")]
    | Annotated[Order, Tag("kind order")],
    Discriminator(_kind),
]


# --- the file --------------------------------------------------------------------------------------------------------


class PublishedFile(Strict):
    """a mapping with the keys 'claims', 'settings' and 'entries'"""

    claims: dict[str, Text] = Field({}, description="a mapping from the name of each claim to its sentence")
    settings: dict[str, dict[str, Any]] = Field(
        min_length=1,
        description="one or more named experiments, written like the settings of a configuration; their runs and seeds"
        " are those of the entries",
    )
    entries: list[AnyEntry] = Field(min_length=1, description="a non-empty list of published numbers")


@dataclass(frozen=True)
class Published:
    """All published numbers.

    Attributes:
        entries: in the order of the file.
        claims: what the paper says, by name, in the order of the file.
        experiments: the settings that they belong to, with the runs and seeds that the entries name.
    """

    entries: tuple[Entry, ...]
    claims: Mapping[str, str]
    experiments: Grid

    def run_keys(self) -> list[RunKey]:
        """Return the audits that published numbers are compared with."""
        return list(dict.fromkeys(key for entry in self.entries for key in entry.run_keys()))

    def run_keys_in(self, grid: Grid) -> list[RunKey]:
        """Return the audits to compare with that a configuration asks for, each as the paper's specification has it.

        A setting of the same name with another network, data set or budget has none.
        """
        asked = set(grid.run_keys("runs"))
        return [key for key in self.run_keys() if key in asked and _spec(grid, key) == _spec(self.experiments, key)]

    def difference(
        self, key: RunKey, spec: Mapping[str, Any], thresholds: Mapping[str, float], stopped_after: int | None
    ) -> str:
        """Return how a run's experiment differs from the published one of its name; empty if it does not.

        A monitor that ended no training changes nothing.
        """
        published = self.experiments.spec(key).to_dict()
        theirs, ours = published | PAPER_LIMITS, {**spec, **thresholds}
        if stopped_after and published["monitor"] != spec["monitor"]:
            return f"stopped after epoch {stopped_after}"
        names = [name for name in dict.fromkeys((*theirs, *ours)) if name not in ("monitor", "saturation")]
        return ", ".join(
            f"{name} {_told(ours.get(name))} instead of {_told(theirs.get(name))}"
            for name in names
            if ours.get(name) != theirs.get(name)
        )


def _told(value: Any) -> str:
    return "the default" if value is None else str(value)


def _spec(grid: Grid, key: RunKey) -> RunSpec:
    """Return a run's specification; a monitor changes nothing unless it ends the training, which is noticed there."""
    return replace(grid.spec(key), monitor=())


def read_published(raw: Any) -> Published:
    """Check the parsed file of published numbers and make it a value.

    Args:
        raw: the file.

    Raises:
        AuditError: one message that lists the problems (the first five), each with its place, what was found
            and what is valid.
    """
    read = validated(PublishedFile, _with_null(raw), FILE)
    if problems := list(_problems(read)):
        raise config_error(FILE, problems)
    try:
        return Published(tuple(read.entries), read.claims, read_grid(_configuration(read)))
    except AuditError as error:
        raise AuditError(f"{FILE}: {str(error).removeprefix('config: ')}") from error


def _with_null(raw: Any) -> Any:
    """Give mappings their key ``null`` back, which YAML reads as None."""
    if isinstance(raw, list):
        return [_with_null(item) for item in raw]
    if not isinstance(raw, Mapping):
        return raw
    return {"null" if key is None else key: _with_null(value) for key, value in raw.items()}


def _configuration(read: PublishedFile) -> dict[str, Any]:
    """Return the experiments as a configuration: every run and seed that an entry names."""
    keys = [key for entry in read.entries for key in entry.run_keys()]
    asked = {
        name: {
            f"{part}s": sorted({getattr(key, part) for key in keys if key.setting == name}) for part in ("run", "seed")
        }
        for name in read.settings
    }
    return {"settings": {name: read.settings[name] | parts for name, parts in asked.items()}}


def _problems(read: PublishedFile) -> Iterator[str]:
    """Yield what types cannot say."""
    seen: dict[str, int] = {}
    for position, entry in enumerate(read.entries):
        where = f"entries.{position}"
        yield from chain(_entry_problems(where, entry, read), _answer_problems(where, entry))
        if (identity := _identity(entry)) in seen:
            yield f"{where}: the same as entries.{seen[identity]}; keep one of them."
        seen.setdefault(identity, position)
    for name in sorted(read.settings.keys() - {entry.setting for entry in read.entries}):
        yield f"settings.{name}: no entry belongs to it; remove it."
    for name in sorted(read.claims.keys() - {entry.claim for entry in read.entries if entry.status == COUNTED}):
        yield f"claims.{name}: no entry that counts belongs to it; name it in one, or remove it."


def _identity(entry: Entry) -> str:
    """Return what two entries must not share: everything but the numbers and where they come from."""
    side = isinstance(entry, Bound) and entry.above is None
    return json.dumps([entry.key, entry.kind, side, sorted(entry.seeds), entry.repeats])


def _entry_problems(where: str, entry: Entry, read: PublishedFile) -> Iterator[str]:
    if entry.setting not in read.settings:
        yield str(unknown("setting", entry.setting, read.settings, where=where))
    if entry.claim is not None and entry.claim not in read.claims:
        yield str(unknown("claim", entry.claim, read.claims, where=where))
    for run in (*entry.runs, *(entry.other or ())[1:]):
        if problem := run_problem(run, where):
            yield problem
        elif (usual := str(parse_run(run))) != run:
            yield f"{where}: found run '{run}'; expected its usual spelling, {usual}."
    if isinstance(entry, Compared) and entry.minus and entry.over:
        yield f"{where}: found minus and over; expected one of them."
    if isinstance(entry, Bound) and (entry.above is None) == (entry.below is None):
        yield f"{where}: found {'neither' if entry.above is None else 'both'}; expected above or below."


def _answer_problems(where: str, entry: Entry) -> Iterator[str]:
    """Yield what a quantity is not, or cannot be."""
    if entry.quantity not in QUANTITIES:
        yield str(unknown("quantity", entry.quantity, QUANTITIES, where=where))
        return
    quantity, verdict = QUANTITIES[entry.quantity], isinstance(entry, Verdict)
    for place, named in (("layer", "a layer"), ("epoch", "an epoch")):
        if (place in quantity.places) != (getattr(entry, place) is not None):
            yield f"{where}: {entry.quantity} {f'needs {named}' if place in quantity.places else f'has no {place}'}."
    if getattr(entry, "samples", BATCH) != BATCH and quantity.column not in GRADIENTS:
        yield f"{where}.samples: {entry.quantity} is no norm of a gradient; remove it."
    if not (quantity.answers if verdict else quantity.number):
        yield f"{where}: {entry.quantity} is {'a' if quantity.answers else 'no'} verdict; found kind {entry.kind}."
    elif verdict and entry.published not in (known := [plain(answer) for answer in quantity.answers]):
        yield f"{where}.value: found '{entry.published}'; expected {' or '.join(known)}."
