"""The usual path of the module hooks in C (``_capture/marks``); without the extension the hooks in Python do it all.

A hook in C does what the one in Python would for the usual call, and hands every other one to it, untouched.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from ..marks import BACKWARD_END, BACKWARD_START, KIND_MASK, MAX_MARKS, PASS_THROUGH, extension
from ..recorder import Recorder
from .autograd_hooks import Hook, Watch
from .hook_state import HookState


def _traced(*_args: Any) -> None:
    """What torch.compile makes of a hook that it traces: nothing, as of one in Python."""


if extension is not None:
    extension.show(_traced)


class Fast:
    """What the hooks of one purpose share in C: the recorder's state, renewed when that changes.

    ``read`` returns what takes a reading now; ``watch`` has the nodes where backward is followed; hooks of ``passes``
    belong to nodes and not to modules. ``owner`` is what the hooks are bound to.
    """

    def __init__(
        self,
        recorder: Recorder,
        read: Callable[[], Callable[[], Any]],
        watch: Watch | None = None,
        passes: Any = None,
        owner: type[HookState] = HookState,
    ) -> None:
        self._state: Any = None
        if recorder.native_buffer is None:
            return

        def failed(probe: Any, module: Any, error: Exception) -> None:
            try:
                raise error
            except Exception as again:  # as it would be, had a hook in Python raised it
                if passes is None:
                    probe.fail(module, again)
                else:
                    recorder.handle_failure("backward hooks")

        state = self._state = extension.State(
            owner,
            torch.Tensor,
            recorder.native_buffer,
            failed,
            torch._C._current_graph_task_id,
            torch._C._autograd._get_sequence_nr,
            {} if watch is None else watch.nodes.known,
            [] if watch is None else watch.gaps,
            passes,
            torch.is_grad_enabled,
            torch._C._is_any_autocast_enabled,
            (BACKWARD_START, BACKWARD_END, PASS_THROUGH, KIND_MASK),
            MAX_MARKS,
            MAX_MARKS,
            get_ident(),
        )
        if watch is not None:
            state.mark = watch.nodes.mark

        def renew() -> None:
            usual = recorder.is_appending and not (passes is not None and passes.several)
            state.renew(usual, recorder.single_thread, recorder.thread, read())

        recorder.on_change(renew)
        renew()

    def hook(self, path: str, slow: Hook) -> Hook:
        """Return a hook that goes this path of those in C where it can, and else is the one in Python."""
        hook: Hook = slow if self._state is None else self._state.hook(path, slow)
        return hook
