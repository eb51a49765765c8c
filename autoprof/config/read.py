"""A YAML file or a mapping → ``Config``, or one error that reports every problem of the file together."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from .._names import visible
from ..errors import ConfigError, nearest
from .legacy import foreign_keys, translate
from .mappings import read_mapping
from .problems import explain, shown
from .schema import Config
from .source import IN_PYTHON, Problem, Source, config_error
from .yaml_text import read_yaml

logger = logging.getLogger("autoprof")

SIZE_LIMIT: Final = 1_000_000
"""The largest accepted file in bytes; larger files are not configurations."""


def read_config(source: str | os.PathLike[str] | Mapping[str, Any]) -> Config:
    """Return the configuration of a YAML file, or of a mapping with the same keys."""
    if isinstance(source, Mapping):
        return _validate(*read_mapping(source, IN_PYTHON, foreign_keys))
    if isinstance(source, (str, os.PathLike)):
        if isinstance(source, str) and "\n" in source:
            raise ConfigError([f"{IN_PYTHON}: this is YAML text, not a path; allowed: a path, or parse_config(text)"])
        return _from_file(Path(os.fsdecode(source)))
    raise ConfigError([f"{IN_PYTHON}: {shown(source)}; allowed: the path of a YAML file, a mapping, a Config or None"])


def read_text(text: str, where: str) -> Config:
    """Return the configuration that the YAML text describes."""
    return _validate(*read_yaml(text, where, foreign_keys))


def _from_file(path: Path) -> Config:
    where = visible(str(path))
    try:
        with path.open("rb") as file:
            raw = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        raise ConfigError([f"{where}: there is no such file{_neighbours(path)}"]) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL character
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise ConfigError([f"{where}: cannot be read: {reason}; allowed: a readable YAML file"]) from None
    if len(raw) > SIZE_LIMIT:
        raise ConfigError([f"{where}: larger than {SIZE_LIMIT:,} bytes; allowed: a YAML file of ordinary size"])
    return read_text(_decode(raw, where), where)


def _decode(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        position = f"{where}:{line}: byte {error.start} (0x{raw[error.start]:02x})"
        raise ConfigError([f"{position} is not UTF-8; allowed: a file saved as UTF-8"]) from None


def _neighbours(path: Path) -> str:
    """Return the folder of a missing file, and the nearest name among its YAML files."""
    folder = path.absolute().parent
    try:
        names = [entry.name for entry in folder.iterdir() if entry.suffix in (".yaml", ".yml")]
    except OSError:
        return f", nor the folder {visible(str(folder))}"
    there = f" in {visible(str(folder))}"
    return f"{there}; {visible(nearest(path.name, names))}" if names else f"{there}, nor any YAML file"


def _validate(data: dict[str, Any], source: Source, problems: list[Problem]) -> Config:
    """Build the ``Config``; a key with a known problem is not reported a second time."""
    current, legacy_problems, notes = translate(data)
    found = [*problems, *legacy_problems]
    try:
        config = Config.model_validate(_with_named_sinks(current), context=source)
    except ValidationError as error:
        known = {problem.key for problem in problems}
        found += [problem for problem in explain(error, Config) if problem.key not in known]
    if found:
        raise config_error(source, found)
    for note in notes:
        logger.warning("%s: %s", source.place(note.key), note.text)
    return config


def _with_named_sinks(data: dict[str, Any]) -> dict[str, Any]:
    """Enable sinks without a value: ``log:`` in YAML is null, which means off in ``Sinks``."""
    sinks = data.get("sinks")
    if not isinstance(sinks, dict):
        return data
    return {**data, "sinks": {name: {} if options is None else options for name, options in sinks.items()}}
