"""A YAML file or a mapping → a configuration, or one error that reports every problem of the file together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from ..base.log import logger
from ..base.names import visible
from ..errors import ConfigError
from .describe import explain, shown
from .legacy import foreign_keys, translate
from .schema import Settings
from .source import IN_PYTHON, MAX_DEPTH, KeyPath, Problem, Source, config_error, dotted

S = TypeVar("S", bound=Settings)


def read_config(source: str | os.PathLike[str] | Mapping[str, Any], schema: type[S]) -> S:
    """Return the configuration of a YAML file, or of a mapping with the same keys."""
    if isinstance(source, Mapping):
        skipped = foreign_keys({key for key in source if isinstance(key, str)})
        given = {key: value for key, value in source.items() if key not in skipped}
        return _validate(given, Source(IN_PYTHON), [], schema)
    if isinstance(source, (str, os.PathLike)):
        if isinstance(source, str) and "\n" in source:
            raise ConfigError([f"{IN_PYTHON}: this is YAML text, not a path; allowed: a path, or parse_config(text)"])
        return _from_file(Path(os.fsdecode(source)), schema)
    raise ConfigError([f"{IN_PYTHON}: {shown(source)}; allowed: the path of a YAML file, a mapping, a Config or None"])


def read_text(text: str, where: str, schema: type[S]) -> S:
    """Return the configuration that the YAML text describes; ``where`` names the file in messages."""
    from .yaml_text import read_yaml  # a mapping needs no parser

    return _validate(*read_yaml(text, where, foreign_keys), schema)


def _from_file(path: Path, schema: type[S]) -> S:
    where = visible(str(path))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        byte = f"byte 0x{error.object[error.start]:02x} is not UTF-8; allowed: a file saved as UTF-8"
        raise ConfigError([f"{where}:{line}: {byte}"]) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL character
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise ConfigError([f"{where}: cannot be read: {reason}; allowed: a readable YAML file"]) from None
    return read_text(text, where, schema)


def _validate(given: Mapping[Any, Any], source: Source, problems: list[Problem], schema: type[S]) -> S:
    """Build the configuration; a key with a known problem is not reported a second time."""
    known = {problem.key for problem in problems}
    data, legacy_problems, notes = translate(_plain(given, (), problems, source.where))
    found = [*problems, *legacy_problems]
    sinks = data.get("sinks")
    if isinstance(sinks, dict):  # ``log:`` in YAML is null, and means its defaults
        data = {**data, "sinks": {name: {} if options is None else options for name, options in sinks.items()}}
    try:
        config = schema.model_validate(data, context=source)
    except ValidationError as error:
        found += [problem for problem in explain(error, schema) if problem.key not in known]
    if found:
        raise config_error(source, found)
    for note in notes:
        logger.warning("%s: %s", source.place(note.key), note.text)
    return config


def _plain(value: Any, key: KeyPath, problems: list[Problem], where: str) -> Any:
    """Copy a value into plain dicts and lists, also from the mapping types of configuration libraries."""
    if len(key) > MAX_DEPTH:
        raise ConfigError([f"{where}: {dotted(key[:1])}: nested too deeply; allowed: {MAX_DEPTH} levels"])
    if isinstance(value, (list, tuple)):
        return [_plain(item, (*key, index), problems, where) for index, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    values: dict[str, Any] = {}
    for name, inner in value.items():
        if isinstance(name, str):
            values[name] = _plain(inner, (*key, name), problems, where)
        else:
            problems.append(Problem(key, f"a key here is not text: {shown(name)}; allowed: text"))
    return values
