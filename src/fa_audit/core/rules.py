"""The two verdict rules, over which checks fire: for a network, for a row of a table, and for a run over its seeds."""

from __future__ import annotations

from collections.abc import Mapping

NON_FINITE = "non-finite"  # in the place of a check that fired: a state, gradient or logit is NaN or infinite
Fires = Mapping[str, bool | None]  # by check; None where it was not evaluated, which is never a pass


def three_checks(fires: Fires, finite: bool = True) -> str:
    """Return ``FAIL(...)`` if (D1 and D2) or any other or anything is not finite, naming what fired; else ``PASS``.

    Without a failure, an unevaluated check makes it ``INCOMPLETE(...)``.

    >>> three_checks({"D1": True, "D2": True, "D3": False}), three_checks({"D1": True, "D2": False, "D3": None})
    ('FAIL(D1+D2)', 'INCOMPLETE(D3 not evaluated)')
    """
    fired = fired_of(fires, finite)
    if set(fired) - {"D1", "D2"} or len(fired) > 1:
        return f"FAIL({'+'.join(fired)})"
    unknown = [name for name, outcome in fires.items() if outcome is None]
    return f"INCOMPLETE({'+'.join(unknown)} not evaluated)" if unknown else "PASS"


def four_checks(fires: Fires, finite: bool = True) -> str:
    """Return ``needs walk-back (...)`` naming what fired, ``trustworthy``, or ``incomplete (...)``.

    >>> four_checks({"a": True, "b": False, "c": False, "d": True}), four_checks({"a": False, "b": False})
    ('needs walk-back (a, d)', 'trustworthy')
    """
    if fired := fired_of(fires, finite):
        return f"needs walk-back ({', '.join(fired)})"
    unknown = [name for name, outcome in fires.items() if outcome is None]
    return f"incomplete ({', '.join(unknown)} not evaluated)" if unknown else "trustworthy"


def withdrawn(verdict: str) -> bool | None:
    """Return whether a verdict of either rule is against the network; None where it is open.

    >>> withdrawn("FAIL(D3)"), withdrawn("trustworthy"), withdrawn("incomplete (c not evaluated)")
    (True, False, None)
    """
    kind = verdict.partition("(")[0].strip()
    return {"FAIL": True, "needs walk-back": True, "PASS": False, "trustworthy": False}.get(kind)


def fired_of(fires: Fires, finite: bool) -> list[str]:
    """Return the checks that fire, and `NON_FINITE`."""
    return [name for name, outcome in fires.items() if outcome] + ([] if finite else [NON_FINITE])
