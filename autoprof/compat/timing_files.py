"""The files of one timing logger: the log that people read, and the records that everything else is made from."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from .._reports.log import Averages
from .._storage.line_file import LineFile
from .._storage.steps_jsonl import FrameEncoder
from ..errors import OutputError
from ..frame import StepFrame
from .timing_text import render_timing_step

NEVER: Final = float("inf")
"""Seconds until a flush by itself: here the steps decide."""

logger = logging.getLogger("autoprof")


class TimingFiles:
    """Write steps; a file that cannot be written any more is given up, and that is said once."""

    def __init__(self, folder: Path, rank: int, flush_every: int) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(
                f"TimingLogger: log_dir {folder} cannot be made ({error.strerror}); it must be a folder"
            ) from error
        self.log = _free(folder.absolute(), rank)
        self.records = self.log.with_suffix(".jsonl")
        self._lines: dict[Path, LineFile] = {}
        for path in (self.log, self.records):
            self._lines[path] = LineFile(path, NEVER, time.monotonic)
        self._encode = FrameEncoder().encode
        self._averages = Averages()
        self._every = flush_every
        self._left = flush_every

    def write(self, frame: StepFrame, covered_ns: int, parents: Mapping[str, str | None]) -> None:
        """Append a step to both files; at each Nth step hand them to the system."""
        text = render_timing_step(frame, self._averages, covered_ns, parents)
        self._attempt(self.log, lambda file: file.write(text))
        self._attempt(self.records, lambda file: file.write(self._encode(frame)))
        self._left -= 1
        if not self._left:
            self.flush()

    def write_text(self, text: str) -> None:
        """Append a text to the log."""
        self._attempt(self.log, lambda file: file.write(text))

    def flush(self) -> None:
        """Hand what is pending to the system."""
        self._left = self._every
        for path in (self.log, self.records):
            self._attempt(path, LineFile.flush)

    def close(self) -> None:
        """Write what is pending and close both files."""
        for path in (self.log, self.records):
            self._attempt(path, LineFile.close)

    def _attempt(self, path: Path, action: Callable[[LineFile], None]) -> None:
        file = self._lines.get(path)
        if file is None:
            return
        try:
            action(file)
        except OSError as error:
            del self._lines[path]
            logger.warning(f"{path}: nothing more is written after {type(error).__name__}: {error}")


def _free(folder: Path, rank: int) -> Path:
    """Return a log of this second that nobody has: two loggers must not write into one another."""
    stamp, number = int(time.time()), 0
    of_rank = f"_rank{rank}" if rank else ""
    while True:
        again = f"_{number}" if number else ""
        path = folder / f"timing_{stamp}{again}{of_rank}.log"
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            number += 1
            continue
        except OSError as error:
            raise OutputError(
                f"TimingLogger: {path} cannot be written ({error.strerror}); log_dir must be a folder that this user "
                "may write to"
            ) from error
        return path
