"""Mistakes of a command line that Snakemake answers with its usage, a traceback, or another command's error.

Snakemake imports its plugins before it parses the command line: no other code of a workflow runs as early.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

FILES = ("--configfile", "--configfiles")
PAIRS = ("--config", "-C", "--resources", "--res", "--set-threads", "--set-resources", "--default-resources",
         "--default-res", "--set-scatter", "--set-resource-scopes", "--groups", "--group-components")  # fmt: skip
BUILT_IN = ("local", "dryrun", "touch")  # executors


def refuse(arguments: Sequence[str]) -> None:
    """End a command of Snakemake that cannot work with one line; those of its own jobs are let through."""
    program, words = Path(arguments[0]), arguments[1:]
    if "snakemake" not in (program.stem, program.parent.name) or "--mode" in words:
        return
    if problem := next(problems(words), ""):
        sys.exit(f"fa-audit: {problem}")


def problems(words: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with the arguments of Snakemake: files, executors, and targets behind an option."""
    swallowed: dict[str, list[str]] = {}
    for option, word, is_first in _values(words):
        if option in ("--executor", "-e"):
            yield from _missing_executor(option, word)
        elif option in ("--profile", "--workflow-profile"):
            yield from _missing_executors(word)
        elif option in PAIRS and "=" not in word:
            swallowed.setdefault(option, []).append(word)
        elif option in FILES:
            problem = _unreadable(word)
            if not is_first and (word.startswith("results/") or (problem and not word.endswith((".yaml", ".yml")))):
                swallowed.setdefault(option, []).append(word)
            elif problem:
                yield problem
    for option, targets in swallowed.items():
        command = shlex.join(["snakemake", *targets, *(word for word in words if word not in targets)])
        expected = "a file of YAML or JSON" if option in FILES else "NAME=VALUE"
        yield (
            f"{option}: found {shlex.join(targets)}; every word up to the next option is read as {expected}. Write"
            f" targets first: {command}"
        )


def _values(words: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield option, word, and whether it is the option's first, for every word behind an option."""
    option, is_first = "", True
    for word in words:
        if word == "--":
            return
        if word.startswith("-"):
            option, equals, value = word.partition("=")
            is_first = True
            if equals:
                yield option, value, True
                option = ""
        elif option:
            yield option, word, is_first
            is_first = False


def _unreadable(path: str) -> str:
    # Not on top: the rules import the library of the folder in which they run.
    from fa_audit.core.errors import AuditError
    from fa_audit.experiments.config_file import parsed

    try:
        parsed(path)
    except AuditError as error:
        return str(error)
    return ""


def _missing_executors(profile: str) -> Iterator[str]:
    for path in (Path(profile, "config.yaml"), Path("profiles", profile, "config.yaml")):
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        for name in re.findall(r"^executor: *(\S+)", text, re.MULTILINE):
            yield from _missing_executor(str(path), name)


def _missing_executor(where: str, name: str) -> Iterator[str]:
    if name not in BUILT_IN and not find_spec(f"snakemake_executor_plugin_{name.replace('-', '_')}"):
        yield (
            f"{where}: found the executor '{name}'; its plugin is not installed here. Run: {sys.executable} -m pip"
            f" install snakemake-executor-plugin-{name}"
        )
