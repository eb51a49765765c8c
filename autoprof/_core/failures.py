"""Contain failures of autoprof's own code, so that they do not reach the training, and describe them."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from .signals import raised_by_handler


class contain:
    """A ``with`` block that passes an ``Exception`` raised inside to ``handle`` and suppresses it.

    An exception that a signal handler raised goes on, and so does one that is no ``Exception``.
    """

    __slots__ = ("_handle",)

    def __init__(self, handle: Callable[[Exception], object]) -> None:
        self._handle = handle

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception) or raised_by_handler(error):
            return False
        self._handle(error)
        return True


def ignore(_error: Exception) -> None:
    """Handle a failure by doing nothing."""


def describe(error: BaseException) -> str:
    """Return the error's type and message."""
    return f"{type(error).__name__}: {error}"
