"""The spans as ranges for other tools: NVTX (Nsight) and ``torch.profiler``, under the names that autoprof uses.

Other tools want a range opened and closed where it happens, in the thread that it happens in, and nested; autoprof's
own marks are sorted out later. So this is an account of its own, kept while the step runs, and made of hooks of its
own: without the option nothing of it is there. The rules of the backward are those of the marks (docs/how-it-works.md):
when the node of a call's output runs, what is not around that call is closed and the call opened; when the node of an
input runs, the call and all inside it are closed; the end of the pass closes the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from threading import get_ident
from typing import Any, Final, NamedTuple

import torch

from ...devices import Clock
from ...errors import SessionError
from ...frame import Phase
from ..marks import ENTER, GRAPH_BEGIN, GRAPH_END, INDEX_MASK, KIND_BITS, KIND_MASK, LEAVE, ORDINAL_SHIFT, RESUME
from ..recorder import Recorder
from .tensors import nodes_of

nvtx: Any = torch.cuda.nvtx  # without types; an interface to the tool, which also works without a device
_task = torch._C._current_graph_task_id

Close = Callable[[], None]
Open = Callable[[str], Close]

BACKWARD: Final = "(backward)"
"""What a whole backward pass is called."""
NODES: Final = 100_000
"""Nodes of which it is remembered that they begin a call's backward."""
PASSES: Final = 64
"""Backward passes that are remembered; those that an exception ended never say so."""


def open_profiler(name: str) -> Close:
    """Open a range for ``torch.profiler``; 0.2 µs where none is active. It may be closed in another thread."""
    guard = torch._C._profiler._RecordFunctionFast(name)
    guard.__enter__()
    return partial(guard.__exit__, None, None, None)


class NvtxRanges:
    """Open ranges for Nsight. They are a stack in each thread: one that is closed elsewhere is taken off later."""

    def __init__(self) -> None:
        self._late: dict[int, int] = {}

    def open(self, name: str) -> Close:
        """Open a range in this thread."""
        thread = get_ident()
        self._settle(thread)
        nvtx.range_push(name)
        return partial(self._close, thread)

    def _close(self, thread: int) -> None:
        if get_ident() == thread:
            nvtx.range_pop()
            self._settle(thread)
        else:
            self._late[thread] = self._late.get(thread, 0) + 1

    def _settle(self, thread: int) -> None:
        for _ in range(self._late.pop(thread, 0)):
            nvtx.range_pop()


class Call:
    """One call of a module: its name, whether its backward is wanted, the call around it, the nodes of its inputs."""

    __slots__ = ("around", "follows", "inputs", "name")

    def __init__(self, name: str, follows: bool, around: Call | None) -> None:
        self.name = name
        self.follows = follows
        self.around = around
        self.inputs: set[int] = set()


class _Entry(NamedTuple):
    """An open range: what it is for, the backward pass it belongs to (or None), and what closes it."""

    key: Any
    task: int | None
    closers: tuple[Close, ...]


class _Threads(threading.local):
    def __init__(self) -> None:
        self.stack: list[_Entry] = []


class Ranges:
    """The ranges that are open, by thread."""

    def __init__(self, openers: Sequence[Open]) -> None:
        self._openers = openers
        self._threads = _Threads()
        self._passes: dict[int, list[list[_Entry]]] = {}
        self._starts: set[tuple[int, int]] = set()
        self.off = False

    def open(self, key: Any, name: str, task: int | None = None) -> None:
        """Open a range in this thread."""
        if not self.off:
            self._threads.stack.append(_Entry(key, task, tuple([opener(name) for opener in self._openers])))

    def close(self, key: Any) -> None:
        """Close the innermost range of this key, and what was left open inside it."""
        stack = self._threads.stack
        if any(entry.key == key for entry in stack):
            while _pop(stack).key != key:
                pass

    # Calls of modules.

    def enter(self, name: str, phases: frozenset[Phase], args: Any, kwargs: Any) -> Call:
        """Open a call's range, and have the nodes of its inputs close that of its backward."""
        around = next((entry.key for entry in reversed(self._threads.stack) if isinstance(entry.key, Call)), None)
        call = Call(name, Phase.BACKWARD in phases, around)
        phase = Phase.FORWARD if _task() == -1 else Phase.RECOMPUTE
        if phase in phases:
            self.open(call, phase.qualify(name))
        else:
            self._threads.stack.append(_Entry(call, None, ()))
        if call.follows and not self.off:
            for node in nodes_of((args, kwargs)):
                call.inputs.add(node._sequence_nr())
                node.register_prehook(partial(self._run_input, call))
        return call

    def leave(self, call: Call, output: Any) -> None:
        """Close a call's range, and have the nodes of its outputs open that of its backward."""
        stack = self._threads.stack
        if any(entry.key is call for entry in stack):
            while _pop(stack).key is not call:
                pass
        if not call.follows or self.off:
            return
        if len(self._starts) > NODES:
            self._starts.clear()
        for node in nodes_of(output):
            key = get_ident(), node._sequence_nr()
            if key[1] not in call.inputs and key not in self._starts:  # the innermost call opens those around it
                self._starts.add(key)
                node.register_prehook(partial(self._run_output, call))

    def _run_output(self, call: Call, _grads: Any) -> None:
        if self.off:
            return
        task, stack = _task(), self._threads.stack
        path = [call]
        while path[-1].around is not None:
            path.append(path[-1].around)
        while stack and stack[-1].task == task and not any(stack[-1].key is one for one in path):
            _pop(stack)
        for one in reversed(path):
            if one.follows and not any(entry.key is one for entry in stack):
                self._begin(task, stack)
                self.open(one, Phase.BACKWARD.qualify(one.name), task)

    def _run_input(self, call: Call, _grads: Any) -> None:
        task, stack = _task(), self._threads.stack
        if any(entry.key is call and entry.task == task for entry in stack):
            while True:
                entry = _pop(stack)
                if entry.key is call and entry.task == task:
                    return

    def _begin(self, task: int, stack: list[_Entry]) -> None:
        known = self._passes.get(task)
        if known is None:
            if len(self._passes) >= PASSES:
                self._passes.clear()
            known = self._passes[task] = []
            torch.autograd.Variable._execution_engine.queue_callback(partial(self._end_pass, task))
        if not any(one is stack for one in known):
            known.append(stack)

    def _end_pass(self, task: int) -> None:
        for stack in self._passes.pop(task, ()):
            while any(entry.task == task for entry in stack):
                _pop(stack)

    def stop(self) -> None:
        """Open nothing any more, and close what this thread has open."""
        self.off = True
        while self._threads.stack:
            _pop(self._threads.stack)


def _pop(stack: list[_Entry]) -> _Entry:
    entry = stack.pop()
    for close in entry.closers:
        close()
    return entry


class RangingRecorder(Recorder):
    """A recorder whose marks of spans, optimizers, fetches and backward passes open and close ranges as well."""

    def __init__(self, clock: Clock, ranges: Ranges) -> None:
        super().__init__(clock)
        self.ranges = ranges

    def mark(self, code: int) -> None:
        """Append one mark, inside the range that it opens or closes. Never raises."""
        kind = code & KIND_MASK
        try:
            if kind in (ENTER, RESUME):
                label = self.labels[code >> KIND_BITS & INDEX_MASK]
                self.ranges.open(code >> KIND_BITS, label.phase.qualify(label.name))
            elif kind == GRAPH_BEGIN:
                self.ranges.open((GRAPH_BEGIN, code >> ORDINAL_SHIFT), BACKWARD)
        except Exception:
            self.ranges.off = True
            self.handle_failure("ranges")
        super().mark(code)
        try:
            if kind == LEAVE:
                self.ranges.close(code >> KIND_BITS)
            elif kind == GRAPH_END:
                self.ranges.close((GRAPH_BEGIN, code >> ORDINAL_SHIFT))
        except Exception:
            self.ranges.off = True
            self.handle_failure("ranges")

    def stop(self) -> None:
        """Append nothing any more, and open no range."""
        super().stop()
        self.ranges.stop()


def make_recorder(clock: Clock, ranges: str) -> Recorder:
    """Return the recorder of a session. Raises ``SessionError`` for ``nvtx`` where torch has none."""
    openers: list[Open] = []
    if ranges in ("nvtx", "both"):
        try:
            nvtx.mark("autoprof")
        except Exception as error:
            raise SessionError(
                f"ranges: {ranges!r} needs NVTX, which this torch does not have ({error}); allowed: off or profiler"
            ) from error
        openers.append(NvtxRanges().open)
    if ranges in ("profiler", "both"):
        openers.append(open_profiler)
    return RangingRecorder(clock, Ranges(openers)) if openers else Recorder(clock)
