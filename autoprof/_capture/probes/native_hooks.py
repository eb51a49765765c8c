"""Put the usual case of hooks in C (``_capture/marks/hook.c``) in front of the hooks in Python.

A hook in C handles the usual call as the one in Python would, and passes every other call on to that, unchanged. Where
the extension is not used, each function here returns the hooks in Python as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._process.replace import skip_frames
from ..marks import extension
from ..recorder import Recorder
from .autograd_hooks import CallTracker, Hook, HookPair
from .hook_owner import HookOwner

ClockReader = Callable[[], Any]


def native_module_hooks(
    recorder: Recorder, hooks: HookPair, clock_reader: Callable[[], ClockReader], tracker: CallTracker | None = None
) -> HookPair:
    """Return the hooks before and after a module's forward with their usual case in C.

    ``clock_reader`` returns the function that reads the clock now. With ``tracker``, the hooks track backward.
    """
    if recorder.native_buffer is None:
        return hooks
    tracking: dict[str, Any] = {}
    if tracker is not None:
        tracking = {"nodes": tracker.nodes.codes, "gaps": tracker.gaps, "node_prehook": tracker.nodes.prehook}
    context = extension.HookContext(recorder.native_buffer, **tracking)
    _follow(recorder, context, clock_reader, lambda: recorder.is_appending)
    enter, leave = hooks
    return (
        context.forward_pre_hook(enter, _handle_owner_failure),
        context.forward_hook(leave, _handle_owner_failure),
    )


def native_node_prehook(
    recorder: Recorder, prehook: Hook, clock_reader: Callable[[], ClockReader], passes: Any
) -> Hook:
    """Return the prehook of autograd nodes with its usual case in C."""
    if recorder.native_buffer is None or not isinstance(passes, extension.PassState):
        return prehook

    def handle_failure(_codes: Any, _gradients: Any, error: Exception) -> None:
        try:
            raise error  # so that it is the exception being handled, as in a hook in Python
        except Exception:
            recorder.handle_failure("backward hooks")

    context = extension.HookContext(recorder.native_buffer, passes=passes)
    _follow(recorder, context, clock_reader, lambda: recorder.is_appending and not passes.several)
    hook: Hook = context.node_prehook(prehook, handle_failure)
    return hook


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
            single_thread=recorder.single_thread,
            training_thread=recorder.thread,
            read_clock=read_clock,
        )

    recorder.on_change(update)
    update()


def _handle_owner_failure(owner: HookOwner, module: Any, error: Exception) -> None:
    try:
        raise error  # so that it is the exception being handled, as in a hook in Python
    except Exception as raised:
        owner.fail(module, raised)
