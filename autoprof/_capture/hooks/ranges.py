"""Open a range in a trace for each call of a module, forward, recompute and backward, nested as the spans are.

A trace needs ranges that open and close in the thread of the work, while marks are resolved later. So ranges have hooks
and a stack of their own. The rules of the backward are those of the marks (docs/how-it-works.md): when the node of a
call's output runs, the calls that do not contain it are closed and it is opened; when the node of an input runs, the
call and all calls inside it are closed; the end of the pass closes the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from ...frame import Phase
from ..torch_compat import queue_callback
from .call_sites import CallEntry
from .entry_probe import EntryProbe
from .tensors import nodes_of

if TYPE_CHECKING:
    from ..._targets import Target

_task = torch._C._current_graph_task_id
_compiling = torch.compiler.is_dynamo_compiling  # folded to True in a compiled graph, which then holds no range of ours

Close = Callable[[], None]
Open = Callable[[str], Close]


class ModuleCall:
    """One call of a module: its name, the phases shown, the call around it, the nodes of its inputs."""

    __slots__ = ("inputs", "name", "parent", "phases")

    def __init__(self, name: str, phases: frozenset[Phase], parent: ModuleCall | None) -> None:
        self.name = name
        self.phases = phases
        self.parent = parent
        self.inputs: set[int] = set()


class _Entry(NamedTuple):
    """An open range: its call, its backward pass and the function that closes it, None where it has none."""

    call: ModuleCall
    task: int | None
    close: Close | None


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
        self._off = False

    def enter(self, name: str, phases: frozenset[Phase], args: Any, kwargs: Any) -> ModuleCall:
        """Open a call's range; have the nodes of its inputs close the range of its backward."""
        stack = self._threads.stack
        call = ModuleCall(name, phases, stack[-1].call if stack else None)
        phase = Phase.FORWARD if _task() == -1 else Phase.RECOMPUTE
        shown = phase in phases and not self._off
        stack.append(_Entry(call, None, self._open(phase.qualify(name)) if shown else None))
        if Phase.BACKWARD in phases and not self._off:
            for node in nodes_of((args, kwargs)):
                call.inputs.add(node._sequence_nr())
                node.register_prehook(partial(self._run_input, call))
        return call

    def leave(self, call: ModuleCall, output: Any) -> None:
        """Close a call's range; have the nodes of its outputs open the range of its backward."""
        _pop_to(self._threads.stack, call, None)
        if Phase.BACKWARD not in call.phases or self._off:
            return
        if len(self._starts) > 100_000:
            self._starts.clear()
        for node in nodes_of(output):
            key = get_ident(), node._sequence_nr()
            if key[1] not in call.inputs and key not in self._starts:  # the innermost call opens its parents
                self._starts.add(key)
                node.register_prehook(partial(self._run_output, call))

    def _run_output(self, call: ModuleCall, _gradients: Any) -> None:
        if self._off:
            return
        task, stack = _task(), self._threads.stack
        path = [call]
        while path[-1].parent is not None:
            path.append(path[-1].parent)
        while stack and stack[-1].task == task and not any(stack[-1].call is one for one in path):
            _pop(stack)
        for one in reversed(path):
            if Phase.BACKWARD in one.phases and not any(entry.call is one for entry in stack):
                self._begin(task, stack)
                stack.append(_Entry(one, task, self._open(Phase.BACKWARD.qualify(one.name))))

    def _run_input(self, call: ModuleCall, _gradients: Any) -> None:
        _pop_to(self._threads.stack, call, _task())

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
        self._off = True
        while self._threads.stack:
            _pop(self._threads.stack)


def _pop_to(stack: list[_Entry], call: ModuleCall, task: int | None) -> None:
    """Close the range of a call in a pass (None: forward) and all ranges inside it; none where it is not open."""
    if any(entry.call is call and entry.task == task for entry in stack):
        while True:
            entry = _pop(stack)
            if entry.call is call and entry.task == task:
                return


def _pop(stack: list[_Entry]) -> _Entry:
    entry = stack.pop()
    if entry.close is not None:
        entry.close()
    return entry


class RangeProbe(EntryProbe):
    """Open and close the ranges of one module. ``owner`` has the ranges, and handles failures."""

    where = "range hooks"
    outermost = True

    def __init__(self, owner: Any, target: Target) -> None:
        super().__init__(owner, target.module)
        self._ranges: Ranges = owner.ranges
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
