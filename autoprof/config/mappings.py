"""A mapping given in Python → plain dicts and lists, also from the mapping types of configuration libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ConfigError
from .problems import shown
from .source import KeyPath, Problem, Source, dotted
from .yaml_text import DEPTH_LIMIT


def read_mapping(
    given: Mapping[Any, Any], where: str, foreign: Callable[[set[str]], set[str]]
) -> tuple[dict[str, Any], Source, list[Problem]]:
    """Copy the mapping in the form of ``read_yaml``; a list that contains itself is an error."""
    skipped = foreign({key for key in given if isinstance(key, str)})
    problems: list[Problem] = []
    data = _mapping({key: value for key, value in given.items() if key not in skipped}, (), problems, where)
    return data, Source(where), problems


def _value(value: Any, key: KeyPath, problems: list[Problem], where: str) -> Any:
    if len(key) > DEPTH_LIMIT:
        raise ConfigError([f"{where}: {dotted(key[:1])}: nested too deeply; allowed: {DEPTH_LIMIT} levels"])
    if isinstance(value, Mapping):
        return _mapping(value, key, problems, where)
    if isinstance(value, (list, tuple)):
        return [_value(item, (*key, index), problems, where) for index, item in enumerate(value)]
    return value


def _mapping(given: Mapping[Any, Any], key: KeyPath, problems: list[Problem], where: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key_given, value in given.items():
        name = "on" if key_given is True else key_given  # YAML 1.1 reads a bare `on` as true
        if isinstance(name, str):
            values[name] = _value(value, (*key, name), problems, where)
        else:
            problems.append(Problem(key, f"a key here is not text: {shown(name)}; allowed: text"))
    return values
