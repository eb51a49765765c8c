"""``steps.jsonl``: one JSON object a step, for every rank; ``spans.bin``: the times of its spans."""

from __future__ import annotations

from pydantic import Field

from ..base.frame import StepFrame
from ..base.options import Options
from ..base.storage.records import REMOVED_STEPS, RecordWriter
from ..base.summary import Summary
from ._base import RunInfo, folder_of
from ._kind import CloseOrder, SinkKind


class JsonlOptions(Options):
    """The records: `steps.jsonl`, one JSON object a step, and `spans.bin`, the times of its spans."""

    flush_s: float = Field(default=5.0, ge=0, strict=True, allow_inf_nan=False)
    """The longest time that a record may wait before it reaches the file, in seconds."""


class JsonlSink:
    """Write each frame as a record that ``autoprof.read_run`` reads back exactly."""

    def __init__(self, options: JsonlOptions, run: RunInfo) -> None:
        self._records = RecordWriter(folder_of(run).rank_path, options.flush_s, run.clock, max_bytes=run.max_bytes)
        self._warn = run.warn

    def write(self, frame: StepFrame) -> None:
        """Append the frame's record; those of several steps are made together."""
        self._records.write(frame)
        if self._records.has_removed_steps:
            self._warn(REMOVED_STEPS)

    def close(self, summary: Summary) -> None:
        """Write the pending records and close the files."""
        self._records.close()


SINK = SinkKind(
    JsonlOptions,
    JsonlSink,
    in_folder=True,
    every_rank=True,
    default=JsonlOptions(),
    grows=True,
    close_order=CloseOrder.FILES,
)
