"""``trace.speedscope.json``: a window of steps for speedscope (https://www.speedscope.app), for every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._reports.speedscope import SpeedscopeEncoder, speedscope_file
from .._storage.runs import write_atomic
from ..frame import StepFrame
from ..summary import Summary
from ._base import RunInfo, folder_of
from ._window import StepWindow
from .trace import BYTES_PER_MB

if TYPE_CHECKING:
    from ..config.schema import SpeedscopeOptions


class SpeedscopeSink:
    """Gather the steps of the window and write them in one go when it is over: the format has no half of a file."""

    def __init__(self, options: SpeedscopeOptions, run: RunInfo) -> None:
        folder = folder_of(run)
        self._path = folder.rank_path / "trace.speedscope.json"
        self._name = folder.path.name
        self._window = StepWindow(options.first, options.count)
        self._limit = options.max_mb * BYTES_PER_MB
        self._frames: dict[tuple[str, str | None], int] = {}
        self._encoder: SpeedscopeEncoder | None = SpeedscopeEncoder(run.rank, frames=self._frames)

    def write(self, frame: StepFrame) -> None:
        """Take the frame if it is in the window."""
        encoder = self._encoder
        if encoder is None:
            return
        if self._window.takes(frame):
            encoder.add(frame)
            if encoder.size >= self._limit:
                self._finish()
        elif self._window.over:
            self._finish()

    def _finish(self) -> None:
        encoder, self._encoder = self._encoder, None
        if encoder is not None and encoder.size:
            write_atomic(self._path, speedscope_file([encoder], self._frames, self._name))

    def close(self, summary: Summary) -> None:
        """Write what was gathered, unless that is done."""
        self._finish()
