"""``timing.log``: the readable log."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import Field

from ..base.frame import StepFrame
from ..base.options import Options
from ..base.storage.atomic import open_replacing
from ..base.storage.line_file import LineFile
from ..base.summary import Summary
from ..diagnose import SavedSteps
from ..reports.log import render_log_summary, render_step
from ..reports.name_tree import NameAverages
from ._base import RunInfo, folder_of
from ._kind import CloseOrder, Export, SinkKind

LOST_LINES: Final = (
    "timing.log has reached its part of output_max_mb: timing.log and timing.log.1 have the last steps only; autoprof "
    "show --log writes all steps of the records"
)


class LogOptions(Options):
    """The readable file `timing.log`."""

    every: int = Field(default=1, ge=1, strict=True)
    """Write the first recorded step and each Nth after it. Without the key `sinks` it is 10."""
    flush_s: float = Field(default=5.0, ge=0, strict=True, allow_inf_nan=False)
    """The longest time that a line may wait before it reaches the file, in seconds."""
    flush_every: int | None = Field(default=None, ge=1, strict=True)
    """Flush after each Nth written step as well; `null` flushes only by `flush_s`."""


class LogSink:
    """Write a section for the first frame and each Nth after it; the running averages are of all recorded steps."""

    def __init__(self, options: LogOptions, run: RunInfo) -> None:
        self._every = options.every
        self._flush_every = options.flush_every
        self._count = 0
        self._sections = 0
        self._averages = NameAverages()
        self._clock_limit_ns = 0
        self._warn = run.warn
        self._file = LineFile(
            folder_of(run).rank_path / "timing.log", options.flush_s, run.clock, max_bytes=run.max_bytes
        )

    def calibrate(self, clock_limit_ns: int) -> None:
        """Show spans shorter than this as less than it."""
        self._clock_limit_ns = clock_limit_ns

    def write(self, frame: StepFrame) -> None:
        """Append the frame's section."""
        self._count += 1
        if (self._count - 1) % self._every:
            self._averages.count(frame)
            return
        self._file.write(render_step(frame, self._averages, self._clock_limit_ns))
        self._sections += 1
        if self._flush_every is not None and self._sections % self._flush_every == 0:
            self._file.flush()
        if self._file.has_lost_lines:
            self._warn(LOST_LINES)

    def close(self, summary: Summary) -> None:
        """Append the statistics of the run, write the pending lines and close the file."""
        try:
            self._file.write(render_log_summary(summary))
        finally:
            self._file.close()


def export_log(saved: SavedSteps, path: Path) -> None:
    """Write the readable log of one rank."""
    summary = saved.summary()
    averages = NameAverages()
    with open_replacing(path) as file:
        for frame in saved.frames(saved.rank):
            file.write(render_step(frame, averages, summary.clock_limit_ns))
        file.write(render_log_summary(summary))


SINK = SinkKind(
    LogOptions,
    LogSink,
    in_folder=True,
    default=LogOptions(every=10),  # a section takes as long as all other sinks together
    grows=True,
    close_order=CloseOrder.FILES,
    exports=(Export("log", "the readable log of one rank", export_log),),
)
