"""Name the extra to install if an optional package is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fa_audit.core.errors import AuditError

EXTRAS = {  # by package, the extra that it comes with
    **dict.fromkeys(("matplotlib", "pandas", "scipy", "yaml"), "plots"),
    "jinja2": "report",
    **dict.fromkeys(("accelerate", "transformers"), "transformers"),
    **dict.fromkeys(("sklearn", "torchvision"), "datasets"),
    "argcomplete": "completion",
    "lightning": "lightning",
}
# What the system says of a limit, and what the user knows it by.
_LIMITS = {
    "failed to map": "memory (`ulimit -v`, or your batch job's)",
    "Too many open files": "open files (`ulimit -n`)",
}


@contextmanager
def naming_extras() -> Iterator[None]:
    """Turn the failed import of an optional package into an error that names its extra.

    Raises:
        AuditError: an optional package is not installed, or torch has too little memory.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise AuditError(
            f"'{package}' is not installed; this needs it. Run: pip install "
            f"'fa-audit[{EXTRAS[package]}]'"
        ) from error
    except (ImportError, OSError) as error:
        # A process at its limit fails at the next import, with an error of the linker's own.
        for words, limit in _LIMITS.items():
            if words in str(error):
                raise AuditError(f"{error}; raise the limit of {limit}.") from error
        raise
