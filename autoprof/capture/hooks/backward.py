"""Mark where a backward pass begins and where it ends.

The hooks of autograd nodes see a pass from the first hooked node on: the nodes of a loss outside the model run before.
So ``torch.autograd.backward``, which ``Tensor.backward`` calls, is wrapped while a session records. A pass that is
started another way (``torch.autograd.grad``, an older reference to a function) begins with its first hooked node.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from ...base.process.replace import Attribute, CallProbe, InCompiler, Listener, Replacement
from ..marks.codes import BACKWARD_END, GRAPH_BEGIN, GRAPH_END, MAX_STEPS_BACK, STEP_STRIDE
from ..recorder import Recorder
from ..torch_compat import queue_callback
from .native_hooks import make_node_marks
from .tensors import tensors_of

if TYPE_CHECKING:
    from ..marks._c import NodeMarks

_graph_task = torch._C._current_graph_task_id

NO_PASS: Final = -1
"""Value of ``running`` outside any backward pass: torch's id where none runs."""
PASS_ENDED: Final = -2
"""Value of ``running`` after a pass: equal to no id, so the next mark looks its pass up."""


class EndObserver(Protocol):
    """An object that marks the time between the last node of a backward pass and its return."""

    def begin(self) -> None:
        """Called when all nodes have run."""

    def end(self) -> None:
        """Called when the pass returns."""


class BackwardPasses:
    """The backward passes of one recorder, and the marks around each. A ``Listener`` of ``torch.autograd.backward``."""

    def __init__(self, recorder: Recorder) -> None:
        self.begun = 0
        """The passes that ``torch.autograd.backward`` began, since this was last set to 0."""
        self.reached = 0
        """The outermost passes that have reached a hooked node, since this was last set to 0."""
        self.differentiable = 0
        """Those of them that recorded a graph of their own (``create_graph=True``)."""
        self.several = False
        """Whether the model is on several devices: each has a thread of its own in a backward pass."""
        self._end_observers: list[EndObserver] = []
        self._recorder = recorder
        self._ordinals: dict[int, int] = {}
        self._entered: list[int] = []
        self._places: dict[int, Any] = {}
        """The device and stream that each thread of a pass used last."""

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

    def leave(self) -> None:
        """Mark the end of the pass that was entered last, whether it returned or raised."""
        try:
            ordinal = self._entered.pop()
            for task, known in [*self._ordinals.items()]:
                if known == ordinal:
                    del self._ordinals[task]
            self._recorder.buffer.running = PASS_ENDED
            for observer in self._end_observers:
                observer.end()
            self._recorder.mark(ordinal | GRAPH_END)
        except Exception:
            self._recorder.handle_failure("backward passes")

    def begin(self, task: int) -> None:
        """Make ``task`` the running pass: a new one, or one that continues after a pass inside it."""
        self._recorder.buffer.running = task
        if task in self._ordinals or task == NO_PASS:
            return
        if not self._ordinals:
            self._places.clear()
            self.reached += 1
            self.differentiable += torch.is_grad_enabled()
        if len(self._ordinals) >= 64:  # passes that an exception ended are never removed otherwise
            self._ordinals.clear()
        if self._entered and self._entered[-1] not in self._ordinals.values():
            self._ordinals[task] = self._entered[-1]
            queue_callback(self._nodes_done)
            return
        ordinal = self._ordinals[task] = self._recorder.buffer.next_ordinal()
        queue_callback(partial(self._end, task, ordinal))
        self._recorder.mark(ordinal | GRAPH_BEGIN)

    def _nodes_done(self) -> None:
        # No node remains, so every module's backward is over; the call of backward has yet to return.
        self._recorder.mark(BACKWARD_END)
        if len(self._entered) == 1 and self._places:
            self._end_threads()
        for observer in self._end_observers:
            observer.begin()

    def _end(self, task: int, ordinal: int) -> None:
        self._ordinals.pop(task, None)
        self._recorder.buffer.running = PASS_ENDED
        if not self._ordinals:
            self._end_threads()
        self._recorder.mark(ordinal | GRAPH_END)

    def append(self, code: int, reading: Any, thread: int) -> None:
        """Append a node's mark, and remember the stream that its thread uses, where several are in use."""
        if self.several:
            self._places[thread] = reading.place
        self._recorder.append(code, reading, thread)

    def track_arrivals(self, args: Any, kwargs: Any, ordinal: int, device: int | None) -> None:
        """Have the nodes of inputs from other devices mark the end of a call's backward, on the call's own stream.

        These nodes run on the threads of their devices, whose marks do not time the call's device.
        """
        recorder, clock = self._recorder, self._recorder.clock
        own = clock.device_index if device is None else device
        for tensor in tensors_of((args, kwargs)):
            node = tensor.grad_fn
            if node is not None and clock.index_of(tensor) not in (None, own):
                node.register_prehook(partial(self._mark_arrival, recorder.serial, ordinal, clock.place(own)))

    def _mark_arrival(self, serial: int, ordinal: int, place: Any, _gradients: Any) -> None:
        recorder = self._recorder
        try:
            if _graph_task() != recorder.buffer.running:
                self.begin(_graph_task())
            code = (ordinal | BACKWARD_END) + max(serial - recorder.serial, -MAX_STEPS_BACK) * STEP_STRIDE
            recorder.append(code, recorder.clock.read_at(place), get_ident())
        except Exception:
            recorder.handle_failure("backward hooks")

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


def make_pass_nodes(recorder: Recorder, passes: BackwardPasses) -> NodeMarks:
    """Return the marks of a recorder's autograd nodes, whose prehook marks that a node runs."""
    buffer = recorder.buffer

    def clock_reader() -> Callable[[], Any]:
        return recorder.clock.reader(None)  # autograd makes a node's device and stream current

    def mark_node(mark: Any, _gradients: Any) -> bool | None:
        # It runs on the thread and stream of the backward pass. True: the pass has begun, and C marks the node.
        try:
            if _graph_task() != buffer.running:
                passes.begin(_graph_task())
                return True
            # Calls of an earlier step have ordinals lower by that many steps.
            offset = max(mark.serial - buffer.serial, -MAX_STEPS_BACK) * STEP_STRIDE
            passes.append(mark.code + offset, clock_reader()(), get_ident())
        except Exception:
            recorder.handle_failure("backward hooks")
        return None

    return make_node_marks(recorder, mark_node, clock_reader, lambda: not passes.several)


BACKWARD: Final = Replacement(Attribute(torch.autograd, "backward"), in_compiler=InCompiler.PRESENT)


class BackwardProbe(CallProbe):
    """Have backward passes reported to a listener while the probe is attached."""

    def __init__(self, listener: Listener) -> None:
        super().__init__([(BACKWARD, listener)])

    def detach(self) -> None:
        """Put the function back: a wrapper would cost time in each unsampled step."""
        self.remove()
