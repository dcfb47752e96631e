"""A configuration is read, or refused in one message that names the file and the line."""

import re

import pytest
import yaml
from damage import damaged
from hypothesis import given, settings
from projects import ROOT, copy_sources, snakemake

from fa_audit.core.errors import AuditError
from fa_audit.experiments.config_file import LineOf, load_config, select_settings, typed
from fa_audit.experiments.grid import Grid
from fa_audit.experiments.read_grid import read_grid
from fa_audit.results.artefacts import KINDS

BOMB = b"a: &a [0, 1]\n" + b"".join(
    b"%c: &%c [%s]\n" % (n, n, b", ".join([b"*%c" % (n - 1)] * 9))
    for n in range(ord("b"), ord("m"))
)
REFUSED = {  # content -> what the message says behind the name of the file
    b"settings: [1\n": ", line 2, column 1: ",
    b"settings:\n\ta: 1\n": ", line 2, column 1: ",
    b"settings: {}\nlabels: {bp: a, bp: b}\n": ", line 2, column 17: .*'bp'",
    b"settings: {a: {epochs: 1:30}}\n": ", line 1, column 24: .*1:30",
    b"settings: {a: {epochs: 010}}\n": ", line 1, column 24: .*010",
    b"settings: {a: {epochs: 1_0}}\n": ", line 1, column 24: .*1_0",
    b"settings:\n  2001-02-03: {}\n": ", line 2, column 3: .*2001-02-03",
    b"settings: {a: {runs: [bp, no]}}\n": ", line 1, column 27: .*no",
    b'{"settings": {},\n\t"settings": {}}': ", line 2, column 2: .*'settings'",
    b"settings: !!python/name:os.system\n": ", line 1, column 11: ",
    b"a: 1\nsettings: \xff\n": ": .*0xff",
    b"a: 1\nb: \x07\n": ": .*0007",
    b"a: &a [*a]": ": ",
    rb'labels: {bp: "\ud800"}': ": .*surrogates",
    rb'{"labels": {"bp": "\ud800"}}': ": .*surrogates",
    BOMB.replace(b"[", b"{<<: [")
    .replace(b"]", b"]}")
    .replace(b"{<<: [0, 1]}", b"{a: 1}"): ": .*values",
    BOMB: ": .*values",
    b"- settings\n": ": found list",
    b"": ": found NoneType",
    None: ": No such file",
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
        ('{\n\t"a": [1e-3, null, {"b": "c"}]}', {"a": [1e-3, None, {"b": "c"}]}),
        (r'{"a": "\ud83d\ude00"}', {"a": "😀"}),
        ("\ufeffa: [-0.5, 1.0e-3, .inf, True, ~]", {"a": [-0.5, 1e-3, float("inf"), True, None]}),
        ("a: &x {b: 1}\nc: {<<: *x, b: 2}", {"a": {"b": 1}, "c": {"b": 2}}),
    ],
)  # fmt: skip
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


def places(config, line_of):
    with pytest.raises(AuditError) as error:
        read_grid(config, KINDS, line_of)
    return {": ".join(line.split(": ")[:2]).strip() for line in str(error.value).splitlines()}


def test_every_problem_has_its_file_and_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text(TEXT)
    expected = {"a.yaml, line 8: settings.a.epochs", "a.yaml, line 7: settings.a.seeds.1"}
    assert places(*load_config("a.yaml")) == expected
    right = TEXT.replace("-2", "2").replace("epochs: -1", "vary: {epochs: [1, 2]}")
    (tmp_path / "a.yaml").write_text(right.replace("dfa", "dfa+frosen"))
    assert places(*load_config("a.yaml")) == {"a.yaml, line 9: settings.a.runs.0"}
    assert LineOf()("settings.a") == ""


def test_settings_are_selected_from_a_file_beside_or_above(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.yaml").write_text(TEXT.replace("-1", "1"))
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner/mine.yaml").write_text(
        "settings:\n"
        "  a: {select: base.yaml}\n"
        "  b: {select: base.yaml:a, epochs: 2, runs: null, ladder: [bp]}\n"
    )
    config, line_of = load_config("inner/mine.yaml")
    whole = yaml.safe_load(TEXT)["settings"]["a"] | {"epochs": 1}
    changed = whole | {"epochs": 2, "ladder": ["bp"]}
    del changed["runs"]
    assert config["settings"] == {"a": whole, "b": changed}
    expected = {"base.yaml, line 7: settings.a.seeds.1", "base.yaml, line 7: settings.b.seeds.1"}
    assert places(config, line_of) == expected
    (tmp_path / "nested.yaml").write_text("settings: {a: {select: base.yaml}}")
    for wrong in ("base.yaml:c", "nothing.yaml", "", "mine.yaml:x", "nested.yaml"):
        (tmp_path / "inner/mine.yaml").write_text(f"settings:\n  a: {{select: '{wrong}'}}\n")
        with pytest.raises(AuditError, match=r"mine.yaml, line 2: settings\.a\.select: "):
            load_config("inner/mine.yaml")


def test_of_several_files_the_one_that_selects_says_where_to_look(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    (tmp_path / "second/base.yaml").write_text(TEXT.replace("-1", "1"))
    (tmp_path / "second/mine.yaml").write_text("settings:\n  a: {select: base.yaml}\n")
    merged = {"settings": {"a": {"select": "base.yaml"}}}
    select_settings(merged, "first/config.yaml", load_config("second/mine.yaml")[1])
    assert merged == load_config("second/mine.yaml")[0]


def test_numbers_inside_a_value_of_the_command_line_are_numbers():
    given = {"growth": "30", "a": ["1.5e-3", "true", "dfa", "1_0"]}
    assert typed(given) == {"growth": 30, "a": [1.5e-3, True, "dfa", "1_0"]}


@pytest.mark.slow
def test_what_the_command_line_gives_is_in_the_plan_and_has_no_line(tmp_path):
    folder = copy_sources(tmp_path / "project")
    (folder / "mine.yaml").write_text(
        "settings: {demo: {select: configs/demo.yaml}}\nthresholds: {growth: 9}\n"
    )
    given = ["-n", "--config", "thresholds={growth: 30, stability: 0.5}"]
    assert snakemake(folder, *given, config="mine.yaml").returncode == 0
    done = snakemake(folder, "-n", "--config", "thresholds={growth: -30}", config="mine.yaml")
    assert done.returncode != 0 and "fa-audit: config: thresholds: " in done.stdout


WHOLE = yaml.safe_load((ROOT / "configs/ci.yaml").read_text())


@settings(max_examples=30)
@given(damaged(WHOLE))
def test_any_value_anywhere_gives_a_grid_or_one_readable_message(config):
    try:
        assert isinstance(read_grid(config, KINDS), Grid)
    except AuditError as error:
        assert str(error).startswith("config: ") and len(str(error)) < 5000
        assert all(line.isprintable() for line in str(error).splitlines())
