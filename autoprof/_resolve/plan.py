"""The spans that a sequence of marks stands for, without any time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from .._capture.marks.codes import Label
from ..frame import NOT_MEASURED, TRAINING_LANE, Layout, Nanoseconds, Phase

BACKWARD_NAME = "(backward)"
"""The name of a backward pass outside all instrumented modules: the loss, and operations between the targets."""

MEMORY_VALUES: Final = 3
"""Values of one memory reading: allocated bytes, the running peak, reserved bytes."""


@dataclass(frozen=True, slots=True)
class BackwardCall:
    """One call of a module whose backward is timed: the index of its label, and the ordinal of the call around it.

    A checkpointed call has the label of the innermost target that contains it.
    """

    index: int
    parent: int | None


@dataclass(frozen=True)
class Plan:
    """The spans of one sequence of marks, in columns with one entry a span.

    ``starts`` and ``ends`` are positions of marks; the step's end is one past the last mark. ``logged`` is the position
    of the value that is the span's duration, or -1. ``memory`` (6 × spans) has the positions of the values read at the
    span's start and end (``MEMORY_VALUES`` each) or ``NOT_MEASURED``; it is None where no span has any. ``values`` are
    the positions that hold a value in place of a clock reading. ``hidden`` spans, of a model that is no target, are
    counted by phase and not shown. ``pauses`` are pairs of positions. ``calls`` has a call by its ordinal.
    ``unmatched`` counts marks without a counterpart, ``foreign_recomputes`` recomputed calls outside
    ``torch.utils.checkpoint``. ``repeatable`` is False where a mark refers to a
    call of an earlier step: the same codes then mean another call in each step. ``micro_steps`` is as in ``StepFrame``.
    """

    layout: Layout
    starts: Nanoseconds
    ends: Nanoseconds
    memory: Nanoseconds | None
    logged: Nanoseconds
    values: Nanoseconds
    pauses: tuple[tuple[int, int], ...]
    hidden: tuple[int, ...]
    calls: Mapping[int, BackwardCall]
    unmatched: int
    foreign_recomputes: int
    overhead_ns: int
    repeatable: bool
    micro_steps: int | None = None

    @cached_property
    def logged_spans(self) -> Nanoseconds:
        """The spans whose duration was measured elsewhere (``log_timing``)."""
        return np.flatnonzero(self.logged >= 0)

    @cached_property
    def shown(self) -> ShownSpans:
        """The spans that a frame has: all but the hidden ones."""
        return ShownSpans(self.layout, self.hidden)


class ShownSpans:
    """The layout without its hidden spans, and the index of each span in it.

    ``hidden`` has the self time of the hidden spans by phase, as spans and the signs with which their times are added.
    """

    def __init__(self, layout: Layout, hidden: tuple[int, ...]) -> None:
        dropped = set(hidden)
        kept = [span for span in range(len(layout)) if span not in dropped]
        place = {span: at for at, span in enumerate(kept)} | {-1: -1}
        parents = []
        for span in kept:
            parent = layout.parents[span]
            while parent in dropped:
                parent = layout.parents[parent]
            parents.append(place[parent])
        self.spans = as_column(kept)
        self.layout = Layout(
            names=tuple(layout.names[span] for span in kept),
            fqns=tuple(layout.fqns[span] for span in kept),
            phases=tuple(layout.phases[span] for span in kept),
            parents=tuple(parents),
            calls=tuple(layout.calls[span] for span in kept),
            lanes=tuple(layout.lanes[span] for span in kept),
        )
        terms: dict[Phase, dict[int, int]] = {}
        for span in hidden:
            if layout.lanes[span] == TRAINING_LANE:
                signs = terms.setdefault(layout.phases[span], {})
                signs[span] = signs.get(span, 0) + 1
        for span, parent in enumerate(layout.parents):
            if parent in dropped and layout.lanes[parent] == TRAINING_LANE:
                signs = terms[layout.phases[parent]]
                signs[span] = signs.get(span, 0) - 1
        kinds = {phase: [span for span, sign in signs.items() if sign] for phase, signs in terms.items()}
        self.hidden = tuple(
            (phase, as_column(spans), as_column([terms[phase][span] for span in spans]))
            for phase, spans in kinds.items()
        )


class SpanColumns:
    """The columns of a plan while the planner appends spans to them, parents before their children."""

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.lanes: list[int] = []
        self.logged: dict[int, int] = {}
        self.hidden: list[int] = []
        self.memory: dict[tuple[int, bool], list[int]] = {}
        """Positions of memory values, by span and by whether they were read at its end."""
        self._names: list[str] = []
        self._fqns: list[str | None] = []
        self._phases: list[Phase] = []
        self._calls: list[int] = []

    def open(self, lane: int, parent: int, at: int, label: Label | None, phase: Phase, calls: int) -> int:
        """Append a span that begins at the mark ``at`` and has no length yet; no label means ``BACKWARD_NAME``."""
        self.parents.append(parent)
        self._names.append(label.name if label else BACKWARD_NAME)
        self._fqns.append(label.fqn if label else None)
        self._phases.append(phase)
        self._calls.append(calls)
        self.lanes.append(lane)
        self.starts.append(at)
        self.ends.append(at)
        if label and not label.shown:
            self.hidden.append(len(self.parents) - 1)
        return len(self.parents) - 1

    def close(self, span: int, at: int) -> None:
        """End a span at the mark ``at``."""
        self.ends[span] = at

    def layout(self) -> Layout:
        """Return the names and the nesting of the spans."""
        return Layout(
            names=tuple(self._names),
            fqns=tuple(self._fqns),
            phases=tuple(self._phases),
            parents=tuple(self.parents),
            calls=tuple(self._calls),
            lanes=tuple(self.lanes),
        )

    def logged_column(self) -> Nanoseconds:
        """Return the column ``Plan.logged``."""
        return as_column([self.logged.get(span, -1) for span in range(len(self.parents))])

    def memory_columns(self) -> Nanoseconds | None:
        """Return the columns ``Plan.memory``."""
        if not self.memory:
            return None
        positions = np.full((2 * MEMORY_VALUES, len(self.parents)), NOT_MEASURED, dtype=np.int64)
        for (span, at_end), at in self.memory.items():
            if span >= 0:
                first = MEMORY_VALUES if at_end else 0
                positions[first : first + min(len(at), MEMORY_VALUES), span] = at[:MEMORY_VALUES]
        return positions


def as_column(values: list[int]) -> Nanoseconds:
    """Return the values as a column of integers."""
    return np.array(values, dtype=np.int64)
