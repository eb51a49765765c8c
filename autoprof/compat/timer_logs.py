"""The logs of ``global_timer``: a table of all ranks, a timeline, and the slow rank."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .._core.units import NS_PER_MS
from .._reports.figures import save_figure
from ..errors import OutputError
from ..logs.extras import import_pandas
from ..logs.formats.global_timer import COPIES_NOTE, TimerRecord, TimerRecords, ranks_of_copies
from ..logs.log_file import LogFile
from ._timeline import timeline_figure
from .stragglers import NameByRank, by_rank

if TYPE_CHECKING:
    import pandas as pd


TimerLogSource = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

__all__ = [
    "TimerLogs",
    "TimerRecord",
    "load_timer_logs",
    "plot_timeline",
    "read_timer_logs",
    "stragglers",
]  # fmt: skip

logger = logging.getLogger("autoprof")


class TimerLogs(NamedTuple):
    """The intervals of one or several logs, and counts of everything else in them."""

    intervals: Sequence[TimerRecord]
    """In the order of rank, start and descending end."""
    skipped: int
    """Lines that are not records."""
    repeated: int
    """Records that occurred before."""


def read_timer_logs(source: TimerLogSource) -> TimerLogs:
    """Read a log, several logs, or all ``*.log`` of a folder. Other lines are skipped and counted, with a warning.

    The rank is the one in the record: some timers write every rank to ``timer_rank0.log``. A repeated record counts
    once. Some timers write the host time as ``cuda_dur`` without a GPU: a device time that equals it in every record of
    a rank is None, with a warning. Raises ``OutputError`` for a file that cannot be read, or a folder without logs.
    """
    found = TimerRecords()
    for path in _find_logs(source):
        found.add(LogFile(path))
    copies = ranks_of_copies(found.seen)
    warnings = []
    if found.skipped:
        warnings.append(f"{found.skipped} of {found.lines} lines skipped, not timer records: {found.first_skipped}")
    if found.repeated:
        warnings.append(f"{found.repeated} repeated records counted once (a timer that repeats itself at each dump)")
    if copies:
        warnings.append(f"rank {', '.join(map(str, sorted(copies)))}: {COPIES_NOTE}")
    if warnings:
        logger.warning(f"timer logs: {'; '.join(warnings)}")
    intervals = [one._replace(device_ms=None) if one.rank in copies else one for one in found.seen]
    intervals.sort(key=lambda one: (one.rank, one.start_s, -one.end_s))
    return TimerLogs(intervals, found.skipped, found.repeated)


def _find_logs(source: TimerLogSource) -> Iterator[Path]:
    for one in [source] if isinstance(source, (str, os.PathLike)) else source:
        path = Path(one)
        inside = sorted(path.glob("*.log")) if path.is_dir() else [path]
        if not inside:
            raise OutputError(f"{path}: contains no *.log; allowed: the folder of global_timer (time_log)")
        if not inside[0].is_file():
            raise OutputError(f"{path}: no such file or folder; allowed: a log of global_timer, or its folder")
        yield from inside


def load_timer_logs(source: TimerLogSource) -> pd.DataFrame:
    """Return a row per interval: ``rank``, ``name``, ``start_s``, ``end_s`` (Unix), ``host_ms``, ``device_ms``.

    ``device_ms`` is NaN if no device time was measured. ``frame.attrs`` has ``skipped`` and ``repeated``. Raises
    ``OutputError`` as ``read_timer_logs``, and ``MissingExtra`` without pandas.
    """
    pd = import_pandas("load_timer_logs")
    logs = read_timer_logs(source)
    frame = pd.DataFrame(logs.intervals, columns=list(TimerRecord._fields))
    frame = frame.astype({"rank": "int64", "start_s": "float64", "end_s": "float64", "device_ms": "float64"})
    frame.attrs.update(skipped=logs.skipped, repeated=logs.repeated)
    return frame


def _intervals_of(source: TimerLogs | pd.DataFrame | str | os.PathLike[str]) -> Sequence[TimerRecord]:
    if isinstance(source, TimerLogs):
        return source.intervals
    if isinstance(source, (str, os.PathLike)):
        return read_timer_logs(source).intervals
    rows = zip(*(source[column].tolist() for column in TimerRecord._fields), strict=True)
    intervals = map(TimerRecord._make, rows)
    return [one._replace(device_ms=None) if one.device_ms != one.device_ms else one for one in intervals]  # NaN


def stragglers(source: TimerLogs | pd.DataFrame | str | os.PathLike[str]) -> list[NameByRank]:
    """Return the times of every name by rank, in descending order of the slowest rank's excess.

    ``source`` is a log, a folder, or the result of ``read_timer_logs`` or ``load_timer_logs``. A name is compared by
    device time if every record of it has one, else by host time: never by both.
    """
    intervals = _intervals_of(source)
    untimed = {one.name for one in intervals if one.device_ms is None}
    return by_rank(
        (one.rank, one.name, NS_PER_MS * (one.host_ms if one.name in untimed else one.device_ms or 0.0))
        for one in intervals
    )


def plot_timeline(source: TimerLogs | pd.DataFrame | str | os.PathLike[str], path: str | os.PathLike[str]) -> Path:
    """Draw the intervals of all ranks over one time axis; return the file. Its suffix is the format (PNG, SVG, PDF).

    Raises ``OutputError`` without an interval.
    """
    intervals = _intervals_of(source)
    if not intervals:
        raise OutputError("plot_timeline: no interval to draw; allowed: logs with at least one record")
    return save_figure(timeline_figure(intervals), path)
