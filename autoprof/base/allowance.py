"""``Allowance``: a part of the overhead budget, as the room that spends it sees it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, Protocol

SAMPLED_CALLS: Final = 61
"""One of so many short calls is timed, for all. A prime: no step has calls of which it is always the same one."""


class Allowance(Protocol):
    """A part of the budget. ``autoprof/session/account.py`` makes them, and has the table of the parts."""

    spent_ns: int
    """The cost of the part so far."""
    processor_ns: Callable[[], int]
    """The processor time of the calling thread, for ``count``."""

    def work(self) -> AbstractContextManager[object]:
        """Return a context whose processor time this part pays for; work of another part inside it is not counted."""

    def sampled(self) -> AbstractContextManager[object]:
        """Return a context of one short call, which stands for ``SAMPLED_CALLS`` like it."""

    def count(self, ns: int) -> None:
        """Count time that no context has measured."""

    def affords(self, ns: float) -> bool:
        """Return whether the part can pay now for work of so much processor time."""

    def pause_ns(self) -> int:
        """Return the time until the part has paid for its work; 0 where it has."""
