"""Every kind of figure and table, for the checks of a configuration. Imports no torch."""

from fa_audit.experiments.grid_checks import ArtefactKinds
from fa_audit.results.figures import FIGURES, FIGURES_OF_ONE
from fa_audit.results.tables import TABLES, TABLES_OF_ONE

KINDS = ArtefactKinds(FIGURES, TABLES, FIGURES_OF_ONE | TABLES_OF_ONE)
