"""What timings can be turned into: CSV, JSON, a picture, TensorBoard, and a table of all ranks."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

from .._storage.atomic import open_replacing, write_atomic
from .._units import NS_PER_MS
from ..errors import MissingExtra
from ..summary import Summary
from .stragglers import NameByRank, by_rank
from .timing_records import TimingRecords, newest_by_rank


class Scalars(Protocol):
    """The part of TensorBoard's ``SummaryWriter`` that is used."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int, /) -> None:
        """Take one value."""

    def flush(self) -> None:
        """Hand what is pending to the system."""


def export_csv(source: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Write one line for each name of each step: ``step,name,ms,calls,percent,total_ms``. No column is ever empty.

    ``source`` is a ``timing_….jsonl`` or a ``timing_….log``, also one of the original logger. Returns the file, by
    default beside the source.
    """
    records = TimingRecords(source)
    target = records.path.with_suffix(".csv") if path is None else Path(path)
    with open_replacing(target) as file:
        rows = csv.writer(file)
        rows.writerow(("step", "name", "ms", "calls", "percent", "total_ms"))
        for one in records:
            percent = 100 * one.ms / one.total_ms if one.total_ms else 0.0
            rows.writerow((one.step, one.name, f"{one.ms:.6f}", one.calls, f"{percent:.3f}", f"{one.total_ms:.6f}"))
    return target


def export_json(source: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Write ``{"steps": [{"step", "total_ms", "ms": {name: …}}], "names": {name: {mean_ms, …}}}``; return the file."""
    records = TimingRecords(source)
    names: dict[str, list[float]] = {}
    target = records.path.with_suffix(".json") if path is None else Path(path)
    with open_replacing(target) as file:
        file.write('{"steps": [')
        separator = "\n"
        for step, total_ms, ms in _by_step(records):
            line = json.dumps({"step": step, "total_ms": total_ms, "ms": ms}, ensure_ascii=False)
            file.write(f"{separator}{line}")
            separator = ",\n"
            for name, value in ms.items():
                held = names.setdefault(name, [0, 0.0, value, value])
                held[:] = held[0] + 1, held[1] + value, min(held[2], value), max(held[3], value)
        statistics = {
            name: {"steps": int(n), "mean_ms": total / n, "min_ms": least, "max_ms": most}
            for name, (n, total, least, most) in names.items()
        }
        told = json.dumps(statistics, ensure_ascii=False)
        file.write(f'\n], "names": {told}, "skipped_lines": {records.skipped}}}\n')
    return target


def _by_step(records: TimingRecords) -> Iterator[tuple[int, float, dict[str, float]]]:
    step, total_ms, ms = -1, 0.0, dict[str, float]()
    for one in records:
        if one.step != step and ms:
            yield step, total_ms, ms
            ms = {}
        step, total_ms = one.step, one.total_ms
        ms[one.name] = one.ms
    if ms:
        yield step, total_ms, ms


def plot_timings(source: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Draw the longest names over the steps, and the means of all; the ending of ``path`` decides (PNG, SVG, PDF)."""
    from .timing_figure import Course, timing_figure

    records, course = TimingRecords(source), Course()
    for one in records:
        course.add(one)
    target = records.path.with_suffix(".png") if path is None else Path(path)
    picture = BytesIO()
    timing_figure(course).savefig(picture, format=target.suffix[1:] or "png")
    write_atomic(target, picture.getvalue())
    return target


def compare_ranks(log_dir: str | os.PathLike[str]) -> list[NameByRank]:
    """Gather what the loggers of all ranks (``all_ranks=True``) wrote to one folder, by name and rank.

    ``autoprof.compat.stragglers.render_stragglers`` makes a table of it.
    """
    return by_rank(
        (rank, one.name, one.ms * NS_PER_MS)
        for rank, path in newest_by_rank(log_dir).items()
        for one in TimingRecords(path)
    )


def scalars_to(target: str | os.PathLike[str] | Scalars) -> Scalars:
    """Return a TensorBoard writer for the folder, or the writer that was given. Raises ``MissingExtra``."""
    if not isinstance(target, (str, os.PathLike)):
        return target
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MissingExtra(
            "TimingLogger: tensorboard is not installed; pip install 'torch-autoprof[tensorboard]'"
        ) from error
    writer: Any = SummaryWriter(os.fspath(target))
    made: Scalars = writer
    return made


def write_scalars(scalars: Scalars, summary: Summary, step: int) -> None:
    """Write the run's means so far, in milliseconds, and the longest and last step."""
    for row in summary.rows:
        scalars.add_scalar(f"timing_mean_ms/{row.name}", row.mean_ns / NS_PER_MS, step)
        scalars.add_scalar(f"timing_last_ms/{row.name}", row.last_ns / NS_PER_MS, step)
    scalars.add_scalar("timing_last_ms/Total", summary.step_last_ns / NS_PER_MS, step)
    scalars.add_scalar("timing_mean_ms/Total", summary.step_mean_ns / NS_PER_MS, step)
