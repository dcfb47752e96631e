"""List the files that decide the results of each stage of the workflow, and digest their code.

A digest is a parameter of the stage's jobs: if it changes, their results are made again. Comments,
docstrings, layout, log messages and errors change no result and are left out. For trainings and
audits, the package's string literals of three or more words are left out, too: they change no
number. Imports no torch.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from fa_audit.core.errors import AuditError
from fa_audit.core.files import digest_of, sha256_of
from fa_audit.core.registry import find_module

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parents[1]

NETWORK = (
    "core/measured.py",
    "core/numerics.py",
    "core/randomness.py",
    "core/vectors.py",
    "experiments/paths.py",
    "experiments/spec.py",
)
TRAINING = (
    "training/checkpoint.py",
    "training/learner.py",
    "training/loop.py",
    "training/monitor.py",
    "training/optimiser.py",
    "training/resume.py",
    "training/run_files.py",
    "training/trajectory.py",
)
CHECKS = (
    "core/measured.py",
    "protocol/audit.py",
    "protocol/evidence.py",
    "protocol/judge.py",
    "protocol/checks.py",
    "protocol/intervals.py",
    "experiments/paths.py",
    "experiments/spec.py",
    "training/trajectory.py",
)
AUDIT = (
    "audit/backward.py",
    "audit/batch_norm.py",
    "audit/credit_metrics.py",
    "audit/diagnose.py",
    "audit/diagnostics.py",
    "audit/given_credits.py",
    "audit/inputs.py",
    "audit/statistics.py",
    "audit/warnings.py",
)
_TEXTS = ("documents/",)
_REPORT = ("protocol/report.py", "protocol/sentences.py")
_BOARD = ("methods/claims.yaml", "provided/benchmarks/methods.json")
_LOOK = "results/figures/paper.mplstyle"

# For each script in workflow_scripts/: the package's files that it needs, except the modules of
# FOLLOWED. A name with a slash at its end means all files of a folder.
STAGES: dict[str, tuple[str, ...]] = {
    "prepare_data": ("core/randomness.py",),
    "train": (*NETWORK, *TRAINING),
    "share_run": (),
    "collect_baseline": (),
    "audit": (
        *NETWORK,
        *TRAINING,
        *CHECKS,
        *AUDIT,
        "audit/run_audit.py",
        "audit/run_credits.py",
    ),
    "audit_model": (*NETWORK, *CHECKS, *AUDIT, "audit/model_audit.py"),
    "report_model": (*CHECKS, *_TEXTS, *_REPORT),
    "tidy_setting": CHECKS,
    "tidy": CHECKS,
    "draw_figure": (*CHECKS, *_TEXTS, _LOOK),
    "build_table": (*CHECKS, *_TEXTS, *_BOARD),
    "build_scorecard": (*CHECKS, *_TEXTS, "experiments/published.py"),
    "draw_scorecard": (*CHECKS, *_TEXTS, _LOOK, "experiments/published.py"),
    "build_report": (
        *CHECKS,
        *_TEXTS,
        *_REPORT,
        "experiments/published.py",
        *_BOARD,
    ),
}
# A stage's files include the modules they import from these subpackages or the user's folders.
FOLLOWED = ("data", "methods", "networks", "results")
_WORDLESS = ("prepare_data", "train", "share_run", "collect_baseline", "audit", "audit_model")
_LOGS = ("log.debug", "log.info", "log.warning", "log.error", "warnings.warn")
_SENTENCE = re.compile(r"\S \S+ \S")  # three words; one or two may be a key
# Fields of a syntax tree's nodes that a digest leaves out; msg is the text of an assert.
_UNREAD = {"ctx", "kind", "type_comment", "msg"}


@cache
def code_digest(stage: str, *entries: str) -> str:
    """Return one text: a digest of all code that a stage runs, then the names in `entries`.

    Args:
        entries: ``package.module:Object`` of the methods, networks, data sets, figures or tables
            that the stage loads.

    Raises:
        AuditError: a file is not Python source.
    """
    texts, contents = stage not in _WORDLESS, []
    for path in stage_files(stage, *entries):
        contents.append([path.name, _content(path, texts)])
    return " ".join([digest_of(sorted(contents)), *entries])


def stage_files(stage: str, *entries: str) -> list[Path]:
    """Return the files that decide a stage's results: its script, its files in `STAGES`, the
    modules of `entries`, and their imports.
    """
    files = _modules(entries)
    for name in STAGES[stage]:
        path = PACKAGE / name
        files += path.rglob("*.py") if path.is_dir() else [path]
    script = ROOT / f"workflow_scripts/{stage}.py"
    # An installed package comes without the scripts of the workflow.
    if script.exists():
        files.append(script)
    return _with_imports(files)


def own_code(*names: str) -> dict[str, str]:
    """Return the SHA-256 of every user-defined file that `names` load, directly or by imports.

    Names have the form ``package.module:Name``. Registered names load no user-defined file.
    """
    digests = {}
    for path in _with_imports(_modules(name for name in names if ":" in name)):
        if not path.is_relative_to(PACKAGE):
            # Paths are relative to the checkout, whose folder differs between machines.
            digests[str(path).removeprefix(f"{ROOT}/")] = sha256_of(path)
    return digests


def _modules(entries: Iterable[str]) -> list[Path]:
    return list(filter(None, (_module_file(entry.partition(":")[0]) for entry in entries)))


def _with_imports(files: Iterable[Path]) -> list[Path]:
    """Return files and their imports, direct or not, from the subpackages in `FOLLOWED` and the
    user's folders.

    `__init__` files of the package are left out, because they hold whole registries; callers of
    `code_digest` pass the entries that a stage uses.
    """
    found = set(files)
    waiting = list(found)
    while waiting:
        path = waiting.pop()
        if path.suffix != ".py":
            continue
        for file in _imported_files(path):
            if file not in found and _is_followed(file):
                found.add(file)
                waiting.append(file)
    return sorted(found)


def _is_followed(path: Path) -> bool:
    if not path.is_relative_to(PACKAGE):
        return True
    return path.relative_to(PACKAGE).parts[0] in FOLLOWED and path.name != "__init__.py"


@cache
def _imported_files(path: Path) -> list[Path]:
    """Return a file, the files of all modules that it imports, and the ``__init__`` of the package
    around every file outside of fa_audit.

    In ``from package import name``, the name may be a module: its file is then returned, too.
    """
    found = [path]
    for node in ast.walk(_tree(path)):
        folders: list[Path] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            within = f"{node.module}." if node.module else ""
            names = [within.rstrip("."), *(within + alias.name for alias in node.names)]
            # A relative import is searched only in the package that it names.
            if node.level:
                folders = [path.parents[node.level - 1]]
        else:
            continue
        for name in filter(None, names):
            file = _module_file(name, *folders)
            if file is not None:
                found.append(file)
    for file in list(found):
        if not file.is_relative_to(PACKAGE):
            folder = file.parent.parent if file.name == "__init__.py" else file.parent
            found.append(folder / "__init__.py")
    return [file for file in found if file.is_file()]


def _module_file(name: str, *folders: Path) -> Path | None:
    """Return the file of a module of this project or of its user, or None for everything else."""
    users = [
        Path(folder).resolve()
        for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if folder
    ]
    # The order in which a job's Python searches.
    return find_module(name, folders or [PACKAGE.parent, *users, Path.cwd()])


@cache
def _tree(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"), path.name)
    except (SyntaxError, ValueError) as error:
        raise AuditError(f"{path} is not Python source ({error}).") from error


@cache
def _content(path: Path, texts: bool) -> str:
    """Return a digest of the parts of a file that can change a result.

    Args:
        texts: whether this package's string literals of three or more words count. Shorter
            literals, such as codes of warnings, and all literals in users' files always count.
    """
    if path.suffix != ".py":
        return sha256_of(path)
    always = not path.is_relative_to(PACKAGE)
    return digest_of(_form(_tree(path), texts or always))


def _form(node: object, texts: bool) -> str:
    """Return a syntax tree as text, the same in all versions of Python.

    Docstrings, logging and the messages of errors are left out. If `texts` is false, so are string
    literals of three or more words, and parts of f-strings with a space.
    """
    if isinstance(node, list):
        return ",".join(_form(part, texts) for part in node if not _says_only(part))
    if isinstance(node, ast.Raise):
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return f"Raise({_form(error, texts)})"
    if isinstance(node, ast.JoinedStr):
        # Ignore the empty parts that Python 3.12 adds to f-strings. If `texts` is false, ignore
        # parts with a space, too.
        ignored = "^$" if texts else "^$| "
        kept = [part for part in node.values if not _is_text(part, ignored)]
        return f"JoinedStr({_form(kept, texts)})"
    if _is_text(node, _SENTENCE) and not texts:
        return "Text"
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = []
    for name in node._fields:
        value = getattr(node, name, None)
        # A field that a newer Python adds is empty unless the code uses it.
        if name not in _UNREAD and value is not None and value != []:
            parts.append(f"{name}={_form(value, texts)}")
    return f"{type(node).__name__}({' '.join(parts)})"


def _says_only(node: object) -> bool:
    """Return whether a statement is a docstring, or a call that logs or warns."""
    if not isinstance(node, ast.Expr):
        return False
    if isinstance(node.value, ast.Constant):
        return True
    return isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in _LOGS


def _is_text(node: object, pattern: str | re.Pattern[str]) -> bool:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.search(pattern, node.value) is not None
    return False
