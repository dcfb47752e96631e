"""Mistakes of a command line that Snakemake answers with its usage, a traceback, or another
command's error.

Snakemake imports its plugins before it parses the command line: no other code of a workflow runs as
early.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

# Options that take every word up to the next one.
FILES = ("--configfile", "--configfiles")
PAIRS = ("--config", "-C", "--resources", "--res", "--set-threads", "--set-resources", "--default-resources",
         "--default-res", "--set-scatter", "--set-resource-scopes", "--groups", "--group-components")  # fmt: skip
EXECUTOR = ("--executor", "-e")
PROFILES = ("--profile", "--workflow-profile")
BUILT_IN = ("local", "dryrun", "touch")  # executors


def refuse(arguments: Sequence[str]) -> None:
    """End a command of Snakemake that cannot work with one line; let the commands of its own jobs
    through.
    """
    program, words = Path(arguments[0]), arguments[1:]
    if "snakemake" not in (program.stem, program.parent.name) or "--mode" in words:
        return
    if problem := next(problems(words), ""):
        sys.exit(f"fa-audit: {problem}")


def problems(words: Sequence[str]) -> Iterator[str]:
    """Yield files that cannot be read, executors that are not installed, and targets behind another
    option.
    """
    for option, *found in _by_option(words):
        targets = [word for word in found if "=" not in word] if option in PAIRS else []
        for profile in found if option in PROFILES else ():
            for path in (
                *Path(profile).glob("config*.yaml"),
                *Path("profiles", profile).glob("config*.yaml"),
            ):
                text = path.read_text(encoding="utf-8", errors="replace")
                yield from _missing(str(path), re.findall(r"^executor: *(\S+)", text, re.MULTILINE))
        if option in EXECUTOR:
            yield from _missing(option, found)
        if option in FILES:
            broken = {path: problem for path in found if (problem := _unreadable(path))}
            files = (".yaml", ".yml", ".json")
            unlikely = [
                path
                for path in found[1:]
                if path in broken and "=" not in path and not path.endswith(files)
            ]
            targets = [
                path for path in found[1:] if path.startswith("results/") or path in unlikely
            ]
            yield from (problem for path, problem in broken.items() if path not in targets)
        if targets:
            command = shlex.join(
                ["snakemake", *targets, *(word for word in words if word not in targets)]
            )
            yield (
                f"{option}: found {shlex.join(targets)}; every word up to the next option is read as"
                f" {'a file of YAML or JSON' if option in FILES else 'NAME=VALUE'}. Write targets first: {command}"
            )


def _by_option(words: Sequence[str]) -> list[list[str]]:
    """Return every option with the words behind it; targets are behind none."""
    groups = [[""]]
    for word in words[: words.index("--")] if "--" in words else words:
        if word.startswith("--") and "=" in word:
            groups += [word.split("=", 1), [""]]
        elif word.startswith("-"):
            groups.append([word])
        else:
            groups[-1].append(word)
    return groups


def _unreadable(path: str) -> str:
    # Not on top: the rules import the library of the folder in which they run.
    from fa_audit.core.errors import AuditError
    from fa_audit.experiments.config_file import parsed

    try:
        parsed(path)
    except AuditError as error:
        return str(error)
    return ""


def _missing(where: str, executors: Sequence[str]) -> Iterator[str]:
    for name in executors:
        if name not in BUILT_IN and not find_spec(
            f"snakemake_executor_plugin_{name.replace('-', '_')}"
        ):
            yield (
                f"{where}: found the executor '{name}'; its plugin is not installed here. Run: {sys.executable} -m pip"
                f" install snakemake-executor-plugin-{name}"
            )
