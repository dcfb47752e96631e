"""Registry of architectures: name -> class, and the options of each with their defaults.

One new file and an entry in each dictionary here add an architecture; every architecture has a `depth`.
This file holds names only and imports no torch.
"""

from typing import Any

ARCHITECTURES: dict[str, str] = {
    "resmlp": "fa_audit.architectures.resmlp:ResMLP",
}

ARCHITECTURE_OPTIONS: dict[str, dict[str, Any]] = {
    "resmlp": {"width": 256, "depth": 4, "terminal_norm": True, "residual": True},
}
