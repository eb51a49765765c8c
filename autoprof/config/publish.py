"""The schema for others: a JSON Schema that completes the YAML in editors, and the reference page of every key."""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from .._options import field_docs
from .describe import allowed, parts
from .legacy import BLOCK, COMPILE, FOLDER, LegacyFile, LegacyLog
from .schema import Config

BEGIN: Final = "<!-- begin: written by python -m autoprof.config --refresh -->"
END: Final = "<!-- end -->"

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a configuration file, the old ``LOG:`` block and a project's own keys included."""
    schema = Config.model_json_schema()
    old = LegacyFile.model_json_schema()
    schema["$defs"] |= old["$defs"]
    schema["properties"] |= {key: old["properties"][key] for key in (BLOCK, FOLDER, COMPILE)}
    schema["patternProperties"] = {
        "^[A-Z][A-Z0-9_]*$": {}
    }  # read only with LOG, which the JSON Schema does not express
    return {"$schema": _DIALECT, **schema, "title": "autoprof configuration"}


def schema_text() -> str:
    """Return the JSON Schema as the text of its file."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def reference_markdown() -> str:
    """Return a table for each part of the configuration, from the docstrings of the schema."""
    return "\n".join([_table(key, part) for key, part in parts(Config)] + [_table(BLOCK, LegacyLog)])


def with_reference(page: str) -> str:
    """Return the page with the tables between its two marks brought up to date."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{reference_markdown()}\n{END}{after}"


def _table(key: str, part: type[BaseModel]) -> str:
    heading = f"### `{key}`" if key else "### Top level"
    about = " ".join((part.__doc__ or "").split())
    docs = field_docs(part)
    rows = [_row(name, field, field.description or docs.get(name, "")) for name, field in part.model_fields.items()]
    return "\n".join([heading, "", about, "", "| key | allowed | default | meaning |", "|---|---|---|---|", *rows, ""])


def _row(name: str, field: FieldInfo, description: str) -> str:
    meaning = " ".join(description.split()).replace("|", "\\|")
    return f"| `{name}` | {allowed(field.annotation, field.metadata)} | {_default(field)} | {meaning} |"


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    if value is None:
        return "not set"
    if isinstance(value, BaseModel):
        return "see its table"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
