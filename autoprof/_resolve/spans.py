"""What a plan is, and the columns it is written in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from .._capture.marks import Label
from ..frame import NOT_MEASURED, Layout, Nanoseconds, Phase

BACKWARD_NAME = "(backward)"
"""What a backward pass spends in no instrumented module: the loss, and whatever lies between the targets."""

VALUES: Final = 3
"""Values that a mark of memory has at most: the level, its running peak, what is reserved."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a module whose backward is followed: its label, and the call it was made in (or None)."""

    index: int
    parent: int | None


@dataclass(frozen=True)
class Plan:
    """The spans of one sequence of marks, in columns.

    Times are positions of marks; the step's end is one past the last. ``logged`` has the position of a value that is
    the span's length, or -1. ``values`` are the positions that hold values in place of readings. ``memory`` (6 × spans)
    has the positions of what a span began with and ended with: the level, its running peak, what is reserved, or
    ``NOT_MEASURED``; it is None where no span has any. ``calls`` finds a
    call by its ordinal. ``unmatched`` counts marks without a counterpart. ``repeatable`` is False where a mark refers
    to a call of an earlier step: the same codes mean another call each time. ``micro_steps`` is as in ``StepFrame``.
    """

    layout: Layout
    starts: Nanoseconds
    ends: Nanoseconds
    memory: Nanoseconds | None
    logged: Nanoseconds
    values: Nanoseconds
    pauses: tuple[tuple[int, int], ...]
    calls: dict[int, Call]
    unmatched: int
    overhead_ns: int
    repeatable: bool
    micro_steps: int | None = None

    @cached_property
    def logged_spans(self) -> Nanoseconds:
        """Spans whose duration was measured elsewhere."""
        return np.flatnonzero(self.logged >= 0)


class SpanColumns:
    """Spans being written down, parents before their children."""

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.lanes: list[int] = []
        self.logged: dict[int, int] = {}
        self.memory: dict[tuple[int, bool], list[int]] = {}
        self._names: list[str] = []
        self._fqns: list[str | None] = []
        self._phases: list[Phase] = []
        self._calls: list[int] = []

    def open(self, lane: int, parent: int, at: int, label: Label | None, phase: Phase, calls: int) -> int:
        """Begin a span at the mark ``at``; until it is closed it has no length. No label means ``BACKWARD_NAME``."""
        self.parents.append(parent)
        self._names.append(label.name if label else BACKWARD_NAME)
        self._fqns.append(label.fqn if label else None)
        self._phases.append(phase)
        self._calls.append(calls)
        self.lanes.append(lane)
        self.starts.append(at)
        self.ends.append(at)
        return len(self.parents) - 1

    def close(self, span: int, at: int) -> None:
        """End a span at the mark ``at``."""
        self.ends[span] = at

    def plan(
        self,
        values: list[int],
        pauses: list[tuple[int, int]],
        calls: dict[int, Call],
        unmatched: int,
        overhead_ns: int,
        repeatable: bool,
    ) -> Plan:
        """Return the finished plan."""
        spans = range(len(self.parents))
        return Plan(
            layout=Layout(
                names=tuple(self._names),
                fqns=tuple(self._fqns),
                phases=tuple(self._phases),
                parents=tuple(self.parents),
                calls=tuple(self._calls),
                lanes=tuple(self.lanes),
            ),
            starts=_column(self.starts),
            ends=_column(self.ends),
            memory=self._memory(),
            logged=_column([self.logged.get(span, -1) for span in spans]),
            values=_column(values),
            pauses=tuple(pauses),
            calls=calls,
            unmatched=unmatched,
            overhead_ns=overhead_ns,
            repeatable=repeatable,
        )

    def _memory(self) -> Nanoseconds | None:
        if not self.memory:
            return None
        positions = np.full((2 * VALUES, len(self.parents)), NOT_MEASURED, dtype=np.int64)
        for (span, ended), at in self.memory.items():
            if span >= 0:
                first = VALUES if ended else 0
                positions[first : first + min(len(at), VALUES), span] = at[:VALUES]
        return positions


def _column(values: list[int]) -> Nanoseconds:
    return np.array(values, dtype=np.int64)
