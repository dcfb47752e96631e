"""Make the figures and tables of a configuration from audits.

The workflow uses the same functions, with one job for each figure and table. This module does not
import matplotlib.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from fa_audit.core.errors import AuditError, unknown
from fa_audit.core.registry import documentation
from fa_audit.experiments.grid import Grid
from fa_audit.experiments.paths import ENDINGS, ORIGIN, RunKey, artefact_files
from fa_audit.experiments.read_grid import ArtefactKinds
from fa_audit.experiments.spec import RunSpec, parse_run
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


def caption(kind: str) -> str:
    """Return the caption of a kind of figure or table: the first paragraph of its docstring.

    It is empty for the tables of this package, which print their own captions.

    Raises:
        AuditError: a user's kind has no docstring.
    """
    if kind in TABLES:
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
    from fa_audit.results.measured import evidence_of, read_measured
    from fa_audit.results.tidy import key_of

    measured = read_measured(folder)
    specs = {key_of(audit): RunSpec.from_dict(audit.spec) for audit in measured.runs["audit"]}
    every = [(section, name) for section in ENDINGS for name in config.get(section, {})]
    for section, name in tqdm(every, "figure or table", leave=False, disable=None):
        entry = artefact_entry(config, grid, section, name) | dict(more or {})
        files, origin = artefact_files(section, name, str(output)), f"{section}/{name}{ORIGIN}"
        problem = ""
        try:
            found = _find(entry, grid, specs)
            inputs = evidence_of(folder, dict.fromkeys(key.setting for key in found.values()))
            _write(section)(entry, inputs, files, output / origin, measured.rename(found))
        except AuditError as error:
            problem = str(error)
        yield f"{section}/{name}", problem


def _find(
    entry: dict[str, Any], grid: Grid, measured: Mapping[RunKey, RunSpec]
) -> dict[RunKey, RunKey]:
    """Return the measured run behind each run of a figure or table; name the others in its title.

    A run that its setting lacks is taken from another setting with the same specification. If there
    is none, it is taken from a setting outside of `grid` that differs only in clipping, as the
    paper's two scripts do, and named, too.

    Raises:
        AuditError: no run was measured.
    """
    same = {spec: key for key, spec in measured.items()}
    unclipped = {
        replace(spec, clip_groups=1.0): key
        for spec, key in same.items()
        if not spec.clip and key.setting not in grid.settings
    }
    found: dict[RunKey, RunKey] = {}
    labels = entry["labels"]
    named: dict[str, list[str]] = {"without clipping": [], "not run": []}
    for name in entry["settings"]:
        setting = grid.setting(name)
        own = {key: key for key in measured if key.setting == name}
        found |= own
        there = {key.run for key in own}
        wanted = entry.get("runs") or setting.runs
        notes: dict[str, list[str]] = {note: [] for note in named}
        for run in setting.runs:
            if run in there or run not in wanted:
                continue
            specs = {RunKey(name, run, seed): setting.spec(run, seed) for seed in setting.seeds}
            exact, other = (
                {key: source[spec] for key, spec in specs.items() if spec in source}
                for source in (same, unclipped)
            )
            found |= exact or other
            if not exact:
                rule = str(parse_run(run).untuned)
                called = labels.get(run, labels.get(rule, run))
                notes["without clipping" if other else "not run"].append(called)
        for note, runs in notes.items():
            text = f" ({', '.join(runs)})" * (len(runs) < len(setting.runs))
            named[note] += [labels.get(name, name) + text] * bool(runs)
    for note, settings in named.items():
        entry["title"] += f"; {note}: {', '.join(settings)}" * bool(settings)
    if not found:
        raise AuditError("none of its runs was measured.")
    return found


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
        _write(section)(entry, inputs, files, tidy=tidy)
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
