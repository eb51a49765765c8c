"""Steps of one layout, gathered until it is worth folding them into the statistics."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..frame import Layout, Nanoseconds, StepFrame
from .rows import step_rows

BLOCK: Final = 64
"""Steps of one layout folded in together: the arithmetic's fixed cost is spread over them."""


class Block:
    """Steps of one layout waiting to be folded in.

    ``host`` and ``bound`` (what was host-bound) are None while the host's clock is the one that counts.
    """

    __slots__ = ("bound", "count", "host", "last_step", "layout", "row_of", "rows", "steps", "total")

    def __init__(self, layout: Layout, row_of: Nanoseconds) -> None:
        self.layout = layout
        self.rows = step_rows(layout)
        self.row_of = row_of
        self.count = 0
        self.last_step = -1
        self.total: Nanoseconds = np.empty((BLOCK, len(layout)), dtype=np.int64)
        self.host: Nanoseconds | None = None
        self.bound: Nanoseconds | None = None
        self.steps: Nanoseconds = np.empty(BLOCK, dtype=np.int64)

    def add(self, frame: StepFrame) -> None:
        """Gather one step."""
        position = self.count
        self.total[position] = frame.total_ns
        if frame.device_ns is not None:
            if self.host is None:
                self.host = self.total.copy()  # so far the clock that counts was the host's
            self.host[position] = frame.host_ns
            if frame.host_bound_ns is not None:
                if self.bound is None:
                    self.bound = np.zeros_like(self.total)
                self.bound[position] = frame.host_bound_ns.clip(min=0)
        elif self.host is not None:
            self.host[position] = frame.host_ns
        self.steps[position] = frame.step_ns
        self.last_step = frame.step
        self.count = position + 1
