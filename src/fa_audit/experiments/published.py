"""Read the published numbers: what each one is, which experiment it belongs to, and where our audits have it.

Imports no torch and no pandas: the workflow plans with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

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
LAYER = "layer"  # stands for an entry's layer
# Where an audit has a quantity. Published cosines are torch's, whose norms are clamped at 1e-8.
QUANTITIES: dict[str, tuple[str | int, ...]] = {
    "accuracy": ("headline_acc",),
    "own_frozen_accuracy": ("baseline_runs", "own", "accuracy"),
    "hidden_norm_last": ("layers", -1, "hidden_norm"),
    "grad_norm_last": ("layers", -1, "grad_norm"),
    "grad_norm": ("layers", LAYER, "grad_norm"),
    "max_growth": ("checks", "scale", "value"),
    "stability": ("checks", "stability", "value"),
    "clamped_cosine": ("credit", LAYER, "clamped_cosine", "value"),
    "deep_clamped_cosine": ("deep", "clamped_cosine", "value"),
    "deep_rho": ("deep", "rho", "value"),
    "deep_rho_bp": ("deep", "rho_bp", "value"),
    "deep_nudging": ("deep", "nudging", "value"),
    "fresh_b_mean": ("deep", "fresh_b_null", "value"),
    "first_scale_flag": ("first_flags", "first_scale_flag"),
    "first_reference_flag": ("first_flags", "first_reference_flag"),
    "scale_flag": ("checks", "scale", "fires"),
    "reference_flag": ("checks", "reference", "fires"),
    "four_check_verdict": ("verdict", "four_check"),
}
VERDICTS = frozenset({"scale_flag", "reference_flag", "four_check_verdict"})  # all others are numbers
PAPER_LIMITS = {
    name: value for name, value in asdict(DiagnosticThresholds()).items() if name != "saturation"
}  # which is ours


Text = Annotated[str, Field(min_length=1, description="a text")]
RunText = Annotated[str, Field(min_length=1, description="a run name such as dfa+penalty1e-2")]
Seed = Annotated[int, Field(ge=0, description="an integer >= 0")]
ENTRY = "a mapping with at least quantity, setting, run, kind, n and source"


def _nonzero(value: float) -> float:
    if value == 0:
        raise PydanticCustomError("zero", "a number other than 0")
    return value


class Entry(Strict):
    """One published number; its kind says by which rule it is compared."""

    quantity: str = Field(description="the name of a quantity")
    setting: str = Field(description="the name of one of the settings")
    run: RunText | list[RunText]
    kind: str
    n: int = Field(ge=1, description="an integer >= 1: how many numbers stand behind the value")
    source: Text = Field(description="a text: where it was published")
    value: float | bool | str | None = None
    deviation: float | None = Field(None, ge=0, description="a number >= 0, or null where none was published")
    layer: int | None = Field(None, ge=0, description="an integer >= 0: of a state or a block")
    seeds: Different[Seed] = Field(
        list(SEEDS), min_length=1, description="a non-empty list of different integers >= 0: audits to compare with"
    )
    tolerance: float | None = None
    note: str = Field("", description="a text: other ways to read the source")

    @property
    def runs(self) -> tuple[str, ...]:
        """Whose number it is: one run, or for an order all of them, best first."""
        return (self.run,) if isinstance(self.run, str) else tuple(self.run)

    def run_keys(self) -> Iterator[RunKey]:
        """Yield the audits that it is compared with."""
        return (RunKey(self.setting, run, seed) for run in self.runs for seed in self.seeds)


class Value(Entry, json_schema_extra={"description": ENTRY + ", and for a value with value, deviation and tolerance"}):
    """A number, compared within a tolerance."""

    kind: Literal["value"] = Field(description="value, magnitude, verdict or order")
    run: RunText
    value: float = Field(description="a number")
    deviation: float | None = Field(ge=0, description="a number >= 0, or null where none was published")
    tolerance: float = Field(gt=0, description="a number > 0")


class Magnitude(Entry, json_schema_extra={"description": ENTRY + ", and for a magnitude with value and deviation"}):
    """A number, compared within a factor of 10."""

    kind: Literal["magnitude"]
    run: RunText
    value: Annotated[float, AfterValidator(_nonzero)] = Field(description="a number other than 0")
    deviation: float | None = Field(ge=0, description="a number >= 0, or null where none was published")
    tolerance: None = Field(None, description="none, a magnitude has a factor of 10")


class Verdict(Entry, json_schema_extra={"description": ENTRY + ", and for a verdict with value"}):
    """A verdict, compared for equality."""

    kind: Literal["verdict"]
    run: RunText
    value: bool | Text = Field(description="true, false or a text")
    deviation: None = Field(None, description="none, a verdict has no deviation")
    tolerance: None = Field(None, description="none, a verdict has no tolerance")


class Order(Entry, json_schema_extra={"description": ENTRY}):
    """An order of runs, compared by their means."""

    kind: Literal["order"]
    run: Different[RunText] = Field(min_length=2, description="a list of two or more different run names, best first")
    value: None = Field(None, description="none, an order is its list of runs")
    deviation: None = Field(None, description="none, an order has no deviation")
    tolerance: None = Field(None, description="none, an order has no tolerance")


def _kind(body: Any) -> str:
    """Return the tag of an entry's kind; that of a value, which names all kinds, where there is no such kind."""
    kind = body.get("kind") if isinstance(body, Mapping) else getattr(body, "kind", None)
    return f"kind {kind if kind in ('magnitude', 'verdict', 'order') else 'value'}"


AnyEntry = Annotated[
    Annotated[Value, Tag("kind value")]
    | Annotated[Magnitude, Tag("kind magnitude")]
    | Annotated[Verdict, Tag("kind verdict")]
    | Annotated[Order, Tag("kind order")],
    Discriminator(_kind),
]


def _bare(settings: dict[str, Any]) -> dict[str, Any]:
    if {"runs", "seeds"} & settings.keys():
        raise PydanticCustomError("bare", "runs or seeds")
    return settings


Experiment = Annotated[
    dict[str, Any],
    AfterValidator(_bare),
    Field(description="a mapping with at least dataset and architecture, and without runs and seeds"),
]


class PublishedFile(Strict):
    """a mapping with the keys 'settings' and 'entries'"""

    settings: dict[str, Experiment] = Field(
        min_length=1,
        description="one or more named experiments, written like the settings of a configuration, without runs and"
        " seeds",
    )
    entries: list[AnyEntry] = Field(min_length=1, description="a non-empty list of published numbers")


@dataclass(frozen=True)
class Published:
    """All published numbers.

    Attributes:
        entries: in the order of the file.
        experiments: the settings that they belong to, with the runs and seeds that the entries name.
    """

    entries: tuple[Entry, ...]
    experiments: Grid

    def run_keys_in(self, grid: Grid) -> list[RunKey]:
        """Return the audits to compare with that a configuration asks for, each as the paper's specification has it.

        A setting of the same name with another network, data set or budget has none.
        """
        asked = set(grid.run_keys("runs"))
        keys = dict.fromkeys(key for entry in self.entries for key in entry.run_keys())
        return [key for key in keys if key in asked and _spec(grid, key) == _spec(self.experiments, key)]

    def difference(self, audit: Mapping[str, Any]) -> str:
        """Return how an audit's experiment differs from the published one of its name; empty if it does not."""
        if audit.get("stopped_after"):
            return f"stopped after epoch {audit['stopped_after']}"
        spec = _spec(self.experiments, RunKey(audit["setting"], audit["run"], audit["seed"])).to_dict()
        theirs = {name: value for name, value in (spec | PAPER_LIMITS).items() if name != "monitor"}
        ours = audit["spec"] | audit["thresholds"]
        return ", ".join(
            f"{name} {ours.get(name)} instead of {value}" for name, value in theirs.items() if ours.get(name) != value
        )


def _spec(grid: Grid, key: RunKey) -> RunSpec:
    """Return a run's specification; a monitor changes nothing unless it ends the training, which is noticed there."""
    return replace(grid.spec(key), monitor=())


def quantity_of(audit: Mapping[str, Any], quantity: str, layer: int | None = None) -> Any:
    """Return a quantity as an audit's JSON has it; None where it has none."""
    found: Any = audit
    for step in QUANTITIES[quantity]:
        try:
            found = found[layer if step == LAYER else step]
        except (KeyError, IndexError, TypeError):
            return None
    return found


# --- the file ------------------------------------------------------------------------------------------------------


def read_published(raw: Any) -> Published:
    """Check the parsed file of published numbers and make it a value.

    Args:
        raw: the file.

    Raises:
        AuditError: one message that lists the problems (the first five), each with its place, what was found
            and what is valid.
    """
    read = validated(PublishedFile, raw, FILE)
    if problems := list(_problems(read)):
        raise config_error(FILE, problems)
    try:
        return Published(tuple(read.entries), read_grid(_configuration(read)))
    except AuditError as error:
        raise AuditError(f"{FILE}: {str(error).removeprefix('config: ')}") from error


def _configuration(read: PublishedFile) -> dict[str, Any]:
    """Return the experiments as a configuration: every run and seed that an entry names."""
    keys = [key for entry in read.entries for key in entry.run_keys()]
    named = {name: [key for key in keys if key.setting == name] for name in read.settings}
    return {
        "settings": {
            name: read.settings[name]
            | {"runs": sorted({key.run for key in asked}), "seeds": sorted({key.seed for key in asked})}
            for name, asked in named.items()
        }
    }


def _problems(read: PublishedFile) -> Iterator[str]:
    """Yield what types cannot say."""
    seen: dict[tuple[Any, ...], int] = {}
    for position, entry in enumerate(read.entries):
        where = f"entries.{position}"
        yield from _entry_problems(where, entry, read.settings)
        key = (entry.quantity, entry.setting, entry.runs, entry.layer)
        if key in seen:
            yield f"{where}: the same as entries.{seen[key]}; keep one of them."
        seen[key] = position
    for name in sorted(read.settings.keys() - {entry.setting for entry in read.entries}):
        yield f"settings.{name}: no entry belongs to it; remove it."


def _entry_problems(where: str, entry: Entry, settings: Mapping[str, Any]) -> Iterator[str]:
    quantity = entry.quantity
    if entry.setting not in settings:
        yield str(unknown("setting", entry.setting, settings, where=where))
    for run in entry.runs:
        if problem := run_problem(run, where):
            yield problem
        elif (usual := str(parse_run(run))) != run:
            yield f"{where}: found run '{run}'; expected its usual spelling, {usual}."
    if quantity not in QUANTITIES:
        yield str(unknown("quantity", quantity, QUANTITIES, where=where))
        return
    if (LAYER in QUANTITIES[quantity]) != (entry.layer is not None):
        yield f"{where}: {quantity} {'needs a' if LAYER in QUANTITIES[quantity] else 'has no'} layer."
    if (quantity in VERDICTS) != (entry.kind == "verdict"):
        yield f"{where}: {quantity} {'is a' if quantity in VERDICTS else 'is no'} verdict; found kind {entry.kind}."
