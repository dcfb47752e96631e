"""Registry of figures: kind -> function ``(tidy, *, title, labels, thresholds) -> Figure``.

One new file and one line here add a figure. This file holds names only and imports nothing.
"""

FIGURES: dict[str, str] = {
    "audit_overview": "fa_audit.figures.audit_overview:draw",
    "trajectories": "fa_audit.figures.trajectories:draw",
}
FIGURES_OF_ONE = frozenset({"audit_overview"})  # kinds that show one setting
