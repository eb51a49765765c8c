"""Change marks of the open step that were made before it was known that they belong to no step."""

from __future__ import annotations

from threading import get_ident
from typing import Any, Final

from .._capture.marks.codes import (
    BACKWARD_END,
    ENTER,
    INDEX_MASK,
    KIND_BITS,
    KIND_MASK,
    LEAVE,
    PAUSE,
    THREAD,
    UNPAUSE,
    VALUE_KINDS,
)
from .._capture.recorder import Recorder
from ..frame import Phase
from ..summary import UNGRADED
from .events import OutermostModuleCall

_WITHOUT_MEANING: Final = BACKWARD_END
"""A code that changes nothing outside of a backward pass."""


class StepMarks:
    """The marks of the open step, as they lie in the recorder's buffer."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._ungraded: int | None = None

    def __len__(self) -> int:
        return len(self._recorder.buffer)

    def mark_edge(self) -> int:
        """Append a mark that has no meaning yet, and return its position."""
        self._recorder.append(_WITHOUT_MEANING, self._recorder.clock.read(), get_ident())
        return len(self) - 2

    def calls_since(self, start: int) -> tuple[OutermostModuleCall, ...]:
        """Return the outermost calls of modules that the training thread made since this position."""
        buffer, labels = self._recorder.buffer, self._recorder.labels
        calls: list[OutermostModuleCall] = []
        inside, paused = -1, False
        for at in range(start, len(buffer), 2):
            code = buffer[at]
            kind = code & KIND_MASK
            if kind in (PAUSE, UNPAUSE):
                paused = kind == PAUSE
            if paused or kind not in (ENTER, LEAVE) or (at and buffer[at - 2] & KIND_MASK == THREAD):
                continue
            index = code >> KIND_BITS & INDEX_MASK
            if inside < 0 and kind == ENTER and (fqn := labels[index].fqn) is not None:
                calls.append(OutermostModuleCall(at, -1, fqn))
                inside = code & ~KIND_MASK
            elif kind == LEAVE and code & ~KIND_MASK == inside:
                calls[-1] = calls[-1]._replace(end=at)
                inside = -1
        return tuple(calls)

    def end_of_loop(self, start_ns: int, updated_at: int) -> int | None:
        """Return the position behind the last mark of the training; None where the step goes on until now.

        No event ends the last step of a loop: a plot drawn after the loop, or the next model's parameters, are no part
        of it. It ends where more time follows the update, which was at this position, than came before it.
        """
        buffer, host_ns = self._recorder.buffer, self._recorder.clock.host_ns
        passed_ns, limit_ns, before_ns, paused = 0, 0, start_ns, False
        end: int | None = None
        for at in range(0, len(buffer), 2):
            kind = buffer[at] & KIND_MASK
            if kind in VALUE_KINDS:
                continue
            ns = host_ns(buffer[at + 1])
            passed_ns += 0 if paused else max(ns - before_ns, 0)
            if at < updated_at or (at == updated_at and kind == LEAVE and self._phase(at) is Phase.OPTIMIZER):
                limit_ns = 2 * passed_ns
            elif passed_ns > limit_ns:
                return end
            before_ns, end = ns, at + 2
            paused = kind == PAUSE or (paused and kind != UNPAUSE)
        now = self._recorder.clock.read()
        passed_ns += 0 if paused else host_ns(now) - before_ns
        self._recorder.clock.release((now,))
        return end if passed_ns > limit_ns else None

    def exclude(self, start: int, end: int) -> int:
        """Turn the marks from ``start`` to ``end`` into a pause; return its length in ns, without pauses inside."""
        buffer, host_ns = self._recorder.buffer, self._recorder.clock.host_ns
        length_ns, paused, before_ns = 0, False, host_ns(buffer[start + 1])
        for at in [*self._changeable(start, end), end]:
            kind, ns = buffer[at] & KIND_MASK, host_ns(buffer[at + 1])
            length_ns += 0 if paused else ns - before_ns
            paused, before_ns = kind == PAUSE or (paused and kind != UNPAUSE), ns
            buffer[at] = PAUSE
        buffer[end] = UNPAUSE
        return length_ns

    def rename(self, start: int, end: int) -> None:
        """Turn the calls whose first mark is at ``start``, and last one at ``end``, into one span of no module."""
        buffer = self._recorder.buffer
        if self._ungraded is None:
            self._ungraded = self._recorder.label(UNGRADED, None, Phase.USER)
        for at in self._changeable(start, end):
            buffer[at] = _WITHOUT_MEANING
        buffer[start], buffer[end] = self._ungraded | ENTER, self._ungraded | LEAVE

    def _changeable(self, start: int, end: int) -> list[int]:
        buffer = self._recorder.buffer
        return [
            at
            for at in range(start, end, 2)
            if buffer[at] & KIND_MASK not in VALUE_KINDS and not (at and buffer[at - 2] & KIND_MASK == THREAD)
        ]

    def begin_of_fetches(self, end: int) -> int:
        """Return the position at which the fetches and copies begin that end right before ``end``."""
        while (start := self._ends_a_fetch(end)) is not None:
            end = start
        return end

    def retract_fetches(self) -> Any:
        """Turn the marks of the last fetches and copies into a pause; return the reading at its begin, or None."""
        end = len(self)
        start = self.begin_of_fetches(end)
        if start == end:
            return None
        for at in self._changeable(start, end):
            self._recorder.buffer[at] = PAUSE
        return self._recorder.buffer[start + 1]

    def _phase(self, at: int) -> Phase:
        index: int = self._recorder.buffer[at] >> KIND_BITS & INDEX_MASK
        return self._recorder.labels[index].phase

    def _ends_a_fetch(self, end: int) -> int | None:
        """Return the position of the begin of the span that ends before ``end``, if it is a fetch or a copy."""
        buffer = self._recorder.buffer
        if end < 4 or buffer[end - 2] & KIND_MASK != LEAVE:
            return None
        index = buffer[end - 2] & ~KIND_MASK
        if self._phase(end - 2) not in (Phase.DATA, Phase.H2D):
            return None
        depth = 0
        for at in range(end - 2, -1, -2):
            if buffer[at] & ~KIND_MASK == index:
                depth += 1 if buffer[at] & KIND_MASK == LEAVE else -1
                if not depth:
                    return at
        return None
