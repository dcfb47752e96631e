"""A configuration is read, or refused in one message that names the file and the line."""

import copy
import re

import pytest
import yaml
from damage import damaged
from hypothesis import given, settings
from projects import ROOT

from fa_audit.core.errors import AuditError
from fa_audit.experiments.config_file import LineOf, load_config
from fa_audit.experiments.grid import Grid
from fa_audit.experiments.read_grid import read_grid
from fa_audit.results.kinds import KINDS

REFUSED = {  # content -> what the message says behind the name of the file
    b"settings: [1\n": r", line 2, column 1: expected ',' or '\]'",
    b"settings:\n\ta: 1\n": r", line 2, column 1: found character '\\t'",
    b"settings: {}\nlabels: {bp: a, bp: b}\n": r", line 2, column 17: found 'bp' twice",
    b"settings: {a: {epochs: 1:30}}\n": ", line 1, column 24: found 1:30, which YAML reads as 90; write '1:30' if",
    b"settings: {a: {lr: 1:30.5}}\n": ", line 1, column 20: found 1:30.5, which YAML reads as 90.5; write",
    b"settings: {a: {epochs: 010}}\n": ", line 1, column 24: found 010, which YAML reads as 8; write '010' if",
    b"settings:\n  2001-02-03: {}\n": ", line 2, column 3: found 2001-02-03, which YAML reads as a date; write",
    b"settings: {a: {runs: [bp, no]}}\n": ", line 1, column 27: found no, which YAML reads as false; write 'no' if",
    b"settings:\n  yes: {}\n": ", line 2, column 3: found yes, which YAML reads as true; write 'yes' if",
    b"settings:\n  null: {}\n": ", line 2, column 3: found null, which YAML reads as null; write 'null' if",
    b'{"settings": {},\n\t"settings": {}}': r", line 2, column 2: found 'settings' twice",
    b"settings: !!python/name:os.system\n": r", line 1, column 11: could not determine a constructor",
    b"settings: 2001-99-99\n": r", line 1, column 11: found 2001-99-99, which YAML reads as a date; write",
    b"a: 1\nsettings: \xff\n": r", line 2, column 11: found the byte 0xff; expected YAML or JSON in UTF-8",
    b"a: 1\nb: \x07\n": r", line 2, column 4: found the character 0x07; expected YAML or JSON",
    b"settings: [\n  a: {b: 'c\n": r", line 3, column 1: .* \(while scanning a quoted scalar, from line 2\)",
    b"- settings\n": r": found a sequence; expected a mapping",
    b"": r": found an empty file; expected a mapping",
    None: r": No such file or directory; expected a file",
}


@pytest.mark.parametrize("content", REFUSED, ids=range(len(REFUSED)))
def test_a_file_that_cannot_be_read_is_refused_in_one_line_with_its_place(tmp_path, content):
    path = tmp_path / "config.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AuditError, match=re.escape(str(path)) + REFUSED[content]) as refusal:
        load_config(path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1\n", {"a": 1}),
        ('{\n\t"a": [1e-3, null, {"b": "c"}]}', {"a": [1e-3, None, {"b": "c"}]}),
        ("\ufeffa: 1\n", {"a": 1}),
        ("a: &x {b: 1}\nc: {<<: *x}", {"a": {"b": 1}, "c": {"b": 1}}),
    ],
)
def test_yaml_and_json_are_read(tmp_path, text, value):
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    assert load_config(tmp_path / "config.yaml")[0] == value


TEXT = """\
settings:
  a:
    dataset: digits
    architecture: {name: resmlp}
    seeds:
      - 1
      - -2
    epochs: -1
    runs: [dfa]
"""
JSON = '{"settings":\n {"a":\n  {"dataset": "digits", "architecture": {"name": "resmlp"},\n "seeds": [1,\n -2]}}}'


def refused(config, line_of):
    with pytest.raises(AuditError) as error:
        read_grid(config, KINDS, line_of)
    return str(error.value).splitlines()


def test_every_problem_has_its_file_and_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(TEXT)
    (tmp_path / "a.json").write_text(JSON)
    assert refused(*load_config("a.yaml")) == [
        "a.yaml, line 8: settings.a.epochs: found -1; expected an integer 0..100000: passes over the training set; 0"
        " leaves the network untrained.",
        "  a.yaml, line 7: settings.a.seeds.1: found -2; expected an integer from 0 to 2147483647.",
    ]
    assert refused(*load_config("a.json"))[0].startswith(
        "a.json, line 5: settings.a.seeds.1: found -2"
    )
    (tmp_path / "names.yaml").write_text(
        TEXT.replace("-2", "2").replace("epochs: -1", "baseline: []")
    )
    assert refused(*load_config("names.yaml"))[0].startswith(
        "names.yaml, line 8: settings.a.baseline: unknown key"
    )
    varied = (
        TEXT.replace("-2", "2")
        .replace("epochs: -1", "vary: {epochs: [1, 2]}")
        .replace("dfa", "dfa+frosen")
    )
    (tmp_path / "runs.yaml").write_text(varied)
    (line,) = refused(*load_config("runs.yaml"))
    assert line.startswith("runs.yaml, line 9: settings.a.runs.0: run 'dfa+frosen': unknown option")


def test_a_value_of_the_command_line_has_no_line_and_the_others_keep_theirs(tmp_path):
    (tmp_path / "a.yaml").write_text(TEXT)
    config, line_of = load_config(tmp_path / "a.yaml")
    changed = copy.deepcopy(config)
    changed["settings"]["a"]["epochs"] = float("nan")
    first, second = refused(changed, line_of)
    assert (
        first.startswith("config: settings.a.epochs: found nan")
        and ", line 7: settings.a.seeds.1" in second
    )
    assert refused(config | {"labels": 3}, line_of)[-1].startswith("  labels: found 3")
    (tmp_path / "b.yaml").write_text("settings: {a: {epochs: 0}}")
    merged = line_of | load_config(tmp_path / "b.yaml")[1]
    found = [merged(f"settings.a.{key}").rpartition("/")[2] for key in ("epochs", "runs")]
    assert found == ["b.yaml, line 1", "a.yaml, line 9"] and LineOf()("settings.a") == ""


WHOLE = yaml.safe_load((ROOT / "configs/ci.yaml").read_text())


@settings(max_examples=30)
@given(damaged(WHOLE))
def test_any_value_anywhere_gives_a_grid_or_one_readable_message(config):
    try:
        assert isinstance(read_grid(config, KINDS), Grid)
    except AuditError as error:
        assert str(error).startswith("config: ") and len(str(error)) < 5000
        assert all(line.isprintable() for line in str(error).splitlines())
