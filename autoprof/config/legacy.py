"""Keys of earlier configurations → today's keys: the ``LOG:`` block of the first timing logger, and ``compile``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError, field_validator

from .._options import Options
from .problems import explain
from .source import KeyPath, Problem

BLOCK: Final = "LOG"
FOLDER: Final = "SAVE_DIR"
COMPILE: Final = "compile"

_NO_EFFECT: Final = "no effect: code under torch.compile is timed from outside the compiled region; remove the key"

_SINKS: Final = {
    "console": ("TIMING_CONSOLE", "TIMING_CONSOLE_INTERVAL", "every"),
    "log": ("TIMING_FILE", "TIMING_FILE_INTERVAL", "flush_every"),
}
"""For each sink: the old switch, the old interval, and today's name of the interval."""


class LegacyLog(Options):
    """The block `LOG:` of the first timing logger. It configures two sinks: console and log."""

    ENABLE_TIMING_LOG: bool = Field(default=True, strict=True)
    """`false` is `enabled: false`, without sinks."""
    TIMING_CONSOLE: bool = Field(default=True, strict=True)
    """`true` is `sinks.console`."""
    TIMING_FILE: bool = Field(default=True, strict=True)
    """`true` is `sinks.log`."""
    TIMING_CONSOLE_INTERVAL: int = Field(default=10, ge=1, strict=True)
    """`sinks.console.every`."""
    TIMING_FILE_INTERVAL: int = Field(default=50, ge=1, strict=True)
    """`sinks.log.flush_every`."""


class LegacyFile(Options):
    """The top-level keys of earlier configurations."""

    LOG: LegacyLog = LegacyLog()
    """The old block."""
    SAVE_DIR: Path | None = None
    """`output`, unless that key is given. It is read only together with `LOG`."""
    compile: Literal["outside", "inside", "off"] = Field(default="outside", deprecated=True)
    """No effect: code under `torch.compile` is always timed from outside the compiled region."""

    @field_validator("compile", mode="before")
    @classmethod
    def _false_is_off(cls, value: Any) -> Any:
        return "off" if value is False else value  # YAML 1.1 reads a bare `off` as false


def foreign_keys(keys: set[str]) -> set[str]:
    """Return the upper-case keys of other programs, which share the file with ``LOG``; without it there are none."""
    if BLOCK not in keys:
        return set()
    return {key for key in keys if key.isupper()} - {BLOCK, FOLDER}


def translate(data: dict[str, Any]) -> tuple[dict[str, Any], list[Problem], list[Problem]]:
    """Replace earlier keys by today's, which take precedence; return the data, the problems, and notes.

    It is a problem if both keys are written and differ.
    """
    keys = (BLOCK, FOLDER, COMPILE) if BLOCK in data else (COMPILE,)
    if not any(key in data for key in keys):
        return data, [], []
    new = {key: value for key, value in data.items() if key not in keys}
    old = {key: data[key] for key in keys if data.get(key) is not None}
    try:
        file = LegacyFile.model_validate(old)
    except ValidationError as error:
        return new, explain(error, LegacyFile), []
    notes = [Problem((COMPILE,), _NO_EFFECT)] if old.get(COMPILE, "outside") != "outside" else []
    if BLOCK not in data:
        return new, [], notes
    problems = [
        Problem(key, f"{found} disagrees with {BLOCK}.{name}: {shown}; allowed: one of the two keys, or equal values")
        for key, found, name, shown in _conflicts(new, file.LOG)
    ]
    return _merged(new, file), problems, notes


def _merged(new: dict[str, Any], file: LegacyFile) -> dict[str, Any]:
    log = file.LOG
    merged = {"enabled": log.ENABLE_TIMING_LOG, **new}
    if file.SAVE_DIR is not None:
        merged.setdefault("output", str(file.SAVE_DIR))
    if "sinks" not in new:
        asked = {sink: {names[2]: getattr(log, names[1])} for sink, names in _SINKS.items() if getattr(log, names[0])}
        merged["sinks"] = asked if log.ENABLE_TIMING_LOG else {}
    elif isinstance(new["sinks"], dict):
        merged["sinks"] = {sink: _with_interval(sink, options, log) for sink, options in new["sinks"].items()}
    return merged


def _with_interval(sink: str, options: Any, log: LegacyLog) -> Any:
    _, name, option = _SINKS.get(sink, ("", "", ""))
    if name not in log.model_fields_set or not (options is None or isinstance(options, dict)):
        return options
    return {option: getattr(log, name), **(options or {})}


def _conflicts(new: dict[str, Any], log: LegacyLog) -> Iterator[tuple[KeyPath, str, str, str]]:
    """Yield the differences: today's key and its value, the key of the block and its value."""
    given = log.model_fields_set
    if "ENABLE_TIMING_LOG" in given and new.get("enabled", log.ENABLE_TIMING_LOG) is not log.ENABLE_TIMING_LOG:
        yield ("enabled",), _word(new["enabled"]), "ENABLE_TIMING_LOG", _word(log.ENABLE_TIMING_LOG)
    sinks = new.get("sinks")
    if not isinstance(sinks, dict) or not log.ENABLE_TIMING_LOG:
        return
    for sink, (switch, name, option) in _SINKS.items():
        on, interval = getattr(log, switch), getattr(log, name)
        if switch in given and (sink in sinks) is not on:
            presence = "its presence" if sink in sinks else "its absence"
            yield ("sinks", sink), presence, switch, _word(on)
        options = sinks.get(sink)
        written = options.get(option, interval) if isinstance(options, dict) else interval
        if name in given and written != interval:
            yield ("sinks", sink, option), _word(written), name, _word(interval)


def _word(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:60]
