"""A file that grows by whole lines: it holds only whole lines, also after the process was killed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ..errors import OutputError

BUFFER_BYTES: Final = 64 * 1024
"""The most text in memory, in characters: a write of so much takes about 30 µs."""


class LineFile:
    """Collect lines and append them in one write when ``flush_s`` seconds have passed.

    If the process is killed, lines of at most ``flush_s`` seconds are lost. Where the system writes only a part (a full
    disk), the file is truncated to its previous length before the error is raised.
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
        """Add text that ends with a newline; write all pending text when it is due."""
        self._pending.append(lines)
        self._size += len(lines)
        if self._size >= BUFFER_BYTES or self._clock() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Write the pending text, all of it or none."""
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
        """Write the pending text and close the file, also when the write fails. A second call does nothing."""
        if self._file < 0:
            return
        try:
            self.flush()
        finally:
            file, self._file = self._file, -1
            os.close(file)
