"""What decides the results of each stage of the workflow, and which edits make them stale."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from networks import spec_of
from projects import ROOT

from fa_audit.audit.run_audit import audit_files
from fa_audit.core.registry import entry_of
from fa_audit.core.stages import PACKAGE, STAGES, stage_files
from fa_audit.data.dataset import save_dataset
from fa_audit.methods import METHODS
from fa_audit.networks import ARCHITECTURES
from fa_audit.training.resume import Resume
from fa_audit.training.run_files import train_run

SCRIPTS = sorted(path.stem for path in (ROOT / "workflow_scripts").glob("[a-z]*.py"))
WITHOUT_EFFECT = {  # why an edit of a file cannot change a result
    "core/errors.py": "builds errors, after which there is no result",
    "core/files.py": "writes what it is given, whole",
    "core/gpu.py": "chooses a free GPU among equal ones",
    "core/origin.py": "describes the machine and the commit",
    "core/provided.py": "finds files of the project, which are inputs",
    "core/registry.py": "imports what the specification names",
    "core/stages.py": "these digests",
    "core/validation.py": "refuses wrong input; changes no right one",
    "protocol/report.py": "words an audit, in reports alone",
    "protocol/sentences.py": "words an audit, in reports alone",
    "documents/document.py": "lays out texts",
    "documents/formats.py": "lays out texts",
    "documents/latex.py": "lays out texts",
    "documents/writers.py": "lists formats of texts",
    "training/sidecar.py": "refuses damaged files; changes no whole one",
    **dict.fromkeys(
        [
            f"experiments/{name}.py"
            for name in ("config", "config_file", "grid", "origins", "read_grid")
        ],
        "reads the configuration, whose values are parameters of the jobs",
    ),
    "methods/info.py": "describes methods for plans and documents",
}
LOADED = """import sys
sys.path.append({folder!r})
{imports}
print(*(m.__file__ for m in sys.modules.values() if getattr(m, "__file__", None)), sep="\\n")
"""


def undeclared(files, *stage):
    """Which of the package's files neither decide a stage nor are without effect on any."""
    ours = {
        Path(file)
        for file in files
        if file.startswith(f"{PACKAGE}/") and not file.endswith("__init__.py")
    }
    names = {str(path.relative_to(PACKAGE)) for path in ours - set(stage_files(*stage))}
    return names - WITHOUT_EFFECT.keys()


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_a_script_loads_is_declared_or_without_effect(script):
    tree = ast.parse((ROOT / f"workflow_scripts/{script}.py").read_text())
    imports = [
        ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    program = LOADED.format(folder=str(ROOT / "workflow_scripts"), imports="\n".join(imports))
    listed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    of_types = {
        "methods/method.py",
        "training/learner.py",
        "training/optimiser.py",
    }  # no external model runs them
    few = {
        "share_run",
        "collect_baseline",
    }  # they copy values, and read no more of them than an audit does
    kept = {
        "core/measured.py",
        "experiments/spec.py",
        "experiments/paths.py",
        "training/trajectory.py",
    }
    allowed = {"audit_model": of_types} | dict.fromkeys(few, kept)
    assert undeclared(listed.splitlines(), script) <= allowed.get(script, set())


@contextmanager
def executed():
    """The files of every function that runs in this context."""
    files = set()
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, argument: files.add(frame.f_code.co_filename))
    try:
        yield files
    finally:
        sys.setprofile(before)


CASES = {
    **{method: {"method": method} for method in METHODS},
    **{name: {"architecture": name, "method": "dfa"} for name in ARCHITECTURES},
    "options": {
        "method": "dfa",
        "optimiser": "sgd",
        "clip": 1.0,
        "penalty": 0.1,
        "validation": 0.1,
        "snapshot": 1,
    },
    "monitor": {
        "method": "dfa",
        "monitor": (("D1", 1e9), ("D2", 0.0)),
        "random_targets": True,
        "frozen_blocks": 1,
    },
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_training_and_its_audit_execute_is_declared_or_without_effect(
    case, dataset, tmp_path
):
    options = {"architecture": "resmlp", "epochs": 2} | CASES[case]
    spec = spec_of(options.pop("architecture"), **options)
    entries = [entry_of("", METHODS, spec.method), entry_of("", ARCHITECTURES, spec.architecture)]
    files = {"sidecar": tmp_path / "run.json", "trajectory": tmp_path / "run.csv"}
    data = tmp_path / "tiny.safetensors"
    save_dataset(dataset, data)
    with executed() as training:
        resume = Resume(tmp_path / "run.resume", "")
        train_run(spec, dataset, tmp_path / "run.safetensors", **files, resume=resume, device="cpu")
    with executed() as auditing:
        audit_files(tmp_path / "run.safetensors", data, **files, baselines={}, spec=spec)
    loop, metrics = (
        str(PACKAGE / name) for name in ("training/loop.py", "audit/credit_metrics.py")
    )
    assert loop in training and metrics in auditing
    assert (
        undeclared(training, "train", *entries) == undeclared(auditing, "audit", *entries) == set()
    )


def test_a_training_loads_no_texts_verdicts_or_reports():
    program = "import sys, fa_audit.training.run_files; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    rooms = {name.split(".")[1] for name in loaded.split() if name.startswith("fa_audit.")}
    assert rooms == {"core", "data", "experiments", "methods", "networks", "training"}
    assert not re.findall(r"fa_audit\.protocol\.", loaded)


# ---- edits

DFA, FA = "fa_audit.methods.dfa:DFA", "fa_audit.methods.fa:FA"
RESMLP, VIT = "fa_audit.networks.resmlp:ResMLP", "fa_audit.networks.vit_mini:ViTMini"
OVERVIEW, LAYERS = (
    "fa_audit.results.figures.audit_overview:draw",
    "fa_audit.results.figures.cosines:layers",
)
JOBS = {
    **{
        stage: (stage,)
        for stage in STAGES
        if stage not in ("train", "audit", "draw_figure", "build_table")
    },
    "digits": ("prepare_data", "fa_audit.data.digits:digits"),
    "train dfa": ("train", DFA, RESMLP),
    "train drtp": ("train", "fa_audit.methods.drtp:DRTP", RESMLP),
    "train fa": ("train", FA, RESMLP),
    "train vit": ("train", FA, VIT),
    "train mine": ("train", "my.own.methods:Mine", RESMLP),
    "audit dfa": ("audit", DFA, RESMLP),
    "audit fa": ("audit", FA, RESMLP),
    "figure overview": ("draw_figure", OVERVIEW),
    "figure layers": ("draw_figure", LAYERS),
    "table": ("build_table", "fa_audit.results.tables.audits:main_audit"),
    "board": ("build_table", "fa_audit.results.tables.board:board"),
}
ADDED = "\nEDITED = 1\n"
MINE = {
    "__init__.py": "",
    "own/__init__.py": "THIRD = 1 / 3\n",
    "own/methods.py": "from fa_audit.methods.fa import FA\nfrom my.own.helper import HALF\n"
    "class Mine(FA):\n    half = HALF\n",
    "own/helper.py": "from . import THIRD\nfrom .numbers import HALF\n",
    "own/numbers.py": "HALF = 0.5  # of one\n",
}
TRAININGS = {name for name in JOBS if name.startswith("train ")}
AUDITS = {"audit dfa", "audit fa"}
SHOWN = {"figure overview", "figure layers", "table", "board", "report_model", "build_report"}
SHOWN |= {"build_scorecard", "draw_scorecard"}
# The file, what is replaced, and by what (nothing: it is appended).
WITHOUT_EFFECT_ON_ANY = {
    "a comment": ("core/errors.py", "\nimport", "\n# edited\nimport"),
    "a docstring": ("core/vectors.py", "Norms, growth", "Edited, growth"),
    "a user's comment": ("my/own/numbers.py", "# of one", "# edited"),
    "an error": ("training/learner.py", "the network has {", "there are no more than {"),
    "a log message": ("training/loop.py", '"resuming after epoch %d of %d"', '"edited %d %d"'),
    "a reason": (
        "core/vectors.py",
        "no sample where both vectors are",
        "no edited sample whose vectors are",
    ),
    "the folder of locks": ("core/folder.py", "", ADDED),
    "a sidecar's check": ("training/sidecar.py", "", ADDED),
    "a warning": ("audit/inputs.py", "expected", "wanted"),
}
EDITS = {  # the same, and the jobs whose results become stale
    "an advice": (
        "protocol/checks.py",
        "Quote no cosine with it",
        "Edited",
        SHOWN | {"tidy_setting", "tidy"},
    ),
    "the optimiser": (
        "training/optimiser.py",
        "MOMENTUM = 0.9",
        "MOMENTUM = 0.8",
        TRAININGS | AUDITS,
    ),
    "the loop": (
        "training/loop.py",
        "0.5 * (1 + math.cos",
        "0.4 * (1 + math.cos",
        TRAININGS | AUDITS,
    ),
    "a network": ("networks/resmlp.py", "", ADDED, (TRAININGS | AUDITS) - {"train vit"}),
    "a method": ("methods/dfa.py", "", ADDED, {"train dfa", "train drtp", "audit dfa"}),
    "a method that a user's uses": ("methods/fa.py", "", ADDED, None),
    "what a user's method imports": ("my/own/numbers.py", "0.5", "0.25", {"train mine"}),
    "the package around it": ("my/__init__.py", "", ADDED, {"train mine"}),
    "a data set": ("data/digits.py", "", ADDED, {"digits"}),
    "a formula of metrics": ("audit/statistics.py", ".mean()", ".sum()", AUDITS | {"audit_model"}),
    "the norms": ("core/vectors.py", ".median()", ".mean()", TRAININGS | AUDITS | {"audit_model"}),
    "a default limit": ("protocol/evidence.py", "float = 50.0", "float = 40.0", None),
    "a figure": ("results/figures/cosines.py", "", ADDED, {"figure layers"}),
    "the report": ("protocol/report.py", "", ADDED, {"report_model", "build_report"}),
    "its sentences": ("protocol/sentences.py", "", ADDED, {"report_model", "build_report"}),
    "claims": ("methods/claims.yaml", "29.59", "11.11", {"table", "board", "build_report"}),
}
STALE = {
    "a method that a user's uses": {"train fa", "train vit", "train mine", "audit fa"},
    "a default limit": AUDITS | SHOWN | {"audit_model", "tidy_setting", "tidy"},
}
DIGESTS = """import json, sys
from fa_audit.core.stages import code_digest
print(json.dumps({name: code_digest(*job) for name, job in json.loads(sys.argv[1]).items()}))
"""


def digests(folder, jobs):
    """The digests of jobs by the copy of the package in a folder, where a user's code is, too."""
    command = [sys.executable, "-c", DIGESTS, json.dumps(jobs)]
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A folder with the package and a user's method, and the digests of all jobs."""
    folder = tmp_path_factory.mktemp("stages")
    shutil.copytree(PACKAGE, folder / "src/fa_audit", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "workflow_scripts", folder / "workflow_scripts")
    (folder / "my/own").mkdir(parents=True)
    for name, text in MINE.items():
        (folder / "my" / name).write_text(text)
    return folder, digests(folder, JOBS)


@contextmanager
def edited(folder, *edits):
    """Edit the copy of the package, or the user's files, for a while."""
    texts = {}
    for name, old, new in edits:
        path = folder / name if name.startswith("my/") else folder / "src/fa_audit" / name
        text = path.read_text()
        texts.setdefault(path, text)
        assert old in text
        path.write_text(text.replace(old, new) if old else text + new)
    try:
        yield
    finally:
        for path, text in texts.items():
            path.write_text(text)


def test_comments_docstrings_messages_and_checks_of_files_make_nothing_stale(copy):
    folder, before = copy
    with edited(folder, *WITHOUT_EFFECT_ON_ANY.values()):
        assert digests(folder, JOBS) == before


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_makes_stale_what_computes_with_it_and_nothing_else(copy, edit):
    folder, before = copy
    *change, stale = EDITS[edit]
    with edited(folder, change):
        after = digests(folder, JOBS)
    assert {job for job in JOBS if before[job] != after[job]} == (
        STALE[edit] if stale is None else stale
    )


def test_every_file_of_data_in_the_package_decides_a_stage():
    declared = {path for stage in STAGES for path in stage_files(stage)}
    pages = set((PACKAGE / "results/page").glob("page.*"))  # inputs of the page's rule
    data = {
        path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert data - declared - pages == {PACKAGE / "py.typed", PACKAGE / "provided/config.yaml"}
