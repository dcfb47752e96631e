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


@pytest.mark.parametrize("name", ["config", "published", "audit", "sidecar"])
def test_every_field_says_what_is_expected(name):
    schema = runpy.run_path(str(TOOL))["FILES"][name].model_json_schema()
    for title, node in {"": schema, **schema["$defs"]}.items():
        for key, field in node.get("properties", {}).items():
            target = schema["$defs"][field["$ref"].rpartition("/")[2]] if "$ref" in field else field
            assert {"description", "const"} & {*field, *target}, f"{title}.{key}"
