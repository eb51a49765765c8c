"""A file that grows by whole lines: whatever kills the process, what is in the file are whole lines."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ..errors import OutputError

BUFFER_BYTES: Final = 64 * 1024
"""Text kept back at most, by characters: one write then costs about 30 µs."""


class LineFile:
    """Collect lines and hand them to the system in one append when they are due.

    What is kept back is lost with the process, at most ``flush_s`` seconds of it; what has been written is not. Where
    the system takes only a part (a full disk), that part is cut off again before the error is raised.
    """

    def __init__(self, path: Path, flush_s: float, clock: Callable[[], float]) -> None:
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            allowed = "it must be a file in a folder that this user may write to"
            raise OutputError(f"{path}: cannot be written ({error.strerror}); {allowed}") from error
        self._flush_s = flush_s
        self._clock = clock
        self._pending: list[str] = []
        self._size = 0
        self._due = clock() + flush_s

    def write(self, lines: str) -> None:
        """Take text that ends with a newline; write all that is pending when it is due."""
        self._pending.append(lines)
        self._size += len(lines)
        if self._size >= BUFFER_BYTES or self._clock() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Write what is pending, all of it or none."""
        self._due = self._clock() + self._flush_s
        if not self._pending:
            return
        data = memoryview("".join(self._pending).encode("utf-8", "replace"))
        self._pending.clear()
        self._size = 0
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            if written:
                os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise

    def close(self) -> None:
        """Write what is pending and close the file, also when the write fails. A second call does nothing."""
        if self._file < 0:
            return
        try:
            self.flush()
        finally:
            file, self._file = self._file, -1
            os.close(file)
