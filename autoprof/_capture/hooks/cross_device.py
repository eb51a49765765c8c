"""Models on several devices: calls with inputs from another device, and modules without a device of their own.

In a backward pass each device has its own thread, and the marks of one thread do not time the work of another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import get_ident
from typing import Any, Final

import torch
from torch import nn

from ..marks.codes import BACKWARD_END, MAX_BUFFER_LENGTH, MAX_STEPS_BACK, STEP_STRIDE
from ..recorder import Recorder
from .autograd_hooks import CallHooks
from .backward import BackwardPasses
from .tensors import tensors_of

_compiling = torch.compiler.is_dynamo_compiling
_task = torch._C._current_graph_task_id

NO_GAP: Final = 1 << 62
"""A number above that of every node: nodes of other threads cannot show where a call ends, so there is no gap."""


def track_cross_device_inputs(
    recorder: Recorder, passes: BackwardPasses, device: int | None, track_inputs: Callable[..., int]
) -> Callable[..., int]:
    """Return a function that also has the nodes of inputs from other devices mark the call's end, on the call's stream.

    Autograd runs a call's nodes on the stream of its forward: the current one when it is called.
    """

    def mark(serial: int, ordinal: int, place: Any, _grads: Any) -> None:
        try:
            if _task() != recorder.buffer.running:
                passes.begin(_task())
            code = (ordinal | BACKWARD_END) + max(serial - recorder.serial, -MAX_STEPS_BACK) * STEP_STRIDE
            recorder.append(code, recorder.clock.read_at(place), get_ident())
        except Exception:
            recorder.handle_failure("backward hooks")

    def track(args: Any, kwargs: Any, ordinal: int, thread: int) -> int:
        track_inputs(args, kwargs, ordinal, thread)
        clock = recorder.clock
        own = clock.device_index if device is None else device
        for tensor in tensors_of((args, kwargs)):
            node = tensor.grad_fn
            if (
                node is not None
                and clock.index_of(tensor) not in (None, own)
                and len(recorder.buffer) < MAX_BUFFER_LENGTH
            ):
                node.register_prehook(partial(mark, recorder.serial, ordinal, clock.place(own)))
        return NO_GAP

    return track


def hooks_by_input(
    recorder: Recorder,
    make: Callable[[int | None], CallHooks],
    device: int | None,
) -> CallHooks:
    """Return hooks that read the clock of the device of a call's first tensor; without a tensor, that of ``device``.

    ``make`` makes the hooks of a device.
    """
    pairs: dict[int | None, CallHooks] = {}

    def hooks_for(args: Any) -> CallHooks:
        index_of = recorder.clock.index_of
        found = (index for index in map(index_of, tensors_of(args)) if index is not None)
        index = next(found, device)
        if index not in pairs:
            pairs[index] = make(index)
        return pairs[index]

    def enter(self: Any, module: nn.Module, args: Any, kwargs: Any) -> Any:
        if _compiling():
            return None
        try:
            hooks = hooks_for((args, kwargs))
            return hooks.after, hooks.before(self, module, args, kwargs)
        except Exception:
            self.fail(module)

    def leave(self: Any, module: nn.Module, args: Any, kwargs: Any, output: Any, entered: Any) -> None:
        if entered is not None:
            after, call = entered
            after(self, module, args, kwargs, output, call)

    return CallHooks(enter, leave)
