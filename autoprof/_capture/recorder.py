"""The hot path: marks. One mark is one reading of the clock and one append to the step's buffer.

The buffer is a flat sequence with two items a mark, code and reading, so that an append is one ``extend`` (atomic under
the GIL, so threads share the buffer without a lock) and nothing the garbage collector walks is made: a ``Tape`` of C,
which keeps integers as such, or where that was not built, a list. A mark of a thread beside the training thread comes
with one before it that names the thread.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, MutableSequence
from typing import Any, Final

from .._names import clean_name
from .._process.signals import raised_by_handler
from ..frame import Phase, ShapeChange
from .clocks import Clock
from .marks import ENTER, FULL, INDEX_MASK, KIND_BITS, KIND_MASK, ORDINAL, THREAD, Label, Taken, extension, in_c

NAMES: Final = 4096
"""Names that code may make up while it runs; what comes beyond shares one."""


class Recorder:
    """The open step's buffer, the names its codes stand for, and the marks of backward nodes."""

    def __init__(self, clock: Clock) -> None:
        # One list and one bound method for the whole run: hooks hold them in their closures, and the
        # torch.compile of torch 2.4 and 2.6 compiles a hooked model anew when a closure of a hook holds another object.
        self.serial = 0
        self.tape = extension.Tape(ORDINAL, self.serial) if in_c() else None
        self._list: list[Any] = []
        self.buffer: MutableSequence[Any] = self._list if self.tape is None else self.tape
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
        self.number = _made()
        self.next_ordinal: Callable[[], int] = self._count() if self.tape is None else self.tape.next_ordinal
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
        codes = (self.buffer[at] for at in range(0, len(self.buffer), 2))
        return any(
            code & KIND_MASK == ENTER and self.labels[code >> KIND_BITS & INDEX_MASK].phase is phase for code in codes
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
        self.serial += 1
        kept, values = self._take_list() if self.tape is None else self.tape.take(self.serial)
        shapes, detail_ns = tuple(self.shapes), self.detail_ns
        taken = Taken(kept, values, self.thread, self.mixed, self.dropped, shapes, detail_ns)
        if detail_ns or shapes:
            del self.shapes[: len(shapes)]
            self.detail_ns = 0
        self.mixed = False
        self.dropped = 0
        thread = threading.get_ident()
        if thread != self.thread or self.extend is not self._keep:
            self.thread, self.extend = thread, self._keep
            self._renew()
        for renew in self._step_renewals:
            renew()
        return taken

    def _take_list(self) -> tuple[list[int], list[Any]]:
        count = len(self._list)
        codes, readings = self._list[0:count:2], self._list[1:count:2]
        del self._list[:count]
        self.next_ordinal = self._count()
        return codes, readings

    @staticmethod
    def _count() -> Callable[[], int]:
        return itertools.count(ORDINAL, ORDINAL).__next__

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
