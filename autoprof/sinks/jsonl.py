"""``steps.jsonl``: one JSON object a step, for every rank."""

from __future__ import annotations

from pydantic import Field

from .._options import Options
from .._storage.line_file import LineFile
from .._storage.steps_jsonl import FrameEncoder
from ..frame import StepFrame
from ..summary import Summary
from ._base import RunInfo, folder_of
from ._kind import CloseOrder, SinkKind


class JsonlOptions(Options):
    """The records `steps.jsonl`, one JSON object a step."""

    every: int = Field(default=1, ge=1, strict=True)
    """Write each Nth recorded step."""
    flush_s: float = Field(default=5.0, ge=0, strict=True, allow_inf_nan=False)
    """The longest time that a record may wait before it reaches the file, in seconds."""


class JsonlSink:
    """Write each Nth frame as a line that ``autoprof.read_run`` reads back exactly."""

    def __init__(self, options: JsonlOptions, run: RunInfo) -> None:
        self._every = options.every
        self._count = 0
        self._encoder = FrameEncoder()
        self._file = LineFile(folder_of(run).rank_path / "steps.jsonl", options.flush_s, run.clock)

    def write(self, frame: StepFrame) -> None:
        """Append the frame's line."""
        self._count += 1
        if self._count % self._every == 0:
            self._file.write(self._encoder.encode(frame))
        else:
            self._encoder.skip(frame)

    def close(self, summary: Summary) -> None:
        """Write the pending lines and close the file."""
        self._file.close()


SINK = SinkKind(JsonlOptions, JsonlSink, in_folder=True, every_rank=True, default=True, close_order=CloseOrder.FILES)
