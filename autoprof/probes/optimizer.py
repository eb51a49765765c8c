"""Spans around ``optimizer.step``, and word to the session that one has happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ..recorder import ENTER, LEAVE, Recorder
from .handle import Handle


def probe_optimizers(recorder: Recorder, code: int, stepped: Callable[[], None], optimizers: tuple[Any, ...]) -> Handle:
    """Mark the steps of these optimizers, or of every torch optimizer of the process when none are given."""

    def enter(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        recorder.mark(code | ENTER)

    def leave(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        recorder.mark(code | LEAVE)
        stepped()

    handle = Handle()
    for optimizer in optimizers:
        handle.add(optimizer.register_step_pre_hook(enter).remove)
        handle.add(optimizer.register_step_post_hook(leave).remove)
    if not optimizers:
        handle.add(register_optimizer_step_pre_hook(enter).remove)
        handle.add(register_optimizer_step_post_hook(leave).remove)
    return handle


__all__ = ["Optimizer", "probe_optimizers"]
