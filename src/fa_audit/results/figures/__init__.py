"""Registry of figures: kind -> ``draw(tidy, *, title, labels, thresholds) -> Figure``.

tidy: the tidy tables of one or more settings; of exactly one for the kinds in `FIGURES_OF_ONE`.
title: printed above the panels.
labels: printed names of runs and settings; default their own names.
thresholds: limits of the checks; ignored by kinds that show no limit.

To add a figure, write one file and one line here. A figure outside of this package is named
``package.module:function`` instead. This file holds names only and imports nothing.
"""

FIGURES: dict[str, str] = {
    "audit_overview": "fa_audit.results.figures.audit_overview:draw",
    "credit_layers": "fa_audit.results.figures.cosines:credit_layers",
    "decision_utility": "fa_audit.results.figures.squares:decision_utility",
    "depth_ladder": "fa_audit.results.figures.depth:depth_ladder",
    "depth_sweep": "fa_audit.results.figures.depth:depth_sweep",
    "layer0_dominance": "fa_audit.results.figures.cosines:layer0_dominance",
    "layers": "fa_audit.results.figures.cosines:layers",
    "board": "fa_audit.results.figures.board:draw",
    "penalty_rescue": "fa_audit.results.figures.training:penalty_rescue",
    "threshold_sensitivity": "fa_audit.results.figures.threshold_sensitivity:draw",
    "trajectories": "fa_audit.results.figures.training:trajectories",
    "triangulation": "fa_audit.results.figures.squares:triangulation",
    "verdict_matrix": "fa_audit.results.figures.squares:verdict_matrix",
}
# Kinds that show one setting.
FIGURES_OF_ONE = frozenset(
    {
        "audit_overview",
        "credit_layers",
        "layer0_dominance",
        "layers",
        "penalty_rescue",
        "triangulation",
    }
)
