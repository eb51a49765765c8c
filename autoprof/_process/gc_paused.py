"""Python's garbage collector beside our own work, whose objects die by their counts and need none."""

from __future__ import annotations

import gc
from types import TracebackType


class GcPaused:
    """A ``with`` block in which the collector stands still, unless it did already.

    A summary of hundreds of rows makes thousands of objects, all gone when it is drawn. Meanwhile they would make the
    collector run, over and over, and in the end over everything that the program holds: 80 to 190 ms where torch is
    imported, in a step of the user's. Where a signal handler's exception gets between, ``resume`` makes up for it.
    """

    __slots__ = ("_paused",)

    def __init__(self) -> None:
        self._paused = False

    def __enter__(self) -> None:
        if gc.isenabled():
            self._paused = True
            gc.disable()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resume()

    def resume(self) -> None:
        """Let the collector run again, if the block has stopped it."""
        if self._paused:
            gc.enable()
            self._paused = False
