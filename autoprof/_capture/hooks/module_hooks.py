"""The hooks of modules in Python, written for speed: closures over the recorder's state instead of attribute accesses.

All modules of one purpose share two functions; ``update`` renews the state in their closures when the recorder's
changes. They are called with their owner, which holds the codes: in a step that has other data in the caches, the cost
of a call is the memory it touches that is its module's own.

The usual case of these hooks, and of the prehook in ``backward.py``, exists in C as well (``native_hooks.py``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from threading import get_ident, local
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from ..._process.replace import skip_frames
from ..marks.codes import MAX_BUFFER_LENGTH, MAX_MARKS
from ..recorder import Recorder
from .autograd_hooks import CallHooks, CallTracker, Gap, make_call_tracker
from .backward import BackwardPasses, make_pass_nodes
from .cross_device import track_cross_device_inputs
from .graph_search import GraphSearch
from .hook_owner import HookOwner
from .native_hooks import ClockReader, native_context

# torch.compile folds this function to True while it traces, so a compiled graph holds no hook of ours and no break.
# At run time it only returns False, while torch.compiler.is_compiling does more. The hooks of the model inside the
# result of torch.compile(model) are called beside its graph: their frames are skipped, or dynamo would compile each of
# them to nothing, with guards of its own.
_compiling = torch.compiler.is_dynamo_compiling
_graph_task = torch._C._current_graph_task_id
NUMBER_BITS: Final = 48
"""Bits of a node's number in the key of one of another thread."""
_next_thread_number = itertools.count(1).__next__


class _ThreadNumber(local):
    """A number for each thread that is never used again: the system reuses the identifiers of ended threads."""

    def __init__(self) -> None:
        self.value = _next_thread_number()


_thread_number = _ThreadNumber()


def _key_on_other_thread(number: int) -> int:
    """Return the key of a node of this thread. That of a node of the home thread is equal to one by chance only."""
    return number | _thread_number.value << NUMBER_BITS


_next_node_number = torch._C._autograd._get_sequence_nr


class Hooks(NamedTuple):
    """Factories of the hooks of modules on a device (None: the clock's home device).

    ``plain`` hooks mark forward and recompute; ``tracking`` hooks, for a model on one device or several, backward too.
    """

    plain: Callable[[int | None], CallHooks]
    tracking: Callable[[int | None, bool], CallHooks]
    passes: BackwardPasses


def make_hooks(recorder: Recorder) -> Hooks:
    """Return the factories of a recorder's hooks; the hooks of all devices share the nodes of a step."""
    passes, gaps = BackwardPasses(recorder), list[Gap]()
    nodes = passes.nodes = make_pass_nodes(recorder, passes)
    recorder.clear_each_step(nodes)
    recorder.clear_each_step(gaps)
    tracker = make_call_tracker(recorder, nodes, gaps, GraphSearch(), _key_on_other_thread)

    @cache
    def plain(device: int | None) -> CallHooks:
        return _plain_hooks(recorder, device)

    @cache
    def tracking(device: int | None, several: bool) -> CallHooks:
        if not several:
            return _tracking_hooks(recorder, device, tracker, several=False)
        track_inputs = track_cross_device_inputs(recorder, passes, device, tracker.track_inputs)
        return _tracking_hooks(recorder, device, tracker._replace(track_inputs=track_inputs), several=True)

    return Hooks(plain, tracking, passes)


def _clock_readers(recorder: Recorder, device: int | None) -> tuple[ClockReader, ClockReader]:
    """Return the readers of this device and of the current one: a replica of a module is on another device."""
    current = recorder.clock.reader(None)
    return (recorder.read if device is None else recorder.clock.reader(device)), current


def _is_elsewhere(owner: HookOwner, module: nn.Module) -> bool:
    """Return whether a call on another thread is no part of the training step.

    A recomputation on a device's backward thread is a part of it, and so is a replica's call in ``nn.DataParallel``.
    """
    return module is owner.module and _graph_task() == -1


def _plain_hooks(recorder: Recorder, device: int | None) -> CallHooks:
    """Return the hooks around calls whose backward is not tracked."""
    buffer, append, others = recorder.buffer, recorder.append, recorder.others
    extend, training_thread = recorder.extend, recorder.thread
    read, read_current = _clock_readers(recorder, device)

    def update() -> None:
        nonlocal extend, read, read_current, training_thread
        extend, training_thread = recorder.extend, recorder.thread
        read, read_current = _clock_readers(recorder, device)

    recorder.on_change(update)

    def mark(self: HookOwner, module: nn.Module, code: int) -> None:
        thread = get_ident()
        if thread == training_thread or not _is_elsewhere(self, module):
            append(code, read() if module is self.module else read_current(), thread)
        elif begun_ns := others.begin():
            append(code, read(), thread)
            others.end(begun_ns)

    def enter(self: HookOwner, module: nn.Module, args: Any, kwargs: Any) -> int:
        if not _compiling():
            try:
                code = self.enter_code if _graph_task() == -1 else self.recompute_code
                if get_ident() == training_thread and len(buffer) < MAX_BUFFER_LENGTH:
                    extend((code, read()))
                else:
                    mark(self, module, code)
            except Exception as error:
                self.fail(module, error)
        return 0

    def leave(self: HookOwner, module: nn.Module, args: Any, kwargs: Any, output: Any, _ordinal: int) -> None:
        if _compiling():
            return
        try:
            if get_ident() == training_thread:
                extend((self.leave_code, read()))
            else:
                mark(self, module, self.leave_code)
        except Exception as error:
            self.fail(module, error)

    for hook in (enter, leave):
        skip_frames(hook, callees=True)
    return CallHooks(enter, leave, native_context(recorder, lambda: read))


def _tracking_hooks(recorder: Recorder, device: int | None, tracker: CallTracker, *, several: bool) -> CallHooks:
    """Return the hooks around calls whose backward is tracked.

    The usual call has one tensor and needs no search for tensors, unless the model is on several devices.
    """
    nodes, track_inputs, track_outputs, track_inner_gaps, gaps = tracker
    track_input, track_output = nodes.track_input, nodes.track_output
    home_thread, buffer, append, others = get_ident(), recorder.buffer, recorder.append, recorder.others
    extend, training_thread = recorder.extend, recorder.thread
    read, read_current = _clock_readers(recorder, device)

    def update() -> None:
        nonlocal extend, read, read_current, training_thread
        extend, training_thread = recorder.extend, recorder.thread
        read, read_current = _clock_readers(recorder, device)

    recorder.on_change(update)

    def enter(self: HookOwner, module: nn.Module, args: Any, kwargs: Any) -> int:
        if _compiling():
            return 0
        try:
            thread, begun_ns = get_ident(), 0
            elsewhere = thread != training_thread and _is_elsewhere(self, module)
            if elsewhere and not (begun_ns := others.begin()):
                return 0
            code = self.enter_code if _graph_task() == -1 else self.recompute_code
            ordinal = buffer.next_ordinal()
            if thread == home_thread:
                next_number = _next_node_number()
                if not several and len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
                    node, newest = args[0].grad_fn, -1
                    if node is not None:
                        track_input(newest := node._sequence_nr(), node, ordinal)
                else:
                    newest = track_inputs(args, kwargs, ordinal, thread)
                if newest < next_number - 1 and next_number - 1 not in nodes and len(gaps) < MAX_MARKS:
                    gaps.append((ordinal, next_number))
            else:
                track_inputs(args, kwargs, ordinal, thread)
            if thread == training_thread and len(buffer) < MAX_BUFFER_LENGTH:
                extend((ordinal | code, read()))
            else:
                append(ordinal | code, read() if module is self.module else read_current(), thread)
            if elsewhere:
                others.end(begun_ns)
            return ordinal
        except Exception as error:
            self.fail(module, error)
            return 0

    def leave(self: HookOwner, module: nn.Module, args: Any, kwargs: Any, output: Any, ordinal: int) -> None:
        if _compiling():
            return
        try:
            thread, begun_ns = get_ident(), 0
            elsewhere = thread != training_thread and _is_elsewhere(self, module)
            if elsewhere and not (begun_ns := others.begin()):
                return
            if not ordinal:  # the begin of the call was not marked
                return
            if thread == training_thread:
                extend((self.leave_code | ordinal, read()))
            else:
                append(self.leave_code | ordinal, read() if module is self.module else read_current(), thread)
            if thread == home_thread and isinstance(output, Tensor) and (node := output.grad_fn) is not None:
                track_output(node._sequence_nr(), node, ordinal)
            else:
                track_outputs(output, ordinal, thread)
            if gaps and gaps[-1][0] > ordinal and thread == home_thread:
                track_inner_gaps(output, self.leave_code, ordinal)
            if elsewhere:
                others.end(begun_ns)
        except Exception as error:
            self.fail(module, error)

    for hook in (enter, leave):
        skip_frames(hook, callees=True)
    context = None if several else native_context(recorder, lambda: read, tracker)
    return CallHooks(enter, leave, context)
