"""The records of a ``TimingLogger`` as CSV, JSON, a figure or a table of all ranks.

``autoprof.logs.load_logs`` reads its logs, and those of the original timing logger.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .._core.names import plain_cell
from .._core.units import NS_PER_MS, NS_PER_S
from .._storage.atomic import open_replacing
from .._storage.records import Frames
from ..errors import OutputError
from ..frame import StepFrame
from ..logs.extras import import_pandas
from .stragglers import NameByRank, by_rank

Source = str | os.PathLike[str]


def _read(source: Source) -> Iterator[StepFrame]:
    path = Path(source)
    if path.suffix != ".jsonl" or not path.is_file():
        raise OutputError(f"{path}: no such file; allowed: the timing_….jsonl of a TimingLogger")
    return iter(Frames(path))


def _milliseconds(frame: StepFrame) -> dict[str, float]:
    return dict(zip(frame.layout.names, (frame.total_ns / NS_PER_MS).tolist(), strict=True))


def export_csv(source: Source, path: Source | None = None) -> Path:
    """Write one line per name and step: ``step,name,ms,calls,percent,total_ms``. No column is ever empty.

    Returns the CSV file, by default beside the source.
    """
    frames = _read(source)
    target = Path(source).with_suffix(".csv") if path is None else Path(path)
    with open_replacing(target) as file:
        rows = csv.writer(file)
        rows.writerow(("step", "name", "ms", "calls", "percent", "total_ms"))
        for frame in frames:
            total_ms = frame.step_ns / NS_PER_MS
            for (name, ms), calls in zip(_milliseconds(frame).items(), frame.layout.calls, strict=True):
                percent = 100 * ms / total_ms if total_ms else 0.0
                rows.writerow((frame.step, plain_cell(name), f"{ms:.6f}", calls, f"{percent:.3f}", f"{total_ms:.6f}"))
    return target


def export_json(source: Source, path: Source | None = None) -> Path:
    """Write ``{"steps": [{"step", "total_ms", "ms": {name: …}}], "names": {name: {mean_ms, …}}}``; return the file."""
    steps: list[dict[str, Any]] = []
    times: dict[str, list[float]] = {}
    for frame in _read(source):
        by_name = _milliseconds(frame)
        steps.append({"step": frame.step, "total_ms": frame.step_ns / NS_PER_MS, "ms": by_name})
        for name, ms in by_name.items():
            times.setdefault(name, []).append(ms)
    names = {
        name: {"steps": len(ms), "mean_ms": sum(ms) / len(ms), "min_ms": min(ms), "max_ms": max(ms)}
        for name, ms in times.items()
    }
    target = Path(source).with_suffix(".json") if path is None else Path(path)
    with open_replacing(target) as file:
        json.dump({"steps": steps, "names": names}, file, ensure_ascii=False)
    return target


def plot_timings(source: Source, path: Source | None = None) -> Path:
    """Draw the time of a step and of the longest names over the steps; return the file, by default beside the source.

    The suffix of ``path`` is the format: .png, .svg or .pdf. Raises ``MissingExtra`` without pandas.
    """
    from ..logs import plot_metrics

    pd = import_pandas("plot_timings")
    rows: list[dict[str, Any]] = []
    for frame in _read(source):
        names = {f"{name} (ms)": ms for name, ms in _milliseconds(frame).items()}
        rows.append({"step": frame.step, "step_time_s": frame.step_ns / NS_PER_S, **names})
    target = Path(source).with_suffix(".png") if path is None else Path(path)
    plot_metrics(pd.DataFrame(rows), target)
    return target


def compare_ranks(log_dir: Source) -> list[NameByRank]:
    """Return the times of each name by rank, from the loggers of all ranks (``all_ranks=True``) in one folder.

    ``autoprof.compat.stragglers.render_stragglers`` renders them as a table. Raises ``OutputError`` for a folder
    without records.
    """
    newest: dict[int, Path] = {}
    for path in sorted(Path(log_dir).glob("timing_*.jsonl"), key=lambda path: path.stat().st_mtime_ns):
        match = re.fullmatch(r"timing_\d+(?:_\d+)?(?:_rank(\d+))?\.jsonl", path.name)
        if match:
            newest[int(match[1] or 0)] = path
    if not newest:
        raise OutputError(f"{log_dir}: contains no timing_….jsonl; allowed: the log_dir of a TimingLogger")
    return by_rank(
        (rank, name, ms * NS_PER_MS)
        for rank, path in sorted(newest.items())
        for frame in _read(path)
        for name, ms in _milliseconds(frame).items()
    )
