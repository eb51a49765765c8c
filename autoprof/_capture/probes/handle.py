"""What undoes a probe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..._process.signals import raised_by_handler


class Probe(Protocol):
    """What is attached only while a step is recorded."""

    def attach(self) -> None:
        """Begin to listen."""

    def detach(self) -> None:
        """Listen no more."""


class Handle:
    """Remember what was attached and undo exactly that, in reverse, once.

    An undo must do nothing when what it undoes is not there: it may be added before that is made, and done again
    after a Ctrl-C in its middle.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def add(self, undo: Callable[[], object]) -> None:
        """Add a step to be undone."""
        self._undo.append(undo)

    def remove(self) -> None:
        """Undo everything, whatever fails; the first failure is raised when all is done."""
        failure: BaseException | None = None
        while self._undo:
            undo = self._undo[-1]
            try:
                undo()
            except BaseException as error:
                struck = failure is None and (not isinstance(error, Exception) or raised_by_handler(error))
                failure = failure or error
                if struck:  # a signal: what was left half done is done again, once
                    continue
            if self._undo and self._undo[-1] is undo:
                self._undo.pop()
        if failure is not None:
            raise failure
