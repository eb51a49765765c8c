"""``memory.png``: drawn at the end, and now and then before it, without ever slowing a step."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from .._reports.memory import name_memory
from ..frame import StepFrame
from ..summary import Summary
from ._base import RunInfo, folder_of
from ._history import History
from ._redraw import Redrawer, write_picture

if TYPE_CHECKING:
    from ..config.schema import MemoryPlotOptions

PICTURE: Final = "memory.png"


class MemoryPlotSink:
    """Keep the memory readings of a run, bounded, and have them drawn.

    Before the end another process draws (``redraw``), started here so that no step pays for starting it.
    matplotlib is imported in this process only by ``close``. A run without a reading gets no picture.
    """

    def __init__(self, options: MemoryPlotOptions, run: RunInfo) -> None:
        self._run = run
        self._picture = folder_of(run).path / PICTURE
        self._history = History()
        self._redraw_s = options.redraw_s
        self._redrawer: Redrawer | None = None
        self._due = float("inf")
        if options.redraw_s is not None and sys.executable:
            try:
                self._redrawer = Redrawer(folder_of(run).rank_path / f".{PICTURE}.data", self._picture)
            except OSError:  # no process to be had here: there is still the picture at the end
                return
            self._due = run.clock() + options.redraw_s

    def write(self, frame: StepFrame) -> None:
        """Take the frame's readings; ask for a drawing when it is due."""
        if frame.memory:
            self._history.add(frame.step, frame.memory)
        now = self._run.clock()
        if now >= self._due and self._redrawer is not None and self._redraw_s is not None:
            self._due = now + self._redraw_s
            summary = next(self._run.refined())  # times and memory come first
            self._redrawer.ask(self._history.snapshot(name_memory(summary.rows, summary.memory_table)))

    def close(self, summary: Summary) -> None:
        """Draw the whole run."""
        if self._redrawer is not None:
            self._redrawer.close()
            self._redrawer = None
        names = name_memory(summary.rows, summary.memory_table)
        if len(self._history) or names:
            write_picture(self._history.snapshot(names), self._picture)
