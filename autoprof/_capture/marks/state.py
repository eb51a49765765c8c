"""State that hooks read and Python code writes: owned by the extension in C where that is used, else by Python.

Each class here has a twin of the same name in C, with the same members (``_c.pyi``). ``HookState``, ``PassState`` and
``CallMatcher`` are the twins in C unless the extension was not built, or was switched off when autoprof was imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

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
    begun = reached = 0
    """The passes that ``torch.autograd.backward`` began, and the outermost passes that have reached a hooked node,
    since both were last set to 0."""


class ExpectedCall(NamedTuple):
    """A call of the model with one tensor, and its number: the hook in C recognises calls that equal it."""

    number: int
    shape: Any
    dtype: Any
    training: bool
    grad: bool
    autocast: Any
    """False, or the modes of autocast on each type of device: then the hook in Python compares."""


class PythonCallMatcher:
    """Recognise a call of the model that equals the call before; here it only holds the state."""

    __slots__ = ("enabled", "expected", "numbers", "spent_ns")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        """Numbers of the step's calls, in order."""
        self.expected: ExpectedCall | None = None
        self.spent_ns = 0
        """Time that comparisons took, in nanoseconds."""
        self.enabled = False
        """Whether calls are compared."""


if TYPE_CHECKING or not uses_extension():
    HookState = PythonHookState
    PassState = PythonPassState
    CallMatcher = PythonCallMatcher
else:
    HookState = extension.HookState
    PassState = extension.PassState
    CallMatcher = extension.CallMatcher
