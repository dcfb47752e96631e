"""Find the files that come with the project: measured tables, published numbers, configurations."""

from __future__ import annotations

from pathlib import Path

# `provided` holds links to the checkout's files, or, in an installed package, copies of them.
_PLACES = (Path(), Path(__file__).resolve().parents[1] / "provided")


def provided(name: str | Path) -> Path:
    """Return the path `name` if it exists, else the project's file of that name, else `name`."""
    return next((place / name for place in _PLACES if (place / name).exists()), Path(name))
