"""Check the values that were read from a file against the annotated types of their dataclass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from math import isfinite
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Literal, Union, get_args, get_origin, get_type_hints

MAX_NUMBER: Final = 2**63
"""Integers are below it, as those that a run writes."""


def check_types(value: Any, where: str = "") -> None:
    """Raise ``TypeError`` for the first field of a dataclass, or of one below it, whose value has another type."""
    for name, hint in _hints(type(value)).items():
        _check(getattr(value, name), hint, f"{where}.{name}" if where else name)


def _check(value: Any, hint: Any, where: str) -> None:
    if hint is Any:
        return
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        options = get_args(hint)
        if value is None and NoneType in options:
            return
        _check(value, next(option for option in options if option is not NoneType), where)
    elif origin is Literal:
        _require(value in get_args(hint), value, hint, where)
    elif hint is int:
        _require(type(value) is int and abs(value) < MAX_NUMBER, value, hint, where)
    elif hint is float:
        _require(type(value) in (int, float) and isfinite(value), value, hint, where)
    elif origin is not None:
        _check_parts(value, origin, get_args(hint), where)
    elif isinstance(hint, type):
        _require(isinstance(value, hint), value, hint, where)
        if is_dataclass(hint) or hasattr(hint, "_fields"):
            check_types(value, where)


def _check_parts(value: Any, origin: Any, parts: tuple[Any, ...], where: str) -> None:
    if isinstance(origin, type) and issubclass(origin, Mapping):
        _require(isinstance(value, Mapping), value, origin, where)
        for key, entry in value.items():
            _check(key, parts[0], where)
            _check(entry, parts[1], f"{where}[{key!r:.40}]")
        return
    _require(isinstance(value, Sequence) and not isinstance(value, str), value, origin, where)
    fixed = bool(parts) and origin is tuple and parts[-1] is not ...
    _require(not fixed or len(value) == len(parts), value, origin, where)
    for at, entry in enumerate(value):
        if parts:
            _check(entry, parts[at] if fixed else parts[0], f"{where}[{at}]")


def _require(fits: bool, value: Any, hint: Any, where: str) -> None:
    if not fits:
        raise TypeError(f"{where}: {value!r:.40} is not {getattr(hint, '__name__', hint)}")


_HINTS: Final[dict[type, Mapping[str, Any]]] = {}


def _hints(cls: type) -> Mapping[str, Any]:
    found = _HINTS.get(cls)
    if found is None:
        found = {name: hint for name, hint in get_type_hints(cls).items() if get_origin(hint) is not ClassVar}
        _HINTS[cls] = found
    return found
