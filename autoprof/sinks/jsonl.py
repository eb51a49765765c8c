"""``steps.jsonl``: one JSON object a step, for every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._reports.jsonl import FrameEncoder
from .._storage.line_file import LineFile
from ..frame import StepFrame
from ..summary import Summary
from ._base import RunInfo, folder_of

if TYPE_CHECKING:
    from ..config.schema import JsonlOptions


class JsonlSink:
    """Write each Nth frame as a line that ``autoprof.read_run`` reads back exactly."""

    def __init__(self, options: JsonlOptions, run: RunInfo) -> None:
        self._every = options.every
        self._count = 0
        self._encode = FrameEncoder().encode
        self._file = LineFile(folder_of(run).rank_path / "steps.jsonl", options.flush_s, run.clock)

    def write(self, frame: StepFrame) -> None:
        """Append the frame's line."""
        self._count += 1
        if self._count % self._every == 0:
            self._file.write(self._encode(frame))

    def close(self, summary: Summary) -> None:
        """Write what is pending."""
        self._file.close()
