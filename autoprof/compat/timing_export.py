"""The timings of a ``TimingLogger`` read back, and written as CSV, JSON, a figure, TensorBoard scalars or a rank table.

The logs of the original timing logger are read as well.
"""

from __future__ import annotations

import csv
import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from .._names import plain_cell
from .._reports.figures import encode_figure
from .._reports.log import RULE
from .._storage.atomic import open_replacing, write_atomic
from .._storage.records import Frames
from .._units import NS_PER_MS
from ..errors import OutputError, import_extra
from ..logs.log_file import LogFile
from ..summary import Summary
from ._timing_figure import TimingLines, timing_figure
from ._timing_log import SUM_OF_PARTS
from ._timings import RunningStats, Timing
from .stragglers import NameByRank, by_rank

logger = logging.getLogger("autoprof")

MAX_LINE: Final = 1000
"""Characters of a line that is matched: the time of the expression grows with the square of the length."""
_STEP: Final = re.compile(r"Step (\d+)\s*")
_SUMMARY: Final = re.compile(r"Timing Summary \(")
_LINE: Final = re.compile(
    r"(?P<indent> *)(?P<dash>- )?(?P<name>.*?) *: +(?P<ms>\d+(?:\.\d+)?)ms"
    r"(?: \( *(?P<percent>\d+(?:\.\d+)?)%\))?(?: \[avg: *\d+(?:\.\d+)?ms\])?(?P<suffix> \(sum of parts\)| in .*)?"
)
_TOTAL: Final = re.compile(r"Total-+: +(\d+(?:\.\d+)?)ms")
_FILE_NAME: Final = re.compile(r"timing_\d+(?:_\d+)?(?:_rank(\d+))?\.(?:log|jsonl)")


class TimingRecords:
    """The timings of one file: ``timing_….jsonl``, or ``timing_….log`` of this or the original logger.

    Each iteration reads the file again. ``skipped`` is the number of lines without a timing, valid at the end of an
    iteration. Raises ``OutputError`` if the file does not exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.skipped = 0
        if not self.path.is_file():
            raise OutputError(f"{self.path}: no such file; allowed: a timing_….log or a timing_….jsonl")

    @property
    def rank(self) -> int:
        """The rank in the file's name; 0 without one."""
        match = _FILE_NAME.fullmatch(self.path.name)
        return int(match[1]) if match and match[1] else 0

    def __iter__(self) -> Iterator[Timing]:
        return self._read_records() if self.path.suffix == ".jsonl" else self._read_log()

    def _read_records(self) -> Iterator[Timing]:
        frames = Frames(self.path)
        for frame in frames:
            total_ms = frame.step_ns / NS_PER_MS
            for name, calls, ns in zip(frame.layout.names, frame.layout.calls, frame.total_ns.tolist(), strict=True):
                yield Timing(frame.step, name, ns / NS_PER_MS, calls, total_ms)
        self.skipped = frames.bad_lines
        self._warn_if_skipped()

    def _read_log(self) -> Iterator[Timing]:
        """Read the sections of steps; an incomplete section and the summary at the end are skipped."""
        self.skipped = 0
        step: int | None = None
        section: list[tuple[str, float]] = []
        path: list[str] = []
        in_summary = False
        for whole in LogFile(self.path).lines():
            line = whole if len(whole) <= MAX_LINE else "?"
            number, total, match = _STEP.fullmatch(line), _TOTAL.fullmatch(line), _LINE.fullmatch(line)
            if number or _SUMMARY.match(line):
                self.skipped += len(section)
                step, section, path = int(number[1]) if number else None, [], []
                in_summary = number is None
            elif total and step is not None:
                for name, ms in section:
                    yield Timing(step, name, ms, 1, float(total[1]))
                section = []
            elif match and step is not None:
                depth = len(match["indent"]) // 2 if match["dash"] else 0
                path[depth:] = [match["name"]]
                if match["suffix"] != SUM_OF_PARTS and (match["name"] != "other" or "[avg" in line):
                    section.append(("/".join(path), float(match["ms"])))
            elif line.strip() and line != RULE and not in_summary:
                self.skipped += 1
        self.skipped += len(section)
        self._warn_if_skipped()

    def _warn_if_skipped(self) -> None:
        if self.skipped:
            logger.warning(f"{self.path}: {self.skipped} lines skipped: not timings of a complete step")


def export_csv(source: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Write one line per name and step: ``step,name,ms,calls,percent,total_ms``. No column is ever empty.

    ``source`` is any file that ``TimingRecords`` reads. Returns the CSV file, by default beside the source.
    """
    records = TimingRecords(source)
    target = records.path.with_suffix(".csv") if path is None else Path(path)
    with open_replacing(target) as file:
        rows = csv.writer(file)
        rows.writerow(("step", "name", "ms", "calls", "percent", "total_ms"))
        for one in records:
            percent = 100 * one.ms / one.total_ms if one.total_ms else 0.0
            rows.writerow(
                (one.step, plain_cell(one.name), f"{one.ms:.6f}", one.calls, f"{percent:.3f}", f"{one.total_ms:.6f}")
            )
    return target


def export_json(source: str | os.PathLike[str], path: str | os.PathLike[str] | None = None) -> Path:
    """Write ``{"steps": [{"step", "total_ms", "ms": {name: …}}], "names": {name: {mean_ms, …}}}``; return the file."""
    records = TimingRecords(source)
    names: dict[str, RunningStats] = {}
    target = records.path.with_suffix(".json") if path is None else Path(path)
    with open_replacing(target) as file:
        file.write('{"steps": [')
        separator = "\n"
        for step, total_ms, ms in _by_step(records):
            line = json.dumps({"step": step, "total_ms": total_ms, "ms": ms}, ensure_ascii=False)
            file.write(f"{separator}{line}")
            separator = ",\n"
            for name, value in ms.items():
                names.setdefault(name, RunningStats()).add(value)
        statistics = {
            name: {"steps": one.count, "mean_ms": one.mean, "min_ms": one.least, "max_ms": one.most}
            for name, one in names.items()
        }
        text = json.dumps(statistics, ensure_ascii=False)
        file.write(f'\n], "names": {text}, "skipped_lines": {records.skipped}}}\n')
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
    """Draw the longest names over the steps, and the means of all names; return the file, by default beside the source.

    The suffix of ``path`` is the format: .png, .svg or .pdf.
    """
    records, lines = TimingRecords(source), TimingLines()
    for one in records:
        lines.add(one)
    target = records.path.with_suffix(".png") if path is None else Path(path)
    write_atomic(target, encode_figure(timing_figure(lines), target.suffix[1:].lower() or "png"))
    return target


def compare_ranks(log_dir: str | os.PathLike[str]) -> list[NameByRank]:
    """Return the times of each name by rank, from the loggers of all ranks (``all_ranks=True``) in one folder.

    ``autoprof.compat.stragglers.render_stragglers`` renders them as a table. Raises ``OutputError`` for a folder
    without records.
    """
    return by_rank(
        (rank, one.name, one.ms * NS_PER_MS)
        for rank, path in _newest_by_rank(log_dir).items()
        for one in TimingRecords(path)
    )


def _newest_by_rank(log_dir: str | os.PathLike[str]) -> dict[int, Path]:
    """Return the newest records of each rank in a folder."""
    found: dict[int, Path] = {}
    for path in sorted(Path(log_dir).glob("timing_*.jsonl"), key=lambda path: path.stat().st_mtime_ns):
        match = _FILE_NAME.fullmatch(path.name)
        if match:
            found[int(match[1] or 0)] = path
    if not found:
        raise OutputError(f"{log_dir}: contains no timing_….jsonl; allowed: the log_dir of a TimingLogger")
    return dict(sorted(found.items()))


class Scalars(Protocol):
    """The methods of TensorBoard's ``SummaryWriter`` that a ``TimingLogger`` calls."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int, /) -> None:
        """Add one value."""

    def flush(self) -> None:
        """Write pending values."""


def open_scalars(target: str | os.PathLike[str] | Scalars) -> Scalars:
    """Return a TensorBoard writer for a folder; a writer is returned as it is. Raises ``MissingExtra``."""
    if not isinstance(target, (str, os.PathLike)):
        return target
    tensorboard = import_extra("torch.utils.tensorboard", "tensorboard", "TimingLogger")
    writer: Any = tensorboard.SummaryWriter(os.fspath(target))
    typed: Scalars = writer
    return typed


def write_scalars(scalars: Scalars, summary: Summary, step: int) -> None:
    """Write the mean and the last time of each name and of the step, in milliseconds."""
    for row in summary.rows:
        scalars.add_scalar(f"timing_mean_ms/{row.name}", row.mean_ns / NS_PER_MS, step)
        scalars.add_scalar(f"timing_last_ms/{row.name}", row.last_ns / NS_PER_MS, step)
    scalars.add_scalar("timing_last_ms/Total", summary.step_last_ns / NS_PER_MS, step)
    scalars.add_scalar("timing_mean_ms/Total", summary.step_mean_ns / NS_PER_MS, step)
