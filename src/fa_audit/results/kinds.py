"""Every kind of figure and table, for the checks of a configuration and for the report. Imports no
torch.
"""

from pathlib import Path

from fa_audit.core.errors import AuditError
from fa_audit.core.registry import documentation
from fa_audit.experiments.grid_checks import ArtefactKinds
from fa_audit.results.figures import FIGURES, FIGURES_OF_ONE
from fa_audit.results.tables import TABLES, TABLES_OF_ONE

KINDS = ArtefactKinds(FIGURES, TABLES, FIGURES_OF_ONE | TABLES_OF_ONE)


def caption(kind: str, folder: Path) -> str:
    """Return the caption of a kind in the report: its file in `folder`, or the docstring of a
    user-defined kind.

    Raises:
        AuditError: it has neither.
    """
    path = folder / f"{kind}.rst"
    if path.exists():
        return path.read_text(encoding="utf-8")
    if ":" in kind and (found := documentation("kind", {}, kind)):
        return found
    raise AuditError(
        f"no caption of '{kind}' for the report: write {path} (of your own kinds, a docstring)."
    )
