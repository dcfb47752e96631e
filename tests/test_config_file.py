"""Configurations that are odd as files: one line says what is wrong, and where."""

import re

import pytest
from projects import copy_sources, snakemake, write_config

from fa_audit.core.errors import AuditError
from fa_audit.experiments.config_file import check_config_file

REFUSED = {  # content -> what the message says behind the name of the file
    b"settings: [1\n": r", line 2, column 1: expected ',' or '\]'",
    b"settings:\n\ta: 1\n": r", line 2, column 1: found character '\\t'",
    b"settings: {}\nlabels: {bp: a, bp: b}\n": r", line 2, column 17: found 'bp' twice",
    b'{"settings": {}, "settings": {}}': r": ValueError found 'settings' twice",
    b"settings: !!python/name:os.system\n": r", line 1, column 11: could not determine a constructor",
    b"settings: 2001-99-99\n": r": ValueError month must be in 1..12",
    b"settings: \xff\n": r": UnicodeDecodeError .* expected YAML or JSON in UTF-8",
    b"settings: " + b"[" * 3000: r": RecursionError",
    b"settings: " + b"9" * 5000: r": ValueError Exceeds the limit",
    b"- settings\n": r": found \['settings'\]; expected a mapping",
    b"": r": found None; expected a mapping",
    b"a: &a {b: *a}\n": r": top level: found 20 mappings or lists inside each other",
    b"__use_yte__: true\nsettings: ?open('out', 'w')\n": r": found '__use_yte__'; expected plain YAML",
}


@pytest.mark.parametrize("content", REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_read_is_told_in_one_line_with_its_place(tmp_path, content):
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(AuditError, match=re.escape(str(path)) + REFUSED[content]) as refusal:
        check_config_file(path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "content", ["a: 1\n", '{"a": [1.5, null, {"b": "c"}]}', "\ufeffa: 1\n", "a: &x {b: 1}\nc: {<<: *x}"]
)
def test_plain_values_can_be_read(tmp_path, content):
    (tmp_path / "config.yaml").write_text(content, encoding="utf-8")
    check_config_file(tmp_path / "config.yaml")


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(AuditError, match=re.escape(f"{tmp_path}/none.yaml: No such file or directory; expected")):
        check_config_file(tmp_path / "none.yaml")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return copy_sources(tmp_path_factory.mktemp("odd") / "project")


def told(done):
    """The one line that the workflow ends with."""
    assert done.returncode == 1 and "Traceback" not in done.stdout, done.stdout
    (line,) = re.findall("^fa-audit: (.*)", done.stdout, re.MULTILINE)
    return line


@pytest.mark.parametrize("profile", ["default", "slurm"])
def test_a_profile_checks_a_file_before_snakemake_reads_it(project, profile):
    (project / "odd.yaml").write_text("settings: 2001-99-99\n")
    done = snakemake(project, "-n", "--workflow-profile", f"profiles/{profile}", config="odd.yaml")
    assert told(done) == "odd.yaml: ValueError month must be in 1..12; expected YAML or JSON in UTF-8."
    assert "none.yaml: No such file" in told(snakemake(project, "-n", config="none.yaml"))


@pytest.mark.parametrize("word", ["foo", "=x", "../x=3"])
def test_a_value_on_the_command_line_without_a_name_is_told(project, word):
    (project / "fine.yaml").write_text("settings: {}\n")
    said = told(snakemake(project, "-n", "--config", word, config="fine.yaml"))
    assert said.startswith(f"--config: found {word}; expected NAME=VALUE")


def test_called_from_another_folder_the_workflow_plans(project, tmp_path):
    write_config(tmp_path, {"settings": {}})
    there = ["--snakefile", str(project / "Snakefile"), "--directory", str(project)]
    assert "settings: found {}" in told(snakemake(tmp_path, "-n", *there))


def test_the_workflow_itself_checks_its_configuration(project):
    (project / "config.yaml").write_text("settings: 2001-99-99\n")
    assert told(snakemake(project, "-n", config=None)).startswith("config.yaml: ValueError month")
    (project / "twice.yaml").write_text("settings: {}\nsettings: {}\n")
    done = snakemake(project, "-n", "--workflow-profile", "none", config="twice.yaml")
    assert told(done).endswith("twice.yaml, line 2, column 1: found 'settings' twice; expected YAML or JSON.")


def test_another_configuration_replaces_the_usual_one_even_if_it_is_empty(tmp_path):
    folder = copy_sources(tmp_path / "project")
    (folder / "empty.yaml").write_text("{}\n")
    done = snakemake(folder, "-n", config="empty.yaml")
    assert done.returncode == 1 and "found {}; expected a mapping with the key 'settings'" in done.stdout, done.stdout
