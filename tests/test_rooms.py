"""The library's rooms: each imports only the rooms below it."""

import ast
import re
from pathlib import Path

from projects import ROOT, python

PACKAGE = ROOT / "src/fa_audit"
# From the bottom up; a room may import itself and the rooms before it.
ORDER = ["core", "documents", "protocol", "data", "networks", "methods", "experiments", "training", "audit", "results",
         "testing", "cli"]  # fmt: skip


def room_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "fa_audit" and len(parts) > 1 and parts[1] in ORDER else None


def imported_rooms(path: Path) -> set[str]:
    """Rooms that a file imports, function-level imports included."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names += re.findall(r"\Afa_audit\.\w+", node.value)  # of import_module
    assert not any(name.startswith("snakemake") for name in names), path
    return {room_of(name) for name in names} - {None}


def test_imports_between_rooms_point_downwards() -> None:
    upward = []
    for path in PACKAGE.rglob("*.py"):
        own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if own in ORDER:
            above = ORDER[ORDER.index(own) + 1 :]
            upward += [(path.name, room) for room in imported_rooms(path) if room in above]
    assert upward == []


def test_every_file_of_the_library_lies_in_a_room() -> None:
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix in ("", ".py")}
    assert there - {"__init__", "__pycache__", "provided"} == set(ORDER)


def test_the_public_names_load_neither_the_workflow_nor_data_sets_nor_plots() -> None:
    program = (
        "import sys; from fa_audit import diagnose, FAProtocol, Description, DiagnosticReport, DiagnosticThresholds;"
        "print(sorted({'snakemake', 'torchvision', 'sklearn', 'matplotlib', 'pandas'} & set(sys.modules)))"
    )
    assert python(ROOT, "-c", program).stdout == "[]\n"
