"""Make the figures and tables of a configuration from audits.

The workflow uses the same functions, with one job for each figure and table. This module does not
import matplotlib.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from fa_audit.core.errors import AuditError, unknown
from fa_audit.core.registry import documentation
from fa_audit.experiments.grid import Grid, Setting
from fa_audit.experiments.paths import ENDINGS, ORIGIN, artefact_files
from fa_audit.experiments.read_grid import ArtefactKinds
from fa_audit.experiments.spec import parse_run
from fa_audit.results.figures import FIGURES, FIGURES_OF_ONE
from fa_audit.results.tables import TABLES, TABLES_OF_ONE

if TYPE_CHECKING:
    from fa_audit.results.tidy import Tidy

KINDS = ArtefactKinds(FIGURES, TABLES, FIGURES_OF_ONE | TABLES_OF_ONE)
_DRAWN = FIGURES | {"scorecard": "fa_audit.results.figures.scorecard_figure:draw"}
# A figure or table to make: section, kind, title, file name without ending, and data.
Shown = tuple[str, str, str, str, "Tidy"]


def artefact_entry(
    config: Mapping[str, Any], grid: Grid, section: str, name: str
) -> dict[str, Any]:
    """Return the configuration's entry of a figure or table; kind, settings and labels are
    filled in.

    Raises:
        AuditError: the configuration has no such figure or table.
    """
    entries = config.get(section, {})
    if name not in entries:
        raise unknown(section.removesuffix("s"), name, entries, where="the configuration")
    entry = {"kind": name} | entries[name]
    settings = grid.named(entry["settings"])
    named = set().union(*(grid.settings[setting].labelled for setting in settings))
    labels = {name: text for name, text in config.get("labels", {}).items() if name in named}
    return entry | {"settings": settings, "labels": labels}


def caption(section: str, kind: str) -> str:
    """Return the caption of a kind of figure or table: the first paragraph of its docstring.

    It is empty for the tables of this package, which print their own captions.

    Raises:
        AuditError: neither a user's kind nor its module has a docstring.
    """
    if section == "tables" and kind in TABLES:
        return ""
    docstring = _docstring(_DRAWN[kind]) if kind in _DRAWN else documentation("kind", {}, kind)
    if not docstring:
        raise AuditError(
            f"'{kind}': found no docstring; expected one as its caption in the report."
        )
    return docstring.partition("\n\n")[0]


def _docstring(entry: str) -> str:
    """Return the docstring of a function of this package, ``module:function``."""
    module, _, name = entry.partition(":")
    spec = find_spec(module)
    # Read the file instead of importing it: importing matplotlib takes a second in every job, and a
    # fault in one figure would stop all planning.
    source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node) or ""
    return ""


def check_formulas(config: Mapping[str, Any], line_of: Callable[[str], str]) -> None:
    """Check that matplotlib can read the formulas in titles and labels.

    Raises:
        AuditError: a formula cannot be read; `line_of` gives the key's file and line.
    """
    texts = {f"labels.{name}": text for name, text in config.get("labels", {}).items()}
    for name, figure in config.get("figures", {}).items():
        texts[f"figures.{name}.title"] = figure["title"]
    for place, text in texts.items():
        if "$" in text:
            from fa_audit.results.figures.style import check_texts

            check_texts([text], f"{line_of(place) or 'config'}: {place}")


def artefacts_from(
    config: Mapping[str, Any],
    grid: Grid,
    folder: Path,
    output: Path,
    more: Mapping[str, Any] | None = None,
) -> Iterator[tuple[str, str]]:
    """Make every figure and table of a configuration from audits, in ``OUTPUT/figures/`` and
    ``OUTPUT/tables/``.

    Yields ``SECTION/NAME`` of each, and the reason if it could not be made, else "". If some runs
    have no audits, the others are shown, and the title names the missing ones.

    Args:
        folder: the folder of the audits.
        more: keys that replace those of every entry, such as ``runs`` and ``wide``.
    """
    from fa_audit.results.measured import evidence_of, settings_in
    from fa_audit.results.tidy import read_packed, read_tidy

    read = cache(read_packed)
    there = settings_in(folder)
    every = [(section, name) for section in ENDINGS for name in config.get(section, {})]
    for section, name in tqdm(every, "figure or table", leave=False, disable=None):
        entry = artefact_entry(config, grid, section, name) | dict(more or {})
        asked = entry["settings"]
        entry["settings"] = [setting for setting in asked if setting in there] or asked
        files, origin = artefact_files(section, name, str(output)), f"{section}/{name}{ORIGIN}"
        problem = ""
        try:
            inputs = evidence_of(folder, entry["settings"])
            tidy = read_tidy(inputs, entry.get("runs", ()), read)
            entry["title"] += _not_run(entry, map(grid.setting, asked), tidy)
            _write(section)(entry, tidy, inputs, files, output / origin)
        except AuditError as error:
            problem = str(error)
        yield f"{section}/{name}", problem


def _not_run(entry: Mapping[str, Any], settings: Iterable[Setting], tidy: Tidy) -> str:
    """Name, for a title, the settings and runs that have no audits. Of more than five runs of a
    setting, only the number is given.
    """
    labels, chosen, settings = entry["labels"], entry.get("runs", ()), list(settings)
    known = {run for setting in settings for run in setting.runs}
    # As in `Tidy.only`: a method's name stands for its runs unless a run has this very name.
    methods = {*chosen} - known
    there = set(zip(tidy.runs["setting"], tidy.runs["run"]))
    texts = []
    for setting in settings:
        text = labels.get(setting.name, setting.name)
        if setting.name in entry["settings"]:
            runs = [run for run in setting.runs if (setting.name, run) not in there]
            if chosen:
                runs = [run for run in runs if run in chosen or parse_run(run).method in methods]
            if not runs:
                continue
            called = [labels.get(run, labels.get(str(parse_run(run).untuned), run)) for run in runs]
            text += f" ({', '.join(called)})" if len(runs) < 6 else f" ({len(runs)} runs)"
        texts.append(text)
    return f"; not run: {', '.join(texts)}" if texts else ""


def _write(section: str) -> Callable[..., None]:
    if section == "figures":
        from fa_audit.results.figures.files import write_figure

        return write_figure
    from fa_audit.results.tables.files import write_table

    return write_table


def write_shown(
    shown: Iterable[Shown], inputs: Sequence[Path], output: Path, more: Mapping[str, Any]
) -> Iterator[Path]:
    """Make figures and tables from tidy tables; yield the written files, ``OUTPUT/NAME.ENDING``.

    Args:
        inputs: the files from which the tidy tables were made.
        more: more keys of every figure and table, such as ``wide``.
    """
    for section, kind, title, name, tidy in shown:
        entry = {"kind": kind, "title": title, "labels": {}} | dict(more)
        files = [output / f"{name}.{ending}" for ending in ENDINGS[section]]
        _write(section)(entry, tidy, inputs, files)
        yield from files


def board_of(tidy: Tidy) -> Iterator[Shown]:
    """Yield the board as a table and, if any audit has a frozen baseline, as a figure."""
    from fa_audit.results.tables.board import without_sources

    yield "tables", "board", "Board", "board", tidy
    if tidy.has("own_frozen_acc"):
        yield "figures", "board", "Accuracy and frozen baseline", "board", without_sources(tidy)


def shown_of_audits(tidy: Tidy) -> Iterator[Shown]:
    """Yield the figures and tables of user audits: for every setting the figures ``audit_overview``
    and ``layers``, then one board of all settings.
    """
    for setting in tidy.settings:
        name = re.sub(r"[^A-Za-z0-9]+", "-", setting).strip("-")
        end = f"_{name}" if len(tidy.settings) > 1 else ""
        for kind in ("audit_overview", "layers"):
            yield "figures", kind, setting, kind + end, tidy.of(setting)
    yield from board_of(tidy)
