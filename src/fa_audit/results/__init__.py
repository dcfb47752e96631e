"""From many audits to tables, figures, scorecard and reports."""
