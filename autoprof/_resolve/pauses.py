"""The pauses of a step: what lies inside is no part of it."""

from __future__ import annotations

from .lanes import Lane


class Pauses:
    """Note where a step pauses. ``found`` has the marks of begin (-1: before the step) and end."""

    def __init__(self) -> None:
        self.found: list[tuple[int, int]] = []
        self._at = -1
        self._lane: Lane | None = None
        self._depth = 0

    def hides(self, lane: Lane) -> bool:
        """Whether what begins on this lane now is no span: a hook may mark the call that it was taken off in."""
        return lane is self._lane

    def begin(self, lane: Lane, at: int) -> None:
        """Begin a pause, unless one is open."""
        if self._at < 0:
            self._at, self._lane, self._depth = at, lane, len(lane.stack)

    def end(self, lane: Lane, at: int) -> int:
        """End a pause; return the depth of the lane's stack above which there is only what began in it.

        Without a mark of its beginning, it began before the step did.
        """
        self.found.append((self._at, at))
        depth = self._depth if self._lane is lane else len(lane.stack)
        self._at, self._lane = -1, None
        return min(depth, len(lane.stack))

    def finish(self, end: int) -> None:
        """End the step."""
        if self._at >= 0:
            self.found.append((self._at, end))
