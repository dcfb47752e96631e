"""Registry of tables: kind -> function ``(tidy, *, title, labels, thresholds) -> Table``.

One new file and one line here add a table. This file holds names only and imports nothing.
"""

TABLES: dict[str, str] = {
    "main_audit": "fa_audit.tables.main_audit:build",
}
TABLES_OF_ONE = frozenset({"main_audit"})  # kinds that show one setting
