"""Add up the times of recorded rows over some steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .._stats import step_rows
from ..frame import TRAINING_LANE, Layout, Nanoseconds, Phase, StepFrame


class RowTimes(NamedTuple):
    """The times of some steps by the name of a row: total and self time of all phases, and calls in a step."""

    step_ns: int
    shortest_ns: int
    total_ns: Mapping[str, int]
    self_ns: Mapping[str, int]
    calls: Mapping[str, float]

    def share(self, name: str) -> float:
        """Return the part of the steps' time in which the row ran."""
        return self.total_ns.get(name, 0) / max(self.step_ns, 1)

    def own_share(self, name: str) -> float:
        """Return the part of the steps' time in which the row ran and no recorded row inside it."""
        return self.self_ns.get(name, 0) / max(self.step_ns, 1)


class RowMeter:
    """Add up the steps of one set of targets."""

    def __init__(self) -> None:
        self.steps = self._step_ns = self._shortest_ns = 0
        self._sums: dict[Layout, tuple[int, Nanoseconds]] = {}

    def add(self, frame: StepFrame) -> None:
        """Add one step."""
        self._shortest_ns = min(self._shortest_ns, frame.step_ns) if self.steps else frame.step_ns
        self.steps += 1
        self._step_ns += frame.step_ns
        count, ns = self._sums.get(frame.layout, (0, 0))
        self._sums[frame.layout] = count + 1, ns + frame.total_ns

    def times(self) -> RowTimes:
        """Return the times of the steps so far."""
        total: dict[str, int] = {}
        own: dict[str, int] = {}
        calls: dict[str, float] = {}
        for layout, (count, ns) in self._sums.items():
            rows = step_rows(layout)
            totals, selves = rows.totals(ns).tolist(), rows.sums(layout.self_ns(ns)).tolist()
            for key, row_ns, self_ns, row_calls in zip(rows.keys, totals, selves, rows.calls.tolist(), strict=True):
                if key.lane != TRAINING_LANE or not key.phase.traits.in_module:
                    continue
                # A recompute lies inside the backward of its module, or of the module around it.
                total[key.name] = total.get(key.name, 0) + (0 if key.phase is Phase.RECOMPUTE else row_ns)
                own[key.name] = own.get(key.name, 0) + self_ns
                if key.phase is Phase.FORWARD:
                    calls[key.name] = calls.get(key.name, 0.0) + row_calls * count / self.steps
        return RowTimes(self._step_ns, self._shortest_ns, total, own, calls)
