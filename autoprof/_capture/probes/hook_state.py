"""What hooks are bound to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ..marks import ENTER, LEAVE, RECOMPUTE


class HookState(ABC):
    """What hooks are bound to: the codes of one module, and its open calls where backward is followed."""

    __slots__ = ("beside", "entering", "leaving", "module", "open", "recomputing")

    def __init__(self, module: Any, code: int) -> None:
        self.module = module
        self.entering, self.recomputing, self.leaving = code | ENTER, code | RECOMPUTE, code | LEAVE
        self.open: list[int] = []
        """Ordinals of the open calls of the thread that made the hooks."""
        self.beside: dict[int, list[int]] = {}
        """Those of other threads, which may be in this module meanwhile."""

    @abstractmethod
    def fail(self, module: Any, error: Exception | None = None) -> None:
        """Take word of a failure of ours: mark no more. Raises what a signal handler of the user's raised."""
