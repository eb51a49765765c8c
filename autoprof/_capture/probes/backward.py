"""Mark where a backward pass begins and where it is over.

The hooks of autograd nodes know of a pass from the first hooked node on: the nodes of a loss outside the model ran
before. So ``torch.autograd.backward``, which ``Tensor.backward`` calls, is wrapped while a session records. A pass
begun otherwise (``torch.autograd.grad``, a reference to the function taken before) begins with its first hooked node.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from threading import get_ident
from typing import Any, Final

import torch

from ..marks import BACKWARD_END, GRAPH_BEGIN, GRAPH_END, MAX_BUFFER_LENGTH, MAX_STEPS_BACK, STEP_STRIDE
from ..recorder import Recorder
from .collectives import Reducer
from .fast import Fast

_task = torch._C._current_graph_task_id

NOBODY: Final = -1
"""No thread's identifier."""
NESTED: Final = 64
"""Backward passes inside one another that are kept apart."""


class BackwardPasses:
    """The backward passes of one recorder, and the marks around each."""

    def __init__(self, recorder: Recorder) -> None:
        self.running = -1
        """The pass that the last mark belonged to. A backward inside a backward changes it to and fro."""
        self.reducer: Reducer | None = None
        """What the end of a pass may wait for."""
        self._recorder = recorder
        self._ordinals: dict[int, int] = {}
        self._announced: list[int] = []
        self._ran: dict[int, Any] = {}
        self.several = False
        """Whether the model spans several devices: each has a thread of its own in a backward pass."""

    def announce(self) -> bool:
        """Mark the begin of a pass that this thread is about to ask for; say whether it was."""
        recorder = self._recorder
        try:
            if get_ident() != recorder.thread:
                return False
            ordinal = recorder.next_ordinal()
            recorder.mark(ordinal | GRAPH_BEGIN)
            self._announced.append(ordinal)
        except Exception:
            recorder.handle_failure("backward passes")
            return False
        return True

    def withdraw(self) -> None:
        """Mark the end of the pass announced last, however it ended."""
        try:
            ordinal = self._announced.pop()
            for task in [task for task, known in self._ordinals.items() if known == ordinal]:
                del self._ordinals[task]
            self.running = -2
            if self.reducer is not None:
                self.reducer.end()
            self._recorder.mark(ordinal | GRAPH_END)
        except Exception:
            self._recorder.handle_failure("backward passes")

    def begin(self, task: int) -> None:
        """Take up the pass ``task``: a new one, or one that another was inside of."""
        self.running = task
        if task in self._ordinals or task == -1:
            return
        if not self._ordinals:
            self._ran.clear()
        if len(self._ordinals) >= NESTED:  # passes that an exception ended never say so
            self._ordinals.clear()
        if self._announced and self._announced[-1] not in self._ordinals.values():
            self._ordinals[task] = self._announced[-1]
            torch.autograd.Variable._execution_engine.queue_callback(self._run_out)
            return
        ordinal = self._ordinals[task] = self._recorder.next_ordinal()
        torch.autograd.Variable._execution_engine.queue_callback(partial(self._end, task, ordinal))
        self._recorder.mark(ordinal | GRAPH_BEGIN)

    def _run_out(self) -> None:
        # No node is left, so every module's backward is over; the call has yet to return.
        self._recorder.mark(BACKWARD_END)
        if len(self._announced) == 1:
            self._end_threads()
        if self.reducer is not None:
            self.reducer.begin()

    def _end(self, task: int, ordinal: int) -> None:
        self._ordinals.pop(task, None)
        self.running = -2
        if not self._ordinals:
            self._end_threads()
        self._recorder.mark(ordinal | GRAPH_END)

    def append(self, code: int, reading: Any, thread: int) -> None:
        """Append a node's mark, and remember the stream that its thread uses."""
        self._ran[thread] = reading.place
        self._recorder.append(code, reading, thread)

    def _end_threads(self) -> None:
        # What a device's thread ran is over on the stream that it ran on, which no mark of another thread tells.
        recorder, here = self._recorder, get_ident()
        try:
            for thread, place in self._ran.items():
                if thread not in (here, recorder.thread) and place is not None:
                    recorder.append(BACKWARD_END, recorder.clock.read_at(place), thread)
        except Exception:
            recorder.handle_failure("backward passes")
        self._ran.clear()


def node_mark(recorder: Recorder, passes: BackwardPasses) -> Callable[[list[int], Any], None]:
    """Return what marks that a node starts, given what that means: the step's serial, then codes. The hot path."""
    append, read, serial = recorder.append, recorder.clock.reader(None), recorder.serial
    buffer, extend, training = recorder.buffer, recorder.extend, recorder.thread

    def renew() -> None:
        nonlocal append, read, extend, training
        append = passes.append if passes.several else recorder.append
        read = recorder.clock.reader(None)  # autograd makes a node's device and stream current
        extend, training = recorder.extend, NOBODY if passes.several else recorder.thread

    def begin_step() -> None:
        nonlocal serial
        serial = recorder.serial

    recorder.on_change(renew)
    recorder.on_step(begin_step)

    def mark_node(codes: list[int], _grads: Any) -> None:
        # A node's prehook: it runs on the thread and stream of the backward pass.
        try:
            if _task() != passes.running:
                passes.begin(_task())
            if codes[0] == serial and len(codes) == 2:
                thread = get_ident()
                if thread == training and len(buffer) < MAX_BUFFER_LENGTH:
                    extend((codes[1], read()))
                else:
                    append(codes[1], read(), thread)
            else:  # calls of an earlier step lie that many steps back
                offset, reading, thread = max(codes[0] - serial, -MAX_STEPS_BACK) * STEP_STRIDE, read(), get_ident()
                for code in codes[1:]:
                    append(code + offset, reading, thread)
        except Exception:
            recorder.handle_failure("backward hooks")

    return Fast(recorder, lambda: read, passes=passes).hook("node_mark", mark_node)


class Evaluations:
    """Stand in for a recorder's passes during validation: a backward pass says that it is none, or is over."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._thread = get_ident()

    def announce(self) -> bool:
        """Say that a backward pass begins; nothing is to be told of its end."""
        if get_ident() == self._thread:
            self._ended()
        return False

    def withdraw(self) -> None:
        """Nothing was announced."""

    def attach(self) -> None:
        """Be told of backward passes."""
        self._thread = get_ident()
        BackwardProbe(self).attach()

    def detach(self) -> None:
        """Be told no more."""
        BackwardProbe(self).detach()


class BackwardProbe:
    """Have the passes of a recorder announced. All probes share one wrapper, so sessions may end in any order."""

    def __init__(self, passes: BackwardPasses | Evaluations) -> None:
        self._passes = passes

    def attach(self) -> None:
        """Wrap ``torch.autograd.backward``, or whatever somebody has put in its place, unless that is done."""
        if not _listening:
            _wrap()
        if self._passes not in _listening:
            _listening.append(self._passes)

    def detach(self) -> None:
        """Put back what was there when nobody records any more; under a wrapper of somebody else ours stays, idle."""
        global _ours
        if self._passes in _listening:
            _listening.remove(self._passes)
        if not _listening and _ours is not None:
            if torch.autograd.backward is _ours:
                torch.autograd.backward = _ours.__wrapped__  # type: ignore[attr-defined]
            _ours = None


_listening: list[BackwardPasses | Evaluations] = []
_ours: Callable[..., None] | None = None
"""The wrapper in use. One that stayed under somebody else's is not used again, or the two would call one another."""


def _wrap() -> None:
    global _ours
    inner = torch.autograd.backward

    @wraps(inner)
    def backward(*args: Any, **kwargs: Any) -> None:
        told = [passes for passes in _listening[:] if passes.announce()] if backward is _ours else []
        try:
            inner(*args, **kwargs)
        finally:
            for passes in reversed(told):
                passes.withdraw()

    _ours = torch.autograd.backward = backward
