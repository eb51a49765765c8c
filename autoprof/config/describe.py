"""Errors of pydantic as messages, and the sections of the configuration by their keys."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator, Mapping
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ..base.names import quoted, visible
from ..errors import nearest
from .source import KeyPath, Problem, dotted

_ALLOWED: Final = {
    "bool_type": "true or false",
    "string_type": "text, in quotes if needed",
    "tuple_type": "a list",
    "model_type": "a mapping with the keys of this section",
}
"""The allowed values of a type that pydantic names as Python does."""


def explain(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Translate the errors of the validation of ``model``."""
    findings = error.errors(include_url=False)
    around = {key[:depth] for key in (finding["loc"] for finding in findings) for depth in range(len(key))}
    own = [finding for finding in findings if finding["loc"] not in around]  # not the list around invalid items
    return [Problem(finding["loc"], _sentence(finding, model)) for finding in own]


def shown(value: Any) -> str:
    """Return a value as written in YAML, with its kind: ``3 is a number``."""
    if value is None:
        return "the value is missing"
    if isinstance(value, bool):
        return f"{str(value).lower()} is a boolean"
    if isinstance(value, (int, float)):
        return f"{_written(value)} is a number"
    if isinstance(value, str):
        return f"{_written(value)} is text" if value else "the text is empty"
    if isinstance(value, (Mapping, BaseModel)):
        return "it is a mapping"
    return "it is a list" if isinstance(value, (list, tuple)) else f"it is a {type(value).__name__}"


def _sentence(finding: Any, model: type[BaseModel]) -> str:
    key, value, kind = finding["loc"], finding["input"], finding["type"]
    if kind == "value_error":
        return visible(str(finding["ctx"]["error"]))
    if kind == "extra_forbidden":
        return _unknown_key(str(key[-1]), model, key[:-1])
    if kind == "missing":
        return "the key is missing; add it"
    if kind == "literal_error" and isinstance(value, str):
        words = re.findall("'([^']+)'", finding["ctx"]["expected"])
        return f"{_written(value)} is unknown; {nearest(value, words)}"
    return f"{shown(value)}; allowed: {_ALLOWED.get(kind) or finding['msg'].removeprefix('Input should be ')}"


def _unknown_key(name: str, model: type[BaseModel], key: KeyPath) -> str:
    """Return the message for a key that the model does not have at ``key``, with similar keys."""
    sections = dict(parts(model))
    elsewhere = [f"{place}.{name}".removeprefix(".") for place, part in sections.items() if name in part.model_fields]
    if elsewhere:
        return "the key is unknown here; did you mean " + " or ".join(map(repr, elsewhere[:3])) + "?"
    here = sections[re.sub(r"\[\d+\]", "[]", dotted(key))]
    return f"the key is unknown; {nearest(name, here.model_fields)}"


def _written(value: str | int | float) -> str:
    if isinstance(value, str):
        return quoted(value)
    return str(value) if isinstance(value, float) or value.bit_length() < 128 else "this number"


def parts(model: type[BaseModel], key: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the model and all models inside it with their dotted keys; an item of a list is ``targets[]``."""
    yield key, model
    for name, field in model.model_fields.items():
        inner, _ = strip_none(field.annotation)
        inside = f"{key}.{name}" if key else name
        if get_origin(inner) is tuple:
            inner, inside = get_args(inner)[0], f"{inside}[]"
        if is_section(inner):
            yield from parts(inner, inside)


def is_section(annotation: Any) -> bool:
    """Return whether the type is a section of the configuration."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def strip_none(annotation: Any) -> tuple[Any, bool]:
    """Split ``X | None`` into ``X`` and whether None is allowed."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    inner = [member for member in get_args(annotation) if member is not type(None)]
    return inner[0], len(inner) < len(get_args(annotation))
