"""Descriptions of the schema: the allowed values of a key, for messages and for the reference page."""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel

from .source import KeyPath, dotted

_PLAIN: Final = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text, in quotes if needed",
    Path: "a path",
}


def allowed(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """Describe the values of a type with these constraints: ``a whole number, at least 1, or null``."""
    inner, optional = strip_none(annotation)
    return _kind(inner, metadata) + _bounds(metadata) + (", or null" if optional else "")


def choices(annotation: Any) -> list[str]:
    """Return the words of a ``Literal``, and an empty list for any other type."""
    return [str(word) for word in get_args(annotation)] if get_origin(annotation) is Literal else []


def locate(model: type[BaseModel], key: KeyPath) -> tuple[Any, Sequence[Any]]:
    """Return the type and the constraints of the model at a key."""
    annotation: Any = model
    metadata: Sequence[Any] = ()
    for part in key:
        inner, _ = strip_none(annotation)
        if isinstance(part, int):
            annotation, metadata = _bare(get_args(inner)[0])
        else:
            annotation, metadata = inner.model_fields[part].annotation, inner.model_fields[part].metadata
    return annotation, metadata


def parts(model: type[BaseModel], key: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the model and all models inside it with their dotted keys; an item of a list is ``targets[]``."""
    yield key, model
    for name, field in model.model_fields.items():
        inner, _ = strip_none(field.annotation)
        inside = f"{key}.{name}" if key else name
        if get_origin(inner) is tuple:
            inner, inside = get_args(inner)[0], f"{inside}[]"
        if is_model(inner):
            yield from parts(inner, inside)


def keys_named(model: type[BaseModel], name: str) -> list[str]:
    """Return all dotted keys of the model that end with ``name``."""
    return [dotted((key, name) if key else (name,)) for key, part in parts(model) if name in part.model_fields]


def is_model(annotation: Any) -> bool:
    """Return whether the type is a section of the configuration."""
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def strip_none(annotation: Any) -> tuple[Any, bool]:
    """Split ``X | None`` into ``X`` and whether None is allowed."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return annotation, False
    inner = [member for member in get_args(annotation) if member is not type(None)]
    return inner[0], len(inner) < len(get_args(annotation))


def _kind(annotation: Any, metadata: Sequence[Any]) -> str:
    if words := choices(annotation):
        return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
    if get_origin(annotation) is tuple:
        item = get_args(annotation)[0]
        some = "one or more of " if any(isinstance(bound, MinLen) for bound in metadata) else ""
        kind = f"mappings with the keys {_keys(item)}" if is_model(item) else allowed(*_bare(item))
        return f"a list of {some}{kind}"
    return f"a mapping with the keys {_keys(annotation)}" if is_model(annotation) else _PLAIN[annotation]


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
