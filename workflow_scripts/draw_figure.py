"""Rule draw_figure: one figure as PDF and PNG, and where it comes from."""

from typing import TYPE_CHECKING

from _workflow import logged
from matplotlib.figure import Figure

from fa_audit.core.files import write_json
from fa_audit.core.registry import call
from fa_audit.core.thresholds import DiagnosticThresholds
from fa_audit.results.figures import FIGURES
from fa_audit.results.figures.style import check_texts, save
from fa_audit.results.origin import origin_of
from fa_audit.results.tidy import read_tidy

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake):
    entry = snakemake.params.entry
    tidy = read_tidy(snakemake.input.tidy)
    origin = origin_of(entry, tidy.runs["digest"], snakemake.input.tidy)
    check_texts([entry["title"], *entry["labels"].values()])
    words = {name: entry[name] for name in ("title", "labels")}
    limits = DiagnosticThresholds.of(entry["thresholds"])
    figure = call("figure", FIGURES, entry["kind"], Figure, tidy, **words, thresholds=limits)
    for path in (snakemake.output.pdf, snakemake.output.png):
        save(figure, path, str(origin))
    write_json(snakemake.output.origin, origin.to_dict())
