"""Which steps a sink that draws every span of a step takes."""

from __future__ import annotations

from ..frame import StepFrame


class StepWindow:
    """The recorded steps from ``first`` on (None: the first one past the warm-up), ``count`` of them (None: all)."""

    def __init__(self, first: int | None, count: int | None) -> None:
        self._first = first
        self._left = count
        self.over = False

    def takes(self, frame: StepFrame) -> bool:
        """Say whether this frame, the next of the run, is in the window."""
        if self.over or (frame.warmup if self._first is None else frame.step < self._first):
            return False
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                self.over = True
                return False
        return True
