"""Put the usual case of hooks in C in front of the hooks in Python, which take every other case, unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ...base.process.replace import skip_frames
from ..marks.native import require_extension
from ..recorder import Recorder
from ..torch_compat import without_modes
from .autograd_hooks import CallTracker

if TYPE_CHECKING:
    from ..marks._c import NodeMarks

ClockReader = Callable[[], Any]


def native_context(
    recorder: Recorder,
    clock_reader: Callable[[], ClockReader],
    enabled: Callable[[], bool],
    tracker: CallTracker | None = None,
) -> Any:
    """Return the context in C that marks the usual calls of modules, while ``enabled`` returns true.

    ``clock_reader`` returns the function that reads the clock now. With ``tracker``, backward is tracked.
    """
    tracking = {} if tracker is None else {"nodes": tracker.nodes, "gaps": tracker.gaps}
    context = require_extension().HookContext(recorder.buffer, **tracking)
    _follow(recorder, context, clock_reader, enabled)
    return context


def make_carrier(hooks: dict[int, Any]) -> torch.Tensor:
    """Return a tensor from which autograd nodes take their hooks (``_register_hook_dict``).

    It may be made in the middle of the program's forward: no mode of the program sees it.
    """
    with without_modes(), torch._C._InferenceMode(False):  # the public one would look like a block of the program's
        carrier = torch.empty(0, device="cpu")
        carrier._backward_hooks = hooks
    return carrier


skip_frames(make_carrier, callees=True)  # after a graph break dynamo would compile it


def make_node_marks(
    recorder: Recorder,
    prehook: Callable[[Any, Any], bool | None],
    clock_reader: Callable[[], ClockReader],
    enabled: Callable[[], bool],
) -> NodeMarks:
    """Return the marks of a recorder's autograd nodes, in C while ``enabled`` returns true."""

    def handle_failure(_mark: Any, _gradients: Any, error: Exception) -> None:
        try:
            raise error  # so that it is the exception being handled, as in a hook in Python
        except Exception:
            recorder.handle_failure("backward hooks")

    extension = require_extension()
    context = extension.HookContext(recorder.buffer, fallback=prehook, on_error=handle_failure)
    _follow(recorder, context, clock_reader, enabled)
    nodes: NodeMarks = extension.NodeMarks(context, make_carrier)
    return nodes


def _follow(
    recorder: Recorder, context: Any, clock_reader: Callable[[], ClockReader], enabled: Callable[[], bool]
) -> None:
    """Update the context now and after each change of the recorder."""

    def update() -> None:
        read_clock = clock_reader()
        skip_frames(read_clock, callees=True)  # or dynamo would compile it beside the graph of a compiled model
        context.update(enabled=enabled(), training_thread=recorder.thread, read_clock=read_clock)

    recorder.on_change(update)
    update()
