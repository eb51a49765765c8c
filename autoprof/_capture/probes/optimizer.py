"""Spans around ``optimizer.step``, and word of each one to whoever counts them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.optim import optimizer as torch_optimizer

from ..marks import ENTER, LEAVE
from ..recorder import Recorder


class OptimizerHooks:
    """Call back around the steps of these optimizers, or of every torch optimizer of the process when none are given.

    Taking off looks for the callbacks, not for handles: a signal may have struck between a hook and its handle.
    """

    def __init__(
        self,
        optimizers: tuple[Any, ...],
        *,
        before: Callable[..., None] | None = None,
        after: Callable[..., None] | None = None,
    ) -> None:
        self._optimizers = optimizers
        self._before = before
        self._after = after
        self._attached = False

    def attach(self) -> None:
        """Hook the optimizers, unless that is done."""
        if self._attached:
            return
        self._attached = True
        if self._before is not None:
            for optimizer in self._optimizers:
                optimizer.register_step_pre_hook(self._before)
            if not self._optimizers:
                torch_optimizer.register_optimizer_step_pre_hook(self._before)
        if self._after is not None:
            for optimizer in self._optimizers:
                optimizer.register_step_post_hook(self._after)
            if not self._optimizers:
                torch_optimizer.register_optimizer_step_post_hook(self._after)

    def detach(self) -> None:
        """Take the hooks off: those that are there, also where attaching was cut short."""
        if self._attached:
            for hooks in self._hooks():
                for key in [key for key, hook in hooks.items() if hook in (self._before, self._after)]:
                    del hooks[key]
            self._attached = False

    def _hooks(self) -> Iterator[dict[int, Any]]:
        for optimizer in self._optimizers:
            yield optimizer._optimizer_step_pre_hooks
            yield optimizer._optimizer_step_post_hooks
        if not self._optimizers:
            yield torch_optimizer._global_optimizer_pre_hooks
            yield torch_optimizer._global_optimizer_post_hooks


class OptimizerProbe(OptimizerHooks):
    """Mark the steps of these optimizers, or of every torch optimizer of the process when none are given."""

    def __init__(self, recorder: Recorder, code: int, optimizers: tuple[Any, ...]) -> None:
        super().__init__(optimizers, before=self._enter, after=self._leave)
        self._recorder = recorder
        self._code = code

    def _enter(self, *_call: Any) -> None:
        self._recorder.mark(self._code | ENTER)

    def _leave(self, *_call: Any) -> None:
        self._recorder.mark(self._code | LEAVE)
