"""The owners that hooks of modules are bound to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ..._process.signals import raised_by_handler
from ..marks.state import HookState


class HookOwner(HookState, ABC):
    """The object that a module's hooks are bound to: a probe of a module, or the losses of one class."""

    __slots__ = ("module", "open_calls_of_threads")

    def __init__(self, module: Any, code: int) -> None:
        super().__init__(code)
        self.module = module
        self.open_calls_of_threads: dict[int, list[int]] = {}
        """By thread, other than the one that made the hooks: a step's serial, then the ordinals of its open calls."""

    @abstractmethod
    def fail(self, module: Any, error: Exception | None = None) -> None:
        """Handle a failure of a hook: count it and make no more marks. Raises what a user's signal handler raised."""


def handle_owner_failure(owner: HookOwner, module: Any, error: Exception) -> None:
    """Have the owner handle a failure of a hook in C, and the one before it in the same hook."""
    earlier = error.__context__
    if earlier is not None and raised_by_handler(earlier):
        raise earlier
    try:
        raise error  # so that it is the exception being handled, as in a hook in Python
    except Exception as raised:
        owner.fail(module, raised)
