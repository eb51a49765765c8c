"""The parts that follow the steps of a session as they come: the flight recorder, deep captures, samples of stacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .flight import FlightRecorder

StepListener = Callable[[int], object]
"""Called with the number of each recorded step before it begins; a step of which it returns True is excluded."""


class StepListeners:
    """Tell each part of the begins, the ends and the pauses of steps.

    ``flight`` is given the end of each step, recorded or not; ``pause_listeners`` are called at the begin and the end
    of time that belongs to no step.
    """

    def __init__(
        self,
        listeners: Sequence[StepListener],
        pause_listeners: Sequence[Callable[[bool], object]],
        flight: FlightRecorder | None,
    ) -> None:
        self._listeners = list(listeners)
        self._pause_listeners = tuple(pause_listeners)
        self._flight = flight
        self.are_idle = not self._listeners and flight is None
        """Whether no part follows the begins and ends of steps: their methods do nothing."""
        self._captures_next = False
        """Whether a deep capture begins with the step after the one that ends."""

    @property
    def need_each_end(self) -> bool:
        """Whether the ends of unsampled steps must be reported, each at its time."""
        return self._flight is not None

    def add(self, listener: StepListener) -> Callable[[], None]:
        """Have a listener called from the next recorded step on; return the function that ends this."""
        self._listeners.append(listener)
        self.are_idle = False

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)
            self.are_idle = not self._listeners and self._flight is None

        return remove

    def step_ends(self, now_ns: int) -> bool:
        """Called at the end of each step; return whether the next one is captured, and so recorded."""
        if self._flight is not None and self._flight.end_step(now_ns):
            self._captures_next = True
        return self._captures_next

    def take_capture(self) -> bool:
        """Return, once, whether the step that begins is captured."""
        captures, self._captures_next = self._captures_next, False
        return captures

    def step_begins(self, number: int) -> bool:
        """Called before a recorded step; return whether it has work that the user has asked for: it is excluded."""
        if self._flight is not None:
            self._flight.ring.begin_recorded(number)
        return True in [listener(number) for listener in self._listeners]

    def pause(self, on: bool) -> None:
        """Called where time belongs to no step from now on, or to steps again."""
        for listener in self._pause_listeners:
            listener(on)

    def subtract(self, ns: int) -> None:
        """Called with time that is no part of the open step."""
        if self._flight is not None:
            self._flight.ring.exclude(ns)
