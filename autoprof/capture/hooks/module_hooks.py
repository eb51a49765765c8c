"""The hooks of modules in Python: closures over the recorder's state, which ``update`` renews.

All modules on one device share two functions, which are called with their owner. The usual case of these hooks, and of
the prehook in ``backward.py``, exists in C as well (``native_hooks.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import nn

from ...base.process.replace import skip_frames
from ..recorder import Recorder
from .autograd_hooks import CallTracker
from .backward import BackwardPasses, make_pass_nodes
from .call_sites import CallEntry
from .entry_probe import HookOwner
from .native_hooks import native_context
from .tensors import tensors_of

# torch.compile folds this function to True while it traces, so a compiled graph holds no hook of ours and no break.
# At run time it only returns False, while torch.compiler.is_compiling does more. The hooks of the model inside the
# result of torch.compile(model) are called beside its graph: their frames are skipped, or dynamo would compile each of
# them to nothing, with guards of its own.
_compiling = torch.compiler.is_dynamo_compiling
_graph_task = torch._C._current_graph_task_id


def _handle_failure(owner: HookOwner, module: Any, error: Exception) -> None:
    """Have the owner handle a failure of a hook in C."""
    try:
        raise error  # so that it is the exception being handled, as in a hook in Python
    except Exception as raised:
        owner.fail(module, raised)


class CallHooks(NamedTuple):
    """The functions called before and after calls of a module, and the context of their usual case in C, or None.

    ``before(owner, module, args, kwargs)`` returns ``call``, the last argument of
    ``after(owner, module, args, kwargs, output, call)``: a call's ordinal, or 0 where it is not tracked. Hooks
    by input return it together with the hooks of the call's device.
    """

    before: Callable[..., Any]
    after: Callable[..., Any]
    context: Any

    def entry(self, owner: HookOwner) -> Any:
        """Return the entry that calls them for this owner."""
        return CallEntry(owner, self.before, self.after, self.context, _handle_failure, owner.code)


class Hooks(NamedTuple):
    """Factories of the hooks of modules on a device (None: the clock's home device).

    ``plain`` hooks mark forward and recompute, ``tracking`` hooks backward too. ``by_input(make, device)`` returns
    hooks that call those of one of these two factories: for the device of a call's first tensor, or else ``device``.
    """

    plain: Callable[[int | None], CallHooks]
    tracking: Callable[[int | None], CallHooks]
    by_input: Callable[[Callable[[int | None], CallHooks], int | None], CallHooks]
    passes: BackwardPasses


def make_hooks(recorder: Recorder) -> Hooks:
    """Return the factories of a recorder's hooks; the hooks of all devices share the nodes of a step."""
    passes = BackwardPasses(recorder)
    tracker = CallTracker(make_pass_nodes(recorder, passes), recorder)
    recorder.at_step_end += [tracker.nodes.clear, tracker.gaps.clear]
    plain = cache(lambda device: _call_hooks(recorder, passes, device, None))
    tracking = cache(lambda device: _call_hooks(recorder, passes, device, tracker))
    by_input = cache(lambda make, device: _hooks_by_input(recorder, make, device))
    return Hooks(plain, tracking, by_input, passes)


def _call_hooks(
    recorder: Recorder, passes: BackwardPasses, device: int | None, tracker: CallTracker | None
) -> CallHooks:
    """Return the hooks around calls of modules on a device; with a tracker, their backward is tracked."""
    buffer, append = recorder.buffer, recorder.append
    read = read_current = recorder.read

    def update() -> None:
        nonlocal read, read_current
        read = recorder.read if device is None else recorder.clock.reader(device)
        read_current = recorder.clock.reader(None)  # a replica of a module is on another device

    recorder.on_change(update)
    update()

    def enter(self: HookOwner, module: nn.Module, args: Any, kwargs: Any) -> int:
        if _compiling():
            return 0
        try:
            thread, ordinal = get_ident(), 0
            code = self.enter_code if _graph_task() == -1 else self.recompute_code
            if tracker is not None:
                ordinal = buffer.next_ordinal()
                tracker.track_inputs(args, kwargs, ordinal, thread)
                if passes.several:
                    passes.track_arrivals(args, kwargs, ordinal, device)
            is_home = read is read_current or module is self.module
            append(ordinal | code, read() if is_home else read_current(), thread)
            return ordinal
        except Exception as error:
            self.fail(module, error)
            return 0

    def leave(self: HookOwner, module: nn.Module, args: Any, kwargs: Any, output: Any, ordinal: int) -> None:
        if _compiling() or (tracker is not None and not ordinal):
            return
        try:
            thread = get_ident()
            is_home = read is read_current or module is self.module
            reading = read() if is_home else read_current()
            if thread == recorder.thread:  # as ``append`` does, which is one call more in each step
                buffer.extend((self.leave_code | ordinal, reading))
            else:
                append(self.leave_code | ordinal, reading, thread)
            if tracker is not None:
                tracker.track_outputs(output, self.leave_code, ordinal, thread)
        except Exception as error:
            self.fail(module, error)

    for hook in (enter, leave):
        skip_frames(hook, callees=True)
    context = native_context(recorder, lambda: read, lambda: not (tracker and passes.several), tracker)
    return CallHooks(enter, leave, context)


def _hooks_by_input(recorder: Recorder, make: Callable[[int | None], CallHooks], device: int | None) -> CallHooks:
    def enter(self: HookOwner, module: nn.Module, args: Any, kwargs: Any) -> Any:
        try:
            clock = recorder.clock
            found = (index for index in map(clock.index_of, tensors_of((args, kwargs))) if index is not None)
            index = next(found, device)
            hooks = make(None if index == clock.device_index else index)
        except Exception as error:
            self.fail(module, error)
            return None
        return hooks, hooks.before(self, module, args, kwargs)

    def leave(self: HookOwner, module: nn.Module, args: Any, kwargs: Any, output: Any, entered: Any) -> None:
        if entered:
            hooks, call = entered
            hooks.after(self, module, args, kwargs, output, call)

    for hook in (enter, leave):
        skip_frames(hook, callees=True)
    return CallHooks(enter, leave, native_context(recorder, lambda: recorder.read, lambda: False))
