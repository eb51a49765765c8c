"""State that hooks read and Python code writes, for a process without the extension in C, which has twins of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import MethodType
from typing import Any

from .codes import BACKWARD_END, BACKWARD_START, KIND_MASK, MAX_MARKS, ORDINAL_STRIDE


class PythonMarkBuffer(list[Any]):
    """The marks of the open step: a code and a reading for each, and the state that hooks read."""

    suspended = idle = False
    skipped = 0
    running = -1
    """Id of the backward pass that the last mark belonged to, which may be inside another pass."""
    multithreaded = False
    """Whether another thread than the training thread made a mark in the step."""
    serial = 0
    """Number of the step."""
    next_ordinal: Callable[[], int]
    """Return the ordinal of a new call; each step starts from the first one."""

    def __init__(self) -> None:
        super().__init__()
        self._last_codes: list[int] = []
        self.take(0)

    def take(self, serial: int) -> tuple[list[int], list[Any]]:
        """Return the codes and the readings, and start the step ``serial``."""
        self.serial = serial
        self.next_ordinal = count(ORDINAL_STRIDE, ORDINAL_STRIDE).__next__
        end = len(self)
        codes, readings = self[0:end:2], self[1:end:2]
        del self[:end]
        if codes == self._last_codes:  # one object for equal steps: it is found by its identity
            codes = self._last_codes
        self._last_codes = codes
        return codes, readings


class PythonNodeMark:
    """The prehook of one autograd node, to be bound to: the step's serial, and the code that the node marks."""

    __slots__ = ("code", "serial")

    def __init__(self, serial: int, code: int) -> None:
        self.serial = serial
        self.code = code


class PythonNodeMarks(dict[Any, PythonNodeMark]):
    """The autograd nodes of the open step that mark a backward pass, by their numbers: at most one prehook on each.

    ``prehook(mark, gradients)`` marks for all calls whose inputs or outputs the node made. A node that is mistaken for
    a new one gets a second prehook, which repeats the first. ``step.serial`` is the number of the open step.
    """

    def __init__(self, prehook: Callable[[Any, Any], None], step: PythonMarkBuffer) -> None:
        super().__init__()
        self._prehook, self._step = prehook, step

    def track_input(self, key: Any, node: Any, ordinal: int, /) -> None:
        """Have the node of an input mark the end of a call's backward, and of all later calls'. The first decides."""
        if key not in self:
            self._add(key, node, ordinal | BACKWARD_END)

    def track_output(self, key: Any, node: Any, ordinal: int, /) -> None:
        """Have the node of an output mark the begin of a call's backward, and of the calls around it.

        A call that returns its input has no backward.
        """
        mark = self.get(key)
        if mark is None:
            self._add(key, node, ordinal | BACKWARD_START)
        elif mark.code >= ordinal + ORDINAL_STRIDE and mark.code & KIND_MASK == BACKWARD_END:
            mark.code = ordinal | BACKWARD_START  # it closes all that the BACKWARD_END would have closed

    def _add(self, key: Any, node: Any, code: int) -> None:
        if len(self) < MAX_MARKS:
            mark = self[key] = PythonNodeMark(self._step.serial, code)
            node.register_prehook(MethodType(self._prehook, mark))
