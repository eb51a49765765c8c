"""A listener that makes a span of each call."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from ..capture.marks.codes import ENTER, LEAVE
from ..capture.recorder import Recorder


class SpanListener:
    """Make a span of each call on the training thread; a call inside a call of the same listener belongs to it."""

    def __init__(self, recorder: Recorder, code: int, wanted: Callable[[tuple[Any, ...]], bool] | None = None) -> None:
        self._recorder = recorder
        self._code = code
        self._wanted = wanted
        self._open_code = self._open_in = -1
        """The code and the step's serial of the open call, -1 where none is open. A Ctrl-C may leave those of an old
        step here."""

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        recorder, serial = self._recorder, self._recorder.buffer.serial
        if self._open_in == serial or get_ident() != recorder.thread or torch.compiler.is_dynamo_compiling():
            return False
        code = self.code_of(function, args)
        if code < 0:
            return False
        self._open_code, self._open_in = code, serial
        recorder.mark(code | ENTER)
        return True

    def code_of(self, function: Callable[..., Any], args: tuple[Any, ...]) -> int:
        """Return the code of a call's span; -1 where it gets none."""
        return self._code if self._wanted is None or self._wanted(args) else -1

    def leave(self) -> None:
        if self._open_in == self._recorder.buffer.serial:
            self._recorder.mark(self._open_code | LEAVE)
        self._open_in = -1
