"""Registry of figures: kind -> function ``(tidy, *, title, labels, thresholds) -> Figure``.

One new file and one line here add a figure. This file holds names only and imports nothing.
"""

FIGURES: dict[str, str] = {
    "audit_overview": "fa_audit.figures.audit_overview:draw",
    "credit_layers": "fa_audit.figures.credit_layers:draw",
    "depth_sweep": "fa_audit.figures.depth_sweep:draw",
    "penalty_rescue": "fa_audit.figures.penalty_rescue:draw",
    "trajectories": "fa_audit.figures.trajectories:draw",
}
FIGURES_OF_ONE = frozenset({"audit_overview", "credit_layers", "penalty_rescue"})  # kinds that show one setting
