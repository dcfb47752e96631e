"""The library without its extras: what works, and what the rest says; and the shell completion,
which is one.
"""

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from projects import ROOT, python
from test_installed import PROMISED

from fa_audit.core.registry import EXTRAS

PROGRAM = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))  # importing them raises ModuleNotFoundError
import torch
from fa_audit import Description, diagnose
from fa_audit.cli import main

model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
batch = torch.eye(16).view(16, 1, 4, 4), torch.arange(16) % 3
print(diagnose(model, [batch], 0.41, 0.40, description=Description(("1", "2"), "all features")).three_check_verdict)
for line in sys.argv[2:]:
    main(line.split())
"""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BROUGHT = {
    "markupsafe": "jinja2",
    "pydantic_core": "pydantic",
}  # what cannot be absent where the other is there
SMALL = "--width 8 --depth 2 --epochs 1"
TRAIN = f"train dfa a.safetensors {SMALL} --data"
WORKING = (f"{TRAIN} synthetic_teacher", f"train dfa+frozen b.safetensors {SMALL} --data synthetic_teacher",
           "audit a.safetensors --frozen b.json", "list datasets")  # fmt: skip
MISSING = {f"{TRAIN} digits": "datasets", f"{TRAIN} cifar10": "datasets", "report a.json": "plots",
           "report --html a.json": "report", "scorecard": "plots", "draw a.json": "plots"}  # fmt: skip


def imported(path):
    """The packages that a file imports, in functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        yield from (name.partition(".")[0] for name in names)


def test_every_package_that_the_library_imports_comes_with_it_or_with_the_extra_that_is_named():
    named = {
        package for path in (ROOT / "src/fa_audit").rglob("*.py") for package in imported(path)
    }
    foreign = named - sys.stdlib_module_names - {"fa_audit", *BROUGHT}
    known = packages_distributions()
    of = {
        package: {*map(canonicalize_name, known.get(package, [package]))}
        for package in {*foreign, *EXTRAS}
    }
    required = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert {package for package in foreign if not required & of[package]} <= {*EXTRAS}
    for package, extra in EXTRAS.items():
        brought = {Requirement(line).name for line in PROJECT["optional-dependencies"][extra]}
        assert brought & of[package], package


def test_what_is_promised_of_every_extra_is_tried_in_an_environment_of_its_own():
    assert {*PROMISED} == {"", *PROJECT["optional-dependencies"]}


def test_without_extras_models_and_runs_are_audited_and_the_rest_names_the_extra(tmp_path):
    done = python(tmp_path, "-c", PROGRAM, ",".join(EXTRAS), *WORKING, *MISSING)
    said = [line for line in done.stderr.splitlines() if not line.startswith("epoch ")]
    assert done.returncode == 0 and done.stdout.startswith("FAIL(D3)\n"), done.stderr
    assert "Audit of dfa" in done.stdout and "\ncifar10 " in done.stdout
    expected = [f"fa-audit[{extra}]'" for extra in MISSING.values()]
    assert [line.rpartition("pip install '")[2] for line in said] == expected


def test_too_little_memory_for_torch_is_one_line(tmp_path):
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (10**9, 10**9)); "
    limited += "from fa_audit.cli import main; sys.exit(main(['list', 'architectures']))"
    done = python(tmp_path, "-c", limited)
    assert done.returncode == 1 and "ulimit -v" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("line", ["sc~orecard", "train --arch~itecture", "train credit~_bridge"])
def test_the_shell_completes_commands_options_and_names(tmp_path, line):
    pytest.importorskip("argcomplete")
    typed = f"fa-audit {line.partition('~')[0]}"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": f"{tmp_path}/said",
        "_ARGCOMPLETE_IFS": "\n",
    }
    python(tmp_path, "-m", "fa_audit.cli", COMP_LINE=typed, COMP_POINT=str(len(typed)), **asked)
    assert (tmp_path / "said").read_text().split() == line.replace("~", "").split()[-1:]
