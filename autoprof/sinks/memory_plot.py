"""``memory.png``: the memory over the steps of a run, drawn at its end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import numpy as np

from ..base.frame import NOT_MEASURED, StepFrame
from ..base.options import Options
from ..base.process.address_space import require_address_space
from ..base.storage.atomic import write_atomic
from ..base.summary import Summary
from ..diagnose import SavedSteps
from ..errors import OutputError
from ..reports.figures import check_format, encode_figure, save_figure
from ..reports.memory import MemoryHistory, memory_figure
from ._base import RunInfo, folder_of
from ._kind import CloseOrder, Export, SinkKind

DRAWING_NS: Final = 1_000_000_000
"""Processor time of importing matplotlib and drawing once, measured."""
POINTS: Final = 2048
"""Points kept: more than a picture has pixels for."""


class History:
    """Keep a point for every ``stride`` steps, the largest reading of each kind; a full history doubles its stride."""

    def __init__(self) -> None:
        self.stride = 1
        self._count = 0
        self._points: list[tuple[int, Mapping[str, int]]] = []

    def __len__(self) -> int:
        return len(self._points)

    def add(self, step: int, readings: Mapping[str, int]) -> None:
        """Add the readings of one step."""
        if self._count % self.stride:
            readings = _larger(self._points.pop()[1], readings)
        elif len(self._points) == POINTS:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [(later[0], _larger(earlier[1], later[1])) for earlier, later in pairs]
            self.stride *= 2
        self._points.append((step, readings))
        self._count += 1

    def snapshot(self) -> MemoryHistory:
        """Return an immutable copy."""
        kinds = dict.fromkeys(kind for _, readings in self._points for kind in readings)
        return MemoryHistory(
            steps=np.array([step for step, _ in self._points], dtype=np.int64),
            series={
                kind: np.array([readings.get(kind, NOT_MEASURED) for _, readings in self._points], dtype=np.int64)
                for kind in kinds
            },
            stride=self.stride,
        )


def _larger(one: Mapping[str, int], other: Mapping[str, int]) -> Mapping[str, int]:
    return {kind: max(one.get(kind, NOT_MEASURED), other.get(kind, NOT_MEASURED)) for kind in {**one, **other}}


class MemoryPlotOptions(Options):
    """The picture `memory.png`, drawn at the end.

    Without the key `sinks` it is drawn only in a run whose budget has a second left for it: of 100 s or more at 1 %.
    """


class MemoryPlotSink:
    """Keep the memory readings of a run, bounded, and draw them at its end.

    A run without a reading gets no picture, and neither does one that named no sink and is too short to afford it:
    ``autoprof show RUN --memory-plot`` draws it from the records.
    """

    def __init__(self, options: MemoryPlotOptions, run: RunInfo) -> None:
        self._picture = folder_of(run).path / "memory.png"
        self._history = History()
        self._allowance = run.figures

    def write(self, frame: StepFrame) -> None:
        """Add the frame's readings."""
        if frame.memory:
            self._history.add(frame.step, frame.memory)

    def close(self, summary: Summary) -> None:
        """Draw the whole run."""
        if not len(self._history):
            return
        with nullcontext() if self._allowance is None else self._allowance.work():
            if self._allowance is None or self._allowance.affords(DRAWING_NS):
                require_address_space(128)  # matplotlib and the drawing take 73 MiB
                write_atomic(self._picture, encode_figure(memory_figure(self._history.snapshot(), summary)))


def export_memory_plot(saved: SavedSteps, path: Path) -> None:
    """Draw the memory of one rank, in the format of the file's name (PNG without one). Raises ``OutputError``."""
    check_format(path, default="png")
    history = History()
    for frame in saved.frames(saved.rank):
        if frame.memory:
            history.add(frame.step, frame.memory)
    if not len(history):
        raise OutputError(f"{path}: there is nothing to draw; the records have no reading of memory")
    save_figure(memory_figure(history.snapshot(), saved.summary()), path, default="png")


SINK = SinkKind(
    MemoryPlotOptions,
    MemoryPlotSink,
    in_folder=True,
    default=MemoryPlotOptions(),
    close_order=CloseOrder.PICTURES,
    exports=(Export("memory-plot", "the memory over the steps of one rank: .png, .svg or .pdf", export_memory_plot),),
)
