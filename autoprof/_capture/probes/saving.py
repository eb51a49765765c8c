"""Saving a checkpoint is no part of a training step: ``torch.save`` on the training thread is charged apart."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import get_ident
from typing import Any

import torch

from ..recorder import Recorder
from .handle import Handle
from .patch import Attribute, Patch, PatchProbe

SAVE = Patch(Attribute(torch, "save"))


class SavingListener:
    """Keep each call apart from the step it happens in."""

    def __init__(self, recorder: Recorder, apart: Callable[[str], AbstractContextManager[None]]) -> None:
        self._recorder = recorder
        self._apart = apart
        self._open: list[AbstractContextManager[None]] = []

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        if get_ident() != self._recorder.thread:
            return False
        try:
            apart = self._apart("torch.save")
            apart.__enter__()
        except Exception:
            self._recorder.handle_failure("torch.save")
            return False
        self._open.append(apart)
        return True

    def leave(self) -> None:
        try:
            self._open.pop().__exit__(None, None, None)
        except Exception:
            self._recorder.handle_failure("torch.save")


def probe_saving(recorder: Recorder, apart: Callable[[str], AbstractContextManager[None]], handle: Handle) -> None:
    """Charge ``torch.save`` to no step, sampled or not, for as long as the session is open."""
    PatchProbe([(SAVE, SavingListener(recorder, apart))], handle).attach()
