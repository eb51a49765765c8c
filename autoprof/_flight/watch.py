"""Decide from the ring and the stack whether the open step is long, and whether it does not end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from .._units import NS_PER_S, format_ns, format_span
from .ring import State, StepRing
from .slow_steps import WARMUP, SlowSteps
from .stack import Activity

POLL_NS: Final = NS_PER_S
"""The time between two looks at a training that goes on: each takes half a millisecond where caches are cold."""
MIN_POLL_NS: Final = NS_PER_S // 10
"""The least time between two checks of the open step's length, where slow steps are to be looked at."""
UPDATE_NS: Final = 10 * NS_PER_S
"""The time between two updates of the usual length, once ``KNOWN_STEPS`` have ended."""
KNOWN_STEPS: Final = 400
LONG_FACTOR: Final = 1.5
"""The multiple of the usual length from which the open step is looked at, …"""
LONG_EXCESS_NS: Final = 50_000_000
"""… if it is so much longer."""
HANG_FACTOR: Final = 20
"""The multiple of the usual length from which a step may hang, …"""
HANG_OVER_LONGEST: Final = 3
"""… if it is so many times as long as the longest step so far, and ``hang_s`` have passed."""
STILL_LOOKS: Final = 3
"""Looks in a row at which the thread is in the same place."""


class Look(NamedTuple):
    """The training thread at one moment of its open step; ``waits``: for the work of another rank."""

    step: int
    at_ns: int
    elapsed_ns: int
    activity: Activity
    waits: bool


@dataclass(frozen=True, slots=True)
class Hang:
    """A step that does not end."""

    look: Look
    usual_ns: int

    def __str__(self) -> str:
        elapsed, usual = format_length(self.look.elapsed_ns), format_length(self.usual_ns)
        return f"step {self.look.step} has not ended for {elapsed} (usual: {usual})"


class StepWatch:
    """Look at the open step of one rank each time that ``poll`` is called."""

    def __init__(
        self, ring: StepRing, look: Callable[[], tuple[Activity, bool]], *, hang_s: float, on_slow: bool = False
    ) -> None:
        self.slow = SlowSteps()
        self.last: Look | None = None
        """The last look at a step that was longer than usual."""
        self.hang: Hang | None = None
        """The hang of the open step."""
        self._ring = ring
        self._look = look
        self._hang_ns = round(hang_s * NS_PER_S)
        self._on_slow = on_slow
        self._still = 0
        self._seen = self._updated_ns = 0
        self._written_ns: int | None = None

    def hang_after_ns(self) -> int | None:
        """Return the length from which the open step may hang; None while no usual length is known."""
        if self._ring.count < WARMUP or not self.slow.usual_ns:
            return None
        longest = max(self.slow.longest_ns, 0)
        return max(self._hang_ns, HANG_FACTOR * self.slow.usual_ns, HANG_OVER_LONGEST * longest)

    def is_due(self, now_ns: int) -> bool:
        """Return whether to look: a second after the last look, or where a longer step than usual may be slow."""
        long = self._on_slow and self.slow.usual_ns > 0 and now_ns - self._ring.began_ns >= self.long_after_ns()
        return long or self._written_ns is None or now_ns - self._written_ns >= POLL_NS

    def poll(self, now_ns: int) -> tuple[Look, Hang | None]:
        """Look at the thread; return it, and the hang if one was found now."""
        ring = self._ring
        self._written_ns = now_ns
        if ring.count != self._seen:
            self._seen = ring.count
            self._end_hang()
            if ring.count < KNOWN_STEPS or now_ns - self._updated_ns >= UPDATE_NS:
                self._updated_ns = now_ns
                self.slow.update(ring.lengths(), ring.count)
        elapsed_ns = now_ns - ring.began_ns
        activity, waits = self._look()
        look = Look(ring.count + 1, now_ns, elapsed_ns, activity, waits)
        if (
            ring.state is State.EXCLUDED
            or activity.excluded is not None
            or ring.count < WARMUP
            or elapsed_ns < self.long_after_ns()
        ):
            self._still = 0
        else:
            last, self.last = self.last, look
            still = last is not None and last.step == look.step
            still = still and last is not None and last.activity.signature == activity.signature
            self._still = self._still + 1 if still else 1
            if self._is_hang(look):
                self.hang = Hang(look, self.slow.usual_ns)
                ring.mark_hang(True)
                return look, self.hang
        return look, None

    def _is_hang(self, look: Look) -> bool:
        """Return whether a hang is found now: the thread is where it was, in work of the program."""
        after_ns = self.hang_after_ns()
        if self.hang is not None or after_ns is None or look.elapsed_ns < after_ns or self._still < STILL_LOOKS:
            return False
        activity = look.activity  # an idle notebook or console has neither a line of the program nor a phase
        return activity.site is not None or activity.phase is not None

    def long_after_ns(self) -> int:
        """Return the length from which the open step is longer than usual."""
        usual_ns = self.slow.usual_ns
        return max(round(LONG_FACTOR * usual_ns), usual_ns + LONG_EXCESS_NS)

    def next_ns(self, now_ns: int) -> int:
        """Return the time until the next look: earlier where the open step is longer than usual by then."""
        if not self._on_slow or not self.slow.usual_ns or self._ring.count < WARMUP:
            return POLL_NS
        due_ns = self._ring.began_ns + self.long_after_ns() - now_ns
        if due_ns <= 0:  # it has been looked at, and the next look shows whether it moves
            return POLL_NS
        return min(max(due_ns, MIN_POLL_NS), POLL_NS)

    def waited_in(self, step: int) -> bool | None:
        """Return whether this rank waited for others in a long step; None where the step was not looked at."""
        last = self.last
        return None if last is None or last.step != step else last.waits

    def _end_hang(self) -> None:
        self._still = 0
        if self.hang is not None:
            self.hang = None
            self._ring.mark_hang(False)


def format_length(ns: float) -> str:
    """Format the length of a step, or of one that does not end."""
    return format_span(ns) if ns >= NS_PER_S else format_ns(ns)
