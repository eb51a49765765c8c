"""The base of every section of the configuration. A part's options lie in the file of the part."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
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
    docs: dict[str, str] = {}
    for cls in reversed(section.__mro__):
        if issubclass(cls, Options) and cls is not Options:
            docs |= _own_field_docs(cls)
    return docs


def _own_field_docs(cls: type) -> dict[str, str]:
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError, SyntaxError):  # made by a function, or without its source
        return {}
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in pairwise(getattr(body, "body", ()))
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
