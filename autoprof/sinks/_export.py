"""What the sinks of a run wrote, made again from its records: the same renderers, frame by frame.

Each function replaces the file at ``path`` in one go, and raises ``OutputError`` where that cannot be done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from .._reports.csv import SpanTable, StepTable, extras
from .._reports.log import Averages, render_log_summary, render_step
from .._reports.memory import name_memory
from .._reports.speedscope import SpeedscopeEncoder, speedscope_file
from .._reports.trace import CLOSE, OPEN, TraceEncoder
from .._storage.runs import Run
from ..errors import OutputError
from ..frame import StepFrame
from ..summary import Summary
from ._history import History
from ._redraw import write_picture


@dataclass(frozen=True, slots=True)
class Chosen:
    """Ranks and steps of a saved run; ``last`` is None for no end."""

    run: Run
    ranks: Sequence[int]
    first: int = 1
    last: int | None = None

    def frames(self, rank: int) -> Iterator[StepFrame]:
        """Yield the frames of one rank."""
        for frame in self.run.rank_frames(rank):
            if frame.step >= self.first and (self.last is None or frame.step <= self.last):
                yield frame

    def all_frames(self) -> Iterator[StepFrame]:
        """Yield the frames of all ranks."""
        for rank in self.ranks:
            yield from self.frames(rank)

    def origin_unix_ns(self) -> int | None:
        """Return when the first of the chosen steps began on any rank."""
        firsts = (next(self.frames(rank), None) for rank in self.ranks)
        return min((frame.start_unix_ns for frame in firsts if frame is not None), default=None)


def write_csv(chosen: Chosen, path: Path, per: Literal["step", "span"]) -> None:
    """Write a row a step or a span; all that was ever logged has a column."""
    columns: dict[str, float] = {}
    if per == "step":
        for frame in chosen.all_frames():
            columns.update(dict.fromkeys(extras(frame), 0))
    with _replacing(path) as file:
        for number, rank in enumerate(chosen.ranks):
            steps, spans = StepTable(rank), SpanTable(rank)
            row: Callable[[StepFrame], str] = steps.row if per == "step" else spans.rows
            header = steps.header(columns) if per == "step" else spans.header()
            file.writelines([] if number else [header])
            file.writelines(row(frame) for frame in chosen.frames(rank))


def write_trace(chosen: Chosen, path: Path) -> None:
    """Write one trace in which each rank is a process."""
    origin = chosen.origin_unix_ns()
    first = True
    with _replacing(path) as file:
        file.write(OPEN)
        for rank in chosen.ranks:
            encoder = TraceEncoder(rank, origin_unix_ns=origin, first=first)
            for frame in chosen.frames(rank):
                file.write(encoder.encode(frame))
                first = False
        file.write(CLOSE)


def write_speedscope(chosen: Chosen, path: Path) -> None:
    """Write one file with the profiles of all ranks."""
    origin = chosen.origin_unix_ns()
    shared: dict[tuple[str, str | None], int] = {}
    encoders = []
    for rank in chosen.ranks:
        encoder = SpeedscopeEncoder(rank, origin_unix_ns=origin, frames=shared)
        for frame in chosen.frames(rank):
            encoder.add(frame)
        encoders.append(encoder)
    with _replacing(path) as file:
        file.write(speedscope_file(encoders, shared, chosen.run.path.name))


def write_log(frames: Iterable[StepFrame], summary: Summary, path: Path) -> None:
    """Write the readable log of one rank."""
    averages = Averages()
    with _replacing(path) as file:
        file.writelines(render_step(frame, averages, summary.clock_limit_ns) for frame in frames)
        file.write(render_log_summary(summary))


def write_memory_plot(frames: Iterable[StepFrame], summary: Summary, path: Path) -> None:
    """Draw the memory of one rank. Raises ``OutputError`` where there is no reading."""
    history, names = History(), name_memory(summary.rows, summary.memory_table)
    for frame in frames:
        if frame.memory:
            history.add(frame.step, frame.memory)
    if not len(history) and not names:
        raise OutputError(f"{path}: there is nothing to draw; the records have no reading of memory")
    try:
        write_picture(history.snapshot(names), path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror})") from error


@contextmanager
def _replacing(path: Path) -> Iterator[TextIO]:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8", errors="replace", newline="") as file:
            yield file
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise OutputError(f"{path}: cannot be written ({error.strerror})") from error
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
