"""The owners that hooks of modules are bound to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ..._process.signals import raised_by_handler
from ..marks.state import HookState


class HookOwner(HookState, ABC):
    """The object that a module's hooks are bound to: a probe of a module, or the losses of one class."""

    __slots__ = ("_open_calls", "module")

    def __init__(self, module: Any, code: int) -> None:
        super().__init__(code)
        self.module = module
        self._open_calls: dict[int, list[int]] = {}
        """By thread, other than the one that made the hooks: a step's serial, then the ordinals of its open calls."""

    def open_call_of(self, thread: int, ordinal: int, serial: int) -> None:
        """Add a call on another thread in this step: the ends of calls in earlier steps may have been passed over."""
        calls = self._open_calls.get(thread)
        if calls is None or calls[0] != serial:
            calls = self._open_calls[thread] = [serial]
        calls.append(ordinal)

    def close_call_of(self, thread: int) -> int | None:
        """Remove the call that was added last on a thread; return its ordinal, or None."""
        calls = self._open_calls.get(thread, ())
        return calls.pop() if len(calls) > 1 else None

    def forget_all_calls(self) -> None:
        """Remove all open calls."""
        self.forget_calls()
        self._open_calls.clear()

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
