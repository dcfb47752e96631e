"""schemas/ say what is expected of every field; that they are fresh is tested by
tests/test_documents.py.
"""

import runpy

import pytest
from projects import ROOT

TOOL = ROOT / "tools/schemas.py"


@pytest.mark.parametrize("name", ["config", "published", "audit", "sidecar"])
def test_every_field_says_what_is_expected(name, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    schema = runpy.run_path(str(TOOL))["FILES"][name].model_json_schema()
    for title, node in {"": schema, **schema["$defs"]}.items():
        for key, field in node.get("properties", {}).items():
            target = schema["$defs"][field["$ref"].rpartition("/")[2]] if "$ref" in field else field
            assert {"description", "const"} & {*field, *target}, f"{title}.{key}"
