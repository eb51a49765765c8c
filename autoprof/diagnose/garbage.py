"""In which steps Python's garbage collector looked at everything: asked at each step's end, by its own counters.

A callback of the collector would tell how long that took. But what is raised in one is printed and lost, and a Ctrl-C
that comes during a long collection is raised in the first Python code after it: the callback. So none is used.
"""

from __future__ import annotations

import gc
from collections import deque
from typing import Final

KEPT: Final = 1024
"""Steps kept, the last ones: full collections are rare, and where each step has one they explain no outlier."""
SHORTEST_NS: Final = 2_000_000
"""A full collection walks what torch's import leaves, some 150,000 objects: a shorter step had none, and is not asked
for one. With cold caches the question takes 6 µs, as much as all that a step's end does for the gauges."""


class Collections:
    """The steps with a full collection."""

    def __init__(self) -> None:
        self.steps: deque[int] = deque(maxlen=KEPT)
        self.count = 0
        self._last_step = 0
        self._seen = -1

    def closed(self, step: int, length_ns: int) -> None:
        """Take note that a step has ended; after steps that nobody told of, what they collected is charged to none."""
        if length_ns < SHORTEST_NS and step == self._last_step + 1:
            self._last_step = step
            return
        seen = gc.get_stats()[2]["collections"]
        if seen != self._seen:
            if step == self._last_step + 1 and self._seen >= 0:
                self.steps.append(step)
                self.count += 1
            self._seen = seen
        self._last_step = step
