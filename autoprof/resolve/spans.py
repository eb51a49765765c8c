"""What a plan is, and the columns it is written in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..recorder import Label
from ..span import NOT_MEASURED, Layout, Nanoseconds, Phase

BACKWARD_NAME = "(backward)"
"""What a backward pass spends in no instrumented module: the loss, and whatever lies between the targets."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a module whose backward is followed: its label, and the call it was made in (or None)."""

    index: int
    parent: int | None


@dataclass(frozen=True)
class Plan:
    """The spans of one sequence of marks, in columns.

    Times are positions of marks; the step's end is one past the last. ``logged`` has the position of a value that is
    the span's length, or -1. ``values`` are the positions that hold values in place of readings. ``calls`` finds a
    call by its ordinal. ``unmatched`` counts marks without a counterpart. ``repeatable`` is False where a mark refers
    to a call of an earlier step: the same codes mean another call each time. ``micro_steps`` is as in ``StepFrame``.
    """

    layout: Layout
    starts: Nanoseconds
    ends: Nanoseconds
    memory_starts: Nanoseconds | None
    memory_ends: Nanoseconds | None
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
        self.memory: dict[tuple[int, bool], int] = {}
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
        memory_starts = memory_ends = None
        if self.memory:
            memory_starts = _column([self.memory.get((span, False), NOT_MEASURED) for span in spans])
            memory_ends = _column([self.memory.get((span, True), NOT_MEASURED) for span in spans])
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
            memory_starts=memory_starts,
            memory_ends=memory_ends,
            logged=_column([self.logged.get(span, -1) for span in spans]),
            values=_column(values),
            pauses=tuple(pauses),
            calls=calls,
            unmatched=unmatched,
            overhead_ns=overhead_ns,
            repeatable=repeatable,
        )


def _column(values: list[int]) -> Nanoseconds:
    return np.array(values, dtype=np.int64)
