"""Registry of tables: kind -> function ``(tidy, *, title, labels, thresholds) -> Table``.

One new file and one line here add a table. This file holds names only and imports nothing.
"""

TABLES: dict[str, str] = {
    "main_audit": "fa_audit.results.tables.main_audit:build",
    "comparison": "fa_audit.results.tables.comparison:build",
    "variation": "fa_audit.results.tables.variation:build",
    "penalty": "fa_audit.results.tables.penalty:build",
    "null_calibration": "fa_audit.results.tables.null_calibration:build",
    "inventory": "fa_audit.results.tables.inventory:build",
}
TABLES_OF_ONE = frozenset({"main_audit", "penalty"})  # kinds that show one setting
TABLES_OF_WORK = frozenset({"inventory"})  # kinds that show what the trainings took
