"""Measure the phases and the steps of a program with its own clock, independently of autoprof.

One program runs in one process, so the process has one clock, ``CLOCK``.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter_ns, time_ns
from typing import Final

EXCLUDED: Final = "excluded"
"""The phase of time that belongs to no step: validation, saving, pauses."""


@dataclass
class ProgramStep:
    """One step as the program knows it. ``phases`` are exclusive times, ``names`` inclusive ones, in nanoseconds."""

    start_unix_ns: int
    end_unix_ns: int = 0
    wall_ns: int = 0
    phases: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    names: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))

    @property
    def step_ns(self) -> int:
        """The step's time without excluded time."""
        return self.wall_ns - self.phases.get(EXCLUDED, 0)

    @property
    def other_ns(self) -> int:
        """The time in no phase."""
        return self.wall_ns - sum(self.phases.values())


class Clock:
    """The steps of a program, each with the time of its phases and names."""

    def __init__(self) -> None:
        self.steps: list[ProgramStep] = []
        self.start()

    def start(self) -> None:
        """Begin the first step now; earlier steps are forgotten."""
        self.steps.clear()
        self._open: list[str] = []
        self._begin()

    def _begin(self) -> None:
        self._step = ProgramStep(time_ns())
        self._began = self._mark = perf_counter_ns()

    def step(self) -> None:
        """End a step and begin the next one."""
        self._switch()
        self._step.wall_ns = perf_counter_ns() - self._began
        self._step.end_unix_ns = time_ns()
        self.steps.append(self._step)
        self._begin()

    def _switch(self) -> None:
        """Charge the time since the last change to the innermost open phase."""
        now = perf_counter_ns()
        if self._open:
            self._step.phases[self._open[-1]] += now - self._mark
        self._mark = now

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the block to a phase, without the phases inside it; all of excluded time is excluded."""
        if EXCLUDED in self._open:
            name = EXCLUDED
        self._switch()
        self._open.append(name)
        try:
            yield
        finally:
            self._switch()
            self._open.pop()

    @contextmanager
    def named(self, name: str, phase: str) -> Iterator[None]:
        """Charge the block to a name in a phase, with the names inside it."""
        began = perf_counter_ns()
        try:
            yield
        finally:
            self._step.names[name, phase] += perf_counter_ns() - began


CLOCK: Final = Clock()
