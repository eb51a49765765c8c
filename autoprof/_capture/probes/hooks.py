"""The hot path of module hooks, written for speed: closures over the recorder's state instead of attribute look-ups.

All modules of one purpose share two functions; ``renew`` renews the state that these close over when the recorder's
changes. A hook is one of them bound to its probe as a method, which knows its codes: what a call touches of memory
that is its module's own decides what it costs in a step that has other things in the caches. And a method can say
what a copy of it is: bound to an orphan, it finds no codes there and takes itself off.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import cache
from threading import get_ident, local
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..marks import BACKWARD_END, BACKWARD_START, KIND_MASK, MAX_BUFFER_LENGTH, MAX_MARKS, PASS_THROUGH
from ..recorder import Recorder
from .autograd_hooks import Gap, Hook, NodeWatch, Pair, Watch, tensor_hooks
from .backward import BackwardPasses, node_mark
from .cross_device import watch_far_inputs
from .fast import Fast
from .graph_search import GraphSearch
from .hook_state import HookState

# torch.compile folds this function to True while it traces, so a compiled graph holds no hook of ours and no break.
# At run time it only returns False, where torch.compiler.is_compiling asks more.
_compiling = torch.compiler.is_dynamo_compiling
_task = torch._C._current_graph_task_id
_count_thread = itertools.count().__next__


class _Numbered(local):
    """A number for each thread that is never used again: the system gives an ended thread's identifier to a new one."""

    def __init__(self) -> None:
        self.thread = _count_thread()


_numbered = _Numbered()
_next_number = torch._C._autograd._get_sequence_nr


class Hooks(NamedTuple):
    """What makes the hooks for a device (None: the clock's home).

    ``plain`` ones mark forward and recompute; ``following`` ones, for a model on one device or several, backward too.
    """

    plain: Callable[[int | None], Pair]
    following: Callable[[int | None, bool], Pair]
    passes: BackwardPasses


def make_hooks(recorder: Recorder) -> Hooks:
    """Return what makes the hooks that a recorder's probes share; those of all devices share the nodes of a step."""
    passes, gaps = BackwardPasses(recorder), list[Gap]()

    @cache
    def plain(device: int | None) -> Pair:
        return _plain_hooks(recorder, device)

    @cache
    def shared() -> Watch:  # where nothing is followed, no step is to be told of
        return tensor_hooks(recorder, _node_hooks(recorder, passes, gaps), gaps)

    @cache
    def following(device: int | None, several: bool) -> Pair:
        watch = shared()
        if several:
            watch = watch._replace(inputs=watch_far_inputs(recorder, passes, device, watch.inputs))
        enter, leave = _following_enter(recorder, device, watch, several), _following_leave(recorder, device, watch)
        if several:
            return enter, leave
        fast = Fast(recorder, lambda: _readers(recorder, device)[0], watch)
        return fast.hook("following_enter", enter), fast.hook("following_leave", leave)

    return Hooks(plain, following, passes)


def _readers(recorder: Recorder, device: int | None) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return what reads this device, and what reads the one that is current: a replica of a module is elsewhere."""
    here = recorder.clock.reader(None)
    return (recorder.read if device is None else recorder.clock.reader(device)), here


def _plain_hooks(recorder: Recorder, device: int | None) -> Pair:
    buffer, extend, training = recorder.buffer, recorder.extend, recorder.thread
    (read, here), alone, append = _readers(recorder, device), recorder.single_thread, recorder.append

    def renew() -> None:
        nonlocal extend, read, here, training, alone
        extend, training, alone = recorder.extend, recorder.thread, recorder.single_thread
        read, here = _readers(recorder, device)

    recorder.on_change(renew)

    def enter(self: HookState, module: nn.Module, args: Any) -> None:
        if _compiling():
            return
        try:
            if get_ident() == training and len(buffer) < MAX_BUFFER_LENGTH:
                extend((self.entering if _task() == -1 else self.recomputing, read()))
            else:
                code = self.entering if _task() == -1 else self.recomputing
                append(code, read() if module is self.module else here(), get_ident())
        except Exception as error:
            self.fail(module, error)

    def leave(self: HookState, module: nn.Module, args: Any, output: Any) -> None:
        if _compiling():
            return
        try:
            if alone:
                extend((self.leaving, read()))
            else:
                append(self.leaving, read() if module is self.module else here(), get_ident())
        except Exception as error:
            self.fail(module, error)

    fast = Fast(recorder, lambda: read)
    return fast.hook("plain_enter", enter), fast.hook("plain_leave", leave)


def _following_enter(recorder: Recorder, device: int | None, watch: Watch, several: bool) -> Hook:
    """Return the hook before calls whose backward is followed.

    The usual call has one tensor, which needs no function for all that an input might be, but on several devices.
    """
    (watch_input, _, _, known, _), watch_inputs, _, _, gaps = watch
    home, buffer, append = get_ident(), recorder.buffer, recorder.append
    extend, training, (read, here) = recorder.extend, recorder.thread, _readers(recorder, device)

    def renew() -> None:
        nonlocal extend, read, here, training
        extend, training, (read, here) = recorder.extend, recorder.thread, _readers(recorder, device)

    recorder.on_change(renew)

    def enter(self: HookState, module: nn.Module, args: Any, kwargs: Any = None) -> None:
        if _compiling():
            return
        try:
            code = self.entering if _task() == -1 else self.recomputing
            thread, ordinal = get_ident(), recorder.next_ordinal()
            if thread == home:
                self.open.append(ordinal)
                made = _next_number()
                if not several and len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
                    node, newest = args[0].grad_fn, -1
                    if node is not None and (newest := node._sequence_nr()) not in known:
                        watch_input(node, ordinal, thread)
                else:
                    newest = watch_inputs(args, kwargs, ordinal, thread)
                if newest < made - 1 and len(gaps) < MAX_MARKS:
                    gaps.append((ordinal, made))
            else:
                self.beside.setdefault(thread, []).append(ordinal)
                watch_inputs(args, kwargs, ordinal, thread)
            if thread == training and len(buffer) < MAX_BUFFER_LENGTH:
                extend((ordinal | code, read()))
            else:
                append(ordinal | code, read() if module is self.module else here(), thread)
        except Exception as error:
            self.fail(module, error)

    return enter


def _following_leave(recorder: Recorder, device: int | None, watch: Watch) -> Hook:
    """Return the hook after calls whose backward is followed."""
    (_, watch_output, *_), _, watch_outputs, watch_gaps, gaps = watch
    home, append = get_ident(), recorder.append
    extend, training, (read, here) = recorder.extend, recorder.thread, _readers(recorder, device)

    def renew() -> None:
        nonlocal extend, read, here, training
        extend, training, (read, here) = recorder.extend, recorder.thread, _readers(recorder, device)

    recorder.on_change(renew)

    def leave(self: HookState, module: nn.Module, args: Any, output: Any) -> None:
        if _compiling():
            return
        try:
            thread = get_ident()
            calls = self.open if thread == home else self.beside.get(thread)
            if not calls:  # hooked in the middle of this call
                return
            ordinal, code = calls.pop(), self.leaving
            if thread == training:
                extend((ordinal | code, read()))
            else:
                append(ordinal | code, read() if module is self.module else here(), thread)
            if isinstance(output, Tensor) and (node := output.grad_fn) is not None:
                watch_output(node, ordinal, thread)
            else:
                watch_outputs(output, ordinal, thread)
            if gaps and gaps[-1][0] > ordinal and thread == home:
                watch_gaps(output, code, ordinal)
        except Exception as error:
            self.fail(module, error)

    return leave


def _node_hooks(recorder: Recorder, passes: BackwardPasses, gaps: list[Gap]) -> NodeWatch:
    """Return what has an autograd node mark what it means to a call.

    A node has one prehook, however many calls its tensor enters and leaves; what it means to them is a list: the
    step's serial, then a BACKWARD_END or BACKWARD_START, then any PASS_THROUGH, the outer call's first. Within a thread
    a node is known by its sequence number (a Python object of it would keep the graph alive). A number that another
    thread's node has as well costs one mark; a node that is taken for a new one gets
    a second prehook, which repeats the first.
    """
    serial, home, search, mark_node = recorder.serial, get_ident(), GraphSearch(), node_mark(recorder, passes)
    nodes: dict[Any, list[int]] = {}

    def begin_step() -> None:
        nonlocal serial
        serial = recorder.serial
        nodes.clear()
        gaps.clear()

    recorder.on_step(begin_step)

    def watch_input(node: Any, ordinal: int, thread: int) -> int:
        # The backward of the call, and of all later calls, is over when this node runs. The first call decides.
        number: int = node._sequence_nr()
        key = number if thread == home else (_numbered.thread, number)
        if key not in nodes and len(nodes) < MAX_MARKS:
            codes = nodes[key] = [serial, ordinal | BACKWARD_END]
            node.register_prehook(MethodType(mark_node, codes))
        return number

    def watch_gap(output: Any, code: int, gap: Gap) -> None:
        # The newest node made before the call runs when those made since have run; often one that marks already.
        ordinal, made = gap
        if made - 1 not in nodes:
            node = search.find_node(output, code, made, nodes)
            if node is not None:
                watch_input(node, ordinal, home)

    def watch_output(node: Any, ordinal: int, thread: int) -> None:
        # The backward of the call starts when this node runs. An inner call's BACKWARD_START opens the outer calls.
        key = node._sequence_nr() if thread == home else (_numbered.thread, node._sequence_nr())
        codes = nodes.get(key)
        if codes is None:
            if len(nodes) < MAX_MARKS:
                codes = nodes[key] = [serial, ordinal | BACKWARD_START]
                node.register_prehook(MethodType(mark_node, codes))
        elif codes[1] < ordinal or codes[1] == ordinal | BACKWARD_END:  # the node was there before the call
            codes.insert(2, ordinal | PASS_THROUGH)
        elif codes[1] & KIND_MASK == BACKWARD_END:
            codes[1] = ordinal | BACKWARD_START  # which closes all that the BACKWARD_END would have closed

    return NodeWatch(watch_input, watch_output, watch_gap, nodes, mark_node)
