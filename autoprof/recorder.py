"""The hot path: marks. One mark is one reading of the clock and one append to the step's buffer.

The buffer is a flat list with two items a mark, code and reading, so that an append is one ``list.extend`` (atomic
under the GIL, so threads share the buffer without a lock) and nothing the garbage collector walks is made. A mark of a
thread beside the training thread comes with one before it that names the thread.
A code is an integer: kind (4 bits), index of the name (20 bits) and, where backward has to find the call again, the
call's ordinal above them.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from .clocks import Clock
from .names import clean_name
from .signals import raised_by_handler
from .span import Phase, ShapeChange

KIND_BITS: Final = 4
INDEX_BITS: Final = 20
ORDINAL_SHIFT: Final = KIND_BITS + INDEX_BITS
KIND_MASK: Final = (1 << KIND_BITS) - 1
INDEX_MASK: Final = (1 << INDEX_BITS) - 1
ORDINAL: Final = 1 << ORDINAL_SHIFT
STEP: Final = ORDINAL << 28
"""How far apart the ordinals of two steps lie: a code that refers to an earlier step's call is that much lower."""

ENTER: Final = 0
"""A span begins."""
RECOMPUTE: Final = 1
"""A module's forward begins inside a backward pass."""
RESUME: Final = 2
"""A suspended call (generator, coroutine) goes on: a span, but no further call."""
LEAVE: Final = 3
"""A span ends."""
START: Final = 4
"""The node that made a call's output starts: that call's backward begins, unless it runs already."""
END: Final = 5
"""The node that made a call's input starts: the backward of that call, and of all later calls, is over."""
PASS: Final = 6
"""The node of an output that was there before the call: the call passes it through, its backward takes no time."""
GRAPH_BEGIN: Final = 7
"""A backward pass reaches the first hooked node."""
GRAPH_END: Final = 8
"""A backward pass is over."""
LOGGED: Final = 9
"""A duration measured elsewhere; the reading is the duration."""
MEMORY: Final = 10
"""Bytes at the last mark of this thread; the reading is the bytes. Of an allocator three follow one another: what is
allocated, the running peak of that, what is reserved."""
PAUSE: Final = 11
UNPAUSE: Final = 12
THREAD: Final = 13
"""The next mark is not the training thread's; the reading is the thread's identifier."""

VALUES: Final = frozenset({LOGGED, MEMORY, THREAD})
"""Kinds whose reading is a value, not a time."""

MARKS: Final = 1_000_000
"""Marks kept of one step. What a longer step makes beyond them is counted as dropped."""
FULL: Final = 2 * MARKS
NAMES: Final = 4096
"""Names that code may make up while it runs; what comes beyond shares one."""
UNTIMED_LEAF: Final = "backward of calls that return a leaf"
"""Why a call has no backward span although a gradient may reach its output: no node made that output."""
UNTIMED_HIDDEN: Final = "backward of calls whose output was not searched to its end"
"""Why a call may have no backward span: too much lies around whatever tensors its output holds."""


class Label(NamedTuple):
    """What a code's index stands for."""

    name: str
    fqn: str | None
    phase: Phase
    phases: frozenset[Phase]


class Taken(NamedTuple):
    """A step's marks: codes and readings, whose they are where no thread is named, if one is, how many were dropped.

    The readings become an array where steps are resolved, several at a time: here, with cold caches, that took half of
    a step's end.
    """

    codes: list[int]
    readings: list[Any]
    thread: int
    mixed: bool
    dropped: int
    shapes: tuple[ShapeChange, ...] = ()
    detail_ns: int = 0


class Recorder:
    """The open step's buffer, the names its codes stand for, and the marks of backward nodes."""

    def __init__(self, clock: Clock) -> None:
        # One list and one bound method for the whole run: hooks hold them in their closures, and the
        # torch.compile of torch 2.4 and 2.6 compiles a hooked model anew when a closure of a hook holds another object.
        self.buffer: list[Any] = []
        self._keep = self.buffer.extend
        self.extend: Callable[[tuple[Any, ...]], None] = self._keep
        self.thread = threading.get_ident()
        self.mixed = False
        self.alone = True
        """Whether no other thread has ever made a mark; while it is so, a LEAVE need not ask whose it is."""
        self.clock = clock
        self.read = clock.read
        self.on_device = clock.device_type is not None
        """Whether readings are a device's."""
        self.serial = 0
        self.number = _made()
        self.ordinals = itertools.count(ORDINAL, ORDINAL)
        self.next_ordinal = self.ordinals.__next__
        self.labels: list[Label] = []
        self.dropped = 0
        self.shapes: list[ShapeChange] = []
        """What ``detail: shapes`` has met in the open step: once for each different set of shapes."""
        self.detail_ns = 0
        """What looking at shapes has cost in the open step."""
        self.failures: dict[str, int] = {}
        self.untimed: dict[str, int] = {}
        self.resting = False
        """Whether the open step is left alone: what asks first makes no mark, what does not makes one for nothing."""
        self._user: dict[str, int] = {}
        self._labelling = threading.Lock()
        self._renewals: list[Callable[[], None]] = []
        self._step_renewals: list[Callable[[], None]] = []

    @property
    def keeps(self) -> bool:
        """Whether ``extend`` appends to the buffer, and does nothing else."""
        return self.extend is self._keep

    def on_change(self, renew: Callable[[], None]) -> None:
        """Have ``renew`` called whenever ``extend``, ``read``, ``thread`` or ``alone`` has changed."""
        self._renewals.append(renew)

    def on_step(self, renew: Callable[[], None]) -> None:
        """Have ``renew`` called at each new step, when ``serial`` has changed."""
        self._step_renewals.append(renew)

    def _renew(self) -> None:
        for renew in self._renewals:
            renew()

    def use_clock(self, clock: Clock) -> None:
        """Read another clock, or this one from another home, from now on; the marks so far must have been taken."""
        self.clock = clock
        self.read = clock.read
        self.on_device = clock.device_type is not None
        self._renew()

    def label(self, name: str, fqn: str | None, phase: Phase, phases: frozenset[Phase] | None = None) -> int:
        """Return the shifted index that stands for this name in codes; ``phases`` are those that become spans."""
        label = Label(clean_name(name), fqn, phase, phases or frozenset((phase,)))
        with self._labelling:  # another thread's label between the append and the count would take this one's place
            self.labels.append(label)
            return (len(self.labels) - 1) << KIND_BITS

    def user_code(self, name: str) -> int:
        """Return the shifted index of a name that the user's code made up, the same for the same name."""
        code = self._user.get(name)
        if code is None:
            if len(self._user) >= NAMES:
                name = f"(beyond {NAMES} names)"
                code = self._user.get(name)
                if code is not None:
                    return code
            code = self._user[name] = self.label(str(name), None, Phase.USER)
        return code

    def mark(self, code: int) -> None:
        """Append one mark. Never raises: it is called in the middle of the user's code."""
        if self.resting:
            return
        try:
            self.append(code, self.read(), threading.get_ident())
        except Exception:
            self.fail("marks")

    def value(self, code: int, value: int) -> None:
        """Append a value in a reading's place: a duration or a number of bytes."""
        self.append(code, value, threading.get_ident())

    def append(self, code: int, reading: Any, thread: int) -> None:
        """Append a mark of any thread, naming it if it is not the training thread, while there is room."""
        if len(self.buffer) >= FULL:
            self.overflow()
        if thread == self.thread:
            self.extend((code, reading))
        else:
            self.mixed = True
            if self.alone:
                self.alone = False
                self._renew()
            self.extend((THREAD, thread, code, reading))

    def overflow(self) -> None:
        """Only count what the rest of this step would append."""
        self.extend = self._drop
        self._renew()

    def _drop(self, _mark: tuple[Any, ...]) -> None:
        self.dropped += 1

    def holds(self, phase: Phase) -> bool:
        """Tell whether a span of this phase has begun in the open step."""
        return any(
            code & KIND_MASK == ENTER and self.labels[code >> KIND_BITS & INDEX_MASK].phase is phase
            for code in self.buffer[0::2]
        )

    def fail(self, where: str) -> None:
        """Count a failure of our own, from inside its ``except``; what the user's signal handler raised goes on."""
        error = sys.exc_info()[1]
        if error is not None and raised_by_handler(error):
            raise error
        self.count(where)

    def count(self, where: str) -> None:
        """Count something that went wrong; the summary says it."""
        self.failures[where] = self.failures.get(where, 0) + 1

    def leave_untimed(self, reason: str) -> None:
        """Count a call whose backward cannot be timed."""
        self.untimed[reason] = self.untimed.get(reason, 0) + 1

    def take(self) -> Taken:
        """Take the step's marks out of the buffer; from now on the calling thread is the training thread.

        Marks that other threads append meanwhile stay for the next step.
        """
        count = len(self.buffer)
        codes, readings = self.buffer[0:count:2], self.buffer[1:count:2]
        shapes, detail_ns = tuple(self.shapes), self.detail_ns
        taken = Taken(codes, readings, self.thread, self.mixed, self.dropped, shapes, detail_ns)
        if detail_ns or shapes:
            del self.shapes[: len(shapes)]
            self.detail_ns = 0
        del self.buffer[:count]
        self.mixed = False
        self.dropped = 0
        self.serial += 1
        self.ordinals = itertools.count(ORDINAL, ORDINAL)
        self.next_ordinal = self.ordinals.__next__
        thread = threading.get_ident()
        if thread != self.thread or self.extend is not self._keep:
            self.thread, self.extend = thread, self._keep
            self._renew()
        for renew in self._step_renewals:
            renew()
        return taken

    def rest(self, on: bool) -> None:
        """Take no marks from now on, or take them again, for a new step on the calling thread."""
        self.resting = on
        if on:
            self.extend = _nothing
            self._renew()
        else:
            self.take()

    def stop(self) -> None:
        """Append nothing any more: nodes of a graph that outlives the session keep their hooks."""
        self.extend = _nothing
        self.buffer.clear()
        self._renew()


def _nothing(_mark: tuple[Any, ...]) -> None:
    pass


active: Recorder | None = None
"""The recorder that ``span`` and ``timed`` write to: of those recording now, the one made last; None when none is."""
_recording: list[Recorder] = []
_made = itertools.count().__next__


def activate(recorder: Recorder, on: bool) -> None:
    """Let this recorder take part in being ``active``, or no longer."""
    global active
    if on and recorder not in _recording:
        _recording.append(recorder)
        _recording.sort(key=lambda one: one.number)
    elif not on and recorder in _recording:
        _recording.remove(recorder)
    active = _recording[-1] if _recording else None
