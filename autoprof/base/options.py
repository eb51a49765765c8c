"""The base of every section of the configuration. A part's options lie in the file of the part."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """A section of the configuration: frozen, without unknown keys; the docstring below a field documents it."""

    # Without ``use_attribute_docstrings``: it reads all sources at import, a third of the time to open a session.
    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: Any) -> dict[str, Any]:
        schema: dict[str, Any] = handler(core_schema)
        fields = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in field_docs(cls).items():
            if name in fields:
                fields[name].setdefault("description", text)
        return schema


def field_docs(section: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings below the fields of a class and its bases, by the field's name."""
    from pydantic._internal._docs_extraction import extract_docstrings_from_cls

    docs: dict[str, str] = {}
    for cls in reversed(section.__mro__):
        if issubclass(cls, Options) and cls is not Options:
            with suppress(OSError):  # without its source
                docs |= extract_docstrings_from_cls(cls, use_inspect=True)
    return docs
