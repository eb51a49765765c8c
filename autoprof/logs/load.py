"""``load_logs``: one or several logs of training runs as one table."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AutoprofError
from .extras import import_pandas
from .fields import FIELDS
from .files import drop_duplicates, find_files, name_runs, rank_of
from .formats import LogFormat, detect_format, make_pattern_format
from .log_file import LogFile
from .table import LogTable

if TYPE_CHECKING:
    import pandas as pd

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


def load_logs(path: Paths, *, pattern: str | None = None) -> pd.DataFrame:
    """Read logs into one table: a row per step and rank, each known column under one name and unit.

    Args:
        path: a file, a folder, a pattern with ``*``, ``-`` for standard input, or several of them.
        pattern: a regular expression whose named groups become columns, for a format of your own.

    Returns:
        A DataFrame whose ``attrs`` hold ``units`` by column, ``files`` (per file: lines, records, skipped lines, notes
        about assumptions) and ``unread`` (files without a record).

    Raises:
        AutoprofError: no file, or no record in any file.
        MissingExtra: pandas is not installed.
    """
    pd = import_pandas()
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    chosen = None if pattern is None else make_pattern_format(pattern)
    where = ", ".join(LogFile(Path(entry)).name for entry in paths)
    files = list(dict.fromkeys(file for entry in paths for file in find_files(entry)))
    if not files:
        raise AutoprofError(f"{where}: contains no file; allowed: a log file, or a folder with log files")
    logs = [LogFile(file) for file in drop_duplicates(files)]
    reports: list[dict[str, Any]] = []
    tables = {}
    for log in logs:
        log_format = (chosen or detect_format(log)) if log.is_text() else None
        table = None if log_format is None else _read_file(log, log_format, reports)
        if table is not None:
            tables[log.path] = table
    unread = [log.name + (" (damaged)" if log.is_damaged else "") for log in logs if log.path not in tables]
    if not tables:
        raise AutoprofError(f"{where}: {_no_record(logs, pattern)}")
    runs = name_runs(list(tables))
    labelled = [_label(table, file, runs[file]) for file, table in tables.items()]
    frame = pd.concat(labelled, ignore_index=True) if len(labelled) > 1 else labelled[0]
    frame["run"] = frame["run"].astype("category")
    units = {name: FIELDS[name].unit for name in frame.columns if name in FIELDS and FIELDS[name].unit}
    units |= {name: "%" for name in frame.columns if str(name).startswith("gpu_util_")}
    frame.attrs = {"units": units, "files": reports, "unread": unread}
    return frame


def _read_file(log_file: LogFile, log_format: LogFormat, reports: list[dict[str, Any]]) -> pd.DataFrame | None:
    """Return the table of one file and append a report; None if the file has no record."""
    raw = log_format.read(log_file)
    if log_file.is_damaged:
        return None
    table = LogTable(raw)
    if not len(table.frame):
        return None
    notes = list(table.notes)
    if log_file.is_truncated:
        notes.append("the compressed file ends in the middle: read up to there")
    if log_file.non_utf8_lines:
        notes.append(f"lines that are not UTF-8, read as GB 18030 or Latin-1: {log_file.non_utf8_lines}")
    reports.append(
        {
            "path": log_file.name,
            "reader": raw.format_name,
            "lines": raw.lines,
            "records": table.records,
            "rows": len(table.frame),
            "skipped": max(raw.lines - raw.used_lines, 0),
            "notes": notes,
        }
    )
    return table.frame


def _label(frame: pd.DataFrame, file: Path, run: str) -> pd.DataFrame:
    """Insert the columns ``run`` and, from the folder's name, ``rank``."""
    rank = rank_of(file)
    if rank is not None and "rank" not in frame:
        frame.insert(0, "rank", rank)
    frame.insert(0, "run", run)
    return frame


def _no_record(logs: list[LogFile], pattern: str | None) -> str:
    """Return why no file has a record."""
    if any(log.is_damaged for log in logs):
        return "the compressed data are damaged, so that no value is certain; allowed: an undamaged copy"
    if any(log.is_truncated for log in logs):
        return "the compressed file ends before its first record can be read; allowed: a complete file"
    if pattern is not None:
        return f"no line matches the pattern {pattern!r}; allowed: a regular expression that matches your lines"
    where = "" if len(logs) == 1 else f" in any of {len(logs)} files"
    return (
        f"no training record found{where}; allowed: lines with a step and a loss, throughput, time, … (docs/logs.md "
        r"lists the formats), or a pattern for your own, such as --pattern 'step (?P<step>\d+) .* loss (?P<loss>\S+)'"
    )
