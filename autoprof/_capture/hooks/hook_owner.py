"""The owners that hooks of modules are bound to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ..marks.codes import ENTER, LEAVE, RECOMPUTE


class HookOwner(ABC):
    """The object that a module's hooks are bound to: a probe of a module, or the losses of one class."""

    __slots__ = ("code", "enter_code", "leave_code", "module", "recompute_code")

    def __init__(self, module: Any, code: int) -> None:
        self.module = module
        self.code = code
        """The shifted index of the label of its marks."""
        self.enter_code, self.recompute_code, self.leave_code = code | ENTER, code | RECOMPUTE, code | LEAVE

    @abstractmethod
    def fail(self, module: Any, error: Exception | None = None) -> None:
        """Handle a failure of a hook: count it and make no more marks. Raises what a user's signal handler raised."""


def handle_owner_failure(owner: HookOwner, module: Any, error: Exception) -> None:
    """Have the owner handle a failure of a hook in C."""
    try:
        raise error  # so that it is the exception being handled, as in a hook in Python
    except Exception as raised:
        owner.fail(module, raised)
