"""The published numbers: what each one is, which experiment it belongs to, and where our audits have it.

Imports no torch and no pandas: the workflow plans with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from fa_audit.core.errors import AuditError, unknown
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.experiments.grid import Cell, Grid, read_grid
from fa_audit.experiments.schema import refusal, schema_problems
from fa_audit.experiments.spec import RunSpec, parse_run
from fa_audit.methods import METHODS

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


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One published number.

    Attributes:
        quantity: a key of `QUANTITIES`.
        setting: the experiment.
        runs: whose it is: one, or for an order all of them, best first.
        kind: by which rule it is compared: value, magnitude, verdict or order.
        value: a number or a verdict; None for an order.
        deviation: sample deviation of the `n` numbers behind the value; None where none was published.
        layer: of a state or a block, where the quantity is one of a layer.
        seeds: the audits of these are compared.
        tolerance: for the kind value.
        source: where it was published.
        note: in which other ways the source can be read.
    """

    quantity: str
    setting: str
    runs: tuple[str, ...]
    kind: str
    n: int
    source: str
    value: float | bool | str | None = None
    deviation: float | None = None
    layer: int | None = None
    seeds: tuple[int, ...] = SEEDS
    tolerance: float | None = None
    note: str = ""

    def cells(self) -> Iterator[Cell]:
        """The audits that it is compared with."""
        return ((self.setting, run, seed) for run in self.runs for seed in self.seeds)


@dataclass(frozen=True)
class Published:
    """All published numbers.

    Attributes:
        entries: in the order of the file.
        experiments: the settings that they belong to, with the runs and seeds that the entries name.
    """

    entries: tuple[Entry, ...]
    experiments: Grid

    def cells_in(self, grid: Grid) -> list[Cell]:
        """The audits to compare with that a configuration asks for, each as the paper's specification has it.

        A setting of the same name with another network, data set or budget has none.
        """
        asked = set(grid.cells("runs"))
        cells = dict.fromkeys(cell for entry in self.entries for cell in entry.cells())
        return [cell for cell in cells if cell in asked and _spec(grid, cell) == _spec(self.experiments, cell)]

    def difference(self, audit: Mapping[str, Any]) -> str:
        """What makes an audit one of another experiment than the published one of its name; empty if nothing does."""
        if audit.get("stopped_after"):
            return f"stopped after epoch {audit['stopped_after']}"
        spec = _spec(self.experiments, (audit["setting"], audit["run"], audit["seed"])).to_dict()
        theirs = {name: value for name, value in (spec | PAPER_LIMITS).items() if name != "monitor"}
        ours = audit["spec"] | audit["thresholds"]
        return ", ".join(
            f"{name} {ours.get(name)} instead of {value}" for name, value in theirs.items() if ours.get(name) != value
        )


def _spec(grid: Grid, cell: Cell) -> RunSpec:
    """A run's specification; a monitor changes nothing unless it ends the training, which is noticed there."""
    setting, run, seed = cell
    return replace(grid.setting(setting).spec(run, seed), monitor=())


def quantity_of(audit: Mapping[str, Any], quantity: str, layer: int | None = None) -> Any:
    """A quantity as an audit's JSON has it; None where it has none."""
    found: Any = audit
    for step in QUANTITIES[quantity]:
        try:
            found = found[layer if step == LAYER else step]
        except (KeyError, IndexError, TypeError):
            return None
    return found


# --- the file ------------------------------------------------------------------------------------------------------


def read_published(raw: Any, schema: Mapping[str, Any], config_schema: Mapping[str, Any]) -> Published:
    """Check the parsed file of published numbers and make it a value.

    Args:
        raw: the file.
        schema: its JSON schema.
        config_schema: that of a configuration; the experiments are settings of one.

    Raises:
        AuditError: one message that lists the problems (the first five), each with its place, what was found
            and what is valid.
    """
    if problems := list(schema_problems(raw, schema)) or list(_problems(raw)):
        raise refusal(FILE, problems)
    entries = tuple(_entry(body) for body in raw["entries"])
    try:
        return Published(entries, read_grid(_configuration(raw["settings"], entries), config_schema))
    except AuditError as error:
        raise AuditError(f"{FILE}: {str(error).removeprefix('config: ')}") from error


def _entry(body: Mapping[str, Any]) -> Entry:
    named = body["run"] if isinstance(body["run"], list) else [body["run"]]
    values = {key: value for key, value in body.items() if key != "run"}
    return Entry(**values | {"runs": tuple(named), "seeds": tuple(body.get("seeds", SEEDS))})


def _configuration(settings: Mapping[str, Any], entries: tuple[Entry, ...]) -> dict[str, Any]:
    """The experiments as a configuration: every run and seed that an entry names."""
    cells = [cell for entry in entries for cell in entry.cells()]
    named = {name: [cell[1:] for cell in cells if cell[0] == name] for name in settings}
    return {
        "settings": {
            name: settings[name] | {"runs": sorted({run for run, _ in asked}), "seeds": sorted({s for _, s in asked})}
            for name, asked in named.items()
        }
    }


def _problems(raw: Mapping[str, Any]) -> Iterator[str]:
    """What a schema cannot see."""
    seen: dict[tuple[Any, ...], int] = {}
    for position, body in enumerate(raw["entries"]):
        where = f"entries.{position}"
        yield from _entry_problems(where, body, raw["settings"])
        key = tuple(str(body.get(name)) for name in ("quantity", "setting", "run", "layer"))
        if key in seen:
            yield f"{where}: the same as entries.{seen[key]}; keep one of them."
        seen[key] = position
    for name in sorted(set(raw["settings"]) - {body["setting"] for body in raw["entries"]}):
        yield f"settings.{name}: no entry belongs to it; remove it."


def _entry_problems(where: str, body: Mapping[str, Any], settings: Mapping[str, Any]) -> Iterator[str]:
    quantity = body["quantity"]
    if body["setting"] not in settings:
        yield str(unknown("setting", body["setting"], settings, where=where))
    for run in body["run"] if isinstance(body["run"], list) else [body["run"]]:
        yield from _run_problems(where, run)
    if quantity not in QUANTITIES:
        yield str(unknown("quantity", quantity, QUANTITIES, where=where))
        return
    if (LAYER in QUANTITIES[quantity]) != ("layer" in body):
        yield f"{where}: {quantity} {'needs a' if LAYER in QUANTITIES[quantity] else 'has no'} layer."
    if (quantity in VERDICTS) != (body["kind"] == "verdict"):
        yield f"{where}: {quantity} {'is' if quantity in VERDICTS else 'is no'} verdict; found kind {body['kind']}."


def _run_problems(where: str, text: str) -> Iterator[str]:
    try:
        run = parse_run(text, where=where)
    except AuditError as error:
        yield str(error)
        return
    if run.method not in METHODS:
        yield str(unknown("method", run.method, METHODS, where=where))
    if str(run) != text:
        yield f"{where}: found run '{text}'; expected its usual spelling, {run}."
