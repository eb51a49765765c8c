"""The logs of ``global_timer``: a table of all ranks, a timeline, and the slow rank."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .._core.units import NS_PER_MS
from .._reports.figures import save_figure
from ..errors import OutputError
from ..logs.extras import import_pandas
from ..logs.formats.global_timer import COPIES_NOTE, TimerRecord, TimerRecords, ranks_of_copies
from ..logs.log_file import LogFile
from ._timeline import timeline_figure
from .stragglers import NameByRank, compare_name

if TYPE_CHECKING:
    import pandas as pd


TimerLogSource = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

__all__ = ["load_timer_logs", "plot_timeline", "stragglers"]

logger = logging.getLogger("autoprof")


def load_timer_logs(source: TimerLogSource) -> pd.DataFrame:
    """Read a log, several logs, or all ``*.log`` of a folder into a table with a row per interval.

    Its columns are ``rank``, ``name``, ``start_s``, ``end_s`` (Unix), ``host_ms`` and ``device_ms``, sorted by rank,
    start and descending end. The rank is the one in the record: some timers write every rank to ``timer_rank0.log``.
    Other lines are skipped, a repeated record counts once; both are counted in ``attrs``, with a warning. Some timers
    write the host time as ``cuda_dur`` without a GPU: a device time that equals it in every record of a rank is NaN.

    Raises:
        OutputError: a file that cannot be read, or a folder without logs.
        MissingExtra: pandas is not installed.
    """
    pd = import_pandas("load_timer_logs")
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
    intervals = sorted(found.seen, key=lambda one: (one.rank, one.start_s, -one.end_s))
    frame = pd.DataFrame(intervals, columns=list(TimerRecord._fields))
    frame = frame.astype({"rank": "int64", "start_s": "float64", "end_s": "float64", "device_ms": "float64"})
    frame.loc[frame["rank"].isin(copies), "device_ms"] = float("nan")
    frame.attrs.update(skipped=found.skipped, repeated=found.repeated)
    return frame


def _find_logs(source: TimerLogSource) -> Iterator[Path]:
    for one in [source] if isinstance(source, (str, os.PathLike)) else source:
        path = Path(one)
        inside = sorted(path.glob("*.log")) if path.is_dir() else [path]
        if not inside:
            raise OutputError(f"{path}: contains no *.log; allowed: the folder of global_timer (time_log)")
        if not inside[0].is_file():
            raise OutputError(f"{path}: no such file or folder; allowed: a log of global_timer, or its folder")
        yield from inside


def stragglers(frame: pd.DataFrame) -> list[NameByRank]:
    """Compare the ranks of a table of ``load_timer_logs`` by name; the longest excess of a slow rank is first.

    A name is compared by device time if every record of it has one, else by host time: never by both. In a collective
    the ranks wait for the slow one, which takes the shortest time: compare names of work that each rank does alone.
    """
    found = []
    for name, calls in frame.groupby("name"):
        clock = "host_ms" if calls["device_ms"].isna().any() else "device_ms"
        means_ns = calls.groupby("rank")[clock].mean() * NS_PER_MS
        found.append(compare_name(str(name), means_ns.to_dict()))
    return sorted(found, key=lambda one: (-one.excess_ns, one.name))


def plot_timeline(frame: pd.DataFrame, path: str | os.PathLike[str]) -> Path:
    """Draw the intervals of a table of ``load_timer_logs`` over one time axis; return the file.

    The suffix of ``path`` is the format (PNG, SVG, PDF). Raises ``OutputError`` without an interval.
    """
    if not len(frame):
        raise OutputError("plot_timeline: no interval to draw; allowed: logs with at least one record")
    return save_figure(timeline_figure([TimerRecord(*row) for row in frame.itertuples(index=False)]), path)
