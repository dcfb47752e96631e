"""Registry of architectures: name -> class, and the options of each with their defaults.

One new file and one line here add an architecture. This file holds names only and imports no torch.
"""

from typing import Any

ARCHITECTURES: dict[str, str] = {
    "resmlp": "fa_audit.architectures.resmlp:ResMLP",
}

OPTIONS: dict[str, dict[str, Any]] = {
    "resmlp": {"width": 256, "depth": 4, "terminal_norm": True, "residual": True},
}
