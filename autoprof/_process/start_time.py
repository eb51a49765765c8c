"""The processor time of autoprof outside of steps, of the thread that does the work: no other program changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import local
from time import thread_time_ns


class StartTime(local):
    """Add up the processor time before a session: loading autoprof, finding the training, and opening the session.

    Each thread has its own sum. ``take`` hands it to the session that opens.
    """

    def __init__(self, now_ns: Callable[[], int] = thread_time_ns) -> None:
        self._now_ns = now_ns
        self._spent_ns = 0
        self._began_ns: int | None = None

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the block; a block inside it counts once."""
        if self._began_ns is not None:
            yield
            return
        self._began_ns = self._now_ns()
        try:
            yield
        finally:
            self.add(self._now_ns() - self._began_ns)
            self._began_ns = None

    def add(self, ns: int) -> None:
        """Add time that was measured elsewhere."""
        self._spent_ns += ns

    def take(self) -> int:
        """Return the time since the last session of this thread, with the open block so far, and begin anew."""
        spent_ns, self._spent_ns = self._spent_ns, 0
        if self._began_ns is not None:
            now_ns = self._now_ns()
            spent_ns += now_ns - self._began_ns
            self._began_ns = now_ns
        return spent_ns


start_time = StartTime()
