"""The logs of ``global_timer``: a table of all ranks, a timeline, and the slow rank."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .._names import shorten, visible
from .._reports.figures import encode_figure
from .._storage.atomic import write_atomic
from .._units import NS_PER_MS
from ..errors import OutputError
from ..logs.extras import import_pandas
from ..logs.formats.global_timer import COPIES_NOTE, TimerRecord, count_events, find_intervals, ranks_of_copies
from ..logs.log_file import LogFile
from ._timeline import timeline_figure
from .stragglers import NameByRank, by_rank

if TYPE_CHECKING:
    import pandas as pd

_BANNER: Final = re.compile(r"[=\s]*(DUMP START)?[=\s]*")
MAX_BANNER: Final = 200
"""Characters. Longer lines are not matched: the time of the expression grows with the square of the length."""
MAX_EXAMPLES: Final = 3
"""Skipped lines that are quoted in the warning."""

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


@dataclass
class TimerLogs:
    """The intervals of one or several logs, and counts of everything else in them."""

    intervals: list[TimerRecord] = field(default_factory=list)
    """In the order of rank, start and descending end."""
    skipped: int = 0
    """Lines that are not records."""
    repeated: int = 0
    """Records that occurred before."""
    lines: int = 0
    """Lines that are neither empty nor banners."""
    examples: list[str] = field(default_factory=list)
    """The first skipped lines, with file and line number."""
    ranks_without_device: set[int] = field(default_factory=set)
    """Ranks whose log has the host time in the place of the device time; their ``device_ms`` is None."""

    def describe_skipped(self) -> str | None:
        """Return a sentence about skipped lines, repeated records and copied times; None without any."""
        parts = []
        if self.skipped:
            parts.append(f"{self.skipped} of {self.lines} lines skipped, not timer records: {'; '.join(self.examples)}")
        if self.repeated:
            parts.append(f"{self.repeated} repeated records counted once (a timer that repeats itself at each dump)")
        if self.ranks_without_device:
            ranks = ", ".join(map(str, sorted(self.ranks_without_device)))
            parts.append(f"rank {ranks}: {COPIES_NOTE}")
        return "; ".join(parts) or None

    def drop_copied_times(self) -> None:
        """Set the device time to None where it is that of the host in every record of a rank."""
        ranks = self.ranks_without_device = ranks_of_copies(self.intervals)
        self.intervals = [one._replace(device_ms=None) if one.rank in ranks else one for one in self.intervals]

    def _read(self, path: Path, seen: set[TimerRecord]) -> None:
        for number, line in enumerate(LogFile(path).lines(), 1):
            text = line.strip()
            if not text or (len(text) <= MAX_BANNER and _BANNER.fullmatch(text)):
                continue
            self.lines += 1
            found = find_intervals(text)
            is_torn = count_events(text) > len(found) or None in found
            for one in found:
                if one is None:
                    continue
                if one in seen:
                    self.repeated += 1
                    continue
                seen.add(one)
                self.intervals.append(one)
            if not found or is_torn:
                self.skipped += 1
                if len(self.examples) < MAX_EXAMPLES:
                    self.examples.append(f"{path.name}:{number} '{shorten(visible(text), 60)}'")


def read_timer_logs(source: TimerLogSource) -> TimerLogs:
    """Read a log, several logs, or all ``*.log`` of a folder. Other lines are skipped and counted, with a warning.

    The rank is the one in the record: some timers write every rank to ``timer_rank0.log``. A repeated record counts
    once. Some timers write the host time as ``cuda_dur`` without a GPU: a device time that equals it in every record of
    a rank is None, with a warning. Raises ``OutputError`` for a file that cannot be read, or a folder without logs.
    """
    logs, seen = TimerLogs(), set[TimerRecord]()
    for path in _find_logs(source):
        try:
            logs._read(path, seen)
        except OSError as error:
            raise OutputError(f"{path}: cannot be read ({error.strerror}); allowed: a log of global_timer") from error
    logs.drop_copied_times()
    logs.intervals.sort(key=lambda one: (one.rank, one.start_s, -one.end_s))
    warning = logs.describe_skipped()
    if warning is not None:
        logger.warning(f"timer logs: {warning}")
    return logs


def _find_logs(source: TimerLogSource) -> Iterator[Path]:
    for one in [source] if isinstance(source, (str, os.PathLike)) else source:
        path = Path(one)
        if path.is_dir():
            inside = sorted(path.glob("*.log"))
            if not inside:
                raise OutputError(f"{path}: contains no *.log; allowed: the folder of global_timer (time_log)")
            yield from inside
        elif path.is_file():
            yield path
        else:
            raise OutputError(f"{path}: no such file or folder; allowed: a log of global_timer, or its folder")


def load_timer_logs(source: TimerLogSource) -> pd.DataFrame:
    """Return a row per interval: ``rank``, ``name``, ``start_s``, ``end_s`` (Unix), ``host_ms``, ``device_ms``.

    ``device_ms`` is NaN if no device time was measured. ``frame.attrs`` has ``skipped`` and ``repeated``. Raises
    ``OutputError`` as ``read_timer_logs``, and ``MissingExtra`` without pandas.
    """
    pd = import_pandas("load_timer_logs")
    logs = read_timer_logs(source)
    columns: dict[str, Any] = {
        name: [getattr(one, name) for one in logs.intervals] for name in TimerRecord._fields if name != "device_ms"
    }
    columns["device_ms"] = [math.nan if one.device_ms is None else one.device_ms for one in logs.intervals]
    frame = pd.DataFrame(columns).astype({"rank": "int64", "start_s": "float64", "end_s": "float64"})
    frame.attrs.update(skipped=logs.skipped, repeated=logs.repeated)
    return frame


def _intervals_of(source: TimerLogs | pd.DataFrame | str | os.PathLike[str]) -> Sequence[TimerRecord]:
    if isinstance(source, TimerLogs):
        return source.intervals
    if isinstance(source, (str, os.PathLike)):
        return read_timer_logs(source).intervals
    return [
        TimerRecord(int(rank), str(name), float(start), float(end), float(host), None if device != device else device)
        for rank, name, start, end, host, device in zip(
            *(source[column].tolist() for column in TimerRecord._fields), strict=True
        )
    ]


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


def plot_timeline(
    source: TimerLogs | pd.DataFrame | str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    window: tuple[float, float] | None = None,
) -> Path:
    """Draw the intervals of all ranks over one time axis; return the file. Its suffix is the format (PNG, SVG, PDF).

    ``window`` selects a range in seconds since the first interval. Raises ``OutputError`` without an interval.
    """
    intervals = _intervals_of(source)
    if not intervals:
        raise OutputError("plot_timeline: no interval to draw; allowed: logs with at least one record")
    target = Path(path)
    write_atomic(target, encode_figure(timeline_figure(intervals, window), target.suffix[1:].lower() or "png"))
    return target
