"""Names to objects: user-defined methods and networks in files and packages, and records of the
registered ones.
"""

import json
import sys

import pytest
from projects import ROOT, python

from fa_audit.core.errors import AuditError
from fa_audit.core.registry import load
from fa_audit.experiments.read_grid import read_grid
from fa_audit.methods import METHODS
from fa_audit.methods.info import INFO, stated
from fa_audit.methods.method import load_method
from fa_audit.networks import ARCHITECTURES, OPTIONS, architecture_options, arguments_of

PLUG_IN = """
from dataclasses import dataclass
from typing import ClassVar

from fa_audit.methods.ep import EP
from fa_audit.networks.network import Network
from fa_audit.networks.resmlp import ResMLP


def twice(number):
    return 2 * number


@dataclass(frozen=True)
class Relaxing(EP):
    summary: ClassVar[str] = "mine"
    memory_mb: ClassVar[int] = twice(32)
    rate: float = 0.5


class Longer(Relaxing):
    relative_time = 20.0


class Net(Network):
    def __init__(self, image_shape, classes, *, depth=3, wide=True):
        super().__init__()


class Passing(Net):
    def __init__(self, *, gates=2, **options):
        super().__init__(**options)


class Renamed(ResMLP):
    pass


class Deep(Network):
    def __init__(self, *, image_shape, classes, depth):
        super().__init__()
"""


@pytest.fixture
def plug_in(tmp_path, monkeypatch):
    """Write a module `plug_in.py` and a package with the same module inside it."""
    for path in (tmp_path / "plug_in.py", tmp_path / "package/inner/plug_in.py"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PLUG_IN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.mark.parametrize("module", ["plug_in", "package.inner.plug_in"])
def test_texts_and_costs_of_an_imported_class_are_its_own_and_those_of_its_bases(plug_in, module):
    assert stated(f"{module}:Relaxing").relative_time == 1  # not imported yet
    assert load_method(f"{module}:Relaxing").rate == 0.5
    mine, longer = stated(f"{module}:Relaxing"), stated(f"{module}:Longer")
    assert (mine.summary, mine.memory_mb, mine.relative_time) == ("mine", 64, 14)
    assert (mine.equation, mine.latex) == (INFO["ep"].equation, "")
    assert (longer.relative_time, longer.memory_mb, longer.summary) == (20, 64, "mine")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("Net", {"depth": 3, "wide": True}),
        ("Passing", {"depth": 3, "wide": True, "gates": 2}),
        ("Renamed", OPTIONS["resmlp"]),
    ],
)
def test_options_of_an_imported_network_are_its_arguments_and_those_that_it_passes_on(
    plug_in, name, options
):
    assert architecture_options(f"plug_in:{name}") == options


SETTING = {"dataset": "digits", "architecture": {"name": "resmlp"}, "seeds": [1], "runs": ["dfa"]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"runs": ["plug_in:Relaxin"]},
            "settings.a.runs.0: 'plug_in:Relaxin': unknown method of plug_in .*'Relaxing'?",
        ),
        (
            {"runs": ["plug_in:Net"]},
            "method 'plug_in:Net': found <class .*; expected a subclass of .*Method",
        ),
        (
            {"runs": ["unlucky:Mine"]},
            "settings.a.runs.0: method 'unlucky:Mine': KeyError 'lost' in .*unlucky.py, line 2",
        ),
        ({"runs": ["exits:Mine"]}, "method 'exits:Mine': SystemExit 3 in .*exits.py, line 1"),
        ({"runs": ["typo:Mine"]}, "method 'typo:Mine': SyntaxError .*typo.py, line 1.*PYTHONPATH"),
        (
            {"dataset": "needs:Mine"},
            "settings.a.dataset: dataset 'needs:Mine': .* No module named 'x'",
        ),
        (
            {"architecture": {"name": "plug_in:Deep"}},
            "found the arguments image_shape, classes, depth; expected image",
        ),
        (
            {"architecture": {"name": "plug_in:Net", "dept": 2}},
            "unknown option of plug_in:Net 'dept'; .*'depth'",
        ),
        (
            {"architecture": {"name": "plug_in:Net", "wide": 1}},
            "architecture: wide: found 1",
        ),
        (
            {"architecture": {"name": "sys:version"}},
            "architecture 'sys:version': TypeError .* is not a callable",
        ),
    ],
)
def test_a_plug_in_that_is_wrong_ends_the_plan_in_one_line_with_its_place(plug_in, change, words):
    (plug_in / "unlucky.py").write_text("found = {}\nfound['lost']\n")
    (plug_in / "exits.py").write_text("raise SystemExit(3)\n")
    (plug_in / "typo.py").write_text("class Mine(:\n")
    (plug_in / "needs.py").write_text("import x\n")
    with pytest.raises(AuditError, match=f"^config: .*{words}") as refused:
        read_grid({"settings": {"a": SETTING | change}})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", METHODS)
def test_texts_and_costs_of_a_registered_method_are_stated_in_one_place(name):
    info = INFO[name]
    assert all((info.summary, info.equation, info.latex, info.feedback, info.source))
    assert not vars(info).keys() & vars(type(load_method(name))).keys()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_options_of_an_architecture_are_the_arguments_of_its_class(name):
    arguments = arguments_of(load("architecture", ARCHITECTURES, name))
    assert arguments.keys() - OPTIONS[name].keys() == {"image_shape", "classes"}
    assert OPTIONS[name].items() <= arguments.items() and architecture_options(name)["depth"] > 0


def test_the_list_of_registered_methods_imports_no_torch():
    program = "import sys; sys.modules['torch'] = None; import fa_audit.cli as c; sys.exit(c.main(sys.argv[1:]))"
    done = python(ROOT, "-c", program, "list", "methods")
    assert done.returncode == 0 and len(done.stdout.splitlines()) >= 4, json.dumps(done.stderr)
