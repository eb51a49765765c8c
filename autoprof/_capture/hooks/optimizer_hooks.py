"""Hooks on the steps of optimizers."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from torch.optim import Optimizer
from torch.optim import optimizer as torch_optimizer


def running_steps() -> list[Optimizer]:
    """Return the optimizers whose step runs on this thread, the outermost first: its hooks were not there at its begin.

    torch calls these hooks in a function around ``step`` whose variable ``self`` is the optimizer (torch 2.4 to 2.15).
    """
    found: list[Optimizer] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals is vars(torch_optimizer) and frame.f_code.co_name == "wrapper":
            optimizer = frame.f_locals.get("self")
            if isinstance(optimizer, Optimizer):
                found.append(optimizer)
        frame = frame.f_back
    return found[::-1]


class OptimizerHooks:
    """Call functions around the steps of these optimizers, or of every torch optimizer of the process. A ``Probe``.

    Detaching removes the hooks by their functions and not by handles: a signal may have come between the registration
    of a hook and the assignment of its handle.
    """

    def __init__(
        self,
        optimizers: tuple[Any, ...],
        *,
        before: Callable[..., Any] | None = None,
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
        """Remove the hooks with these functions, also where a signal cut ``attach`` short or another object did it."""
        for hooks in self._hooks():
            for key in [key for key, hook in hooks.items() if hook in (self._before, self._after)]:
                del hooks[key]
        self._attached = False

    remove = detach

    def move_last(self) -> None:
        """Have the function after steps called after all others there: hooks may then change while it is called."""
        for optimizer in self._optimizers or (None,):
            hooks = self._hooks_after(optimizer)
            for key in [key for key, hook in hooks.items() if hook == self._after]:
                hooks.move_to_end(key)

    def is_last(self, optimizer: Any) -> bool:
        """Return whether the function is called last after a step of this optimizer."""
        hooks = self._hooks_after(optimizer)
        return bool(hooks) and next(reversed(hooks.values())) == self._after

    def _hooks_after(self, optimizer: Any) -> OrderedDict[int, Any]:
        if self._optimizers:
            return optimizer._optimizer_step_post_hooks  # type: ignore[no-any-return]
        return torch_optimizer._global_optimizer_post_hooks  # type: ignore[return-value]

    def _hooks(self) -> Iterator[dict[int, Any]]:
        for optimizer in self._optimizers:
            yield optimizer._optimizer_step_pre_hooks
            yield optimizer._optimizer_step_post_hooks
        if not self._optimizers:
            yield torch_optimizer._global_optimizer_pre_hooks
            yield torch_optimizer._global_optimizer_post_hooks
