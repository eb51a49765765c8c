"""``timing.log``: the readable log of the first seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._reports.log import Averages, render_log_summary, render_step
from .._storage.line_file import LineFile
from ..frame import StepFrame
from ..summary import Summary
from ._base import RunInfo, folder_of

if TYPE_CHECKING:
    from ..config.schema import LogOptions


class LogSink:
    """Write a section for each Nth frame; the running averages are of all recorded steps."""

    def __init__(self, options: LogOptions, run: RunInfo) -> None:
        self._every = options.every
        self._flush_every = options.flush_every
        self._count = 0
        self._sections = 0
        self._averages = Averages()
        self._clock_limit_ns = run.clock_limit_ns
        self._file = LineFile(folder_of(run).rank_path / "timing.log", options.flush_s, run.clock)

    def write(self, frame: StepFrame) -> None:
        """Append the frame's section."""
        self._count += 1
        if self._count % self._every:
            self._averages.count(frame)
            return
        self._file.write(render_step(frame, self._averages, self._clock_limit_ns()))
        self._sections += 1
        if self._flush_every is not None and self._sections % self._flush_every == 0:
            self._file.flush()

    def close(self, summary: Summary) -> None:
        """Append the statistics of the run and write what is pending."""
        try:
            self._file.write(render_log_summary(summary))
        finally:
            self._file.close()
