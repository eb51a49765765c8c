"""``memory.png``: the memory over the steps of a run, drawn at its end."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from .._core.options import Options
from .._process.address_space import require_address_space
from .._reports.figures import check_format, encode_figure, save_figure
from .._reports.memory import MemoryHistory, memory_figure
from .._storage.atomic import write_atomic
from ..diagnose import SavedSteps
from ..errors import OutputError
from ..frame import NOT_MEASURED, StepFrame
from ..summary import Summary
from ._base import RunInfo, folder_of
from ._kind import CloseOrder, Export, SinkKind

POINTS: Final = 2048
"""Points kept: more than a picture has pixels for. 2048 of 5 series are 80 KB."""


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
            if key not in self._series:
                self._series[key] = array("q", [NOT_MEASURED]) * len(self._steps)
            column = self._series[key]
            if value > column[-1]:
                column[-1] = value
        self._in_point = (self._in_point + 1) % self.stride

    def _halve(self) -> None:
        """Merge neighbours, keeping the larger reading and the later step."""
        self._steps = self._steps[1::2]
        for key, column in self._series.items():
            values = np.frombuffer(column, dtype=np.int64)
            self._series[key] = array("q", np.maximum(values[::2], values[1::2]).tobytes())
        self.stride *= 2

    def snapshot(self) -> MemoryHistory:
        """Return an immutable copy."""
        return MemoryHistory(
            steps=np.array(self._steps, dtype=np.int64),
            series={key: np.array(column, dtype=np.int64) for key, column in self._series.items()},
            stride=self.stride,
        )


class MemoryPlotOptions(Options):
    """The picture `memory.png`, drawn at the end.

    Without the key `sinks` it is drawn only in a run whose budget covers a second for it: of 100 s at 1 %.
    """


class MemoryPlotSink:
    """Keep the memory readings of a run, bounded, and draw them at its end.

    A run without a reading gets no picture, and neither does one that named no sink and is too short to afford it:
    ``autoprof show RUN --memory-plot`` draws it from the records.
    """

    def __init__(self, options: MemoryPlotOptions, run: RunInfo) -> None:
        self._clock = run.clock
        self._picture = folder_of(run).path / "memory.png"
        self._history = History()
        self._budget = run.budget
        self._began_s = run.clock()

    def write(self, frame: StepFrame) -> None:
        """Add the frame's readings."""
        if frame.memory:
            self._history.add(frame.step, frame.memory)

    def close(self, summary: Summary) -> None:
        """Draw the whole run."""
        # Processor time of importing matplotlib and drawing once, measured: a run that named no sink must afford it.
        if self._budget is not None and self._budget * (self._clock() - self._began_s) < 1.0:
            return
        if len(self._history) or summary.memory_table:
            require_address_space(128)  # matplotlib and the drawing take 73 MiB
            write_atomic(self._picture, encode_figure(memory_figure(self._history.snapshot(), summary)))


def export_memory_plot(saved: SavedSteps, path: Path) -> None:
    """Draw the memory of one rank, in the format of the file's name (PNG without one). Raises ``OutputError``."""
    check_format(path, default="png")
    history, summary = History(), saved.summary()
    for frame in saved.frames(saved.rank):
        if frame.memory:
            history.add(frame.step, frame.memory)
    if not len(history) and not summary.memory_table:
        raise OutputError(f"{path}: there is nothing to draw; the records have no reading of memory")
    save_figure(memory_figure(history.snapshot(), summary), path, default="png")


SINK = SinkKind(
    MemoryPlotOptions,
    MemoryPlotSink,
    in_folder=True,
    default=MemoryPlotOptions(),
    close_order=CloseOrder.PICTURES,
    exports=(Export("memory-plot", "the memory over the steps of one rank: .png, .svg or .pdf", export_memory_plot),),
)
