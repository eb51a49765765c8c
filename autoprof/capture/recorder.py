"""Record marks: one reading of the clock and one append to the step's buffer each. This is the hot path.

The buffer (``MarkBuffer`` in C) is a flat sequence with two items for each mark, code and reading. An append is one
``extend``: atomic under the GIL, so threads share the buffer without a lock, and it makes no object that the garbage
collector tracks. A mark of another thread than the training thread follows a THREAD mark that names the thread.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ..base.frame import Phase
from ..base.names import clean_name
from ..base.process.replace import skip_frames
from ..base.signals import raised_by_handler
from ..devices import Clock, DeviceClock
from .marks.codes import ENTER, INDEX_MASK, KIND_BITS, KIND_MASK, LEAVE, MAX_MARKS, PAUSE, THREAD, UNPAUSE, Label
from .marks.mark_batch import MarkBatch
from .marks.native import extension, require_extension

if TYPE_CHECKING:
    from .marks._c import MarkBuffer

MAX_USER_NAMES: Final = 4096
"""Names that code may make up while it runs; further names share one label."""


class Recorder:
    """The open step's buffer, the labels of its codes, and counts of failures."""

    def __init__(self, clock: Clock) -> None:
        self.buffer: MarkBuffer = require_extension().MarkBuffer(0, MAX_MARKS)
        self.thread = threading.get_ident()
        """Identifier of the training thread."""
        self.native_id = threading.get_native_id()
        """Identifier that the system gives to the training thread."""
        self._on_change: list[Callable[[], None]] = []
        self._context = extension.HookContext(self.buffer, fallback=self._mark_unusual, on_error=self._mark_failed)
        self.mark: Callable[[int], None] = self._context.mark
        """Append one mark of this thread, read now. Never raises: it is called in the middle of user code."""
        self.use_clock(clock)
        self.number = _next_number()
        """Number of the recorder, in the order of creation."""
        self.labels: list[Label] = []
        self.failures: dict[str, int] = {}
        self.untimed: dict[str, int] = {}
        self._user: dict[str, int] = {}
        self._labelling = threading.Lock()
        self.at_step_end: list[Callable[[], None]] = []
        """Functions that clear containers of plain values at the end of each step."""

    @property
    def serial(self) -> int:
        """Number of the open step."""
        return self.buffer.serial

    @property
    def suspended(self) -> bool:
        """Whether the open step is unsampled: nothing is appended, and callers may skip making a mark."""
        return self.buffer.suspended

    def on_change(self, update: Callable[[], None]) -> None:
        """Call ``update`` after each change of ``read`` or ``thread``."""
        self._on_change.append(update)

    def _changed(self) -> None:
        skip_frames(self.read, callees=True)  # or dynamo would compile it beside the graph of a compiled model
        self._context.update(enabled=True, training_thread=self.thread, read_clock=self.read)
        for update in self._on_change:
            update()

    def use_clock(self, clock: Clock) -> None:
        """Read another clock, or another device, from now on. The buffer must be empty."""
        if isinstance(clock, DeviceClock):
            clock.use_native(extension.EventReader)
        self.clock = clock
        self.read = clock.read
        self.on_device = clock.device_type is not None
        """Whether readings are a device's."""
        self._changed()

    def label(
        self,
        name: str,
        fqn: str | None,
        phase: Phase,
        phases: frozenset[Phase] | None = None,
        *,
        shown: bool = True,
    ) -> int:
        """Add a label and return its index, shifted for use in codes; ``phases`` are those that become spans."""
        return self.add_label(Label(clean_name(name), fqn, phase, phases or frozenset((phase,)), shown))

    def add_label(self, label: Label) -> int:
        """Add a label and return its index, shifted for use in codes."""
        with self._labelling:  # a label that another thread adds between append and len would take this one's index
            self.labels.append(label)
            return (len(self.labels) - 1) << KIND_BITS

    def user_code(self, name: str) -> int:
        """Return the shifted index of a name from user code: the same index for the same name."""
        code = self._user.get(name)
        if code is None:
            if len(self._user) >= MAX_USER_NAMES:
                name = f"(beyond {MAX_USER_NAMES} names)"
                code = self._user.get(name)
                if code is not None:
                    return code
            code = self._user[name] = self.label(str(name), None, Phase.USER)
        return code

    def _mark_unusual(self, code: int, _none: None) -> None:
        """Append a mark where the buffer has no room for it, so that it is counted."""
        self.append(code, self.read(), threading.get_ident())

    def _mark_failed(self, _code: int, _none: None, error: Exception) -> None:
        try:
            raise error  # so that it is the exception being handled
        except Exception:
            self.handle_failure("marks")

    def mark_value(self, code: int, value: int) -> None:
        """Append a mark whose reading is a value: a duration or a number of bytes."""
        self.append(code, value, threading.get_ident())

    def append(self, code: int, reading: Any, thread: int) -> None:
        """Append a mark of any thread while there is room, after a THREAD mark if it is not the training thread's."""
        if thread == self.thread:
            self.buffer.extend((code, reading))
        else:
            self.buffer.multithreaded = True
            self.buffer.extend((THREAD, thread, code, reading))

    def has_phase(self, phase: Phase) -> bool:
        """Tell whether a span of this phase has begun in the open step."""
        codes = (self.buffer[at] for at in range(0, len(self.buffer), 2))
        return any(
            code & KIND_MASK == ENTER and self.labels[code >> KIND_BITS & INDEX_MASK].phase is phase for code in codes
        )

    def calls_since(self, start: int) -> tuple[str, ...]:
        """Return the fqns of the modules that the training thread called since a position, without calls in calls."""
        buffer, labels = self.buffer, self.labels
        calls: dict[str, None] = {}
        inside, paused = -1, False
        for at in range(start, len(buffer), 2):
            code = buffer[at]
            kind = code & KIND_MASK
            if kind in (PAUSE, UNPAUSE):
                paused = kind == PAUSE
            if paused or kind not in (ENTER, LEAVE) or (at and buffer[at - 2] & KIND_MASK == THREAD):
                continue
            if inside < 0 and kind == ENTER and (fqn := labels[code >> KIND_BITS & INDEX_MASK].fqn) is not None:
                calls[fqn] = None
                inside = code & ~KIND_MASK
            elif kind == LEAVE and code & ~KIND_MASK == inside:
                inside = -1
        return tuple(calls)

    def handle_failure(self, where: str) -> None:
        """Count the failure of ours that is being handled. Raises it if a signal handler of the user's raised it."""
        error = sys.exc_info()[1]
        if error is not None and raised_by_handler(error):
            raise error
        self.count_failure(where)

    def count_failure(self, where: str) -> None:
        """Count a failure of ours, for the summary."""
        self.failures[where] = self.failures.get(where, 0) + 1

    def count_untimed(self, reason: str) -> None:
        """Count a call whose backward cannot be timed."""
        self.untimed[reason] = self.untimed.get(reason, 0) + 1

    def take(self) -> MarkBatch:
        """Move the step's marks out of the buffer; from now on the calling thread is the training thread.

        Marks that other threads append meanwhile stay for the next step.
        """
        buffer = self.buffer
        codes, readings = buffer.take(buffer.serial + 1)
        batch = MarkBatch(codes, readings, self.thread, buffer.multithreaded, buffer.dropped, buffer.skipped)
        buffer.multithreaded = False
        buffer.dropped = buffer.skipped = 0
        thread = threading.get_ident()
        if thread != self.thread:
            self.thread, self.native_id = thread, threading.get_native_id()
            self._changed()
        for clear in self.at_step_end:
            clear()
        return batch

    def idle(self, on: bool) -> None:
        """Mark no calls of modules, or mark them again: hooks in C pass over them, those in Python are taken off."""
        self.buffer.idle = on

    def suspend(self) -> None:
        """Append no marks: the following steps are unsampled."""
        self.buffer.suspended = True

    def resume(self) -> None:
        """Append marks again, for a new step on the calling thread."""
        self.buffer.suspended = False
        self.take()

    def stop(self) -> None:
        """Append no marks any more: nodes of a graph that outlives the session keep their hooks."""
        self.suspend()
        self.buffer.clear()


active: Recorder | None = None
"""The recorder that ``span`` and ``timed`` write to: the newest one that is recording, or None."""
_recording: list[Recorder] = []
_next_number = itertools.count().__next__


def activate(recorder: Recorder, on: bool) -> None:
    """Add a recorder to those that may be ``active``, or remove it."""
    global active
    if on and recorder not in _recording:
        _recording.append(recorder)
        _recording.sort(key=lambda one: one.number)
    elif not on and recorder in _recording:
        _recording.remove(recorder)
    active = _recording[-1] if _recording else None
