"""Every figure and table of a configuration: what each reads, and all of them from tidy tables that
are there.

The workflow asks the same functions, one job an artefact. Imports nothing that draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from fa_audit.core.errors import AuditError, unknown
from fa_audit.documents.latex import slug
from fa_audit.experiments.grid import Grid
from fa_audit.experiments.paths import ENDINGS, MEASURED, ORIGIN, TIDY, artefact_files
from fa_audit.experiments.spec import parse_run
from fa_audit.results.tables import TABLES_OF_WORK

if TYPE_CHECKING:
    from fa_audit.results.tidy import Tidy


def artefact_entry(
    config: Mapping[str, Any], grid: Grid, section: str, name: str
) -> dict[str, Any]:
    """Return the entry of a figure or a table, its kind, settings, labels and thresholds filled in.

    Raises:
        AuditError: the configuration has no such figure or table.
    """
    if name not in config.get(section, {}):
        raise unknown(
            section.removesuffix("s"), name, config.get(section, {}), where="the configuration"
        )
    entry = {"kind": name} | config[section][name] | {"thresholds": config.get("thresholds", {})}
    settings = grid.named(entry["settings"])
    members = [grid.settings[setting] for setting in settings]
    runs = {run for member in members for run in (*member.runs, *member.baselines)}
    named = {*settings, *runs, *(parse_run(run).method for run in runs)}
    labels = {name: text for name, text in config.get("labels", {}).items() if name in named}
    return entry | {"settings": settings, "labels": labels}


def check_formulas(config: Mapping[str, Any], line_of: Callable[[str], str]) -> None:
    """Find formulas in titles and labels that matplotlib cannot read; without dollar signs there
    are none.

    Raises:
        AuditError: there is one; `line_of` finds its file and line.
    """
    texts = {
        f"figures.{name}.title": figure["title"]
        for name, figure in config.get("figures", {}).items()
    }
    texts |= {f"labels.{name}": text for name, text in config.get("labels", {}).items()}
    for place, text in texts.items():
        if "$" in text:
            from fa_audit.results.figures.style import check_texts

            check_texts([text], f"{line_of(place) or 'config'}: {place}")


def tables_read(section: str, kind: str) -> tuple[str, ...]:
    """Return the tidy tables that a kind of figure or table reads."""
    return TIDY if section == "tables" and kind in TABLES_OF_WORK else MEASURED


def artefacts_from(
    config: Mapping[str, Any],
    grid: Grid,
    folder: Path,
    output: Path,
    more: dict[str, Any] | None = None,
) -> Iterator[tuple[str, str]]:
    """Make every figure and table of a configuration from tidy tables; yield its name, and why it
    is not made.

    If some settings have no tables, the others are shown, and the title names what is absent. Files
    and functions are those of the workflow; the files lie in ``OUTPUT/figures/`` and
    ``OUTPUT/tables/``.

    Args:
        folder: where the tables are.
        more: keys of every entry, such as its runs and width, in place of its own.
    """
    from fa_audit.results.figures.files import write_figure
    from fa_audit.results.measured import settings_in, tables_of
    from fa_audit.results.tables.files import write_table

    write, there = {"figures": write_figure, "tables": write_table}, settings_in(folder)
    every = [(section, name) for section in ENDINGS for name in config.get(section, {})]
    for section, name in tqdm(every, "figure or table", leave=False, disable=None):
        entry = artefact_entry(config, grid, section, name) | (more or {})
        files = artefact_files(section, name, str(output))
        absent = [setting for setting in entry["settings"] if setting not in there]
        if 0 < len(absent) < len(entry["settings"]):
            entry["settings"] = [setting for setting in entry["settings"] if setting in there]
            called = [entry["labels"].get(setting, setting) for setting in absent]
            entry["title"] += f"; not run: {', '.join(called)}"
        try:
            tidy = tables_of(folder, entry["settings"], tables_read(section, entry["kind"]))
            write[section](entry, tidy, files, f"{output}/{section}/{name}{ORIGIN}")
        except AuditError as error:
            yield f"{section}/{name}", str(error)
        else:
            yield f"{section}/{name}", ""


Shown = tuple[
    str, str, str, str, "Tidy"
]  # section, kind, title, name of the files without endings, tables


def boards(
    shown: Iterable[Shown], inputs: Sequence[Path], output: Path, more: dict[str, Any]
) -> Iterator[Path]:
    """Make figures and tables of what is in memory; yield their files, ``OUTPUT/NAME.ENDING``.

    Args:
        inputs: the files that the tables were made of.
        more: other keys of every entry.
    """
    from fa_audit.results.figures.files import write_figure
    from fa_audit.results.tables.files import write_table

    for section, kind, title, name, tidy in shown:
        entry = {"kind": kind, "title": title, "labels": {}, "thresholds": {}} | more
        files = [output / f"{name}.{ending}" for ending in ENDINGS[section]]
        {"figures": write_figure, "tables": write_table}[section](entry, inputs, files, tidy=tidy)
        yield from files


def of_audits(tidy: Tidy) -> Iterator[Shown]:
    """Yield what is drawn of one's own audits: an overview and the layers of every setting, and all
    together.
    """
    for setting in tidy.settings:
        end = "" if len(tidy.settings) == 1 else f"_{slug(setting)}"
        yield from (
            ("figures", kind, setting, kind + end, tidy.of(setting))
            for kind in ("audit_overview", "layers")
        )
    if tidy.has("own_frozen_acc"):
        yield "figures", "leaderboard", "Accuracy and own frozen blocks", "accuracy_frozen", tidy
    yield "tables", "audits", "Audits", "audits", tidy
