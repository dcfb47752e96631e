"""The page of user-defined audits, or of a folder of tidy tables, without the workflow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fa_audit.experiments.config_file import load_config
from fa_audit.experiments.paths import TIDY
from fa_audit.experiments.published import FILE, read_published_file
from fa_audit.results.measured import measured_folder, settings_in, tables_of
from fa_audit.results.own_audits import alone, read_own
from fa_audit.results.page.document import claims_of, page
from fa_audit.results.scorecard import read_explanations, read_results, scorecard
from fa_audit.results.tidy import read_tidy

DEFAULT = Path("config.yaml")


def page_of_audits(paths: Sequence[Path]) -> str:
    """Return the page of audits, those of one network over its seeds together.

    Raises:
        AuditError: a file is not an audit, contradicts itself, repeats a seed or differs from
            others of its model.
    """
    tidy, audits = alone(read_own(paths))
    return page(tidy, paths, audits=audits)


def page_of_tables(folder: Path, configfile: Path | None) -> str:
    """Return the page of every setting in a folder of tidy tables, with the paper's claims where it
    was run.

    Args:
        configfile: whose settings come first, in its order, and whose labels name settings and
            runs; without one it is ``config.yaml``, where that exists.

    Raises:
        AuditError: a table is missing, or is not one.
    """
    config = load_config(configfile or DEFAULT)[0] if configfile or DEFAULT.exists() else {}
    folder = measured_folder(folder)
    there = settings_in(folder)
    settings = sorted(there, key=[*(config.get("settings", {})), *there].index)
    files = tables_of(folder, settings, TIDY)
    tidy = read_tidy(files)
    published = read_published_file(FILE)
    rows = scorecard(published, read_results(folder), read_explanations(folder, published))
    return page(tidy, files, labels=config.get("labels", {}), claims=claims_of(published, rows))
