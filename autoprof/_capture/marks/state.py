"""State that hooks read and Python code writes: owned by the extension in C where that is used, else by Python.

Each class here has a twin of the same name in C, with the same members (``_c.pyi``). ``HookState`` and ``PassState``
are the twins in C unless the extension was not built, or was switched off when autoprof was imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .codes import ENTER, LEAVE, RECOMPUTE
from .native import extension, uses_extension


class PythonHookState:
    """The codes and the open calls of the object that a module's hooks are bound to."""

    __slots__ = ("enter_code", "leave_code", "open_calls", "recompute_code")

    def __init__(self, code: int) -> None:
        self.enter_code, self.recompute_code, self.leave_code = code | ENTER, code | RECOMPUTE, code | LEAVE
        self.open_calls: list[int] = []
        """Ordinals of the open calls on the thread that made the hooks."""


class PythonPassState:
    """The backward pass that the last mark belonged to."""

    running = -1
    """Id of its graph task. A backward pass inside another one changes it back and forth."""
    captures = False
    """Whether nodes may be asked for gradients without being run."""
    begun = reached = 0
    """The passes that ``torch.autograd.backward`` began, and the outermost passes that have reached a hooked node,
    since both were last set to 0."""


if TYPE_CHECKING or not uses_extension():
    HookState = PythonHookState
    PassState = PythonPassState
else:
    HookState = extension.HookState
    PassState = extension.PassState
