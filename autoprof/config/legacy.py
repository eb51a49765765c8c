"""The ``LOG:`` block of the first timing logger → autoprof's own keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError

from ..base.options import Options
from .describe import explain
from .source import Problem

BLOCK: Final = "LOG"
FOLDER: Final = "SAVE_DIR"


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
    """The top-level keys of such a file."""

    LOG: LegacyLog = LegacyLog()
    """The block."""
    SAVE_DIR: Path | None = None
    """`output`, unless that key is given. It is read only together with `LOG`."""


def foreign_keys(keys: set[str]) -> set[str]:
    """Return the upper-case keys of other programs, which share the file with ``LOG``; without it there are none."""
    if BLOCK not in keys:
        return set()
    return {key for key in keys if key.isupper()} - {BLOCK, FOLDER}


def translate(data: dict[str, Any]) -> tuple[dict[str, Any], list[Problem], list[Problem]]:
    """Replace the block by autoprof's own keys, which take precedence; return the data, the problems, and notes."""
    if BLOCK not in data:
        return data, [], []
    keys = BLOCK, FOLDER
    new = {key: value for key, value in data.items() if key not in keys}
    old = {key: data[key] for key in keys if data.get(key) is not None}
    try:
        file = LegacyFile.model_validate(old)
    except ValidationError as error:
        return new, explain(error, LegacyFile), []
    notes = []
    log = file.LOG
    merged = {"enabled": log.ENABLE_TIMING_LOG, **new}
    if file.SAVE_DIR is not None:
        merged.setdefault("output", str(file.SAVE_DIR))
    if "sinks" in new:
        if log.model_fields_set - {"ENABLE_TIMING_LOG"}:
            notes.append(Problem((BLOCK,), "its TIMING_ keys have no effect beside the key sinks; remove them"))
    elif log.ENABLE_TIMING_LOG:
        console = {"console": {"every": log.TIMING_CONSOLE_INTERVAL}} if log.TIMING_CONSOLE else {}
        merged["sinks"] = console | ({"log": {"flush_every": log.TIMING_FILE_INTERVAL}} if log.TIMING_FILE else {})
    else:
        merged["sinks"] = {}
    return merged, [], notes
