"""``OtherThreads``: module calls on other threads than the training thread: what recording them costs, and its limits.

An actor of a reinforcement-learning loop, an evaluator of averaged weights, a server beside the training: such threads
call the model while it trains. Their marks take the hooks in Python, and steps in which threads take turns have no
sequence of marks in common, so each of them is planned anew. A replica of ``nn.DataParallel`` and a recomputation in
a backward pass are parts of the training step: they are not counted here.
"""

from __future__ import annotations

from time import thread_time_ns
from typing import Final, NamedTuple

from .marks.state import PythonMarkBuffer

MAX_OTHER_MARKS: Final = 2_000
"""Marks of other threads that one step records: planning these takes about 10 ms."""


class OtherMarks(NamedTuple):
    """Marks of module calls on other threads in one step, their cost on those threads, and the calls passed over."""

    marks: int = 0
    ns: int = 0
    skipped: int = 0
    exceeded: bool = False
    """Whether the step had more of them than it may."""


class OtherThreads:
    """Count the marks of other threads in the open step, and switch them off.

    ``buffer`` is the recorder's, whose hooks in C pass over these calls without the hooks in Python.
    """

    __slots__ = ("_buffer", "_exceeded", "_marks", "_ns", "_off", "_skipped", "recorded")

    def __init__(self, buffer: PythonMarkBuffer) -> None:
        self.recorded = True
        """Whether module calls on other threads are recorded now."""
        self._buffer = buffer
        self._marks = self._ns = self._skipped = 0
        self._off = self._exceeded = False

    def begin(self) -> int:
        """Return the CPU time of this thread before a mark, or 0 where the mark is not to be made."""
        if self.recorded:
            return thread_time_ns() or 1
        self._skipped += 1
        return 0

    def end(self, begun_ns: int) -> None:
        """Count a mark that was made."""
        self._marks += 1
        self._ns += thread_time_ns() - begun_ns
        if self._marks >= MAX_OTHER_MARKS and self.recorded:
            self._exceeded = True
            self._record(False)

    def switch_off(self) -> None:
        """Record no call on another thread any more."""
        self._off = True
        self._record(False)

    def take(self) -> OtherMarks:
        """Return the counts of the step that ends, and begin those of the next one."""
        self._skipped += self._buffer.skipped
        self._buffer.skipped = 0
        if not (self._marks or self._skipped):
            return NO_OTHER_MARKS
        taken = OtherMarks(self._marks, self._ns, self._skipped, self._exceeded)
        self._marks = self._ns = self._skipped = 0
        if self._exceeded:
            self._exceeded = False
            self._record(not self._off)
        return taken

    def _record(self, on: bool) -> None:
        self.recorded = on
        self._buffer.skips_other_threads = not on


NO_OTHER_MARKS: Final = OtherMarks()
