"""schemas/ and docs/configuration.md say what the models say."""

import runpy
import subprocess
import sys

import pytest
from projects import ROOT

TOOL = ROOT / "tools/schemas.py"


def test_the_generated_files_are_fresh():
    done = subprocess.run([sys.executable, str(TOOL), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_stale_file_is_noticed_and_written_again(tmp_path, monkeypatch, capsys):
    tool = runpy.run_path(str(TOOL))
    (tmp_path / "schemas").mkdir()
    document = (ROOT / "docs/configuration.md").read_text()
    (tmp_path / "configuration.md").write_text(document.replace("images per step", "images"))
    monkeypatch.setitem(tool["main"].__globals__, "ROOT", tmp_path)
    monkeypatch.setitem(tool["main"].__globals__, "DOCUMENT", tmp_path / "configuration.md")
    monkeypatch.setattr(sys, "argv", ["schemas.py", "--check"])
    with pytest.raises(SystemExit, match=r"stale: .*config.schema.yaml.*configuration.md; run python tools/schemas.py"):
        tool["main"]()
    monkeypatch.setattr(sys, "argv", ["schemas.py"])
    tool["main"]()
    assert (tmp_path / "configuration.md").read_text() == document
    for path in (ROOT / "schemas").iterdir():
        assert (tmp_path / "schemas" / path.name).read_text() == path.read_text()


@pytest.mark.parametrize("name", ["config", "published", "audit", "sidecar"])
def test_every_field_says_what_is_expected(name):
    schema = runpy.run_path(str(TOOL))["FILES"][name].model_json_schema()
    for title, node in {"": schema, **schema["$defs"]}.items():
        for key, field in node.get("properties", {}).items():
            target = schema["$defs"][field["$ref"].rpartition("/")[2]] if "$ref" in field else field
            assert {"description", "const"} & {*field, *target}, f"{title}.{key}"
