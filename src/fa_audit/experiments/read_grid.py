"""Check a configuration and expand it into its grid. Imports no torch."""

from __future__ import annotations

from typing import Any

from fa_audit.core.validation import config_error, validated
from fa_audit.experiments.config import BUDGET, Configuration, SettingEntry
from fa_audit.experiments.config_file import LineOf
from fa_audit.experiments.grid import Grid, Setting
from fa_audit.experiments.grid_checks import ArtefactKinds, grid_problems, setting_problems

MONITOR_LIMITS = {
    "D1": "growth",
    "D2": "reference",
    "D2@1024": "reference",
}  # check -> its threshold
NO_LINES = LineOf()


def read_grid(config: Any, kinds: ArtefactKinds | None = None, where: LineOf = NO_LINES) -> Grid:
    """Check a configuration and expand it.

    >>> grid = read_grid({"settings": {"a": {"dataset": "digits", "architecture": {"name": "resmlp", "depth": 2},
    ...                                      "seeds": [1, 2], "runs": ["dfa"]}}})
    >>> [str(key) for key in grid.run_keys("runs")]
    ['a/dfa/seed1', 'a/dfa/seed2']
    >>> grid.setting("a").baselines
    ('bp+frozen', 'bp+shallow', 'dfa+frozen')

    Args:
        kinds: the known kinds of figures and tables; without them the configuration's are not
            checked.
        where: the line of everything in the file, as `load_config` gives it.

    Raises:
        AuditError: one message that lists the problems (the first five), each with its place, what
            was found and what is valid.
    """
    line_of = where.within(config)
    asked = validated(Configuration, config, "config", line_of)
    if problems := setting_problems(asked):
        raise config_error("config", problems, line_of)
    grid = Grid(
        {name: _setting(name, block, entry, asked) for name, block, entry in asked.expanded()}
    )
    if problems := grid_problems(asked, grid, kinds):
        raise config_error("config", problems, line_of)
    return grid


def _setting(name: str, block: str, entry: SettingEntry, config: Configuration) -> Setting:
    network, limits = entry.architecture, config.thresholds.model_dump()
    checks = sorted(entry.monitor.stop_on or config.monitor.stop_on)
    common = {
        "dataset": entry.dataset,
        "architecture": network.name,
        "architecture_options": tuple(sorted(network.options.items())),
        "monitor": tuple((check, limits[MONITOR_LIMITS[check]]) for check in checks),
        **{key: getattr(entry, key) for key in BUDGET},
    }
    names = entry.run_names()
    runs = tuple(dict.fromkeys((*names["runs"], *names["sweep"], *names["ladder"])))
    return Setting(
        name,
        block,
        runs,
        tuple(names["sweep"]),
        tuple(names["baselines"]),
        tuple(entry.seeds),
        common,
    )
