"""The hot path of module hooks, written for speed: closures over the recorder's state instead of attribute look-ups.

The hooks of one purpose are made in one scope and share its cells; ``renew`` renews them when the recorder's state
changes. A hook is a closure bound to its probe as a method: a method can say what a copy of it is, a bare function
cannot.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import get_ident
from types import MethodType
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from ..recorder import (
    END,
    ENTER,
    FULL,
    GRAPH_BEGIN,
    GRAPH_END,
    KIND_MASK,
    LEAVE,
    PASS,
    RECOMPUTE,
    START,
    STEP,
    Recorder,
)
from .tensors import nodes_of

# torch.compile folds this function to True while it traces, so a compiled graph holds no hook of ours and no break.
# At run time it only returns False, where torch.compiler.is_compiling asks more.
_compiling = torch.compiler.is_dynamo_compiling
_task = torch._C._current_graph_task_id


NESTED: Final = 64
"""Backward passes inside one another that are kept apart."""

Hook = Callable[..., None]


class Hooks(NamedTuple):
    """Make the hooks of a probe, given its shifted code.

    ``plain`` marks forward and recompute; ``following`` also backward, and takes the list in which the ordinals of the
    probe's open calls are kept.
    """

    plain: Callable[[Any, int], tuple[Hook, Hook]]
    following: Callable[[Any, int, list[int]], tuple[Hook, Hook]]


def make_hooks(recorder: Recorder) -> Hooks:
    """Open the scopes that the hooks of this recorder share."""
    return Hooks(_plain_hooks(recorder), _following_hooks(recorder, *_tensor_hooks(*_node_hooks(recorder))))


def _plain_hooks(recorder: Recorder) -> Callable[[Any, int], tuple[Hook, Hook]]:
    buffer, extend, read, training = recorder.buffer, recorder.extend, recorder.read, recorder.thread
    alone, append = recorder.alone, recorder.append

    def renew() -> None:
        nonlocal extend, read, training, alone
        extend, read, training, alone = recorder.extend, recorder.read, recorder.thread, recorder.alone

    recorder.on_change(renew)

    def make(probe: Any, code: int) -> tuple[Hook, Hook]:
        entering, recomputing, leaving = code | ENTER, code | RECOMPUTE, code | LEAVE

        def enter(self: Any, module: nn.Module, args: Any) -> None:
            if _compiling():
                return
            try:
                if self is probe and get_ident() == training and len(buffer) < FULL:
                    extend((entering if _task() == -1 else recomputing, read()))
                elif self is probe:
                    append(entering if _task() == -1 else recomputing, read(), get_ident())
                else:
                    self.fail(module)
            except Exception:
                probe.fail(module)

        def leave(self: Any, module: nn.Module, args: Any, output: Any) -> None:
            if _compiling():
                return
            try:
                if alone:
                    extend((leaving, read()))
                else:
                    append(leaving, read(), get_ident())
            except Exception:
                probe.fail(module)

        return enter, leave

    return make


def _following_hooks(
    recorder: Recorder, watch_inputs: Hook, watch_outputs: Hook
) -> Callable[[Any, int, list[int]], tuple[Hook, Hook]]:
    buffer, extend, read, training = recorder.buffer, recorder.extend, recorder.read, recorder.thread
    append, home = recorder.append, get_ident()

    def renew() -> None:
        nonlocal extend, read, training
        extend, read, training = recorder.extend, recorder.read, recorder.thread

    recorder.on_change(renew)

    def make(probe: Any, code: int, open_calls: list[int]) -> tuple[Hook, Hook]:
        entering, recomputing, leaving = code | ENTER, code | RECOMPUTE, code | LEAVE
        push = open_calls.append
        beside: dict[int, list[int]] = {}  # the open calls of other threads, which may be in this module meanwhile

        def enter(self: Any, module: nn.Module, args: Any, kwargs: Any = None) -> None:
            if _compiling():
                return
            try:
                if self is not probe:
                    self.fail(module)
                    return
                thread, ordinal = get_ident(), recorder.next_ordinal()
                if thread == home:
                    push(ordinal)
                else:
                    beside.setdefault(thread, []).append(ordinal)
                watch_inputs(args, kwargs, ordinal, thread)
                if thread == training and len(buffer) < FULL:
                    extend((ordinal | (entering if _task() == -1 else recomputing), read()))
                else:
                    append(ordinal | (entering if _task() == -1 else recomputing), read(), thread)
            except Exception:
                probe.fail(module)

        def leave(self: Any, module: nn.Module, args: Any, output: Any) -> None:
            if _compiling():
                return
            try:
                thread = get_ident()
                calls = open_calls if thread == home else beside.get(thread)
                if self is not probe or not calls:  # hooked in the middle of this call
                    return
                reading, ordinal = read(), calls.pop()
                append(ordinal | leaving, reading, thread)
                watch_outputs(output, ordinal, thread)
            except Exception:
                probe.fail(module)

        return enter, leave

    return make


def _node_hooks(recorder: Recorder) -> tuple[Hook, Hook]:
    """Return ``watch_input`` and ``watch_output``: have an autograd node mark what it means to a call.

    A node has one prehook, however many calls its tensor enters and leaves; what it means to them is a list: the
    step's serial, then an END or a START, then any PASS, the outer call's first. Within a thread a node is known by
    its sequence number (a Python object of it would keep the graph alive). A number that another thread's node has as
    well costs one mark; a node that is taken for a new one gets a second prehook, which repeats the first.
    """
    append, read, serial, home = recorder.append, recorder.read, recorder.serial, get_ident()
    nodes: dict[Any, list[int]] = {}
    passes = BackwardPasses(recorder)

    def renew() -> None:
        nonlocal read
        read = recorder.read

    def begin_step() -> None:
        nonlocal serial, nodes
        serial, nodes = recorder.serial, {}

    recorder.on_change(renew)
    recorder.on_step(begin_step)

    def mark_node(codes: list[int], _grads: Any) -> None:
        # A node's prehook: it runs on the thread and stream of the backward pass.
        try:
            if _task() != passes.running:
                passes.begin(_task())
            if codes[0] == serial and len(codes) == 2:
                append(codes[1], read(), get_ident())
            else:  # calls of an earlier step lie that many steps back
                offset, reading, thread = (codes[0] - serial) * STEP, read(), get_ident()
                for code in codes[1:]:
                    append(code + offset, reading, thread)
        except Exception:
            recorder.fail("backward hooks")

    def watch_input(node: Any, ordinal: int, thread: int) -> None:
        # The backward of the call, and of all later calls, is over when this node runs. The first call decides.
        key = node._sequence_nr() if thread == home else (thread, node._sequence_nr())
        if key not in nodes:
            codes = nodes[key] = [serial, ordinal | END]
            node.register_prehook(MethodType(mark_node, codes))

    def watch_output(node: Any, ordinal: int, thread: int) -> None:
        # The backward of the call starts when this node runs. The START of an inner call opens those around it.
        key = node._sequence_nr() if thread == home else (thread, node._sequence_nr())
        codes = nodes.get(key)
        if codes is None:
            codes = nodes[key] = [serial, ordinal | START]
            node.register_prehook(MethodType(mark_node, codes))
        elif codes[1] < ordinal or codes[1] == ordinal | END:  # the node was there before the call
            codes.insert(2, ordinal | PASS)
        elif codes[1] & KIND_MASK == END:
            codes[1] = ordinal | START  # which closes all that the END would have closed

    return watch_input, watch_output


def _tensor_hooks(watch_input: Hook, watch_output: Hook) -> tuple[Hook, Hook]:
    """Return ``watch_inputs`` and ``watch_outputs``: watch the nodes behind whatever a call takes and returns."""

    def watch_inputs(args: Any, kwargs: Any, ordinal: int, thread: int) -> None:
        for value in args:
            if isinstance(value, Tensor):
                node = value.grad_fn
                if node is not None:
                    watch_input(node, ordinal, thread)
            elif value is not None:
                for node in nodes_of(value):
                    watch_input(node, ordinal, thread)
        if kwargs:
            for node in nodes_of(kwargs):
                watch_input(node, ordinal, thread)

    def watch_outputs(output: Any, ordinal: int, thread: int) -> None:
        if isinstance(output, Tensor):
            node = output.grad_fn
            if node is not None:
                watch_output(node, ordinal, thread)
        elif output is not None:
            for node in nodes_of(output):
                watch_output(node, ordinal, thread)

    return watch_inputs, watch_outputs


class BackwardPasses:
    """Mark where a backward pass reaches its first hooked node, and where it is over."""

    def __init__(self, recorder: Recorder) -> None:
        self.running = -1
        """The pass that the last mark belonged to. A backward inside a backward changes it to and fro."""
        self._recorder = recorder
        self._ordinals: dict[int, int] = {}

    def begin(self, task: int) -> None:
        """Take up the pass ``task``: a new one, or one that another was inside of."""
        self.running = task
        if task in self._ordinals or task == -1:
            return
        if len(self._ordinals) >= NESTED:  # passes that an exception ended never say so
            self._ordinals.clear()
        ordinal = self._ordinals[task] = self._recorder.next_ordinal()
        torch.autograd.Variable._execution_engine.queue_callback(partial(self._end, task, ordinal))
        self._recorder.mark(ordinal | GRAPH_BEGIN)

    def _end(self, task: int, ordinal: int) -> None:
        self._ordinals.pop(task, None)
        self.running = -2
        self._recorder.mark(ordinal | GRAPH_END)
