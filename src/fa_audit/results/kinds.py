"""All kinds of figures and tables, and their captions. Imports no torch."""

import ast
from importlib.util import find_spec
from pathlib import Path

from fa_audit.core.errors import AuditError
from fa_audit.core.registry import documentation
from fa_audit.experiments.read_grid import ArtefactKinds
from fa_audit.results.figures import FIGURES, FIGURES_OF_ONE
from fa_audit.results.tables import TABLES, TABLES_OF_ONE

KINDS = ArtefactKinds(FIGURES, TABLES, FIGURES_OF_ONE | TABLES_OF_ONE)


_SCORECARD = "fa_audit.results.figures.scorecard_figure:draw"


def caption(kind: str) -> str:
    """Return the caption of a kind: the first paragraph of its docstring.

    Tables of this package print captions of their own, and have an empty one here.

    Raises:
        AuditError: a user's kind has no docstring.
    """
    if kind in TABLES:
        return ""
    if kind in FIGURES or kind == "scorecard":
        docstring = _docstring(FIGURES.get(kind, _SCORECARD))
    else:
        docstring = documentation("kind", {}, kind)
    if not docstring:
        raise AuditError(f"no caption of '{kind}' for the report: write a docstring.")
    return docstring.partition("\n\n")[0]


def _docstring(reference: str) -> str:
    """Return the docstring of ``module:function``."""
    module, _, name = reference.partition(":")
    spec = find_spec(module)
    # Read, not imported: matplotlib would cost every job of the workflow a second.
    source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node) or ""
    return ""
