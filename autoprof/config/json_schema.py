"""The JSON Schema of a configuration file, with which editors complete the YAML."""

from __future__ import annotations

from typing import Any

from .legacy import BLOCK, FOLDER, LegacyFile
from .schema import Settings


def json_schema(schema: type[Settings]) -> dict[str, Any]:
    """Return the JSON Schema, the old ``LOG:`` block and a project's own keys included."""
    new, old = schema.model_json_schema(), LegacyFile.model_json_schema()
    new["$defs"] |= old["$defs"]
    new["properties"] |= {key: old["properties"][key] for key in (BLOCK, FOLDER)}
    new["patternProperties"] = {"^[A-Z][A-Z0-9_]*$": {}}  # JSON Schema cannot express that they need LOG
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **new, "title": "autoprof configuration"}
