"""State that hooks read and Python code writes, for a process without the extension in C, which has twins of it."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from .codes import BACKWARD_END, BACKWARD_START, KIND_MASK, MAX_MARKS, PASS_THROUGH


class StepState:
    """The state of the open step that marks read. ``MarkBuffer`` has the same members."""

    __slots__ = ("captures", "running", "serial")

    def __init__(self) -> None:
        self.serial = 0
        """Number of the step."""
        self.running = -1
        """Id of the backward pass that the last mark belonged to, which may be inside another pass."""
        self.captures = False
        """Whether nodes may be asked for gradients without being run."""


class PythonNodeMark:
    """The prehook of one autograd node, to be bound to: the step's serial, and the codes that the node marks.

    First a BACKWARD_END or BACKWARD_START, then any PASS_THROUGH, the outer call's first.
    """

    __slots__ = ("codes", "serial")

    def __init__(self, serial: int, code: int) -> None:
        self.serial = serial
        self.codes = [code]


class PythonNodeMarks(dict[Any, PythonNodeMark]):
    """The autograd nodes of the open step that mark a backward pass, by their numbers: at most one prehook on each.

    ``prehook(mark, gradients)`` marks for all calls whose inputs or outputs the node made. A node that is mistaken for
    a new one gets a second prehook, which repeats the first. ``step.serial`` is the number of the open step.
    """

    def __init__(self, prehook: Callable[[Any, Any], None], step: StepState) -> None:
        super().__init__()
        self._prehook, self._step = prehook, step

    def track_input(self, key: Any, node: Any, ordinal: int, /) -> None:
        """Have the node of an input mark the end of a call's backward, and of all later calls'. The first decides."""
        if key not in self:
            self._add(key, node, ordinal | BACKWARD_END)

    def track_output(self, key: Any, node: Any, ordinal: int, /) -> None:
        """Have the node of an output mark the begin of a call's backward, and of the calls around it."""
        mark = self.get(key)
        if mark is None:
            self._add(key, node, ordinal | BACKWARD_START)
        elif mark.codes[0] < ordinal or mark.codes[0] == ordinal | BACKWARD_END:  # the node is older than the call
            mark.codes.insert(1, ordinal | PASS_THROUGH)
        elif mark.codes[0] & KIND_MASK == BACKWARD_END:
            mark.codes[0] = ordinal | BACKWARD_START  # it closes all that the BACKWARD_END would have closed

    def _add(self, key: Any, node: Any, code: int) -> None:
        if len(self) < MAX_MARKS:
            mark = self[key] = PythonNodeMark(self._step.serial, code)
            node.register_prehook(MethodType(self._prehook, mark))
