"""The usual path of hooks in C (``_hooks.c``), where that was built; without it, those in Python do it all.

A hook in C does what the one in Python would for the usual call, and hands every other one to it, untouched.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

import torch

from ..recorder import END, FULL, KIND_MASK, MARKS, PASS, START, Recorder
from .marked import Marked
from .watching import Hook, Watch

try:
    from . import _hooks
except ImportError:  # no compiler where autoprof was installed, or an interpreter without a lock
    _hooks = None  # type: ignore[assignment]

PURE: Final = "AUTOPROF_PURE"
"""The variable of the environment that has everything done in Python."""


def _traced(*_args: Any) -> None:
    """What torch.compile makes of a hook that it traces: nothing, as of one in Python."""


if _hooks is not None:
    _hooks.show(_traced)


def in_c() -> bool:
    """Tell whether the usual path of hooks is done in C."""
    return _hooks is not None and not os.environ.get(PURE)


class Fast:
    """What the hooks of one purpose share in C: the recorder's state, renewed when that changes.

    ``read`` returns what takes a reading now; ``watch`` has the nodes where backward is followed; hooks of ``passes``
    belong to nodes and not to modules.
    """

    def __init__(
        self,
        recorder: Recorder,
        read: Callable[[], Callable[[], Any]],
        watch: Watch | None = None,
        passes: Any = None,
    ) -> None:
        self._state: Any = None
        if not in_c():
            return

        def failed(owner: Any, of: Any, error: Exception) -> None:
            try:
                raise error
            except Exception as again:  # as it would be, had a hook in Python raised it
                if passes is None:
                    owner.fail(of, again)
                else:
                    recorder.fail("backward hooks")

        state = self._state = _hooks.State(
            Marked,
            torch.Tensor,
            recorder.buffer,
            failed,
            torch._C._current_graph_task_id,
            torch._C._autograd._get_sequence_nr,
            {} if watch is None else watch.nodes.known,
            [] if watch is None else watch.gaps,
            passes,
            (START, END, PASS, KIND_MASK),
            FULL,
            MARKS,
            get_ident(),
        )
        if watch is not None:
            state.mark = watch.nodes.mark

        def renew() -> None:
            usual = recorder.keeps and not (passes is not None and passes.several)
            state.renew(usual, recorder.alone, recorder.thread, read())

        def begin_step() -> None:
            state.begin_step(recorder.serial, recorder.ordinals)

        recorder.on_change(renew)
        renew()
        if watch is not None or passes is not None:
            recorder.on_step(begin_step)
        begin_step()

    def hook(self, path: str, slow: Hook) -> Hook:
        """Return a hook that goes this path of those in C where it can, and else is the one in Python."""
        hook: Hook = slow if self._state is None else self._state.hook(path, slow)
        return hook
