"""Write to a stream of the program's without waiting for its reader, and without text left in its buffer.

A terminal stopped by Ctrl-S, a pipe whose reader pauses (``less``) or a connection that hangs would block the training.
So a text is written only where the reader takes it now: through a file descriptor of its own that never blocks (the
program's descriptor, which others share, stays as it is). What the program has buffered is written first.
"""

from __future__ import annotations

import io
import os
import select
import stat
import time
from contextlib import suppress
from typing import Final, TextIO

END_WAIT_S: Final = 5.0
"""The longest wait for a reader at the end of a run."""
REST_WAIT_S: Final = 0.2
"""The longest wait for a reader that has taken a part of a text: the program's next print would land inside of it."""
_POLL_S: Final = 0.02
_NON_BLOCKING: Final = os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)


class TextOutput:
    """Texts for ``stream``. One that is written in part is completed before the next one."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._own: int | None = None
        """A descriptor of the same file that does not block."""
        self._file: tuple[int, int, int] | None = None
        """The file that the own descriptor was opened for: a program may redirect its output at any time."""
        self._rest = b""
        self._patience_s = END_WAIT_S
        """The remaining wait for the reader at the end: none once it was in vain."""

    def offer(self, text: str, *, flush: bool = True) -> bool:
        """Write the text if the reader takes it now; return False where nothing of it was written.

        ``flush`` writes the program's buffered text before it.
        """
        fd = self._descriptor()
        if fd is not None and not _takes_text(fd):
            return False
        if fd is None or type(self.stream) is not io.TextIOWrapper or os.name != "posix":
            self.stream.write(text)
            self.stream.flush()
            return True
        if flush:
            self.stream.flush()
        target = self._non_blocking(fd)
        self._rest = self._rest[_write(target, self._rest) :]
        if self._rest:
            return False
        data = text.encode(self.stream.encoding, self.stream.errors or "strict")
        written = _write(target, data)
        if 0 < written < len(data):
            self._rest = _write_rest(target, data[written:])
        return written > 0 or not data

    def write(self, text: str) -> bool:
        """Write the text, waiting some seconds for the reader, once; return False where it does not take all of it."""
        until_s = time.monotonic() + self._patience_s
        taken = self.offer(text)
        while not taken or self._rest:
            if time.monotonic() > until_s:
                self._patience_s = 0.0
                return False
            time.sleep(_POLL_S)
            taken = self.offer("" if taken else text) or taken
        return True

    def close(self) -> None:
        """Close the own descriptor; the stream stays open."""
        own, self._own, self._file = self._own, None, None
        if own is not None:
            with suppress(OSError):
                os.close(own)

    def _descriptor(self) -> int | None:
        """Return the stream's descriptor; None for a stream without a file, and for a closed one."""
        try:
            fd = self.stream.fileno()
        except (OSError, ValueError, AttributeError):
            return None
        return fd if fd >= 0 else None

    def _non_blocking(self, fd: int) -> int:
        """Return the own descriptor of a terminal or a pipe; elsewhere ``fd``, which shares its position in a file."""
        state = os.fstat(fd)
        file = (state.st_dev, state.st_ino, state.st_rdev)
        if file != self._file:
            self.close()
            self._file, self._rest = file, b""
            if os.isatty(fd) or stat.S_ISFIFO(state.st_mode):
                with suppress(OSError):
                    self._own = os.open(f"/proc/self/fd/{fd}", _NON_BLOCKING)
        return fd if self._own is None else self._own


def _takes_text(fd: int, wait_s: float = 0.0) -> bool:
    """Return whether a write does not wait. An end without a reader is True: the write raises the error."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(1000 * wait_s))


def _write(fd: int, data: bytes) -> int:
    try:
        return os.write(fd, data) if data else 0
    except BlockingIOError:
        return 0


def _write_rest(fd: int, data: bytes) -> bytes:
    """Write as much as the reader takes within a short time; return the rest."""
    until_s = time.monotonic() + REST_WAIT_S
    while data and (wait_s := until_s - time.monotonic()) > 0 and _takes_text(fd, wait_s):
        data = data[_write(fd, data) :]
    return data
