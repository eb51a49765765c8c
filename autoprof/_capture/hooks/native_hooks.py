"""Put the usual case of hooks in C (``_capture/marks/hook.c``) in front of the hooks in Python.

A hook in C handles the usual call as the one in Python would, and passes every other call on to that, unchanged. Where
the extension is not used, each function here returns the hooks in Python as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from ..._process.replace import skip_frames
from ..marks.native import extension
from ..marks.state import PythonNodeMarks
from ..recorder import Recorder
from ..torch_compat import without_modes
from .autograd_hooks import CallTracker, Hook

ClockReader = Callable[[], Any]

RUN_NAME: Final = "_engine_run_backward"
"""The function of ``torch.autograd`` that starts the engine."""
HAS_HOOK_DICTS: Final = hasattr(torch._C._FunctionBase, "_register_hook_dict") and hasattr(torch.autograd, RUN_NAME)
"""Whether autograd nodes take hooks from a dict, which needs no Python; if not, they get prehooks."""


def native_context(
    recorder: Recorder, clock_reader: Callable[[], ClockReader], tracker: CallTracker | None = None
) -> Any:
    """Return the context in C that marks the usual calls of modules; None where there is none.

    ``clock_reader`` returns the function that reads the clock now. With ``tracker``, backward is tracked.
    """
    if recorder.native_buffer is None:
        return None
    tracking: dict[str, Any] = {}
    if tracker is not None:
        if isinstance(tracker.nodes, PythonNodeMarks):
            return None
        tracking = {"nodes": tracker.nodes, "gaps": tracker.gaps}
    context = extension.HookContext(recorder.native_buffer, **tracking)
    _follow(recorder, context, clock_reader, lambda: recorder.is_appending)
    return context


def make_carrier(hooks: dict[int, Any]) -> torch.Tensor:
    """Return a tensor from which autograd nodes take their hooks (``_register_hook_dict``).

    It may be made in the middle of the program's forward: no mode of the program sees it.
    """
    with without_modes(), torch._C._InferenceMode(False):  # the public one would look like a block of the program's
        carrier = torch.empty(0, device="cpu")
        carrier._backward_hooks = hooks
    return carrier


def make_node_marks(
    recorder: Recorder, prehook: Hook, clock_reader: Callable[[], ClockReader], passes: Any
) -> PythonNodeMarks:
    """Return the marks of a recorder's autograd nodes, in C where nodes can take their prehooks from dicts."""
    if not HAS_HOOK_DICTS or recorder.native_buffer is None:
        return PythonNodeMarks(prehook, recorder.buffer)

    def handle_failure(_mark: Any, _gradients: Any, error: Exception) -> None:
        try:
            raise error  # so that it is the exception being handled, as in a hook in Python
        except Exception:
            recorder.handle_failure("backward hooks")

    context = extension.HookContext(recorder.native_buffer, fallback=prehook, on_error=handle_failure)
    _follow(recorder, context, clock_reader, lambda: recorder.is_appending and not passes.several)
    nodes: PythonNodeMarks = extension.NodeMarks(context, make_carrier)
    return nodes


def _follow(
    recorder: Recorder, context: Any, clock_reader: Callable[[], ClockReader], enabled: Callable[[], bool]
) -> None:
    """Update the context now and after each change of the recorder."""

    def update() -> None:
        read_clock = clock_reader()
        skip_frames(
            read_clock, callees=True
        )  # called from C, it would be compiled beside the graph of a compiled model
        context.update(
            enabled=enabled(),
            training_thread=recorder.thread,
            read_clock=read_clock,
        )

    recorder.on_change(update)
    update()
