"""State that hooks read and Python code writes: owned by the extension in C where that is used, else by Python.

Each class here has a twin of the same name in C, with the same members (``_c.pyi``). ``HookState`` and ``PassState``
are the twins in C unless the extension was not built, or was switched off when autoprof was imported.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

from .codes import BACKWARD_END, BACKWARD_START, ENTER, KIND_MASK, LEAVE, MAX_MARKS, PASS_THROUGH, RECOMPUTE
from .native import extension, uses_extension


class PythonHookState:
    """The codes and the open calls of the object that a module's hooks are bound to."""

    __slots__ = ("close_call", "enter_code", "forget_calls", "leave_code", "open_call", "recompute_code")

    def __init__(self, code: int) -> None:
        self.enter_code, self.recompute_code, self.leave_code = code | ENTER, code | RECOMPUTE, code | LEAVE
        calls: list[int] = []
        self.open_call = calls.append
        """Add a call, by its ordinal, on the thread that made the hooks."""
        self.close_call: Callable[[], int | None] = lambda: calls.pop() if calls else None
        """Remove the call that was added last; return its ordinal, or None."""
        self.forget_calls = calls.clear
        """Remove all of them."""


class PythonPassState:
    """The backward pass that the last mark belonged to."""

    running = -1
    """Id of its graph task. A backward pass inside another one changes it back and forth."""
    captures = False
    """Whether nodes may be asked for gradients without being run."""
    begun = reached = 0
    """The passes that ``torch.autograd.backward`` began, and the outermost passes that have reached a hooked node,
    since both were last set to 0."""


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

    def __init__(self, prehook: Callable[[Any, Any], None], step: Any) -> None:
        super().__init__()
        self._prehook, self._step = prehook, step

    def track_input(self, key: Any, node: Any, ordinal: int) -> None:
        """Have the node of an input mark the end of a call's backward, and of all later calls'. The first decides."""
        if key not in self:
            self._add(key, node, ordinal | BACKWARD_END)

    def track_output(self, key: Any, node: Any, ordinal: int) -> None:
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


if TYPE_CHECKING or not uses_extension():
    HookState = PythonHookState
    PassState = PythonPassState
else:
    HookState = extension.HookState
    PassState = extension.PassState
