"""Write the files of a figure, drawn from audits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fa_audit.core.errors import AuditError
from fa_audit.core.files import write_json
from fa_audit.core.origin import origin_of
from fa_audit.core.registry import call
from fa_audit.protocol.evidence import DiagnosticThresholds
from fa_audit.results.figures import FIGURES
from fa_audit.results.figures.style import WIDE, check_texts, names, save
from fa_audit.results.tidy import Tidy


def write_figure(
    entry: Mapping[str, Any],
    tidy: Tidy,
    inputs: Sequence[str | Path],
    figures: Sequence[str | Path],
    origin_file: str | Path | None = None,
) -> None:
    """Draw one figure and write it in every format, with a record of its code and inputs.

    Args:
        entry: the result of `fa_audit.results.artefacts.artefact_entry`.
        tidy, inputs: what to draw, and the files that it was read from.
        figures: files to write: PDF, PNG, SVG.
        origin_file: the JSON file of that record.

    Raises:
        AuditError: see `fa_audit.core.registry.call`; or matplotlib cannot read a formula, or the
            limits of two audits differ.
    """
    origin = origin_of(entry, tidy.runs["digest"].dropna(), inputs)
    check_texts([entry["title"], *entry["labels"].values(), *tidy.settings])
    figure = call(
        "figure",
        FIGURES,
        entry["kind"],
        Figure,
        tidy,
        title=entry["title"],
        labels=names(tidy.runs["run"].unique(), entry["labels"]),
        thresholds=_limits(tidy),
    )
    if entry.get("wide"):
        figure.set_size_inches(WIDE, figure.get_figheight())
    for path in figures:
        save(figure, path, str(origin))
    if origin_file:
        write_json(origin_file, origin.to_dict())


def _limits(tidy: Tidy) -> DiagnosticThresholds:
    """Return the limits by which all audits were judged.

    Raises:
        AuditError: the limits of two audits differ.
    """
    first, *others = tidy.runs["audit"]
    for audit in others:
        if audit.thresholds != first.thresholds:
            raise AuditError(
                f"{audit.setting}/{audit.run}: judged by other limits than"
                f" {first.setting}/{first.run}; expected the same in one figure. Draw two figures."
            )
    # An audit's own limit of D2 depends on its number of samples.
    return replace(first.thresholds, g_norm_floor=first.checks["reference"].threshold)
