"""Draw a figure from tidy tables into its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fa_audit.core.files import write_json
from fa_audit.core.origin import Origin, origin_of
from fa_audit.core.registry import call
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures import FIGURES
from fa_audit.results.figures.style import WIDTH, as_wide_as, check_texts, names, save
from fa_audit.results.tidy import Tidy, read_tidy


def write_figure(
    entry: Mapping[str, Any], tidy_files: Sequence[str | Path], figures: Sequence[str | Path], origin_file: str | Path
) -> None:
    """Draw one figure in every format, and write where it comes from.

    Args:
        entry: as `fa_audit.results.artefacts.artefact_entry` gives it.
        tidy_files: the tables that it is drawn from.
        figures: files to write, PDF or PNG.

    Raises:
        AuditError: a file is not a table, or a text not a formula that can be read.
    """
    origin = make_figure(entry, read_tidy(tidy_files, entry.get("runs", ())), tidy_files, figures)
    write_json(origin_file, origin.to_dict())


def make_figure(
    entry: Mapping[str, Any], tidy: Tidy, inputs: Sequence[str | Path], figures: Sequence[str | Path]
) -> Origin:
    """Draw a figure of tables that were made of `inputs` into its files, and return where it comes from."""
    origin = origin_of(entry, tidy.runs["digest"].dropna(), inputs)
    check_texts([entry["title"], *entry["labels"].values()])
    words = {"title": entry["title"], "labels": names(tidy.runs["run"].unique(), entry["labels"])}
    limits = DiagnosticThresholds.of(entry["thresholds"])
    with as_wide_as(entry.get("width", WIDTH)):
        figure = call("figure", FIGURES, entry["kind"], Figure, tidy, **words, thresholds=limits)
    for path in figures:
        save(figure, path, str(origin))
    return origin
