"""The spans that a sequence of marks stands for, without any time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from ..base.frame import BACKWARD_NAME, NOT_MEASURED, TRAINING_LANE, Layout, Nanoseconds, Phase
from ..capture.marks.codes import Label

MEMORY_VALUES: Final = 2
"""Values of one memory reading: allocated bytes, the running peak."""


@dataclass(frozen=True, slots=True)
class BackwardCall:
    """One call of a module whose backward is timed: the index of its label, and the ordinal of the call around it.

    A checkpointed call has the label of the innermost target that contains it.
    """

    index: int
    parent: int | None


@dataclass(slots=True)
class PlannedSpan:
    """A span from the mark ``start`` to the mark ``end``; no label means ``BACKWARD_NAME``."""

    lane: int
    parent: int
    start: int
    end: int
    label: Label | None
    phase: Phase
    calls: int
    logged: int = -1
    memory: dict[bool, list[int]] = field(default_factory=dict)
    """Positions of memory values, by whether they were read at the span's end."""


@dataclass(frozen=True)
class Plan:
    """The spans of one sequence of marks, in columns with one entry a span.

    ``starts`` and ``ends`` are positions of marks; the step's end is one past the last mark. ``logged`` is the position
    of the value that is the span's duration, or -1. ``memory`` (4 × spans) has the positions of the values read at the
    span's start and end (``MEMORY_VALUES`` each) or ``NOT_MEASURED``; it is None where no span has any. ``values`` are
    the positions that hold a value in place of a clock reading. ``hidden`` spans, of a model that is no target, are
    counted by phase and not shown. ``pauses`` are pairs of positions. ``calls`` has a call by its ordinal.
    ``unmatched`` counts marks without a counterpart. ``repeatable`` is False where a mark refers to a call of an
    earlier step: the same codes then mean another call in each step.
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
    overhead_ns: int
    repeatable: bool

    @classmethod
    def of(cls, spans: Sequence[PlannedSpan], **other: Any) -> Plan:
        """Return the plan of these spans, parents before their children; ``other`` has the other fields."""
        layout = Layout(
            names=tuple(span.label.name if span.label else BACKWARD_NAME for span in spans),
            fqns=tuple(span.label.fqn if span.label else None for span in spans),
            phases=tuple(span.phase for span in spans),
            parents=tuple(span.parent for span in spans),
            calls=tuple(span.calls for span in spans),
            lanes=tuple(span.lane for span in spans),
        )
        memory: Nanoseconds = np.full((2 * MEMORY_VALUES, len(spans)), NOT_MEASURED, dtype=np.int64)
        for at, span in enumerate(spans):
            for at_end, positions in span.memory.items():
                kept = positions[:MEMORY_VALUES]
                memory[MEMORY_VALUES * at_end : MEMORY_VALUES * at_end + len(kept), at] = kept
        return cls(
            layout=layout,
            starts=as_column([span.start for span in spans]),
            ends=as_column([span.end for span in spans]),
            memory=memory if any(span.memory for span in spans) else None,
            logged=as_column([span.logged for span in spans]),
            hidden=tuple(at for at, span in enumerate(spans) if span.label and not span.label.shown),
            **other,
        )

    @cached_property
    def by_stream(self) -> dict[Any, Any]:
        """The plans of ``device`` with the spans on the lanes of their streams, by the streams of the marks."""
        return {}

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


def as_column(values: list[int]) -> Nanoseconds:
    """Return the values as a column of integers."""
    return np.array(values, dtype=np.int64)
