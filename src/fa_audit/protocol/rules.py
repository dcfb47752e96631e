"""The two verdict rules, over which checks fire: for a network, for a row of a table, and for a run
over its seeds.

A row is of the tidy table of runs: values, or their texts in the CSV.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from fa_audit.protocol.checks import CHECKS

NON_FINITE = "non-finite"  # in the place of a check that fired: a state, gradient or logit is NaN or infinite
Fires = Mapping[
    str, bool | None
]  # by the names of `CHECKS`; None where one was not evaluated, which is never a pass


@dataclass(frozen=True)
class Rule:
    """A verdict rule.

    Attributes:
        key: the attribute of a `Check` that names it in the verdict; checks without one decide
            nothing.
        words: the verdict where the rule is against the network, for it, and open.
        template: of a verdict with its reasons.
        separator: between reasons.
        joint: checks that count against the network only where a second check fires.
    """

    key: Literal["paper", "letter"]
    words: Mapping[bool | None, str]
    template: str
    separator: str
    joint: frozenset[str] = frozenset()

    @property
    def checks(self) -> dict[str, str]:
        """Return the checks that decide, and their names in the verdict."""
        return {name: text for name, check in CHECKS.items() if (text := getattr(check, self.key))}

    def decides(self, fires: Fires, finite: bool = True) -> bool | None:
        """Return whether the verdict is against the network; None where it is open.

        >>> THREE.decides({"scale": True, "reference": False, "depth": False})
        False
        """
        fired = self._fired(fires, finite)
        if fired.keys() - self.joint or len(fired) > 1:
            return True
        return None if any(fires[name] is None for name in self.checks) else False

    def text(self, fires: Fires, finite: bool = True) -> str:
        """Return the verdict, with the checks that fired or were not evaluated.

        >>> THREE.text({"scale": True, "reference": True, "depth": None})
        'FAIL(D1+D2)'
        >>> FOUR.text({"scale": False, "reference": False, "stability": None, "depth": False})
        'incomplete (c not evaluated)'
        """
        against = self.decides(fires, finite)
        open_ = [text for name, text in self.checks.items() if fires[name] is None]
        reasons = {True: [*self._fired(fires, finite).values()], None: open_, False: []}[against]
        if not reasons:
            return self.words[against]
        listed = self.separator.join(reasons) + (" not evaluated" if against is None else "")
        return self.template.format(self.words[against], listed)

    def depends(self, fires: Fires, near: Collection[str], finite: bool = True) -> bool:
        """Return whether other outcomes of the checks in `near` would change the verdict, its
        reasons aside.

        If another check fires clearly, the verdict cannot change.
        """
        changes = (dict(zip(near, fired)) for fired in product((True, False), repeat=len(near)))
        return len({self.decides({**fires, **changed}, finite) for changed in changes}) > 1

    def _fired(self, fires: Fires, finite: bool) -> dict[str, str]:
        fired = {name: text for name, text in self.checks.items() if fires[name]}
        return fired if finite else fired | {NON_FINITE: NON_FINITE}


THREE = Rule(
    "paper",
    {True: "FAIL", False: "PASS", None: "INCOMPLETE"},
    "{}({})",
    "+",
    frozenset({"scale", "reference"}),
)
FOUR = Rule(
    "letter", {True: "needs walk-back", False: "trustworthy", None: "incomplete"}, "{} ({})", ", "
)
RULES = {
    "three_check": THREE,
    "four_check": FOUR,
}  # by their names in an audit's JSON and in tables


def verdicts_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return both verdicts of a row, and whether each is ``_borderline``, from the outcomes of its
    checks.
    """
    fires, finite = fires_of(row, CHECKS), is_finite(row)
    near = [name for name in CHECKS if flag_of(row.get(f"{name}_borderline"))]
    texts = {name: rule.text(fires, finite) for name, rule in RULES.items()}
    return texts | {
        f"{name}_borderline": rule.depends(fires, near, finite) for name, rule in RULES.items()
    }


def fires_of(row: Mapping[str, Any], checks: Iterable[str]) -> dict[str, bool | None]:
    """Return whether each check fires in a row; None where it was not evaluated."""
    return {name: flag_of(row.get(f"{name}_fires")) for name in checks}


def is_finite(row: Mapping[str, Any]) -> bool:
    """Return whether every state, gradient and logit of a row's network is finite, as far as the
    row knows.
    """
    return flag_of(row.get("finite")) is not False


def flag_of(value: Any) -> bool | None:
    """Return an outcome as a row holds it, a boolean, its text or its number; None for anything
    else.

    pandas makes numbers of a column of booleans that is joined with an empty one.

    >>> flag_of("True"), flag_of(0.0), flag_of(float("nan"))
    (True, False, None)
    """
    return {"true": True, "1.0": True, "false": False, "0.0": False}.get(str(value).lower())
