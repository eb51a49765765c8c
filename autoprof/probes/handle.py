"""What undoes a probe."""

from __future__ import annotations

from collections.abc import Callable


class Handle:
    """Remember what was attached and undo exactly that, in reverse, once."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def add(self, undo: Callable[[], object]) -> None:
        """Add a step to be undone."""
        self._undo.append(undo)

    def remove(self) -> None:
        """Undo everything, whatever fails; the first failure is raised when all is done."""
        failure: BaseException | None = None
        while self._undo:
            try:
                self._undo.pop()()
            except BaseException as error:
                failure = failure or error
        if failure is not None:
            raise failure
