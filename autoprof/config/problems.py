"""Errors of pydantic → messages: the problem with this value; the allowed values, or the nearest one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from .._names import quoted, visible
from ..errors import nearest
from .describe import allowed, choices, keys_named, locate, strip_none
from .source import MAX_PROBLEMS, KeyPath, Problem

_LONG_BITS: Final = 128  # Python refuses to write out numbers of thousands of digits
_OUT_OF_RANGE: Final = frozenset(
    {
        "greater_than",
        "greater_than_equal",
        "less_than",
        "less_than_equal",
        "finite_number",
        "too_short",
        "string_too_short",
    }
)


def explain(error: ValidationError, model: type[BaseModel]) -> list[Problem]:
    """Translate the errors of the validation of ``model``: all, or more than are reported."""
    findings = error.errors(include_url=False)
    around = {key[:depth] for key in (finding["loc"] for finding in findings) for depth in range(len(key))}
    own = [finding for finding in findings if finding["loc"] not in around]  # not the list around invalid items
    return [Problem(finding["loc"], _sentence(finding, model)) for finding in own[: MAX_PROBLEMS + 1]]


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


def unknown_key(name: str, model: type[BaseModel], key: KeyPath) -> str:
    """Return the message for a key that the model does not have at ``key``, with similar keys."""
    part, _ = strip_none(locate(model, key)[0])
    elsewhere = keys_named(model, name)[:3]
    if elsewhere:
        return "the key is unknown here; did you mean " + " or ".join(map(repr, elsewhere)) + "?"
    return f"the key is unknown; {nearest(name, part.model_fields)}"


def _sentence(finding: Any, model: type[BaseModel]) -> str:
    key, value, kind = finding["loc"], finding["input"], finding["type"]
    if kind == "value_error":
        return visible(str(finding["ctx"]["error"]))
    if kind == "extra_forbidden":
        return unknown_key(str(key[-1]), model, key[:-1])
    annotation, metadata = locate(model, key)
    fits = allowed(annotation, metadata)
    if kind == "missing":
        return f"the key is missing; allowed: {fits}"
    words = choices(strip_none(annotation)[0])
    if words and isinstance(value, str):
        return f"{_written(value)} is unknown; {nearest(value, words)}"
    if kind in _OUT_OF_RANGE and isinstance(value, (int, float)):
        return f"{_written(value)} is out of range; allowed: {fits}"
    if kind in _OUT_OF_RANGE:
        return f"it is empty; allowed: {fits}"
    return f"{shown(value)}; allowed: {fits}"


def _written(value: str | int | float) -> str:
    if isinstance(value, str):
        return quoted(value)
    return str(value) if isinstance(value, float) or value.bit_length() < _LONG_BITS else "this number"
