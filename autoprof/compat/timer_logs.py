"""The logs of ``global_timer``: a table of all ranks, a timeline, and the slow rank."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.log import logger
from ..errors import OutputError, import_extra
from ..logs.formats.global_timer import COPIES_NOTE, TimerRecord, TimerRecords, ranks_of_copies
from ..logs.log_file import LogFile
from ..ranks import median_of_others
from ..reports.figures import (
    COLORS,
    TWO_COLUMNS_IN,
    bare,
    blank_figure,
    save_figure,
    set_title,
    settle,
    styled,
)
from ..reports.text import elide_all, safe

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

TimerLogSource = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

__all__ = ["load_timer_logs", "plot_timeline", "stragglers"]


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
    pd = import_extra("pandas", "logs", "load_timer_logs")
    found = TimerRecords()
    for path in _find_logs(source):
        log = LogFile(path)
        found.add(path.name, [*log.lines, log.cut_line])
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


def stragglers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each name of a table of ``load_timer_logs``; the longest excess of a slow rank is first.

    Its columns are ``name``, the ``slowest`` rank, its ``mean_ms``, ``others_ms`` (the median of the other ranks'
    means), and whether it ``straggles``: by a tenth of that, and by 0.1 ms. A name is compared by device time if every
    record of it has one, else by host time. In a collective the ranks wait for the slow one, which takes the shortest
    time: compare names of work that each rank does alone.
    """
    pd = import_extra("pandas", "logs", "stragglers")
    rows = []
    for name, calls in frame.groupby("name"):
        clock = "host_ms" if calls["device_ms"].isna().any() else "device_ms"
        means = calls.groupby("rank")[clock].mean()
        others = median_of_others(means) if len(means) > 1 else means.to_numpy()
        excess = means.to_numpy() - others
        at = int(excess.argmax())
        straggles = bool(excess[at] >= max(0.1, 0.1 * others[at]))
        rows.append((excess[at], str(name), means.index[at], means.iloc[at], others[at], straggles))
    rows.sort(key=lambda row: (-row[0], row[1]))
    return pd.DataFrame([row[1:] for row in rows], columns=["name", "slowest", "mean_ms", "others_ms", "straggles"])


def plot_timeline(frame: pd.DataFrame, path: str | os.PathLike[str]) -> Path:
    """Draw the intervals of a table of ``load_timer_logs`` over one time axis; return the file.

    The suffix of ``path`` is the format (PNG, SVG, PDF). Raises ``OutputError`` without an interval.
    """
    if not len(frame):
        raise OutputError("plot_timeline: no interval to draw; allowed: logs with at least one record")
    return save_figure(timeline_figure(frame), path)


def timeline_figure(frame: pd.DataFrame) -> Figure:
    """Return the figure: lanes for each rank, one for each of the longest names and one for all others."""
    max_bars = 20_000
    shown = frame.nlargest(max_bars, "host_ms")
    sums = shown.groupby("name")["host_ms"].sum().sort_values(ascending=False, kind="stable")
    names = list(sums.index[: len(COLORS)])
    labels = [*elide_all([safe(name) for name in names], 28), "other names"]
    lane = shown["name"].map({name: at for at, name in enumerate(names)}).fillna(len(names)).astype(int)
    lanes = int(lane.max()) + 1
    ranks = sorted(shown["rank"].unique())
    start_s = shown["start_s"] - shown["start_s"].min()
    with styled():
        figure = blank_figure(TWO_COLUMNS_IN, 1.5 + 0.2 * lanes * len(ranks))
        axes = figure.subplots()
        for at in range(lanes):
            of_name = lane == at
            top = at + (lanes + 0.5) * shown["rank"][of_name].map(ranks.index)
            length_s = shown["host_ms"][of_name] / 1000
            color = [*COLORS[: len(names)], "#bdbdbd"][at]
            axes.barh(top, length_s, 0.86, start_s[of_name], align="edge", color=color, label=labels[at])
        axes.set_ylim((lanes + 0.5) * len(ranks), -0.15)
        axes.set_yticks([(lanes + 0.5) * at + lanes / 2 for at in range(len(ranks))], [f"rank {one}" for one in ranks])
        axes.set_xlabel("time since the first start (s)")
        set_title(axes, "Timeline of all ranks")
        axes.margins(x=0.01)
        bare(axes, grid="x")
        axes.tick_params(axis="y", length=0)
        left_out = f" The {len(frame) - max_bars} shortest are not drawn." if len(frame) > max_bars else ""
        settle(figure, f"Bars: host time, from start to stop.{left_out}")
    return figure
