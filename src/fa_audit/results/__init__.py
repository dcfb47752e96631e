"""Turn many audits into tables, figures, the scorecard and reports."""
