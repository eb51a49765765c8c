"""Pause Python's garbage collector during our own work, whose objects are freed by their reference counts."""

from __future__ import annotations

import gc
from types import TracebackType

_pausing: set[GcPaused] = set()
"""The blocks that have disabled the collector."""


class GcPaused:
    """A ``with`` block in which Python's garbage collector is disabled, unless it was already.

    A summary of hundreds of rows makes thousands of objects, all freed when it is drawn. They would make the collector
    run again and again, in the end over everything that the program holds: 80 to 190 ms where torch is imported, in a
    step of the user's. Where an exception of a signal handler leaves the block half way, ``resume`` ends the pause.
    """

    __slots__ = ("_paused",)

    def __init__(self) -> None:
        self._paused = False

    def __enter__(self) -> None:
        if gc.isenabled():
            self._paused = True
            _pausing.add(self)
            gc.disable()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resume()

    def resume(self) -> None:
        """Enable the collector again, if the block has disabled it."""
        if self._paused:
            gc.enable()
            self._paused = False
            _pausing.discard(self)


def collects_garbage() -> bool:
    """Return whether the program has the collector enabled."""
    return gc.isenabled() or bool(_pausing)


def age_all() -> None:
    """Move all objects to the collector's oldest generation, without looking at them.

    After an import with the collector paused there are tens of thousands of young objects, nearly all of which stay:
    the next collection of young ones would take as long as a long step, and may be due in the first step of a training.
    Nothing is done where the program has frozen objects itself, which this would thaw.
    """
    if hasattr(gc, "freeze") and not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()
