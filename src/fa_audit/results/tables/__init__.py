"""Registry of tables: kind -> ``build(tidy, *, title, labels) -> Table``.

tidy: the tidy tables of one or more settings, of one where the kind is in `TABLES_OF_ONE`.
title: the beginning of the caption.
labels: how to print runs and settings; their names where they are not listed.

`Table.values` of all kinds but inventory, thresholds and validations are as
`fa_audit.results.tables.rows.run_table` describes them. One new file and one line here add a table;
one that lives elsewhere is named ``package.module:function`` instead.
This file holds names only and imports nothing.
"""

TABLES: dict[str, str] = {
    "main_audit": "fa_audit.results.tables.audits:main_audit",
    "audits": "fa_audit.results.tables.leaderboard:audits",
    "comparison": "fa_audit.results.tables.audits:comparison",
    "variation": "fa_audit.results.tables.audits:variation",
    "tuned": "fa_audit.results.tables.audits:tuned",
    "penalty": "fa_audit.results.tables.audits:penalty",
    "null_calibration": "fa_audit.results.tables.audits:null_calibration",
    "thresholds": "fa_audit.results.tables.protocol:thresholds",
    "validations": "fa_audit.results.tables.protocol:validations",
    "leaderboard": "fa_audit.results.tables.leaderboard:leaderboard",
    "claims": "fa_audit.results.tables.claims:claims",
    "inventory": "fa_audit.results.tables.inventory:inventory",
}
TABLES_OF_ONE = frozenset({"main_audit", "penalty"})  # kinds that show one setting
TABLES_OF_WORK = frozenset(
    {"claims", "inventory", "leaderboard"}
)  # kinds that show what the trainings took
