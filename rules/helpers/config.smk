# Which configuration this is, and how bad input is told. Included first: everything else reads the configuration.

import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(workflow.basedir) / folder) for folder in ("src", "workflow_scripts")]
sys.path.append(os.getcwd())  # methods of the user's own

from _configfiles import check
from fa_audit.core.errors import AuditError


def readable(function):
    """Let bad input end in its one message: an exception would bring Snakemake's traceback along."""

    def wrapped(*args):
        try:
            return function(*args)
        except AuditError as error:
            sys.exit(f"fa-audit: {error}")

    return wrapped


check(workflow.overwrite_configfiles or ["config.yaml"])

# --configfile replaces config.yaml; --config changes single values of either.
if not workflow.overwrite_configfiles:

    configfile: "config.yaml"
