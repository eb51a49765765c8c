"""Mark where a backward pass begins and where it ends.

The hooks of autograd nodes see a pass from the first hooked node on: the nodes of a loss outside the model run before.
So ``torch.autograd.backward``, which ``Tensor.backward`` calls, is wrapped while a session records, and so is
``torch.autograd.grad``: its pass is marked once it reaches a hooked node, from the time of the call. A pass that is
started another way (by an older reference to a function, or once torch has compiled) begins with its first hooked node.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from threading import get_ident
from typing import Any, Final, NamedTuple, Protocol

import torch

from ..._process.replace import Attribute, CallProbe, InCompiler, Listener, Replacement, call_listeners, skip_frames
from ..marks.codes import BACKWARD_END, GRAPH_BEGIN, GRAPH_END, MAX_BUFFER_LENGTH, MAX_STEPS_BACK, STEP_STRIDE
from ..marks.state import PythonNodeMarks
from ..recorder import Recorder
from ..torch_compat import queue_callback
from .native_hooks import HAS_HOOK_DICTS, RUN_NAME, make_node_marks

_graph_task = torch._C._current_graph_task_id

INPUTS_AT: Final = 4
"""The place of the tensors whose gradients are asked for in the arguments of ``RUN``."""

NO_PASS: Final = -1
"""Value of ``running`` outside any backward pass: torch's id where none runs."""
PASS_ENDED: Final = -2
"""Value of ``running`` after a pass: equal to no id, so the next mark looks its pass up."""
NO_THREAD: Final = -1
"""Not the identifier of any thread."""
MAX_NESTED: Final = 64
"""Nested backward passes that are distinguished."""


class EndObserver(Protocol):
    """An object that marks the time between the last node of a backward pass and its return."""

    def begin(self) -> None:
        """Called when all nodes have run."""

    def end(self) -> None:
        """Called when the pass returns."""


class _Captured(NamedTuple):
    """The mark of a node that may be asked for a gradient without being run, and the handle of its prehook."""

    mark: Any
    handle: Any


class BackwardPasses:
    """The backward passes of one recorder, and the marks around each. A ``Listener`` of ``torch.autograd.backward``."""

    def __init__(self, recorder: Recorder) -> None:
        self.begun = 0
        """The passes that ``torch.autograd.backward`` began, since this was last set to 0."""
        self.reached = 0
        """The outermost passes that have reached a hooked node, since this was last set to 0."""
        self._end_observers: list[EndObserver] = []
        self._recorder = recorder
        self._ordinals: dict[int, int] = {}
        self._entered: list[int] = []
        self._unmarked: dict[int, tuple[int, Any]] = {}
        """Calls of ``torch.autograd.grad`` that have reached no hooked node, by ordinal: marks before it, reading."""
        self._places: dict[int, Any] = {}
        """The device and stream that each thread of a pass used last."""
        self.several = False
        """Whether the model is on several devices: each has a thread of its own in a backward pass."""
        self.nodes: PythonNodeMarks | None = None
        """The hooked nodes of the step."""
        self._captured: list[dict[int, _Captured]] = []
        """By the id of a node's mark: the nodes of tensors whose gradients each open call asks for."""
        self._prehook: Callable[[Any, Any], None] | None = None

    def add_end_observer(self, observer: EndObserver) -> None:
        """Have an object observe the ends of passes that ``torch.autograd.backward`` began."""
        self._end_observers.append(observer)

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Mark the begin of a pass that this thread is about to start; return whether it was marked."""
        recorder = self._recorder
        try:
            if get_ident() != recorder.thread:
                return False
            ordinal = recorder.buffer.next_ordinal()
            recorder.mark(ordinal | GRAPH_BEGIN)
            self._entered.append(ordinal)
            self.begun += 1
        except Exception:
            recorder.handle_failure("backward passes")
            return False
        return True

    def enter_grad(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Read the time of a call of ``torch.autograd.grad``; return whether to call ``leave_grad`` after it."""
        recorder = self._recorder
        if get_ident() != recorder.thread or not recorder.is_appending:
            return False
        try:
            clock, ordinal = recorder.clock, recorder.buffer.next_ordinal()
            self._unmarked[ordinal] = len(recorder.buffer), clock.read_at(clock.place(None))
            self._entered.append(ordinal)
        except Exception:
            recorder.handle_failure("backward passes")
            return False
        return True

    def leave_grad(self) -> None:
        """Mark the end of such a call, if its begin was marked."""
        unmarked = self._unmarked.pop(self._entered[-1], None) if self._entered else None
        if unmarked is None:
            self._leave(observed=False)
            return
        self._entered.pop()
        try:
            self._recorder.clock.release([unmarked[1]])
        except Exception:
            self._recorder.handle_failure("backward passes")

    def leave(self) -> None:
        """Mark the end of the pass that was entered last, whether it returned or raised."""
        self._leave(observed=True)

    def _leave(self, *, observed: bool) -> None:
        try:
            ordinal = self._entered.pop()
            for task in [task for task, known in self._ordinals.items() if known == ordinal]:
                del self._ordinals[task]
            self._recorder.buffer.running = PASS_ENDED
            for observer in self._end_observers if observed else ():
                observer.end()
            self._recorder.mark(ordinal | GRAPH_END)
        except Exception:
            self._recorder.handle_failure("backward passes")

    def begin_captures(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        """Have the hooked nodes of tensors whose gradients are asked for marked only if they run.

        The engine calls the hooks of a node's dict also where it hands the gradient out and stops; not so prehooks.
        """
        if self._prehook is None or self.nodes is None or get_ident() != self._recorder.thread:
            return False
        found: dict[int, _Captured] = {}
        try:
            for one in args[INPUTS_AT]:
                node: Any = getattr(one, "grad_fn", None) or getattr(one, "node", None)
                mark = None if node is None else self.nodes.get(node._sequence_nr())
                if mark is not None and id(mark) not in found:
                    found[id(mark)] = _Captured(mark, node.register_prehook(partial(self._runs, mark)))
        except Exception:
            self._recorder.handle_failure("backward passes")
        self._captured.append(found)
        self._recorder.buffer.captures = any(self._captured)
        return True

    def end_captures(self) -> None:
        """Remove the prehooks of the last such call."""
        for one in self._captured.pop().values():
            one.handle.remove()
        self._recorder.buffer.captures = any(self._captured)

    def use_prehook(self, prehook: Callable[[Any, Any], None]) -> None:
        """Mark captured nodes by this hook, if they run."""
        self._prehook = prehook

    def _runs(self, mark: Any, gradients: Any) -> None:
        buffer = self._recorder.buffer
        captured, buffer.captures = buffer.captures, False
        try:
            if self._prehook is not None:
                self._prehook(mark, gradients)
        finally:
            buffer.captures = captured

    def is_captured(self, mark: Any) -> bool:
        """Return whether this mark belongs to a captured node, which has a prehook."""
        return bool(self._captured) and id(mark) in self._captured[-1]

    def begin(self, task: int) -> None:
        """Make ``task`` the running pass: a new one, or one that continues after a pass inside it."""
        self._recorder.buffer.running = task
        if task in self._ordinals or task == NO_PASS:
            return
        if not self._ordinals:
            self._places.clear()
            self.reached += 1
        if len(self._ordinals) >= MAX_NESTED:  # passes that an exception ended are never removed otherwise
            self._ordinals.clear()
        if self._entered and self._entered[-1] not in self._ordinals.values():
            ordinal = self._ordinals[task] = self._entered[-1]
            unmarked = self._unmarked.pop(ordinal, None)
            queue_callback(partial(self._nodes_done, observed=unmarked is None))
            if unmarked is not None:
                self._mark_begin(ordinal, *unmarked)
            return
        ordinal = self._ordinals[task] = self._recorder.buffer.next_ordinal()
        queue_callback(partial(self._end, task, ordinal))
        self._recorder.mark(ordinal | GRAPH_BEGIN)

    def _mark_begin(self, ordinal: int, marks_before: int, reading: Any) -> None:
        """Mark the begin of a pass at the time of its call; now, if another mark came between: they are in order."""
        recorder = self._recorder
        if len(recorder.buffer) == marks_before:
            recorder.append(ordinal | GRAPH_BEGIN, reading, recorder.thread)
        else:
            recorder.clock.release([reading])
            recorder.mark(ordinal | GRAPH_BEGIN)

    def _nodes_done(self, *, observed: bool) -> None:
        # No node remains, so every module's backward is over; the call of backward has yet to return.
        self._recorder.mark(BACKWARD_END)
        if len(self._entered) == 1:
            self._end_threads()
        for observer in self._end_observers if observed else ():
            observer.begin()

    def _end(self, task: int, ordinal: int) -> None:
        self._ordinals.pop(task, None)
        self._recorder.buffer.running = PASS_ENDED
        if not self._ordinals:
            self._end_threads()
        self._recorder.mark(ordinal | GRAPH_END)

    def append(self, code: int, reading: Any, thread: int) -> None:
        """Append a node's mark, and remember the stream that its thread uses."""
        self._places[thread] = reading.place
        self._recorder.append(code, reading, thread)

    def _end_threads(self) -> None:
        # The work of a device's thread ends on the stream it ran on: no mark of another thread shows that.
        recorder, here = self._recorder, get_ident()
        try:
            for thread, place in self._places.items():
                if thread not in (here, recorder.thread) and place is not None:
                    recorder.append(BACKWARD_END, recorder.clock.read_at(place), thread)
        except Exception:
            recorder.handle_failure("backward passes")
        self._places.clear()


def make_pass_nodes(recorder: Recorder, passes: BackwardPasses) -> PythonNodeMarks:
    """Return the marks of a recorder's autograd nodes, whose prehook marks that a node runs."""
    append, read = recorder.append, recorder.clock.reader(None)
    buffer, extend, training_thread = recorder.buffer, recorder.extend, recorder.thread

    def update() -> None:
        nonlocal append, read, extend, training_thread
        append = passes.append if passes.several else recorder.append
        read = recorder.clock.reader(None)  # autograd makes a node's device and stream current
        extend, training_thread = recorder.extend, NO_THREAD if passes.several else recorder.thread

    recorder.on_change(update)

    def mark_node(mark: Any, _gradients: Any) -> None:
        # The hot path: it runs on the thread and stream of the backward pass.
        try:
            if buffer.captures and passes.is_captured(mark):
                return
            serial, codes = mark.serial, mark.codes
            if _graph_task() != buffer.running:
                passes.begin(_graph_task())
            if serial == buffer.serial and len(codes) == 1:
                thread = get_ident()
                if thread == training_thread and len(buffer) < MAX_BUFFER_LENGTH:
                    extend((codes[0], read()))
                else:
                    append(codes[0], read(), thread)
            else:  # calls of an earlier step have ordinals lower by that many steps
                offset = max(serial - buffer.serial, -MAX_STEPS_BACK) * STEP_STRIDE
                reading, thread = read(), get_ident()
                for code in codes:
                    append(code + offset, reading, thread)
        except Exception:
            recorder.handle_failure("backward hooks")

    if HAS_HOOK_DICTS and recorder.native_buffer is not None:  # nodes take their hooks from dicts
        passes.use_prehook(mark_node)
    return make_node_marks(recorder, mark_node, lambda: read, passes)


BACKWARD: Final = Replacement(Attribute(torch.autograd, "backward"), in_compiler=InCompiler.PRESENT)
GRAD: Final = Replacement(Attribute(torch.autograd, "grad"))
"""Also called by ``torch.func.grad``."""


def _call_with_captures(original: Any, listeners: list[Any]) -> Any:
    """Return a wrapper that has the listeners called around each call that asks for the gradients of some tensors."""
    listening = call_listeners(original, listeners)
    skip_frames(listening)

    @wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return (listening if len(args) > INPUTS_AT and args[INPUTS_AT] else original)(*args, **kwargs)

    return wrapper


RUN: Final = Replacement(Attribute(torch.autograd, RUN_NAME), _call_with_captures, in_compiler=InCompiler.PRESENT)
"""The function by which both start the engine; no graph guards it."""


class _Functions(NamedTuple):
    """Two functions as a ``Listener``."""

    enter: Callable[[Callable[..., Any], tuple[Any, ...]], bool]
    leave: Callable[[], None]


class BackwardProbe(CallProbe):
    """Have backward passes reported while the probe is attached."""

    def __init__(self, passes: BackwardPasses) -> None:
        captures = [(RUN, _Functions(passes.begin_captures, passes.end_captures))] if HAS_HOOK_DICTS else []
        super().__init__([(BACKWARD, passes), *captures])
        self._grad_calls = _Functions(passes.enter_grad, passes.leave_grad)
        for method in self._grad_calls:
            skip_frames(method, callees=True)

    def attach(self) -> None:
        """Replace both functions, and add the listeners."""
        super().attach()
        GRAD.hold(self._grad_calls, until_compiled=True)
        GRAD.listen(self._grad_calls)

    def detach(self) -> None:
        """Put both functions back: a wrapper would cost time in each unsampled step."""
        self.remove()

    def remove(self) -> None:
        """Put both functions back once no session needs the replacements."""
        unwatch(GRAD, self._grad_calls)
        super().remove()


def watch(calls: Replacement, listener: Listener) -> None:
    """Have calls of ``BACKWARD`` or ``GRAD`` reported to ``listener``, until ``unwatch``."""
    for method in (listener.enter, listener.leave):
        skip_frames(method, callees=True)
    calls.hold(listener)
    calls.listen(listener)


def unwatch(calls: Replacement, listener: Listener) -> None:
    """Report no more calls to ``listener``; do nothing where it is not watching."""
    calls.ignore(listener)
    calls.release(listener)
