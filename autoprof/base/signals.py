"""Signals during our own work: they are deferred, and an exception of the user's handler reaches the user."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from threading import get_ident, main_thread
from types import CodeType, FrameType, TracebackType
from typing import Any, Final

# The functions of ``signal`` turn numbers into enums: 2 to 3 µs each where these take 0.03 and 0.2, twice in each step.
from _signal import getsignal, signal as set_handler  # type: ignore[import-not-found]  # isort: skip

DEFERRED: Final = (int(signal.SIGINT), int(signal.SIGTERM))
"""Ctrl-C, and the signal that asks for an end: their handlers raise exceptions that a program survives."""
NOT_DEFERRED: Final[list[Any]] = []
"""Handlers of autoprof's own that wait for the end of its work themselves."""
_Handler = Callable[[int, FrameType | None], Any]


class DeferSignals:
    """A ``with`` block around our own work: the ``DEFERRED`` signals inside are handled at its end, by their handlers.

    ``numbers`` are others. A second Ctrl-C, or request for an end, is handled at once: the block may hang. Blocks
    may nest. Only on the main thread, where Python runs signal handlers, is there anything to hold back. Where a C
    library has installed a handler over Python's, it stays: Python can replace it, but not put it back.
    """

    __slots__ = ("_came", "_handlers", "_main", "_noting", "_numbers", "depth")

    def __init__(self, numbers: Iterable[int] = DEFERRED) -> None:
        self._numbers = numbers
        self.depth = 0
        """The number of open blocks; at 0 no work of autoprof is in progress."""
        self._main = main_thread().ident
        self._noting: _Handler | None = None
        """The handler of this block while it has replaced others; kept no longer: it refers to this object."""
        self._came: list[int] = []
        self._handlers: dict[int, _Handler] = {}
        """The handlers that this block has replaced, by signal."""

    def __enter__(self) -> None:
        try:
            if not self.depth and get_ident() == self._main:
                self._noting = self._note
                for number in self._numbers:
                    handler = getsignal(number)
                    # SIG_IGN and SIG_DFL cannot be called, nor can the None of a handler that a C library installed.
                    if callable(handler) and handler not in NOT_DEFERRED and is_pythons(number):
                        self._handlers[number] = handler
                        set_handler(number, self._noting)
            self.depth += 1
        except BaseException:  # raised by the handler of a Ctrl-C a moment earlier, or of another signal
            self._leave()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.depth -= 1
        if self.depth or self._noting is None or get_ident() != self._main:
            return
        try:
            for number, handler in self._handlers.items():
                if getsignal(number) is self._noting:  # one that the block has installed stays
                    set_handler(number, handler)
        except BaseException:  # raised by a handler that is back already
            self._leave()
            raise
        if self._came:
            self._leave()
        self._noting, self._handlers = None, {}

    def _leave(self) -> None:
        try:
            self._restore()
        except BaseException:  # raised by a handler that is back already
            self._restore()
            raise
        finally:
            self._noting = None
            handlers, self._handlers = self._handlers, {}
            came, self._came = self._came, []
            if came:
                _handle(came, handlers, sys._getframe(2))

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            if self._noting is not None and getsignal(number) is self._noting:
                set_handler(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        handler = self._handlers.get(number)
        if number not in self._came:
            self._came.append(number)
        elif handler is not None and number in DEFERRED:
            handler(number, frame)


def _handle(numbers: list[int], handlers: Mapping[int, _Handler], frame: FrameType) -> None:
    """Call the handlers of these signals, also where one of them raises."""
    try:
        handlers[numbers[0]](numbers[0], frame)
    finally:
        if numbers[1:]:
            _handle(numbers[1:], handlers, frame)


def is_pythons(number: int) -> bool:
    """Return whether the system passes this signal to Python, and not to a handler that a C library has installed.

    ``signal.getsignal`` does not see such handlers: those of MPI, of ROS, of ``faulthandler.register``.
    """
    ask, pythons = _system_handler(), _python_function()
    return ask is None or pythons is None or ask(number) == pythons


def has_no_handler(number: int) -> bool:
    """Return whether the default action of the system follows this signal: neither Python nor C has set a handler."""
    ask = _system_handler()
    return getsignal(number) == signal.SIG_DFL and (ask is None or ask(number) is None)


@cache
def _system_handler() -> Callable[[int], int | None] | None:
    """Return the function that asks the system for the address of a signal's handler; None where there is none.

    Its result is None for SIG_DFL.
    """
    if os.name != "posix":
        return None
    with suppress(Exception):  # another Python than CPython, or one without ctypes
        import ctypes

        return ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_int)(("PyOS_getsig", ctypes.pythonapi))
    return None


@cache
def _python_function() -> int | None:
    """Return the address of the function that CPython has the system call on a signal; None where it is unknown.

    It is read from a signal that is set for a moment, one that nothing handles and the system ignores by default.
    """
    ask = _system_handler()
    for name in ("SIGURG", "SIGWINCH", "SIGCONT"):
        number = int(getattr(signal, name, 0))
        if ask is not None and number and getsignal(number) == signal.SIG_DFL and ask(number) is None:
            try:
                set_handler(number, _nothing)
                return ask(number)
            finally:
                set_handler(number, int(signal.SIG_DFL))
    return None


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Handle a signal by doing nothing."""


def raised_by_handler(error: BaseException) -> bool:
    """Return whether a signal handler raised this: a time limit or an end that the user asked for."""
    handlers = {code for number in signal.valid_signals() if (code := _code(getsignal(int(number)))) is not None}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in handlers:
            return True
        trace = trace.tb_next
    return False


def _code(handler: Any) -> CodeType | None:
    handler = getattr(handler, "func", handler)  # of a partial
    function = getattr(handler, "__func__", handler)  # of a method
    called = vars(type(function)).get("__call__")  # of an object that can be called
    code = getattr(function, "__code__", None) or getattr(called, "__code__", None)
    return code if isinstance(code, CodeType) else None
