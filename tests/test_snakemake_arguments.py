"""A command of Snakemake that cannot work ends in one line, before Snakemake reads it."""

import os
import subprocess
import sys

import pytest
import yaml

from snakemake_logger_plugin_fa_audit import command_line
from snakemake_logger_plugin_fa_audit.command_line import problems, refuse

PDF = "results/figures/x.pdf"
SWALLOWED = [  # arguments, and the command that the message proposes
    (["--configfile", "my.yaml", PDF, "-n"], f"snakemake {PDF} --configfile my.yaml -n"),
    (
        ["--configfile", "my.yaml", "results/audits/a/dfa/seed1.json"],
        "results/audits/a/dfa/seed1.json --configfile my",
    ),
    (
        ["-n", "--configfiles", "my.yaml", "train", "tables"],
        "snakemake train tables -n --configfiles my.yaml",
    ),
    (["--resources", "gpu=1", "train"], "snakemake train --resources gpu=1"),
    (["--config", "seeds=1", PDF, "--cores", "2"], f"snakemake {PDF} --config seeds=1 --cores 2"),
    (
        ["--configfile=my.yaml", "train", "--res", "gpu=0", "all"],
        "snakemake all --configfile=my.yaml train --res gpu=0",
    ),
]
FINE = [
    [PDF, "--configfile", "my.yaml", "own.conf", "-n"],
    ["--configfile=my.yaml", "train"],
    ["--resources", "gpu=1", "mem_mb=5", "--", "train"],
    ["--workflow-profile", "profiles/local", "--cores", "2", "all"],
    ["--profile", "none"],
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working folder with a configuration, a figure, an audit and profiles."""
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / PDF, tmp_path / "results/audits/a/dfa/seed1.json"):
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    for name in ("my.yaml", "own.conf"):
        (tmp_path / name).write_text(yaml.safe_dump({"settings": {"no": "'no'"}}))
    for name, executor in {"slurm": "slurm", "other": "my-own", "local": "local"}.items():
        (tmp_path / "profiles" / name).mkdir(parents=True)
        (tmp_path / "profiles" / name / "config.yaml").write_text(
            f"jobs: 2\nexecutor: {executor} # on nodes\n"
        )
    return tmp_path


@pytest.mark.parametrize(("words", "proposed"), SWALLOWED)
def test_a_target_behind_an_option_is_said_once_with_the_command_that_works(words, proposed):
    (problem,) = problems(words)
    assert problem.startswith(
        next(word for word in words if "=" not in word and word.startswith("--")) + ": found "
    )
    assert proposed in problem and "\n" not in problem


@pytest.mark.parametrize("words", FINE)
def test_what_snakemake_understands_is_let_through(words):
    assert list(problems(words)) == []


def test_a_profile_whose_executor_is_missing_says_what_to_install(monkeypatch):
    monkeypatch.setattr(
        command_line, "find_spec", lambda name: name == "snakemake_executor_plugin_my_own" or None
    )
    assert list(problems(["--profile", "profiles/other"])) == []
    for words in (
        ["--workflow-profile", "profiles/slurm"],
        ["--workflow-profile=slurm"],
        ["--profile", "other", "slurm"],
    ):
        (problem,) = problems(words)
        assert problem.startswith(
            "profiles/slurm/config.yaml: found the executor 'slurm'; its plugin is not installed"
        )
        assert problem.endswith(
            f"Run: {sys.executable} -m pip install snakemake-executor-plugin-slurm"
        )
    (problem,) = problems(["-e", "slurm", "-n"])
    assert problem.startswith("-e: found the executor 'slurm'; its plugin is not installed")


def test_other_programs_and_snakemakes_own_jobs_are_let_through():
    wrong = ["--configfile", "absent.yaml"]
    refuse(["/bin/pytest", *wrong])
    refuse(["/bin/snakemake", "--mode", "remote", *wrong])
    for program in ("/bin/snakemake", "/lib/snakemake/__main__.py"):
        with pytest.raises(
            SystemExit,
            match=r"^fa-audit: absent.yaml: No such file or directory; expected a file of",
        ):
            refuse([program, *wrong])


def test_snakemake_itself_says_one_line_with_file_line_and_column(folder):
    (folder / "bad.yaml").write_text("settings:\n  demo: [digits\n  epochs: 1\n")
    call = [
        sys.executable,
        "-m",
        "snakemake",
        "-n",
        "--workflow-profile",
        "none",
        "--configfile",
        "bad.yaml",
    ]
    done = subprocess.run(
        call, env=dict(os.environ), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert done.returncode == 1 and done.stdout.count("\n") == 1, done.stdout
    assert done.stdout.startswith("fa-audit: bad.yaml, line 3, column 9: expected ',' or ']'")
