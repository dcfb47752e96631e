"""Files that come with the project: measured tables, published numbers, a configuration."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
PLACES = (Path(), PACKAGE / "provided")  # the working folder; links to the checkout, or their files


def provided(name: str | Path) -> Path:
    """Return the path of a file or folder: as named, or else as the project has it; as named where
    neither exists.
    """
    return next((place / name for place in PLACES if (place / name).exists()), Path(name))
