"""``trace.json``: a window of steps for Perfetto (ui.perfetto.dev) or chrome://tracing, for every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._reports.trace import CLOSE, OPEN, TraceEncoder
from .._storage.line_file import LineFile
from ..frame import StepFrame
from ..summary import Summary
from ._base import RunInfo, folder_of
from ._window import StepWindow

if TYPE_CHECKING:
    from ..config.schema import TraceOptions

BYTES_PER_MB = 1_000_000


class TraceSink:
    """Write the steps of the window; the file is closed when the window is, or the size limit is reached."""

    def __init__(self, options: TraceOptions, run: RunInfo) -> None:
        self._window = StepWindow(options.first, options.count)
        self._left = options.max_mb * BYTES_PER_MB - len(OPEN) - len(CLOSE)
        self._encoder = TraceEncoder(run.rank)
        self._file = LineFile(folder_of(run).rank_path / "trace.json", options.flush_s, run.clock)
        self._file.write(OPEN)
        self._open = True

    def write(self, frame: StepFrame) -> None:
        """Append the frame's events if it is in the window."""
        if not self._open or not self._window.takes(frame):
            if self._window.over:
                self._finish()
            return
        events = self._encoder.encode(frame)
        self._left -= len(events.encode("utf-8", "replace"))
        if self._left < 0:
            self._finish()
        else:
            self._file.write(events)

    def _finish(self) -> None:
        if self._open:
            self._open = False
            try:
                self._file.write(CLOSE)
            finally:
                self._file.close()

    def close(self, summary: Summary) -> None:
        """Close the array and the file."""
        self._finish()
