"""Errors that users see, and helpers for the texts of their messages."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable

_short = reprlib.Repr()
_short.maxstring = _short.maxlong = _short.maxother = 60


class AuditError(ValueError):
    """Bad input. The message names it and says what was found, what was expected and what to do."""


class OwnCodeError(AuditError):
    """An exception in user-defined code; ``__cause__`` holds the original exception."""


def unknown(kind: str, found: object, known: Iterable[str], *, where: str = "") -> AuditError:
    """Return an error for an unknown name; its message suggests the nearest known name.

    Args:
        kind: the kind of thing that the name is for, e.g. ``"method"``.
        found: the name as the user wrote it.
        known: every valid name.
        where: the place of the mistake, e.g. ``"settings.demo.runs"``.
    """
    names = sorted(known)
    near = difflib.get_close_matches(str(found), names, n=1)
    place = f"{where}: " if where else ""
    hint = f" Did you mean '{near[0]}'?" if near else ""
    choice = f"; known: {listed(names)}" if names else ""
    return AuditError(f"{place}unknown {kind} {shortened(str(found))}{choice}.{hint}")


def listed(names: Iterable[str], most: int = 20) -> str:
    """Join the first `most` names with commas and count the rest.

    >>> listed(["fa", "dfa", "ep", "bp"], most=2)
    'fa, dfa and 2 more'
    """
    found = list(names)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def first_line(error: BaseException) -> str:
    """Return an exception's type and the first line of its message, without its last full stop."""
    text = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__} {text}".rstrip(" .")


def shortened(value: object) -> str:
    """Return the `repr` of a value on one line, abbreviated if it is long."""
    return printable(_short.repr(value))


def printable(text: str) -> str:
    """Escape line breaks, control characters and direction marks, to print a text on one line."""
    parts = []
    for character in text:
        if not character.isprintable():
            character = character.encode("unicode_escape").decode()
        parts.append(character)
    return "".join(parts)
