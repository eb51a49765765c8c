"""A listener that makes a span of each call."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from .._capture.marks.codes import ENTER, LEAVE
from .._capture.recorder import Recorder


class SpanListener:
    """Make a span of each call on the training thread; a call inside a call of the same listener belongs to it."""

    def __init__(self, recorder: Recorder, code: int, wanted: Callable[[tuple[Any, ...]], bool] | None = None) -> None:
        self._recorder = recorder
        self._code = code
        self._wanted = wanted
        self._open_in = -1
        """The serial of the step of the open call, -1 where none is open. A Ctrl-C may leave the serial of an old
        step here, which is not that of the open one."""

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        recorder = self._recorder
        if self._open_in == recorder.serial or get_ident() != recorder.thread or torch.compiler.is_dynamo_compiling():
            return False
        if self._wanted is not None and not self._wanted(args):
            return False
        self._open_in = recorder.serial
        recorder.mark(self._code | ENTER)
        return True

    def leave(self) -> None:
        self._open_in = -1
        self._recorder.mark(self._code | LEAVE)
