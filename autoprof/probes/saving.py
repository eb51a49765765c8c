"""Exclude ``torch.save`` on the training thread: saving a checkpoint belongs to no training step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import get_ident
from typing import Any

import torch

from .._capture.recorder import Recorder
from .._process.replace import Attribute, CallProbe, Replacement
from ._base import ProbeContext, ProbeFactory, StepEvents

SAVE = Replacement(Attribute(torch, "save"))


class SavingListener:
    """Exclude each call from the step in which it happens."""

    def __init__(self, recorder: Recorder, events: StepEvents) -> None:
        self._recorder = recorder
        self._events = events
        self._open: list[AbstractContextManager[None]] = []

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        if get_ident() != self._recorder.thread:
            return False
        try:
            excluded = self._events.exclude("torch.save")
            excluded.__enter__()
        except Exception:
            self._recorder.handle_failure("torch.save")
            return False
        self._open.append(excluded)
        return True

    def leave(self) -> None:
        try:
            self._open.pop().__exit__(None, None, None)
        except Exception:
            self._recorder.handle_failure("torch.save")


def _make(context: ProbeContext) -> CallProbe:
    assert context.events is not None
    return CallProbe([(SAVE, SavingListener(context.recorder, context.events))])


PROBE = ProbeFactory(_make, reports_events=True)
