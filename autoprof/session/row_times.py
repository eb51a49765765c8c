"""Add up the times of recorded rows over some steps."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.frame import TRAINING_LANE, Layout, Nanoseconds, Phase
from ..base.stats import step_rows


class RowTimes:
    """The times of the steps of one set of targets, by the name of a row: all phases together."""

    def __init__(self) -> None:
        self.steps = self.step_ns = self.shortest_ns = 0
        self.self_ns: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        self._total_ns: dict[str, int] = {}
        self._sums: dict[Layout, tuple[int, Nanoseconds]] = {}

    def add(self, layout: Layout, step_ns: Sequence[int], total_ns: Nanoseconds) -> None:
        """Add steps of one layout; ``total_ns`` (steps × spans) are the times of their spans."""
        steps = len(step_ns)
        if steps:
            self.shortest_ns = min(self.shortest_ns or step_ns[0], *step_ns)
            self.steps += steps
            self.step_ns += sum(step_ns)
            count, ns = self._sums.get(layout, (0, 0))
            self._sums[layout] = count + steps, ns + total_ns.sum(axis=0)

    def sum_up(self) -> RowTimes:
        """Compute the times of the rows in the steps so far."""
        for layout, (count, ns) in self._sums.items():
            rows = step_rows(layout)
            totals, selves = rows.totals(ns).tolist(), rows.sums(layout.self_ns(ns)).tolist()
            for key, row_ns, self_ns, calls in zip(rows.keys, totals, selves, rows.calls.tolist(), strict=True):
                name, phase, lane = key
                if lane != TRAINING_LANE or not phase.traits.in_module:
                    continue
                # A recompute lies inside the backward of its module, or of the module around it.
                self._total_ns[name] = self._total_ns.get(name, 0) + (0 if phase is Phase.RECOMPUTE else row_ns)
                self.self_ns[name] = self.self_ns.get(name, 0) + self_ns
                if phase is Phase.FORWARD:
                    self.calls[name] = self.calls.get(name, 0) + calls * count
        self._sums.clear()
        return self

    def share(self, name: str) -> float:
        """Return the part of the steps' time in which the row ran."""
        return self._total_ns.get(name, 0) / max(self.step_ns, 1)

    def own_share(self, name: str) -> float:
        """Return the part of the steps' time in which the row ran and no recorded row inside it."""
        return self.self_ns.get(name, 0) / max(self.step_ns, 1)
