"""``SessionCost``: the observer that adds the processor time of opening and closing the session to the summary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import thread_time_ns

from .._resolve.observer import Observer
from ..summary import Summary


class SessionCost(Observer):
    """Measure the opening and the closing. The last observer: it counts the others' work at the end."""

    provides = "time of its start and end"

    def __init__(self, now_ns: Callable[[], int] = thread_time_ns) -> None:
        self._now_ns = now_ns
        self._began_ns = now_ns()
        self._start_ns: int | None = None
        self._end_began_ns: int | None = None

    def opened(self) -> None:
        """Called once the session is open."""
        self._start_ns = self._now_ns() - self._began_ns

    def end_begins(self) -> None:
        """Called where the end of the session begins, after the wait for the device."""
        self._end_began_ns = self._now_ns()

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with the time of the start, and of the end so far; unchanged where no start was set."""
        if self._start_ns is None:
            return summary
        end_ns = None if self._end_began_ns is None else self._now_ns() - self._end_began_ns
        return replace(summary, start_ns=self._start_ns, end_ns=end_ns)
