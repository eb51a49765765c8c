"""Steps whose events are those of the step before: they are compared, and not decided on again.

The detector is a function of its state and of the event. A step that begins and ends in the same state is remembered
with its events and the decisions on them. Where another step begins in that state, the same events have the same
decisions, and the state at its end is known: it is enough to compare them. At the first other event the detector first
receives those that were compared, and decides from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol
from weakref import ref

from ..base.allowance import SAMPLED_CALLS
from .events import OFF, Decision, EndStep, Event, Fetch, UpdateEnds
from .step_detector import StepDetector

MAX_EVENTS: Final = 4096
"""A step with more events is not remembered: one that never ends would fill the memory."""


class OpenMarks(Protocol):
    """The marks of the open step."""

    @property
    def buffer(self) -> Sized:
        """The marks."""

    def calls_since(self, start: int) -> Sequence[str]:
        """Return what ``events.Marks.calls_since`` does."""


class _Step(NamedTuple):
    """A step that begins and ends in the same state of the detector."""

    state: tuple[Any, ...]
    events: tuple[Event, ...]
    """Those after the begin, the one that ends it included; a ``Fetch`` has a weak reference to its source."""
    decisions: tuple[Sequence[Decision], ...]
    updates: tuple[tuple[int, int], ...]
    """The optimizers that made updates, by id, and how many."""


class RepeatedSteps:
    """Decide on the events of a program, by comparison or by the detector. Neither notices the difference.

    ``sampled`` returns the context of one event that stands for many; ``fail`` handles a failure of ours.
    """

    def __init__(
        self,
        detector: StepDetector,
        marks: OpenMarks,
        sampled: Callable[[], AbstractContextManager[object]],
        fail: Callable[[str], None],
    ) -> None:
        self._detector = detector
        self._marks = marks
        self._sampled = sampled
        self._fail = fail
        self.is_off = False
        """Whether no event is wanted any more."""
        self._decided = 0
        """The events since one was measured."""
        self._known: _Step | None = None
        """The step that repeats."""
        self._at = -1
        """The number of its events that the open step has had; -1 where the detector has them."""
        self._repeats = 0
        """Whole steps that the detector has not counted."""
        self._sources: list[Any] = []
        """The sources of the fetches that were compared in the open step."""
        self._update_position: int | None = None
        """The position of the last update that was compared in the open step; None: the detector asks the marks."""
        # The open step, while the detector decides.
        self._state: tuple[Any, ...] | None = None
        """The detector's state at its begin; None where the step cannot be remembered."""
        self._events: list[Event] = []
        self._decisions: list[Sequence[Decision]] = []
        self._counts: dict[int, int] = {}

    def decide(self, event: Event) -> Sequence[Decision]:
        """Return the decisions on this event, in the order in which they are to be carried out."""
        if self.is_off:
            return OFF
        self._decided += 1
        if self._decided == SAMPLED_CALLS:
            self._decided = -1  # this event is counted once more
            with self._sampled():
                return self.decide(event)
        try:
            at, known = self._at, self._known
            if at >= 0 and known is not None:
                expected = known.events[at]
                if event.__class__ is expected.__class__ and (
                    event == expected if event.__class__ is not Fetch else self._is_same_fetch(event, expected)
                ):
                    at += 1
                    if at < len(known.events):
                        self._at = at
                        if event.__class__ is UpdateEnds:
                            self._update_position = len(self._marks.buffer)
                    else:
                        self._at, self._update_position = 0, None
                        self._repeats += 1
                        self._sources.clear()
                    return known.decisions[at - 1]
            return self._decide_anew(event)
        except Exception:
            self._fail("events")
            return ()

    def _decide_anew(self, event: Event) -> Sequence[Decision]:
        if self._detector.ignores(event):  # before anything changes: it may come from another thread
            return ()
        self.catch_up()
        try:
            decisions = self._detector.decide(event, self)
            self._remember(event, decisions)
        except BaseException:
            self._state = None
            raise
        return decisions

    def _is_same_fetch(self, event: Any, expected: Any) -> bool:
        if expected.source() is not event.source or event[1:] != expected[1:]:
            return False
        self._sources.append(event.source)
        return True

    def catch_up(self) -> StepDetector:
        """Return the detector, which has received all events."""
        at, known, self._at = self._at, self._known, -1
        if at < 0 or known is None:
            return self._detector
        for optimizer, updates in known.updates if self._repeats else ():
            self._detector.count_skipped(optimizer, updates * self._repeats)
        self._repeats = 0
        self._begin(known.state)
        sources = iter(self._sources)
        for event, decisions in zip(known.events[:at], known.decisions, strict=False):
            seen = event._replace(source=next(sources)) if isinstance(event, Fetch) else event
            self._detector.decide(seen, self)
            self._events.append(event)
            self._decisions.append(decisions)
        self._sources.clear()
        self._update_position = None
        return self._detector

    def count_skipped(self, optimizer: int, updates: int) -> None:
        """Count updates of an optimizer that were not reported, each a step of its own."""
        self._state = None
        self._detector.count_skipped(optimizer, updates)

    # ``Marks`` for the detector.

    @property
    def position(self) -> int:
        """The position of the next mark, or where the detector catches up, that of the last update."""
        return len(self._marks.buffer) if self._update_position is None else self._update_position

    def calls_since(self, start: int) -> Sequence[str]:
        """Return the fqns of the modules called since this position. A step that needs them is not remembered."""
        self._state = None
        return self._marks.calls_since(start)

    # To remember a step.

    def _begin(self, state: tuple[Any, ...] | None) -> None:
        self._state = state
        self._events, self._decisions = [], []
        self._counts = dict(self._detector.updates)

    def _remember(self, event: Event, decisions: Sequence[Decision]) -> None:
        if isinstance(event, Fetch):
            try:
                event = event._replace(source=ref(event.source))
            except TypeError:  # a list, to which there are no weak references
                self._state = None
        if self._state is not None:
            self._events.append(event)
            self._decisions.append(tuple(decisions))
        if len(self._events) > MAX_EVENTS:
            self._begin(None)
        if not any(isinstance(decision, EndStep) for decision in decisions):
            return
        state = self._detector.state()
        if self._state == state:
            counts = self._detector.updates
            made = ((one, count - self._counts.get(one, 0)) for one, count in counts.items())
            updates = tuple((one, count) for one, count in made if count)
            self._known = _Step(state, tuple(self._events), tuple(self._decisions), updates)
        if self._known is not None and self._known.state == state:
            self._at = 0
        else:
            self._begin(state)
