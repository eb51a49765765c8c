"""Write to a stream of the program's without waiting for its reader.

A terminal stopped by Ctrl-S, a pipe whose reader pauses (``less``) or a connection that hangs would block the training:
a text is written only where the reader takes it now.
"""

from __future__ import annotations

import io
import os
import select
import time
from typing import TextIO


class TextOutput:
    """Texts for ``stream``, after the text that the program has buffered in it."""

    def __init__(self, stream: TextIO, end_wait_s: float = 5.0) -> None:
        self.stream = stream
        self._patience_s = end_wait_s
        """The remaining wait for the reader at the end: none once it was in vain."""

    def offer(self, text: str) -> bool:
        """Write the text if the reader takes it now; return False where nothing was written."""
        fd = self._descriptor()
        if fd is not None and not _takes_text(fd):
            return False
        if fd is None or type(self.stream) is not io.TextIOWrapper or os.name != "posix":
            self.stream.write(text)
            self.stream.flush()
            return True
        self.stream.flush()
        data = text.encode(self.stream.encoding, self.stream.errors or "strict")
        try:
            while data:
                data = data[os.write(fd, data) :]
        except BlockingIOError:  # the program's own descriptor does not block: the rest is left out
            return False
        return True

    def write(self, text: str) -> bool:
        """Write the text, waiting some seconds for the reader, once; return False where it does not take all of it."""
        # A writable pipe takes 4,096 bytes without blocking.
        piece_chars = 1024
        until_s = time.monotonic() + self._patience_s
        for at in range(0, len(text), piece_chars):
            while not self.offer(text[at : at + piece_chars]):
                if time.monotonic() > until_s:
                    self._patience_s = 0.0
                    return False
                time.sleep(0.02)
        return True

    def _descriptor(self) -> int | None:
        """Return the stream's descriptor; None for a stream without a file, and for a closed one."""
        try:
            fd = self.stream.fileno()
        except (OSError, ValueError, AttributeError):
            return None
        return fd if fd >= 0 else None


def _takes_text(fd: int) -> bool:
    """Return whether a write does not wait. An end without a reader is True: the write raises the error."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(0))
