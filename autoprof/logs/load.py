"""``load_logs``: one or several logs of training runs as one table."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AutoprofError, import_extra
from .fields import FIELDS
from .files import drop_duplicates, find_files, name_runs, rank_of
from .formats import read_records
from .formats.tools import read_pattern
from .log_file import LogFile
from .table import build_table

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
    pd = import_extra("pandas", "logs", "autoprof.logs")
    paths = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    where = ", ".join("standard input" if os.fspath(entry) == "-" else os.fspath(entry) for entry in paths)
    files = list(dict.fromkeys(file for entry in paths for file in find_files(entry)))
    if not files:
        raise AutoprofError(f"{where}: contains no file; allowed: a log file, or a folder with log files")
    tables: dict[Path, Any] = {}
    reports, unread, is_damaged = [], [], False
    for file in drop_duplicates(files):
        log = LogFile(file)
        records = read_records(log.lines) if pattern is None else read_pattern(log.lines, pattern)
        if not records.rows:
            unread.append(log.name + (" (damaged)" if log.is_damaged else ""))
            is_damaged = is_damaged or log.is_damaged
            continue
        tables[file] = build_table(records)
        lines = sum(bool(line.strip()) for line in log.lines)
        reports.append(
            {
                "path": log.name,
                "reader": records.reader,
                "lines": lines,
                "records": len(records.rows),
                "rows": len(tables[file]),
                "skipped": max(lines - records.used_lines, 0),
                "notes": records.notes + log.notes,
            }
        )
    if not tables:
        raise AutoprofError(f"{where}: {_no_record(len(unread), pattern, is_damaged=is_damaged)}")
    for file, run in name_runs(list(tables)).items():
        rank = rank_of(file)
        if rank is not None and "rank" not in tables[file]:
            tables[file].insert(0, "rank", rank)
        tables[file].insert(0, "run", run)
    frame = pd.concat(tables.values(), ignore_index=True) if len(tables) > 1 else next(iter(tables.values()))
    frame["run"] = frame["run"].astype("category")
    units = {name: FIELDS[name].unit for name in frame.columns if name in FIELDS and FIELDS[name].unit}
    units |= {name: "%" for name in frame.columns if str(name).startswith("gpu_util_")}
    frame.attrs = {"units": units, "files": reports, "unread": unread}
    return frame


def _no_record(count: int, pattern: str | None, *, is_damaged: bool) -> str:
    """Return why no file has a record."""
    if is_damaged:
        return "the compressed data are cut or damaged, so that no value is certain; allowed: an undamaged copy"
    if pattern is not None:
        return f"no line matches the pattern {pattern!r}; allowed: a regular expression that matches your lines"
    where = "" if count == 1 else f" in any of {count} files"
    return (
        f"no training record found{where}; allowed: lines with a step and a loss, throughput, time, … (docs/logs.md "
        r"lists the formats), or a pattern for your own, such as --pattern 'step (?P<step>\d+) .* loss (?P<loss>\S+)'"
    )
