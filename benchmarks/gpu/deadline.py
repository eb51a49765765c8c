"""The time of a run on a rented device: every part has a share of the time left."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic


class Deadline:
    """A number of seconds from now on."""

    def __init__(self, seconds: float, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._end = now() + seconds

    def left_s(self) -> float:
        """Return the seconds left; none after the end."""
        return max(0.0, self._end - self._now())

    def share(self, fraction: float) -> Deadline:
        """Return a deadline at this fraction of the time that is left."""
        return Deadline(fraction * self.left_s(), self._now)
