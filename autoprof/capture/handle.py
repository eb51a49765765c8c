"""Probes, which are attached and detached, and the handles that undo changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from ..base.signals import raised_by_handler


@runtime_checkable
class Probe(Protocol):
    """An instrument that can be attached and detached many times.

    ``attach`` and ``detach`` do nothing when there is nothing to do; a Ctrl-C may cut any of the three short.
    """

    def attach(self) -> None:
        """Start to record."""

    def detach(self) -> None:
        """Stop recording; replaced functions may stay in place, idle."""

    def remove(self) -> None:
        """Detach, and undo every change of the user's program."""


class Handle:
    """Remember changes and undo exactly those, in reverse, once.

    An undo must do nothing when its change is not there: it may be added before the change is made, and it is called
    again after a Ctrl-C in its middle.
    """

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def add(self, undo: Callable[[], object]) -> None:
        """Add a function that undoes one change."""
        self._undo.append(undo)

    def remove(self) -> None:
        """Undo everything, even if some of it fails; then raise the first failure."""
        failure: BaseException | None = None
        while self._undo:
            undo = self._undo[-1]
            try:
                undo()
            except BaseException as error:
                interrupted = failure is None and (not isinstance(error, Exception) or raised_by_handler(error))
                failure = failure or error
                if interrupted:  # a signal: the undo may be half done, so it is called again, once
                    continue
            if self._undo and self._undo[-1] is undo:
                self._undo.pop()
        if failure is not None:
            raise failure
