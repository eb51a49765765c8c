"""Read the logs of ``global_timer``: a table of all ranks, a timeline, and who is slow."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .._names import shorten, visible
from .._storage.atomic import write_atomic
from .._units import NS_PER_MS
from ..errors import MissingExtra, OutputError
from .decode import read_lines
from .stragglers import NameByRank, by_rank

if TYPE_CHECKING:
    import pandas as pd

_NUMBER: Final = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
RECORD: Final = re.compile(
    rf"\[RANK (?P<rank>\d{{1,9}})\] (?P<name>(?:(?!\[RANK ).)*?), start=(?P<start>{_NUMBER}), end=(?P<end>{_NUMBER}), "
    rf"cpu_dur=(?P<host>{_NUMBER})s, cuda_dur=(?P<device>{_NUMBER}(?=ms)|nan|None|N/A)(?:ms)?(?![\w.])"
)
"""One record. It may stand behind a prefix, and several in a line: processes that share a file tear its lines."""
_BANNER: Final = re.compile(r"[=\s]*(DUMP START)?[=\s]*")
BANNER_LIMIT: Final = 200
"""Characters: what is longer is no banner, and a pattern with two open ends would take its square to say so."""
SHOWN: Final = 3
"""Skipped lines that are quoted."""

logger = logging.getLogger("autoprof")


class Interval(NamedTuple):
    """One record: Unix seconds, and milliseconds on the host and on the device (None: the device told none)."""

    rank: int
    name: str
    start_s: float
    end_s: float
    host_ms: float
    device_ms: float | None


@dataclass
class TimerLogs:
    """The intervals of logs, in order, and what was no interval: ``skipped`` lines, and ``repeated`` records."""

    intervals: list[Interval] = field(default_factory=list)
    skipped: int = 0
    repeated: int = 0
    lines: int = 0
    examples: list[str] = field(default_factory=list)
    """The first skipped lines, with where they are."""

    def said(self) -> str | None:
        """Phrase what was left out; None where nothing was."""
        parts = []
        if self.skipped:
            parts.append(f"{self.skipped} of {self.lines} lines are no timer records and were skipped: ")
            parts[-1] += "; ".join(self.examples)
        if self.repeated:
            parts.append(f"{self.repeated} records were there before (a timer that repeats itself at each dump)")
        return "; ".join(parts) or None

    def _read(self, path: Path, seen: set[Interval]) -> None:
        for number, line in enumerate(read_lines(path), 1):
            text = line.strip()
            if not text or (len(text) <= BANNER_LIMIT and _BANNER.fullmatch(text)):
                continue
            self.lines += 1
            found = [_interval(match) for match in RECORD.finditer(text)]
            torn = text.count("[RANK ") > len(found) or None in found
            for one in found:
                if one is None:
                    continue
                if one in seen:
                    self.repeated += 1
                    continue
                seen.add(one)
                self.intervals.append(one)
            if not found or torn:
                self.skipped += 1
                if len(self.examples) < SHOWN:
                    self.examples.append(f"{path.name}:{number} '{shorten(visible(text), 60)}'")


def _interval(match: re.Match[str]) -> Interval | None:
    start, end, host = (float(match[key]) for key in ("start", "end", "host"))
    device = float(match["device"]) if match["device"] not in ("nan", "None", "N/A") else None
    if not all(map(math.isfinite, (start, end, host, device or 0.0))) or end < start or host < 0:
        return None
    return Interval(int(match["rank"]), match["name"].strip(), start, end, round(1000 * host, 6), device)


def read_timer_logs(source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> TimerLogs:
    """Read a log, several, or all ``*.log`` of a folder; what is no record is skipped and counted.

    The rank is that in the line: there are timers that write every rank to ``timer_rank0.log``. A record that is there
    twice is taken once. Raises ``OutputError`` for a file that cannot be read, or a folder without logs.
    """
    logs, seen = TimerLogs(), set[Interval]()
    for path in _files(source):
        try:
            logs._read(path, seen)
        except OSError as error:
            raise OutputError(f"{path}: cannot be read ({error.strerror}); allowed: a log of global_timer") from error
    logs.intervals.sort(key=lambda one: (one.rank, one.start_s, -one.end_s))
    said = logs.said()
    if said is not None:
        logger.warning(f"timer logs: {said}")
    return logs


def _files(source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Iterator[Path]:
    for one in [source] if isinstance(source, (str, os.PathLike)) else source:
        path = Path(one)
        if path.is_dir():
            inside = sorted(path.glob("*.log"))
            if not inside:
                raise OutputError(f"{path}: holds no *.log; allowed: the folder of global_timer ({'time_log'})")
            yield from inside
        elif path.is_file():
            yield path
        else:
            raise OutputError(f"{path}: there is no such file; allowed: a log of global_timer, or their folder")


def load_timer_logs(source: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> pd.DataFrame:
    """Return a line for each interval: ``rank``, ``name``, ``start_s``, ``end_s`` (Unix), ``host_ms``, ``device_ms``.

    ``device_ms`` is NaN where the device told no time. ``frame.attrs`` has ``skipped`` and ``repeated``. Raises as
    ``read_timer_logs``, and ``MissingExtra`` without pandas.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtra("load_timer_logs: pandas is not installed; pip install 'torch-autoprof[logs]'") from error
    logs = read_timer_logs(source)
    columns: dict[str, Any] = {
        name: [getattr(one, name) for one in logs.intervals] for name in Interval._fields if name != "device_ms"
    }
    columns["device_ms"] = [math.nan if one.device_ms is None else one.device_ms for one in logs.intervals]
    frame = pd.DataFrame(columns).astype({"rank": "int64", "start_s": "float64", "end_s": "float64"})
    frame.attrs.update(skipped=logs.skipped, repeated=logs.repeated)
    return frame


def intervals_of(source: TimerLogs | pd.DataFrame | str | os.PathLike[str]) -> Sequence[Interval]:
    """Return the intervals of a log, a folder, what ``read_timer_logs`` gave or ``load_timer_logs``."""
    if isinstance(source, TimerLogs):
        return source.intervals
    if isinstance(source, (str, os.PathLike)):
        return read_timer_logs(source).intervals
    return [
        Interval(int(rank), str(name), float(start), float(end), float(host), None if device != device else device)
        for rank, name, start, end, host, device in zip(
            *(source[column].tolist() for column in Interval._fields), strict=True
        )
    ]


def stragglers(source: TimerLogs | pd.DataFrame | str | os.PathLike[str]) -> list[NameByRank]:
    """Return every name with its times by rank and the rank that is slowest at it, the costliest first.

    A name is judged by the device's times where every record of it has one, else by the host's: never by a mixture.
    """
    intervals = intervals_of(source)
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
    """Draw all ranks over one axis of time and return the picture; its ending decides the format (PNG, SVG, PDF).

    ``window`` chooses seconds from the first interval on. Raises ``OutputError`` where there is nothing to draw.
    """
    from .timeline import timeline_figure

    intervals = intervals_of(source)
    if not intervals:
        raise OutputError("plot_timeline: there is no interval to draw; allowed: logs with at least one record")
    target = Path(path)
    picture = BytesIO()
    timeline_figure(intervals, window).savefig(picture, format=target.suffix[1:] or "png")
    write_atomic(target, picture.getvalue())
    return target
