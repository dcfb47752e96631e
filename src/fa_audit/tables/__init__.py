"""Registry of tables: kind -> function ``(runs, *, title, labels) -> Table``.

One new file and one line here add a table. This file holds names only and imports nothing.
"""

TABLES: dict[str, str] = {
    "main_audit": "fa_audit.tables.main_audit:build",
}
