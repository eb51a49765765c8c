"""``memory.png``: drawn at the end, and where it was asked for now and then before it, without slowing a step."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import Field

from .._options import Options
from .._process.address_space import require_address_space
from .._reports.figures import check_format, save_figure
from .._reports.memory import HeldMemory, MemoryHistory, held_memory, memory_figure
from ..errors import OutputError
from ..frame import NOT_MEASURED, StepFrame
from ..summary import Summary
from ._base import RunInfo, folder_of
from ._export import SavedSteps
from ._kind import CloseOrder, Export, SinkKind
from ._redraw import Redrawer, write_picture

PICTURE: Final = "memory.png"
POINTS: Final = 2048
"""Points kept: more than a picture has pixels for. 2048 of 5 series are 80 KB."""
SERIES: Final = 16
"""Kinds of readings kept; a run has two to four."""

DRAWING_S: Final = 1.0
"""Processor time of importing matplotlib and drawing once, measured: a run that named no sink must afford it."""
DRAWING_MIB: Final = 128
"""Address space that must be free before matplotlib is imported and draws; that takes 73 MiB."""


class History:
    """Keep a point for every ``stride`` steps, the largest reading of each kind; a full history doubles its stride."""

    __slots__ = ("_in_point", "_series", "_steps", "stride")

    def __init__(self) -> None:
        self.stride = 1
        self._in_point = 0
        self._steps = array("q")
        self._series: dict[str, array[int]] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: int, readings: Mapping[str, int]) -> None:
        """Add the readings of one step."""
        if not self._in_point:
            if len(self._steps) == POINTS:
                self._halve()
            self._steps.append(step)
            for column in self._series.values():
                column.append(NOT_MEASURED)
        self._steps[-1] = step
        for key, value in readings.items():
            column = self._series.get(key) or self._begin(key)
            if value > column[-1]:
                column[-1] = value
        self._in_point = (self._in_point + 1) % self.stride

    def _begin(self, key: str) -> array[int]:
        column = array("q", [NOT_MEASURED]) * len(self._steps)
        if len(self._series) < SERIES:
            self._series[key] = column
        return column

    def _halve(self) -> None:
        """Merge neighbours, keeping the larger reading and the later step."""
        self._steps = self._steps[1::2]
        for key, column in self._series.items():
            values = np.frombuffer(column, dtype=np.int64)
            self._series[key] = array("q", np.maximum(values[::2], values[1::2]).tobytes())
        self.stride *= 2

    def snapshot(self, held: HeldMemory = HeldMemory()) -> MemoryHistory:  # noqa: B008 (immutable)
        """Return an immutable copy, with facts of the summary."""
        return MemoryHistory(
            steps=np.array(self._steps, dtype=np.int64),
            series={key: np.array(column, dtype=np.int64) for key, column in self._series.items()},
            names=held.names,
            stride=self.stride,
            whole=held.whole,
            capacity_bytes=held.capacity_bytes,
        )


class MemoryPlotOptions(Options):
    """The picture `memory.png`."""

    redraw_s: float | None = Field(default=60.0, ge=5, strict=True, allow_inf_nan=False)
    """The time between two drawings, in seconds; `null` draws only at the end. Without the key `sinks` the picture is
    drawn only at the end, of a run whose budget covers a second for it: of 100 s at 1 %."""


class MemoryPlotSink:
    """Keep the memory readings of a run, bounded, and draw them.

    Before the end another process draws (``_redraw``), started here so that no step includes its start. matplotlib is
    imported in this process only by ``close``. A run without a reading gets no picture, and neither does one that
    named no sink and is too short to afford it: ``autoprof show RUN --memory-plot`` draws it from the records.
    """

    def __init__(self, options: MemoryPlotOptions, run: RunInfo) -> None:
        self._clock = run.clock
        self._picture = folder_of(run).path / PICTURE
        self._history = History()
        self._redraw_s = options.redraw_s
        self._redrawer: Redrawer | None = None
        self._due = float("inf")
        self._budget = run.budget
        self._began_s = run.clock()
        if options.redraw_s is not None and run.budget is None and sys.executable:
            try:
                self._redrawer = Redrawer(folder_of(run).rank_path / f".{PICTURE}.data", self._picture)
            except OSError:  # no process can be started here: the picture at the end remains
                return
            self._due = run.clock() + options.redraw_s

    def write(self, frame: StepFrame) -> None:
        """Add the frame's readings."""
        if frame.memory:
            self._history.add(frame.step, frame.memory)

    def due(self, idle_s: float | None = None) -> bool:
        """Return whether the interval since the last drawing is over."""
        now = self._clock()
        if idle_s is not None or now < self._due or self._redraw_s is None:
            return False
        self._due = now + self._redraw_s
        return True

    def show(self, summary: Summary, step: int) -> None:
        """Request a drawing of the history so far."""
        if self._redrawer is not None:
            self._redrawer.request(self._history.snapshot(held_memory(summary)))

    def close(self, summary: Summary) -> None:
        """Draw the whole run."""
        if self._redrawer is not None:
            self._redrawer.close()
            self._redrawer = None
        if self._budget is not None and self._budget * (self._clock() - self._began_s) < DRAWING_S:
            return
        held = held_memory(summary)
        if len(self._history) or held.names:
            require_address_space(DRAWING_MIB)
            write_picture(self._history.snapshot(held), self._picture)


def export_memory_plot(saved: SavedSteps, path: Path) -> None:
    """Draw the memory of one rank, in the format of the file's name (PNG without one). Raises ``OutputError``."""
    check_format(path, default="png")
    history, held = History(), held_memory(saved.summary())
    for frame in saved.frames(saved.rank):
        if frame.memory:
            history.add(frame.step, frame.memory)
    if not len(history) and not held.names:
        raise OutputError(f"{path}: there is nothing to draw; the records have no reading of memory")
    save_figure(memory_figure(history.snapshot(held)), path, default="png")


SINK = SinkKind(
    MemoryPlotOptions,
    MemoryPlotSink,
    in_folder=True,
    default=True,
    close_order=CloseOrder.PICTURES,
    exports=(Export("memory-plot", "the memory over the steps of one rank: .png, .svg or .pdf", export_memory_plot),),
)
