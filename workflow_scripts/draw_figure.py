"""Rule draw_figure: one figure as PDF and PNG."""

from typing import TYPE_CHECKING

import pandas as pd
from _workflow import logged

from fa_audit.figures import FIGURES
from fa_audit.figures.style import save
from fa_audit.registry import load
from fa_audit.thresholds import Thresholds

if TYPE_CHECKING:
    from snakemake.iocontainers import snakemake

with logged(snakemake):
    runs, trajectories = (pd.read_csv(path) for path in snakemake.input.tidy)
    settings = snakemake.params.settings
    draw = load("figure", FIGURES, settings["kind"])
    limits = Thresholds(**settings["thresholds"])
    figure = draw(runs, trajectories, title=settings["title"], labels=settings["labels"], thresholds=limits)
    for path in snakemake.output:
        save(figure, path)
