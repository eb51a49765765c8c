"""``load_logs``: one or several logs of training runs as one table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import AutoprofError, nearest
from .extras import import_pandas
from .fields import FIELDS
from .files import drop_duplicates, find_files, name_runs, rank_of
from .formats import LogFormat, PatternFormat, detect_format, formats_by_name
from .inputs import PipeCopies, shown_name
from .log_file import LogFile
from .table import LogTable

if TYPE_CHECKING:
    import pandas as pd
    from rich.progress import Progress

_MIN_BYTES_FOR_BAR: Final = 16 << 20
"""Smaller files are read within a second."""

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class NoRecordError(AutoprofError):
    """No file of the paths has a record."""


def load_logs(
    path: Paths, *, pattern: str | None = None, reader: str | None = None, progress: bool | None = None
) -> pd.DataFrame:
    """Read logs into one table: a row per step and rank, each known column under one name and unit.

    Args:
        path: a file, a folder, a pattern with ``*``, ``-`` for standard input, or several of them.
        pattern: a regular expression whose named groups become columns, for a format of your own.
        reader: the name of the log format (docs/logs.md). By default it is detected from the content of the file.
        progress: whether to show a progress bar; None: for large files, on a terminal.

    Returns:
        A DataFrame whose ``attrs`` hold ``units`` by column, ``files`` (per file: lines, records, skipped lines, notes
        about assumptions) and ``unread`` (files without a record).

    Raises:
        AutoprofError: no file, or no record in any file.
        MissingExtra: pandas is not installed.
    """
    with PipeCopies() as pipes:
        return read_logs(path, pipes, pattern=pattern, reader=reader, progress=progress)


def read_logs(
    path: Paths,
    pipes: PipeCopies,
    *,
    pattern: str | None = None,
    reader: str | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Read logs as ``load_logs``, and pipes from their copies."""
    pd = import_pandas()
    paths = list_paths(path)
    chosen = _choose_format(pattern, reader)
    files = [file for entry in paths for file in find_files(entry)]
    where = ", ".join(shown_name(Path(entry)) for entry in paths)
    if not files:
        raise NoRecordError(f"{where}: contains no file; allowed: a log file, or a folder with log files")
    files = drop_duplicates(list({file.resolve(): file for file in reversed(files)}.values())[::-1])
    reports: list[dict[str, Any]] = []
    with _progress_bar(files, progress) as on_progress:
        logs = [_open_log(file, pipes, on_progress) for file in files]
        tables = {}
        for log in logs:
            log_format = (chosen or detect_format(log)) if log.is_text() else None
            table = None if log_format is None else _read_file(log, log_format, reports)
            if table is not None:
                tables[log.path] = table
    unread = [_unread_name(log) for log in logs if log.path not in tables]
    if not tables:
        broken = next((log for log in logs if log.is_damaged or log.is_truncated), None)
        raise NoRecordError(f"{where}: {_no_record(len(unread), pattern) if broken is None else _unreadable(broken)}")
    runs = name_runs(list(tables))
    labelled = [_label(table, file, runs[file]) for file, table in tables.items()]
    frame = pd.concat(labelled, ignore_index=True) if len(labelled) > 1 else labelled[0]
    frame["run"] = frame["run"].astype("category")
    units = {name: FIELDS[name].unit for name in frame.columns if name in FIELDS and FIELDS[name].unit}
    units |= {name: "%" for name in frame.columns if str(name).startswith("gpu_util_")}
    frame.attrs = {"units": units, "files": reports, "unread": unread}
    return frame


def list_paths(path: Paths) -> list[str | os.PathLike[str]]:
    """Return one or several paths as a list."""
    return [path] if isinstance(path, (str, os.PathLike)) else list(path)


def _choose_format(pattern: str | None, reader: str | None) -> LogFormat | None:
    if pattern is not None:
        return PatternFormat(record=pattern)
    if reader is None:
        return None
    formats = formats_by_name()
    if reader not in formats:
        raise AutoprofError(f"reader: {reader!r} is not a log format; {nearest(reader, formats)}")
    return formats[reader]


def _open_log(file: Path, pipes: PipeCopies, on_progress: Callable[[int], None]) -> LogFile:
    source = pipes.source_of(file)
    return LogFile(file, on_progress, None if source == file else source)


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
            "path": shown_name(log_file.path),
            "reader": raw.format_name,
            "lines": raw.lines,
            "records": table.records,
            "rows": len(table.frame),
            "skipped": raw.skipped,
            "repeated": table.repeated,
            "out_of_order": table.out_of_order,
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


def _unread_name(log_file: LogFile) -> str:
    return shown_name(log_file.path) + (" (damaged)" if log_file.is_damaged else "")


def _unreadable(log_file: LogFile) -> str:
    """Return why a compressed file has no record."""
    if log_file.is_damaged:
        return "the compressed data are damaged, so that no value is certain; allowed: an undamaged copy"
    return "the compressed file ends before its first record can be read; allowed: a complete file"


def _no_record(files: int, pattern: str | None) -> str:
    if pattern is not None:
        return f"no line matches the pattern {pattern!r}; allowed: a regular expression that matches your lines"
    where = "" if files == 1 else f" in any of {files} files"
    return (
        f"no training record found{where}; allowed: lines with a step and a loss, throughput, time, … (docs/logs.md "
        r"lists the formats), a pattern for your own, such as --pattern 'step (?P<step>\d+) .* loss (?P<loss>\S+)', or "
        "--reader numbers for numbers without a step"
    )


@contextmanager
def _progress_bar(files: Sequence[Path], wanted: bool | None) -> Iterator[Callable[[int], None]]:
    """Show the bytes read so far; yield the function that advances the bar."""
    total = sum(file.stat().st_size for file in files if file.exists())
    if wanted is None:
        wanted = total >= _MIN_BYTES_FOR_BAR and sys.stderr.isatty()
    if not wanted:
        yield lambda _bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    bar: Progress = Progress(
        TextColumn("reading logs"), BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn(),
        console=Console(stderr=True), transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task("reading", total=total)
        yield lambda count: bar.advance(task, count)
