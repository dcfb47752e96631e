TABLES = {"main_audit": "fa_audit.tables.main_audit:build"}
