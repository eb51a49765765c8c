"""Scalars for TensorBoard; its own writer thread writes them to the disk."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from ..base.units import NS_PER_S
from ._base import RunInfo, folder_of
from ._kind import SinkKind
from ._metrics_sink import MetricsOptions, MetricsReport, MetricsSink, load_extra


class TensorboardOptions(MetricsOptions):
    """Scalars for TensorBoard, in the run's folder."""

    folder: str | None = Field(default=None, min_length=1)
    """The folder of the event files; `null` is the folder `tensorboard` of the rank."""


class TensorboardSink(MetricsSink):
    """Write an event with all numbers of a report, at its last step."""

    def __init__(self, options: TensorboardOptions, run: RunInfo) -> None:
        writer = load_extra("tensorboard.summary.writer.event_file_writer", "tensorboard")
        self._event = load_extra("tensorboard.compat.proto.event_pb2", "tensorboard").Event
        self._summary = load_extra("tensorboard.compat.proto.summary_pb2", "tensorboard").Summary
        self.folder = folder_of(run).rank_path / "tensorboard" if options.folder is None else Path(options.folder)
        self._top = options.top
        self._writer = writer.EventFileWriter(str(self.folder), max_queue_size=100, flush_secs=10)
        super().__init__(options, run.clock)

    def report(self, report: MetricsReport) -> None:
        """Add the event to the writer's queue."""
        numbers = report.named(self._top, prefix="").items()
        values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in numbers]
        summary, time_s = self._summary(value=values), report.time_unix_ns / NS_PER_S
        self._writer.add_event(self._event(step=report.step, wall_time=time_s, summary=summary))

    def end(self) -> None:
        """Write the pending events."""
        self._writer.close()


SINK = SinkKind(
    TensorboardOptions,
    TensorboardSink,
    extra="tensorboard",
    in_folder=True,
    every_rank=True,
    remedy="set folder to a folder that can be written",
)
