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

    code_of: Callable[..., int] | None = None
    """Returns the code of a call's span, given the function and the arguments, or -1 where it gets none; None where all
    calls have one code."""

    def __init__(self, recorder: Recorder, code: int, code_of: Callable[..., int] | None = None) -> None:
        self._recorder = recorder
        self._code = code
        if code_of is not None:
            self.code_of = code_of
        self._open_code = self._open_in = -1
        """The code and the step's serial of the open call, -1 where none is open. A Ctrl-C may leave those of an old
        step here."""

    def enter(self, function: Callable[..., Any], args: tuple[Any, ...]) -> bool:
        recorder, serial = self._recorder, self._recorder.buffer.serial
        if self._open_in == serial or get_ident() != recorder.thread or torch.compiler.is_dynamo_compiling():
            return False
        code = self._code if self.code_of is None else self.code_of(function, args)
        if code < 0:
            return False
        self._open_code, self._open_in = code, serial
        recorder.mark(code | ENTER)
        return True

    def leave(self) -> None:
        if self._open_in == self._recorder.buffer.serial:
            self._recorder.mark(self._open_code | LEAVE)
        self._open_in = -1
