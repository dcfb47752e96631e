"""Read user audits, and add them to tidy tables in the settings that they belong to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from fa_audit.core.errors import AuditError
from fa_audit.experiments.published import identity
from fa_audit.experiments.spec import PAPER, RunSpec, parse_run, run_of
from fa_audit.protocol.audit import Audit
from fa_audit.protocol.judge import Judgement
from fa_audit.results.seed_group import group_of, read_audit
from fa_audit.results.tables.board import without_sources
from fa_audit.results.tidy import Tidy, tidy_of

OTHERS = "other models"  # the setting of audits without a specification
# Runs whose specifications agree in all of these belong to one setting.
_NETWORK = ("dataset", "architecture", "architecture_options", "epochs", "batch_size")


def read_own(paths: Sequence[str | Path]) -> list[Judgement]:
    """Read audits and judge those of each run together, in the order of the files.

    Raises:
        AuditError: a file is not an audit, contradicts itself, repeats a seed, or differs in
            more than the seed from another audit of its run.
    """
    groups: dict[tuple[str, str, str], list[Audit]] = defaultdict(list)
    for path in paths:
        audit = read_audit(path)
        name = audit.method if audit.spec is None else identity(audit.spec)
        groups[audit.setting, audit.run, name].append(audit)
    return list(map(group_of, groups.values()))


def names_of(audit: Audit) -> tuple[str, str]:
    """Return the audit's setting and run. If a name is missing, take it from the specification;
    without one, the setting is `OTHERS` and the run is named after the method.
    """
    if audit.spec is None:
        return audit.setting or OTHERS, audit.run or audit.method
    spec = RunSpec.from_dict(audit.spec)
    depth = dict(spec.architecture_options).get("depth", len(audit.layers) - 1)
    return audit.setting or _network_name(spec, depth), audit.run or str(run_of(spec, depth))


def _network_name(spec: RunSpec, depth: int) -> str:
    given = dict(spec.architecture_options)
    options = [f"d = {given.pop('width', None)}", f"L = {given.pop('depth', depth)}"]
    for name, value in given.items():
        if value is not True:
            options.append(f"{name} = {value}")
    name = f"{spec.dataset}, {spec.architecture} ({', '.join(options)}), {spec.epochs} epochs"
    if spec.batch_size != PAPER["batch_size"]:
        name += f", batches of {spec.batch_size}"
    return name


def append_audits(measured: Tidy, groups: Sequence[Judgement]) -> Tidy:
    """Append user audits to the measured ones.

    A run joins the measured setting that has its network, data, epochs and batch size; if several
    have, the one with the most runs. Other runs get a setting named after their network. Audits
    without a specification get the setting `OTHERS`.

    Raises:
        AuditError: an audit is one of a baseline.
    """
    if not groups:
        return measured
    for group in groups:
        first = group.networks[0]
        run = names_of(first)[1]
        if first.spec is not None and parse_run(run).is_baseline:
            raise AuditError(
                f"{first.path}: found a baseline, {run}; expected runs of rules, whose audits have"
                " their own baselines."
            )
    shown = without_sources(measured)
    own = _named(groups, lambda audit: _setting(audit, shown), " (yours{})")
    return tidy_of([*measured.runs["audit"], *own])


def user_audits(groups: Iterable[Judgement]) -> Tidy:
    """Return user audits as tables.

    An unnamed setting is named after its network, or `OTHERS` if the network is unknown. An unnamed
    run is named after its specification or method. Runs with equal names in one setting are
    numbered.
    """
    return tidy_of(_named(groups, lambda audit: names_of(audit)[0], "{}"))


def _named(
    groups: Iterable[Judgement], setting_of: Callable[[Audit], str], ending: str
) -> list[Audit]:
    """Name the setting and run of every audit for the tables.

    Args:
        ending: appended to every run's name. Its ``{}`` becomes ", 2", ", 3" and so on when a name
            repeats, and is empty otherwise.
    """
    taken: Counter[tuple[str, str]] = Counter()
    audits = []
    for group in groups:
        first = group.networks[0]
        setting, run = setting_of(first), names_of(first)[1]
        taken[setting, run] += 1
        number = taken[setting, run]
        name = run + ending.format(f", {number}" if number > 1 else "")
        for label, audit in zip(group.labels, group.networks):
            # Without a seed, the audits of two runs are no pairs.
            seed = label if group.unit == "seed" else len(audits)
            audits.append(audit.replace(setting=setting, run=name, seed=seed))
    return audits


def _setting(audit: Audit, measured: Tidy) -> str:
    """Return the measured setting that an audit belongs to, or else a name for a new one."""
    if audit.spec is None:
        return OTHERS
    own = _network(audit)
    same = measured.runs[[_network(other) == own for other in measured.runs["audit"]]]
    if same.empty:
        return names_of(audit.replace(setting=""))[0]
    return str(same.groupby("setting")["run"].nunique().idxmax())


def _network(audit: Audit) -> list[Any]:
    return [audit.spec.get(name) for name in _NETWORK]
