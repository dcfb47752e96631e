"""All kinds of figures and tables, and their captions. Imports no torch."""

from fa_audit.core.errors import AuditError
from fa_audit.core.registry import documentation
from fa_audit.experiments.read_grid import ArtefactKinds
from fa_audit.results.figures import FIGURES, FIGURES_OF_ONE
from fa_audit.results.tables import TABLES, TABLES_OF_ONE

KINDS = ArtefactKinds(FIGURES, TABLES, FIGURES_OF_ONE | TABLES_OF_ONE)
_DRAWN = FIGURES | {"scorecard": "fa_audit.results.figures.scorecard_figure:draw"}


def caption(kind: str) -> str:
    """Return the caption of a kind: the first paragraph of its docstring.

    Tables of this package print captions of their own, and have an empty one here.

    Raises:
        AuditError: a user's kind has no docstring.
    """
    if kind in TABLES:
        return ""
    docstring = documentation("kind", _DRAWN, kind)
    if not docstring:
        raise AuditError(f"no caption of '{kind}' for the report: write a docstring.")
    return docstring.partition("\n\n")[0]
