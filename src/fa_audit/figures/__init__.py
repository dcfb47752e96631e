FIGURES = {
    "audit_overview": "fa_audit.figures.audit_overview:draw",
    "trajectories": "fa_audit.figures.trajectories:draw",
}
