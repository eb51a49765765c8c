"""Show spans as ranges in other tools: NVTX (Nsight) and ``torch.profiler``, under the names that autoprof uses.

Other tools need ranges that open and close in the thread of the work, properly nested, while autoprof resolves its own
marks later. So ranges have hooks and a stack of their own; without the option nothing of them exists. The rules of
the backward are those of the marks (docs/how-it-works.md): when the node of a call's output runs, the calls that do not
contain it are closed and it is opened; when the node of an input runs, the call and all calls inside it are closed;
the end of the pass closes the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from ...devices import Clock
from ...errors import SessionError
from ...frame import Phase
from ..marks.codes import ENTER, GRAPH_BEGIN, GRAPH_END, INDEX_MASK, KIND_BITS, KIND_MASK, LEAVE, ORDINAL_SHIFT, RESUME
from ..recorder import Recorder
from ..torch_compat import queue_callback
from .call_sites import CallEntry
from .entry_probe import EntryProbe
from .tensors import nodes_of

if TYPE_CHECKING:
    from ..._targets import Target

nvtx: Any = torch.cuda.nvtx  # without types; an interface to the tool, which also works without a device
_task = torch._C._current_graph_task_id
_compiling = torch.compiler.is_dynamo_compiling  # folded to True in a compiled graph, which then holds no range of ours

Close = Callable[[], None]
Open = Callable[[str], Close]


def open_profiler(name: str) -> Close:
    """Open a range for ``torch.profiler``; 0.2 µs where none is active. It may be closed in another thread."""
    guard = torch._C._profiler._RecordFunctionFast(name)
    guard.__enter__()
    return partial(guard.__exit__, None, None, None)


class NvtxRanges:
    """Open ranges for Nsight. They form a stack in each thread: one closed in another thread is popped later."""

    def __init__(self) -> None:
        self._late: dict[int, int] = {}

    def open(self, name: str) -> Close:
        """Open a range in this thread."""
        thread = get_ident()
        self._pop_late(thread)
        nvtx.range_push(name)
        return partial(self._close, thread)

    def _close(self, thread: int) -> None:
        if get_ident() == thread:
            nvtx.range_pop()
            self._pop_late(thread)
        else:
            self._late[thread] = self._late.get(thread, 0) + 1

    def _pop_late(self, thread: int) -> None:
        for _ in range(self._late.pop(thread, 0)):
            nvtx.range_pop()


class ModuleCall:
    """One call of a module: its name, the phases shown, the call around it, the nodes of its inputs."""

    __slots__ = ("inputs", "name", "parent", "phases", "shows_backward")

    def __init__(self, name: str, phases: frozenset[Phase], parent: ModuleCall | None) -> None:
        self.name = name
        self.phases = phases
        self.shows_backward = Phase.BACKWARD in phases
        self.parent = parent
        self.inputs: set[int] = set()


class _Entry(NamedTuple):
    """An open range: its key, its backward pass, and the function that closes it, each None where it has none."""

    key: Any
    task: int | None = None
    close: Close | None = None


class _Threads(threading.local):
    def __init__(self) -> None:
        self.stack: list[_Entry] = []


class Ranges:
    """The open ranges of each thread."""

    def __init__(self, opener: Open) -> None:
        self._open = opener
        self._threads = _Threads()
        self._passes: dict[int, list[list[_Entry]]] = {}
        self._starts: set[tuple[int, int]] = set()
        self.off = False

    def open(self, key: Any, name: str, task: int | None = None) -> None:
        """Open a range in this thread."""
        if not self.off:
            self._threads.stack.append(_Entry(key, task, self._open(name)))

    def close(self, key: Any) -> None:
        """Close the innermost range of this key, and all ranges inside it."""
        _pop_to(self._threads.stack, lambda entry: entry.key == key)

    # Calls of modules.

    def innermost(self) -> ModuleCall | None:
        """Return the innermost call that this thread runs, forward or backward."""
        return next((one.key for one in reversed(self._threads.stack) if isinstance(one.key, ModuleCall)), None)

    def enter(self, name: str, phases: frozenset[Phase], args: Any, kwargs: Any) -> ModuleCall:
        """Open a call's range; have the nodes of its inputs close the range of its backward."""
        stack = self._threads.stack
        call = ModuleCall(name, phases, self.innermost())
        phase = Phase.FORWARD if _task() == -1 else Phase.RECOMPUTE
        if phase in phases:
            self.open(call, phase.qualify(name))
        else:
            stack.append(_Entry(call))
        if call.shows_backward and not self.off:
            for node in nodes_of((args, kwargs)):
                call.inputs.add(node._sequence_nr())
                node.register_prehook(partial(self._run_input, call))
        return call

    def leave(self, call: ModuleCall, output: Any) -> None:
        """Close a call's range; have the nodes of its outputs open the range of its backward."""
        self.close(call)
        if not call.shows_backward or self.off:
            return
        if len(self._starts) > 100_000:
            self._starts.clear()
        for node in nodes_of(output):
            key = get_ident(), node._sequence_nr()
            if key[1] not in call.inputs and key not in self._starts:  # the innermost call opens its parents
                self._starts.add(key)
                node.register_prehook(partial(self._run_output, call))

    def _run_output(self, call: ModuleCall, _grads: Any) -> None:
        if self.off:
            return
        task, stack = _task(), self._threads.stack
        path = [call]
        while path[-1].parent is not None:
            path.append(path[-1].parent)
        while stack and stack[-1].task == task and not any(stack[-1].key is one for one in path):
            _pop(stack)
        for one in reversed(path):
            if one.shows_backward and not any(entry.key is one for entry in stack):
                self._begin(task, stack)
                self.open(one, Phase.BACKWARD.qualify(one.name), task)

    def _run_input(self, call: ModuleCall, _grads: Any) -> None:
        task = _task()
        _pop_to(self._threads.stack, lambda entry: entry.key is call and entry.task == task)

    def _begin(self, task: int, stack: list[_Entry]) -> None:
        known = self._passes.get(task)
        if known is None:
            if len(self._passes) >= 64:
                self._passes.clear()
            known = self._passes[task] = []
            queue_callback(partial(self._end_pass, task))
        if not any(one is stack for one in known):
            known.append(stack)

    def _end_pass(self, task: int) -> None:
        for stack in self._passes.pop(task, ()):
            while any(entry.task == task for entry in stack):
                _pop(stack)

    def stop(self) -> None:
        """Open no more ranges, and close those of this thread."""
        self.off = True
        while self._threads.stack:
            _pop(self._threads.stack)


def _pop_to(stack: list[_Entry], is_last: Callable[[_Entry], bool]) -> None:
    """Close the innermost range that is the last one to close, and all ranges inside it; none without such a range."""
    if any(is_last(entry) for entry in stack):
        while not is_last(_pop(stack)):
            pass


def _pop(stack: list[_Entry]) -> _Entry:
    entry = stack.pop()
    if entry.close is not None:
        entry.close()
    return entry


class RangeProbe(EntryProbe):
    """Open and close the ranges of one module."""

    where = "range hooks"
    outermost = True

    def __init__(self, recorder: RangingRecorder, target: Target) -> None:
        super().__init__(recorder, target.module)
        self._ranges = recorder.ranges
        self.name, self.phases = target.name, target.phases
        self._entries = [CallEntry(self, RangeProbe.enter, RangeProbe.leave)]

    def enter(self, module: nn.Module, args: Any, kwargs: Any) -> ModuleCall | None:
        """Open the range of a call."""
        if _compiling():
            return None
        try:
            return self._ranges.enter(self.name, self.phases, args, kwargs)
        except Exception:
            self.fail()
            return None

    def leave(self, module: nn.Module, args: Any, kwargs: Any, output: Any, call: ModuleCall | None) -> None:
        """Close it, unless it was not opened."""
        if call is None:
            return
        try:
            self._ranges.leave(call, output)
        except Exception:
            self.fail()


class RangingRecorder(Recorder):
    """A recorder whose marks of spans, optimizers, fetches and backward passes also open and close ranges."""

    def __init__(self, clock: Clock, ranges: Ranges) -> None:
        super().__init__(clock)
        self.ranges = ranges

    def mark(self, code: int) -> None:
        """Append one mark, inside the range that it opens or closes. Never raises."""
        kind, ranges = code & KIND_MASK, self.ranges
        if kind in (ENTER, RESUME):
            label = self.labels[code >> KIND_BITS & INDEX_MASK]
            self._try(lambda: ranges.open(code >> KIND_BITS, label.phase.qualify(label.name)))
        elif kind == GRAPH_BEGIN:
            self._try(lambda: ranges.open((GRAPH_BEGIN, code >> ORDINAL_SHIFT), "(backward)"))
        super().mark(code)
        if kind == LEAVE:
            self._try(lambda: ranges.close(code >> KIND_BITS))
        elif kind == GRAPH_END:
            self._try(lambda: ranges.close((GRAPH_BEGIN, code >> ORDINAL_SHIFT)))

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            self.ranges.off = True
            self.handle_failure("ranges")

    def stop(self) -> None:
        """Append no more marks, and open no more ranges."""
        super().stop()
        self.ranges.stop()


def make_recorder(clock: Clock, ranges: str) -> Recorder:
    """Return the recorder of a session. Raises ``SessionError`` for ``nvtx`` where torch has none."""
    if ranges == "off":
        return Recorder(clock)
    if ranges == "profiler":
        return RangingRecorder(clock, Ranges(open_profiler))
    try:
        nvtx.mark("autoprof")
    except Exception as error:
        raise SessionError(
            f"ranges: {ranges!r} needs NVTX, which this torch does not have ({error}); allowed: off or profiler"
        ) from error
    return RangingRecorder(clock, Ranges(NvtxRanges().open))
