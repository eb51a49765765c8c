"""Files that grow by whole lines or blocks.

A process that is killed leaves whole ones, but for the last one: the kernel ends a write between two of its pages.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ...errors import OutputError


class AppendFile:
    """A file that grows by whole pieces.

    Where the system writes only a part (a full disk), the file is truncated to its previous length before the error is
    raised.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            allowed = "it must be a file in a folder that this user may write to"
            raise OutputError(f"{path}: cannot be written ({error.strerror}); {allowed}") from error
        self.path = path
        self.size = os.fstat(self._file).st_size

    @property
    def is_open(self) -> bool:
        """False after ``close``."""
        return self._file >= 0

    def append(self, piece: bytes) -> None:
        """Write a piece, all of it or none."""
        data = memoryview(piece)
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            if written:
                os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise
        self.size += len(data)

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)


class LineFile:
    """Collect lines and append them in one write when ``flush_s`` seconds have passed.

    If the process is killed, lines of at most ``flush_s`` seconds are lost. With ``max_bytes``, a file of half of that
    is renamed to its name with ``.1`` behind it, in place of an older one, and a new file begins: the newest lines
    remain, of at least half of ``max_bytes``.
    """

    def __init__(self, path: Path, flush_s: float, clock: Callable[[], float], *, max_bytes: int | None = None) -> None:
        self._file = AppendFile(path)
        self._flush_s = flush_s
        self._clock = clock
        self._max_bytes = max_bytes
        self._pending: list[str] = []
        self._size = 0
        self._due = clock() + flush_s
        self.has_lost_lines = False
        """Whether a renamed file has replaced an older one."""

    def write(self, lines: str) -> None:
        """Add text that ends with a newline; write all pending text when it is due."""
        self._pending.append(lines)
        self._size += len(lines)
        # The most text in memory, in characters: a write of so much takes about 30 µs.
        if self._size >= 64 * 1024 or self._clock() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Write the pending text, all of it or none."""
        self._due = self._clock() + self._flush_s
        if not self._pending:
            return
        data = "".join(self._pending).encode("utf-8", "replace")
        self._pending.clear()
        self._size = 0
        if self._max_bytes is not None and self._file.size and self._file.size + len(data) > self._max_bytes // 2:
            self._begin_anew()
        self._file.append(data)

    def _begin_anew(self) -> None:
        path = self._file.path
        older = path.with_name(f"{path.name}.1")
        self.has_lost_lines = self.has_lost_lines or older.exists()
        os.replace(path, older)
        self._file.close()
        self._file = AppendFile(path)

    def close(self) -> None:
        """Write the pending text and close the file, also when the write fails. A second call does nothing."""
        if not self._file.is_open:
            return
        try:
            self.flush()
        finally:
            self._file.close()
