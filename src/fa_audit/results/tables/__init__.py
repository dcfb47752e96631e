"""Registry of tables: kind -> ``build(tidy, *, title, labels) -> Table``.

tidy: the tidy tables of one or more settings; of exactly one for the kinds in `TABLES_OF_ONE`.
title: the beginning of the caption.
labels: printed names of runs and settings; default their own names.

To add a table, write one file and one line here. A table outside of this package is named
``package.module:function`` instead. This file holds names only and imports nothing.
"""

TABLES: dict[str, str] = {
    "board": "fa_audit.results.tables.board:board",
    "comparison": "fa_audit.results.tables.audits:comparison",
    "main_audit": "fa_audit.results.tables.audits:main_audit",
    "null_calibration": "fa_audit.results.tables.audits:null_calibration",
    "penalty": "fa_audit.results.tables.audits:penalty",
    "variation": "fa_audit.results.tables.audits:variation",
}
TABLES_OF_ONE = frozenset({"main_audit", "penalty"})  # kinds that show one setting
