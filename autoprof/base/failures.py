"""Contain failures of autoprof's own code, so that they do not reach the training, and describe them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .signals import raised_by_handler


@contextmanager
def contain(handle: Callable[[Exception], object]) -> Iterator[None]:
    """Pass an ``Exception`` that is raised inside the block to ``handle`` and suppress it.

    An exception that a signal handler raised goes on, and so does one that is no ``Exception``.
    """
    try:
        yield
    except Exception as error:
        if raised_by_handler(error):
            raise
        handle(error)


def ignore(_error: Exception) -> None:
    """Handle a failure by doing nothing."""


def describe(error: BaseException) -> str:
    """Return the error's type and message."""
    return f"{type(error).__name__}: {error}"
