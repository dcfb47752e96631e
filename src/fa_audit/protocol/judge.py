"""Judge a network, or one method over its seeds. Imports no torch.

For every check the distance from its limit is averaged over the networks. The check fires if the
mean is on the wrong side, and is borderline if the 95 % interval contains the limit: the t-interval
over seeds, or a single network's own interval. Only these outcomes, and numbers that are not
finite, decide the two verdicts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from statistics import fmean, geometric_mean
from typing import Any

from fa_audit.core.measured import Interval
from fa_audit.protocol.checks import CHECKS, Check, Criterion, Outcome
from fa_audit.protocol.intervals import MOST_SEEDS, seeds_to_settle, t_interval

NON_FINITE = "non-finite"  # listed with the checks that fired if NaN or infinity was found
OUTCOMES = {True: "fires", False: "passes", None: "not evaluated"}
Fires = Mapping[str, bool | None]  # by the names in `CHECKS`; None: the check was not evaluated


# --- the two rules --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """A verdict rule.

    Attributes:
        takes: a function that returns True for the checks of this rule.
        words: the verdict in words, for each result of the method `decides`.
        template: the format of a verdict and its reasons, which `separator` joins.
        pairs: whether a `joint` check counts only if another check of the rule fires, too.
    """

    takes: Callable[[Check], bool]
    words: Mapping[bool | None, str]
    template: str
    separator: str
    pairs: bool = False

    @property
    def checks(self) -> list[str]:
        """Return the names of the checks that decide this verdict."""
        return [name for name, check in CHECKS.items() if self.takes(check)]

    def decides(self, fires: Fires, finite: bool = True) -> bool | None:
        """Return whether the verdict is against the network; None if the verdict is incomplete.

        >>> THREE.decides({"scale": True, "reference": False, "depth": False})
        False
        """
        fired = [CHECKS[name] for name in self.checks if fires[name]]
        if not finite or len(fired) > 1:
            return True
        # One firing check decides against the network, unless it is `joint` and `pairs` is set.
        if fired and not (self.pairs and fired[0].joint):
            return True
        return None if None in map(fires.get, self.checks) else False


THREE = Rule(
    lambda check: check.three,
    {True: "FAIL", False: "PASS", None: "INCOMPLETE"},
    "{}({})",
    "+",
    pairs=True,
)
FOUR = Rule(
    lambda check: check.four,
    {True: "needs walk-back", False: "trustworthy", None: "incomplete"},
    "{} ({})",
    ", ",
)
# Attributes of a finding in the JSON of an audit.
_ENTRIES = ("value", "threshold", "fires", "borderline", "interval", "distance", "note")
RULES = {"three_check": THREE, "four_check": FOUR}  # by their names in an audit's JSON


# --- the judge ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """One check, or one credit metric, over the networks.

    Attributes:
        kind: the check or the credit metric.
        outcomes: the outcome on each network.
    """

    kind: Criterion
    outcomes: tuple[Outcome, ...]

    @cached_property
    def distances(self) -> list[float]:
        """Return the distance from the limit for each network on which the check was evaluated."""
        # A check that was not evaluated may still have a distance.
        evaluated = [found for found in self.outcomes if found.fires is not None]
        return [found.distance for found in evaluated if found.distance is not None]

    @cached_property
    def distance(self) -> float | None:
        """Average the distances from the limit: positive if the check passes, None if undefined."""
        if not self.distances:
            return None
        # Rounded, so that margins of 1 and 3 points are on average exactly at a limit of 2.
        mean = round(sum(self.distances) / len(self.distances), 12)
        # Infinities on both sides of the limit have no mean.
        return None if math.isnan(mean) else mean

    @cached_property
    def around(self) -> Interval | None:
        """Return the 95 % interval of the value's mean distance from the limit, or None."""
        if len(self.outcomes) > 1:
            return t_interval(self.distances)
        only = self.outcomes[0]
        if only.interval is None or not self.distances:
            return None
        # If a check fires above its limit, larger values have smaller distances.
        low, high = sorted(self.kind.distance(end, only.threshold) for end in only.interval)
        return low, high

    @cached_property
    def fires(self) -> bool | None:
        """Return whether the check fires, by the networks' mean distance from the limit.

        None if the check was evaluated on no network, or passes but was not evaluated on all.
        """
        if not self.distances:
            return None
        if len(self.outcomes) == 1:
            # At the limit the distance is 0: there a check passes, but a credit metric fires.
            return self.outcomes[0].fires
        # Distances of +inf and -inf have no mean: the check fires if it fires on any network.
        if self.distance is None:
            return self.count > 0
        fires = self.distance < 0
        return fires if fires or self.evaluated == len(self.outcomes) else None

    @property
    def borderline(self) -> bool:
        """Return whether the interval contains the limit; False if the outcome is `not evaluated`."""
        if self.fires is None or self.around is None:
            return False
        return self.around[0] <= 0 <= self.around[1]

    @property
    def evaluated(self) -> int:
        """Count the networks for which the check was evaluated."""
        return sum(outcome.fires is not None for outcome in self.outcomes)

    @property
    def count(self) -> int:
        """Count the networks in which the check fires."""
        return sum(outcome.fires is True for outcome in self.outcomes)

    @cached_property
    def threshold(self) -> float:
        """Return the limit: the networks' mean if theirs differ, as chance levels of credits do; a
        geometric mean if distances are in ``factor``.
        """
        limits = [found.threshold for found in self.outcomes if found.fires is not None]
        if len({*limits}) > 1:
            return geometric_mean(limits) if self.kind.unit == "factor" else fmean(limits)
        return limits[0] if limits else self.outcomes[0].threshold

    @property
    def value(self) -> float | None:
        """Return the value at the mean distance from the limit: the geometric mean of the networks'
        values if distances are in ``factor``, else the mean.
        """
        # Computing the value from its distance would round it.
        if len(self.outcomes) == 1:
            return self.outcomes[0].value
        return None if self.distance is None else self.kind.at(self.distance, self.threshold)

    @property
    def interval(self) -> Interval | None:
        """Return the 95 % interval of the value; None if undefined."""
        if len(self.outcomes) == 1:
            return self.outcomes[0].interval
        if self.around is None:
            return None
        low, high = sorted(self.kind.at(end, self.threshold) for end in self.around)
        return low, high

    @property
    def cause(self) -> str:
        """Return the cause of the outcome; empty unless all networks with this outcome share it."""
        return _shared(found.cause for found in self.outcomes if found.fires is self.fires)

    @property
    def note(self) -> str:
        """Return the note on the value; empty unless all networks with this outcome share it."""
        return _shared(found.note for found in self.outcomes if found.fires is self.fires)

    @property
    def outcome(self) -> str:
        """Return the outcome in words, such as ``fires, borderline``."""
        return OUTCOMES[self.fires] + ", borderline" * self.borderline


def _shared(texts: Iterable[str]) -> str:
    different = set(texts)
    return different.pop() if len(different) == 1 else ""


# eq=False: audits hold their judgement and it holds the audits, so comparing would never end.
@dataclass(frozen=True, eq=False)
class Judgement:
    """The protocol's judgement of one network, or of a run over its seeds.

    Attributes:
        networks: the judged audits.
        unit: what distinguishes them: ``seed``, or ``file`` if no seed was recorded.
    """

    networks: Sequence[Any]
    unit: str = "seed"

    @cached_property
    def findings(self) -> dict[str, Finding]:
        """Return the finding of every check, by its name in `CHECKS`."""
        found = {}
        for name, kind in CHECKS.items():
            found[name] = Finding(kind, tuple(network.checks[name] for network in self.networks))
        return found

    def __getitem__(self, name: str) -> Finding:
        return self.findings[name]

    @property
    def labels(self) -> list[int]:
        """Return the seeds of the networks, or 1, 2, 3 and so on if no seed was recorded."""
        if self.unit == "file":
            return list(range(1, self.count + 1))
        return [network.label for network in self.networks]

    @property
    def count(self) -> int:
        """Return the number of networks."""
        return len(self.networks)

    @property
    def finite(self) -> bool:
        """Return whether every state, gradient and logit of every network is finite."""
        return all(network.finite for network in self.networks)

    @property
    def fires(self) -> dict[str, bool | None]:
        """Return for every check whether it fires; None if it was not evaluated."""
        return {name: found.fires for name, found in self.findings.items()}

    @property
    def near(self) -> list[str]:
        """Return the names of the borderline checks."""
        return [name for name, found in self.findings.items() if found.borderline]

    def against(self, rule: Rule) -> bool | None:
        """Return whether a verdict is against the network; None if the verdict is incomplete."""
        return rule.decides(self.fires, self.finite)

    def verdict(self, rule: Rule) -> str:
        """Return the verdict of `rule`, with its reasons."""
        against = self.against(rule)
        if against is False:
            return rule.words[False]
        named = True if against else None
        reasons = [CHECKS[name].label for name in rule.checks if self[name].fires is named]
        if not self.finite:
            reasons.append(NON_FINITE)
        listed = rule.separator.join(reasons)
        if against is None:
            listed += " not evaluated"
        return rule.template.format(rule.words[against], listed)

    def is_borderline(self, rule: Rule) -> bool:
        """Return whether other outcomes of the borderline checks would change a verdict."""
        fires, near, verdicts = self.fires, self.near, set()
        for fired in product((True, False), repeat=len(near)):
            verdicts.add(rule.decides(fires | dict(zip(near, fired)), self.finite))
        return len(verdicts) > 1

    def text(self, rule: Rule) -> str:
        """Return the verdict, how many single seeds share it, and whether it is borderline."""
        text = self.verdict(rule)
        if self.count > 1:
            alone = [Judgement([network]).against(rule) for network in self.networks]
            text += f" {alone.count(self.against(rule))}/{self.count}"
        return text + " (borderline)" * self.is_borderline(rule)

    @property
    def settling(self) -> str:
        """Say how many seeds would settle a borderline verdict; empty for a single network, or if
        no verdict is borderline.
        """
        deciding = set()
        for rule in RULES.values():
            if self.is_borderline(rule):
                against = self.against(rule)
                # If a passing check came to fire, a verdict against the network would not change.
                near = [name for name in self.near if name in rule.checks]
                deciding |= {name for name in near if self.fires[name] or not against}
        if not deciding or self.count == 1:
            return ""
        findings = [self[name] for name in self.near if name in deciding]
        labels = ", ".join(found.kind.label for found in findings)
        needed = [seeds_to_settle(found.distances) for found in findings]
        if None in needed:
            return f"{labels} borderline; even {MOST_SEEDS} seeds in all would not settle it"
        return f"{labels} borderline; {max(filter(None, needed))} seeds in all would settle it"

    @property
    def flags(self) -> list[str]:
        """List all checks that fire, with cause or frozen baseline; some decide no verdict."""
        flags = []
        for name, found in self.findings.items():
            if found.fires:
                # The note of C compares predictions with class frequencies, and names no cause.
                explained = found.note and name != "stability"
                flags.append(found.kind.label + f" ({found.note})" * bool(explained))
        return flags if self.finite else [*flags, NON_FINITE]

    @property
    def borderline(self) -> list[str]:
        """List the label of every borderline check."""
        return [CHECKS[name].label for name in self.near]

    def to_dict(self) -> dict[str, Any]:
        """Return verdicts, flags and outcomes for an audit's JSON."""
        verdicts: dict[str, str] = {}
        borderline: dict[str, Any] = {"checks": self.borderline}
        for name, rule in RULES.items():
            verdicts[name] = self.verdict(rule)
            borderline[name] = self.is_borderline(rule)
        checks = {name: _entries(found) for name, found in self.findings.items()}
        flags = self.flags
        return {"verdict": verdicts, "flags": flags, "borderline": borderline, "checks": checks}


def _entries(found: Finding) -> dict[str, Any]:
    entries = {name: getattr(found, name) for name in _ENTRIES}
    counts = {"networks": len(found.outcomes), "fires_in": found.count}
    return {"label": found.kind.label} | entries | counts
