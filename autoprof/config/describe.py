"""The schema in words: the allowed values of a key, and errors of pydantic as messages."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel, ValidationError

from .._core.names import quoted, visible
from ..errors import nearest
from .removed import replacement
from .source import MAX_PROBLEMS, KeyPath, Problem, dotted

_PLAIN: Final = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text, in quotes if needed",
    Path: "a path",
}
_OUT_OF_RANGE: Final = frozenset(
    {"greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number"}
    | {"too_short", "string_too_short"}
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


def allowed(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """Describe the values of a type with these constraints: ``a whole number, at least 1, or null``."""
    inner, optional = _strip_none(annotation)
    return _kind(inner, metadata) + _bounds(metadata) + (", or null" if optional else "")


def _sentence(finding: Any, model: type[BaseModel]) -> str:
    key, value, kind = finding["loc"], finding["input"], finding["type"]
    if kind == "value_error":
        return visible(str(finding["ctx"]["error"]))
    if kind == "extra_forbidden":
        return replacement(key) or _unknown_key(str(key[-1]), model, key[:-1])
    annotation, metadata = _locate(model, key)
    fits = allowed(annotation, metadata)
    if kind == "missing":
        return f"the key is missing; allowed: {fits}"
    words = _choices(_strip_none(annotation)[0])
    if words and isinstance(value, str):
        return replacement(key, value) or f"{_written(value)} is unknown; {nearest(value, words)}"
    if kind in _OUT_OF_RANGE and isinstance(value, (int, float)):
        return f"{_written(value)} is out of range; allowed: {fits}"
    if kind in _OUT_OF_RANGE:
        return f"it is empty; allowed: {fits}"
    return f"{shown(value)}; allowed: {fits}"


def _unknown_key(name: str, model: type[BaseModel], key: KeyPath) -> str:
    """Return the message for a key that the model does not have at ``key``, with similar keys."""
    elsewhere = [
        dotted((place, name) if place else (name,)) for place, part in parts(model) if name in part.model_fields
    ]
    if elsewhere:
        return "the key is unknown here; did you mean " + " or ".join(map(repr, elsewhere[:3])) + "?"
    part, _ = _strip_none(_locate(model, key)[0])
    return f"the key is unknown; {nearest(name, part.model_fields)}"


def _written(value: str | int | float) -> str:
    if isinstance(value, str):
        return quoted(value)
    return str(value) if isinstance(value, float) or value.bit_length() < 128 else "this number"


def _choices(annotation: Any) -> list[str]:
    """Return the words of a ``Literal``, and an empty list for any other type."""
    return [str(word) for word in get_args(annotation)] if get_origin(annotation) is Literal else []


def _locate(model: type[BaseModel], key: KeyPath) -> tuple[Any, Sequence[Any]]:
    """Return the type and the constraints of the model at a key."""
    annotation: Any = model
    metadata: Sequence[Any] = ()
    for part in key:
        inner, _ = _strip_none(annotation)
        if isinstance(part, int):
            annotation, metadata = _bare(get_args(inner)[0])
        else:
            annotation, metadata = inner.model_fields[part].annotation, inner.model_fields[part].metadata
    return annotation, metadata


def parts(model: type[BaseModel], key: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the model and all models inside it with their dotted keys; an item of a list is ``targets[]``."""
    yield key, model
    for name, field in model.model_fields.items():
        inner, _ = _strip_none(field.annotation)
        inside = f"{key}.{name}" if key else name
        if get_origin(inner) is tuple:
            inner, inside = get_args(inner)[0], f"{inside}[]"
        if _is_model(inner):
            yield from parts(inner, inside)


def _is_model(annotation: Any) -> bool:
    """Return whether the type is a section of the configuration."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _strip_none(annotation: Any) -> tuple[Any, bool]:
    """Split ``X | None`` into ``X`` and whether None is allowed."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    inner = [member for member in get_args(annotation) if member is not type(None)]
    return inner[0], len(inner) < len(get_args(annotation))


def _kind(annotation: Any, metadata: Sequence[Any]) -> str:
    if words := _choices(annotation):
        return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
    if get_origin(annotation) is tuple:
        item = get_args(annotation)[0]
        some = "one or more of " if any(isinstance(bound, MinLen) for bound in metadata) else ""
        kind = f"mappings with the keys {_keys(item)}" if _is_model(item) else allowed(*_bare(item))
        return f"a list of {some}{kind}"
    return f"a mapping with the keys {_keys(annotation)}" if _is_model(annotation) else _PLAIN[annotation]


def _bare(annotation: Any) -> tuple[Any, Sequence[Any]]:
    """Split ``Annotated`` into the type and its constraints."""
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        return inner, metadata
    return annotation, ()


def _keys(model: type[BaseModel]) -> str:
    return ", ".join(model.model_fields)


def _bounds(metadata: Sequence[Any]) -> str:
    words = ""
    for bound in metadata:
        if isinstance(bound, Ge):
            words += f", at least {bound.ge}"
        elif isinstance(bound, Gt):
            words += f", above {bound.gt}"
        elif isinstance(bound, Lt):
            words += f", below {bound.lt}"
        elif isinstance(bound, Le):
            words += f", at most {bound.le}"
    return words
