"""The tables of docs/configuration.md, from the pydantic models of a configuration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from methods_table import ROOT, filled, markdown
from pydantic import BaseModel

from fa_audit.experiments import config

DOCUMENT = ROOT / "docs/configuration.md"
TABLES = {
    "top": config.Configuration,
    "settings": config.SettingEntry,
    "sweep": config.Sweep,
    "models": config.ModelEntry,
    "figures": config.Artefact,
    "monitor": config.Monitor,
}
TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "true or false"}
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def table(model: type[BaseModel]) -> str:
    """Return a Markdown table of a model's keys: type, meaning and default."""
    schema = model.model_json_schema()
    rows = []
    for key, field in model.model_fields.items():
        default = "required" if field.is_required() else ""
        if isinstance(field.default, int | float | str) and field.default != "":
            default = f"`{field.default}`"
        kind = _type(schema["properties"][key])
        rows.append([f"`{key}`", kind, str(field.description), default])
    return markdown(["key", "type", "meaning", "default"], rows)


def _type(node: dict[str, Any]) -> str:
    """Return the type of a value in words, with its range."""
    if "enum" in node:
        return "; ".join(f"`{value}`" for value in node["enum"])
    if "anyOf" in node:
        return " or ".join(_type(part) for part in node["anyOf"] if part.get("type") != "null")
    if node.get("type") == "array":
        return f"list of {_type(node['items'])}"
    kind = TYPES.get(node.get("type", "object"), "mapping")
    bounds = [f"{sign} {node[name]}" for name, sign in BOUNDS.items() if name in node]
    return f"{kind} {', '.join(bounds)}".rstrip()


def made() -> Iterator[tuple[Path, str]]:
    """Yield the path of docs/configuration.md and its text with new tables."""
    tables = {name: table(model) for name, model in TABLES.items()}
    yield DOCUMENT, filled(DOCUMENT.read_text(encoding="utf-8"), tables, DOCUMENT)
