"""Facts of every run on the page: verdicts, checks, sentences and numbers, from tidy tables and
audits. No torch.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pandas as pd
from tqdm import tqdm

from fa_audit.documents.document import capital
from fa_audit.experiments.paths import TIDY, RunKey
from fa_audit.protocol.checks import CHECKS, Check
from fa_audit.protocol.limits import DiagnosticThresholds, floor_for
from fa_audit.protocol.over_seeds import VerdictOverSeeds, verdict_over_seeds
from fa_audit.protocol.rules import FOUR, THREE, flag_of, is_finite
from fa_audit.protocol.sentences import Facts, facts_of, sentences
from fa_audit.protocol.verdicts import Checks, Outcome
from fa_audit.results.standings import nature, standing, with_margins
from fa_audit.results.statistics import extent, summarise
from fa_audit.results.tidy import KEY, Tidy, side_of

Audits = Mapping[RunKey, Mapping[str, Any]]
OUTCOMES = {True: "fires", False: "fine", None: "not evaluated"}
NOT_RECORDED = "not recorded"
NOT_IN_TABLES = "tables do not have what credits are compared with. Read the audits' own reports"


def shown(value: Any) -> str:
    """Write a number with three significant digits; a dash where there is none.

    >>> shown(1234.5), shown(float("inf")), shown(None), shown(3.2e-9)
    ('1,230', 'inf', '–', '3.2e-9')
    """
    number = _number(value)
    if number is None:
        return "–"  # noqa: RUF001 the en dash is meant
    if not math.isfinite(number) or number == 0 or 1e-3 <= abs(number) < 1e5:
        rounded = float(f"{number:.3g}")
        return (
            f"{rounded:,.0f}" if math.isfinite(number) and abs(rounded) >= 1e3 else f"{rounded:.3g}"
        )
    mantissa, exponent = f"{number:.2e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def percent(value: Any) -> str:
    """Write a fraction in percent; a dash where there is none."""
    number = _number(value)
    return "–" if number is None else f"{100 * number:.1f} %"  # noqa: RUF001


def _number(value: Any) -> float | None:
    """Return a cell as a number, None where there is none."""
    return None if pd.isna(value) else float(value)


def _text(value: Any, absent: str = NOT_RECORDED) -> str:
    """Return a cell as text; whole numbers, which tables with gaps hold as 4.0, without a point."""
    if pd.isna(value):
        return absent
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Seed:
    """One audited network."""

    row: Mapping[str, Any]  # its row of the tidy table of runs, with both margins
    audit: Mapping[
        str, Any
    ]  # its JSON, which alone has warnings and how intervals were formed; empty without one

    @property
    def label(self) -> str:
        """Return the seed, or the number of the file where no specification was recorded."""
        return f"{self.unit} {_text(self.row['seed'])}"

    @property
    def unit(self) -> str:
        """Return the kind of its label: ``seed`` or ``file``."""
        return "file" if pd.isna(self.row["architecture"]) else "seed"

    @cached_property
    def limits(self) -> dict[str, float]:
        """Return the limits of the checks by their names in a configuration."""
        recorded = _text(self.row.get("thresholds"), "{}")
        return DiagnosticThresholds.of(json.loads(recorded)).limits

    @cached_property
    def facts(self) -> Facts:
        """Return what sentences need; tables alone do not hold the null of the credits."""
        if self.audit:
            return facts_of(self.audit)
        checks = Checks(
            {name: self._check(name, kind) for name, kind in CHECKS.items()}, is_finite(self.row)
        )
        accuracy, own, bp = (
            _number(self.row[name]) for name in ("accuracy", "own_frozen_acc", "bp_frozen_acc")
        )
        return Facts(checks, accuracy, {"depth": own, "depth_strict": bp}, {}, NOT_IN_TABLES)

    @property
    def checks(self) -> Checks:
        """Return the outcome of every check."""
        return self.facts.checks

    def _check(self, name: str, kind: Check) -> Outcome:
        """Return the outcome of a check as the table has it."""
        row, limit, cause = self.row, self.limits[kind.limit], ""
        fires = flag_of(row[f"{name}_fires"])
        ends = tuple(_number(row.get(f"{name}_interval_{end}")) for end in ("low", "high"))
        if name == "reference":
            limit = floor_for(limit, int(row["samples"]))
            product = _number(row.get("scale_free_last"))
            saturated = product is not None and product < self.limits["saturation"]
            cause = ("saturated loss" if saturated else "collapsed reference") * bool(fires)
        interval, far = None if None in ends else ends, _number(row[f"{name}_distance"])
        return Outcome(
            kind.title, _number(row[kind.column]), limit, fires, cause, interval, distance=far
        )


@dataclass(frozen=True)
class RunPage:
    """One run on the page: one method in one network, over its seeds."""

    number: int
    key: tuple[str, str]  # setting and run, as in the tables
    setting: str
    name: str
    method: str
    dataset: str
    nature: str  # a method, a baseline, with a penalty
    seeds: tuple[Seed, ...]
    runs: pd.DataFrame = field(repr=False)  # a row for each seed
    layers: pd.DataFrame = field(repr=False)
    trajectories: pd.DataFrame = field(repr=False)
    work: pd.DataFrame = field(repr=False)

    @cached_property
    def verdict(self) -> VerdictOverSeeds:
        """Return the four-check verdict over the seeds."""
        return verdict_over_seeds(seed.row for seed in self.seeds)

    @property
    def result(self) -> str:
        """Return the worst three-check verdict of its seeds: FAIL, INCOMPLETE or PASS."""
        found = {THREE.decides(seed.checks.fires, seed.checks.finite) for seed in self.seeds}
        return THREE.words[next(against for against in (True, None, False) if against in found)]

    @cached_property
    def quoted(self) -> str:
        """Return the verdict to quote, with its counts where seeds differ."""
        found = Counter(seed.checks.quoted for seed in self.seeds)
        counted = [f"{text} {count}/{len(self.seeds)}" for text, count in found.most_common()]
        return "; ".join(counted if len(found) > 1 else found)

    @property
    def tags(self) -> list[str]:
        """Return what the filter of verdicts knows the run by."""
        near = any(row["borderline"] for row in self.checks if row["letter"])
        return [self.result, FOUR.words[self.verdict.against], *(["borderline"] if near else [])]

    @property
    def first(self) -> Mapping[str, Any]:
        """Return the row of its first seed, for what all share."""
        return self.seeds[0].row

    @property
    def is_control(self) -> bool:
        """Return whether it is there for comparison: frozen, untrained, or before its last epoch."""
        return (
            "baseline" in self.nature or "after epoch" in self.nature or self.first["epochs"] == 0
        )

    @property
    def network(self) -> str:
        """Return its network in a few words."""
        if pd.isna(self.first["architecture"]):
            return "external model"
        return f"{self.first['architecture']}, d = {_text(self.first['width'])}, L = {_text(self.first['depth'])}"

    def mean(self, column: str) -> float | None:
        """Return the mean of a column over the seeds that have a value."""
        return _number(self.runs[column].mean())

    @cached_property
    def checks(self) -> list[dict[str, Any]]:
        """Return every check, its outcome over the seeds and that of each."""
        return [self._check_row(name, kind) for name, kind in CHECKS.items()]

    def _check_row(self, name: str, kind: Check) -> dict[str, Any]:
        found = [seed.checks[name] for seed in self.seeds]
        together = self.verdict.checks[kind.letter] if kind.letter else None
        own = {
            check.fires for check in found
        }  # where no verdict has the check: it fires if it does in any
        fires = (
            together.fires if together else True if True in own else None if None in own else False
        )
        near = together.borderline if together else any(check.borderline for check in found)
        limits = dict.fromkeys(
            f"{kind.sign} {shown(kind.scale * check.threshold)}" for check in found
        )
        meaning = "" if fires is None else kind.finding if fires else kind.fine
        notes = ["; ".join(filter(None, [check.note, check.interval_note])) for check in found]
        note = notes[0] if len(set(notes)) == 1 else ""
        notes = [""] * len(found) if note else notes
        return {
            "letter": kind.letter,
            "label": kind.label,
            "name": kind.title,
            "value": f"{'points above ' * (kind.unit == 'points')}{kind.quantity}",
            "limit": " / ".join(limits),
            "outcome": OUTCOMES[fires],  # of the mean over the seeds
            "borderline": near,
            "meaning": meaning,
            "note": note,  # where it is the same for all seeds, whose own are empty then
            "seeds": [_of_seed(check, kind.scale, text) for check, text in zip(found, notes)],
        }

    @cached_property
    def sentences(self) -> tuple[list[str], list[str]]:
        """Return the sentences that may be written of the run, and those that may not."""
        return sentences([seed.facts for seed in self.seeds], self.seeds[0].unit)

    @cached_property
    def warnings(self) -> list[str]:
        """Return what may make the numbers mean something else, and the author's remarks."""
        about: dict[str, list[str]] = defaultdict(list)
        for seed in self.seeds:
            for text in filter(
                None, [*seed.audit.get("warnings", []), seed.audit.get("notes", "")]
            ):
                about[capital(text)].append(seed.label)
        everyone = [seed.label for seed in self.seeds]
        return [
            text if labels == everyone else f"{_listed(labels)}: {text}"
            for text, labels in about.items()
        ]

    @cached_property
    def facts(self) -> dict[str, str]:
        """Return the run's numbers over the seeds and what it is, in the same order for every run."""
        row, seeds = self.first, self.runs
        sides = {name: side_of(seeds, f"deep_{name}") for name in ("cosine", "rho")}
        return {
            "verdict to quote": self.quoted,
            "four-check verdict": str(self.verdict),
            "accuracy": _spread(seeds["accuracy"], " %"),
            "own frozen baseline": _spread(seeds["own_frozen_acc"], " %"),
            "margin over it": _spread(seeds["margin"], " points"),
            "bp+frozen": _spread(seeds["bp_frozen_acc"], " %"),
            "largest growth": _range(seeds["max_growth"]),
            "‖h‖ at the last state": _range(seeds["hidden_norm_last"]),
            "‖g‖ at the last state": _range(seeds["grad_norm_last"]),
            "cross-batch stability": _range(seeds["stability"]),
            **{
                f"{name}, blocks 1 and on{', at input' * bool(side)}": _range(
                    seeds[f"deep_{name}{side}"]
                )
                for name, side in sides.items()
            },
            "D1 fires first at epoch": _epochs(seeds.get("first_scale_flag")),
            "D2 fires first at epoch": _epochs(seeds.get("first_reference_flag")),
            "what it is": self.nature,
            "network": self.network,
            "data": self.dataset,
            "epochs": _text(row["epochs"]),
            "learning rate": _text(row.get("lr")),
            "seeds": _listed([seed.label for seed in self.seeds]),
            "training": _training(self.work),
        }

    @property
    def specification(self) -> dict[str, str]:
        """Return the specification of every seed but the seed as indented JSON, by its digests."""
        specs: dict[str, list[str]] = defaultdict(list)
        for seed in self.seeds:
            values = json.loads(_text(seed.row.get("spec"), "{}")) | {"thresholds": seed.limits}
            values.pop("seed", None)
            text = json.dumps(values, indent=2, sort_keys=True)
            specs[text].append(f"{seed.label}: digest {_text(seed.row['digest'])}")
        return {"; ".join(digests): text for text, digests in specs.items()}


def _of_seed(check: Outcome, unit: float, note: str) -> dict[str, Any]:
    """Return the cell of a check and a seed."""
    ends = [shown(unit * end) for end in check.interval or ()]
    value = None if check.value is None else unit * check.value
    return {
        "value": shown(value),
        "interval": f"{ends[0]} to {ends[1]}" if ends else "",
        "outcome": OUTCOMES[check.fires],
        "borderline": check.borderline,
        "note": note,
    }


def _listed(labels: Sequence[str]) -> str:
    """Write labels such as ``seed 1`` with one unit before all.

    >>> _listed(["seed 1", "seed 2"])
    'Seed 1, 2'
    """
    unit = labels[0].partition(" ")[0]
    return f"{unit.capitalize()} {', '.join(label.partition(' ')[2] for label in labels)}"


def _spread(values: pd.Series, unit: str) -> str:
    """Write fractions in percent or points: mean ± sample deviation (n)."""
    known = values.dropna().astype(float)
    if known.empty:
        return "–"  # noqa: RUF001
    found = summarise(known)
    deviation = f" ± {100 * found.deviation:.1f}" if found.deviation is not None else ""
    return f"{100 * found.mean:z.1f}{deviation}{unit}"


def _range(values: pd.Series) -> str:
    """Write numbers that may differ by orders of magnitude: the smallest and the largest."""
    return extent(values, shown) or "–"  # noqa: RUF001


def _epochs(values: pd.Series | None) -> str:
    """Write the epochs of the first flags, never where a seed has none."""
    if values is None:
        return NOT_RECORDED
    return ", ".join(dict.fromkeys("never" if pd.isna(value) else f"{value:g}" for value in values))


def _training(work: pd.DataFrame) -> str:
    """Write what the trainings took, where, and by which code."""
    known = work.dropna(subset=[name for name in ("seconds", "device") if name in work])
    if known.empty:
        return NOT_RECORDED
    devices, commits = (
        ", ".join(sorted({_text(value) for value in known[name]})) for name in ("device", "commit")
    )
    return f"{_range(known['seconds'])} s on {devices}, by commit {commits}"


def pages_of(tidy: Tidy, audits: Audits, labels: Mapping[str, str]) -> list[RunPage]:
    """Return what the page shows of every run: settings in their order, in each the largest mean
    margin first.

    Args:
        audits: those that there are, by their run.
        labels: how runs and settings are called.
    """
    ranked = with_margins(tidy)
    tidy = replace(
        ranked, runs=ranked.runs.assign(margin_strict=ranked.runs["bp_margin"]).sort_values("seed")
    )
    parts = {name: getattr(tidy, name) for name in TIDY}
    tables = {name: dict(list(part.groupby(list(KEY[:2])))) for name, part in parts.items()}
    pages = []
    for number, (setting, run) in enumerate(
        tqdm(standing(ranked), "run", leave=False, disable=None)
    ):
        own = {
            name: groups.get((setting, run), parts[name].iloc[:0])
            for name, groups in tables.items()
        }
        rows = own["runs"].to_dict("records")
        seeds = tuple(Seed(row, audits.get(RunKey(setting, run, row["seed"]), {})) for row in rows)
        names = labels.get(setting, setting), labels.get(run, run)
        about = _text(rows[0]["method"]), _text(rows[0]["dataset"]), nature(rows[0])
        pages.append(RunPage(number, (setting, run), *names, *about, seeds, **own))
    return pages
