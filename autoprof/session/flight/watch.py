"""Decide from the ring and the stack whether the open step is long, and whether it does not end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...base.stats.median import median
from ...base.units import NS_PER_S, format_ns, format_span
from .ring import State, StepRing
from .stack import Activity

WARMUP: Final = 10
"""The first steps, which allocate and compile, and count for nothing."""
HANG_FACTOR: Final = 20
"""The multiple of the usual length from which a step may hang."""


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

    def __init__(self, ring: StepRing, look: Callable[[], tuple[Activity, bool]], *, hang_s: float) -> None:
        self.usual_ns = 0
        """The median of the recent steps."""
        self.hang: Hang | None = None
        """The hang of the open step."""
        self._longest_ns = 0
        self._last: Look | None = None
        """The last look at a step that was longer than usual."""
        self._ring = ring
        self._look = look
        self._hang_ns = round(hang_s * NS_PER_S)
        self._still = 0
        self._seen = 0

    def poll(self, now_ns: int) -> tuple[Look, Hang | None]:
        """Look at the thread; return it, and the hang if one was found now."""
        ring = self._ring
        if ring.count != self._seen:
            self._seen = ring.count
            self._still, self.hang = 0, None
            self._update()
        elapsed_ns = now_ns - ring.began_ns
        activity, waits = self._look()
        look = Look(ring.count + 1, now_ns, elapsed_ns, activity, waits)
        usual_ns = self.usual_ns
        # The multiple of the usual length from which the open step is long.
        is_long = elapsed_ns >= max(1.5 * usual_ns, usual_ns + 50_000_000)
        if ring.state is State.EXCLUDED or activity.excluded is not None or ring.count < WARMUP or not is_long:
            self._still = 0
            return look, None
        last, self._last = self._last, look
        still = last is not None and last.step == look.step and last.activity.signature == activity.signature
        self._still = self._still + 1 if still else 1
        if self._is_hang(look):
            self.hang = Hang(look, usual_ns)
            return look, self.hang
        return look, None

    def _update(self) -> None:
        """Read the lengths of the steps that the ring has, without the warm-up where there are others."""
        lengths = self._ring.lengths()
        kept = lengths[max(len(lengths) - max(self._ring.count - WARMUP, 0), 0) :]
        if len(lengths):
            self.usual_ns = round(float(median(kept if len(kept) else lengths)))
        if len(kept):
            self._longest_ns = max(self._longest_ns, int(kept.max()))

    def _is_hang(self, look: Look) -> bool:
        """Return whether a hang is found now: the thread is where it was, in work of the program."""
        # Looks in a row at which the thread is in the same place.
        if self.hang is not None or not self.usual_ns or self._still < 3:
            return False
        # A step that may hang is so many times as long as the longest step so far.
        if look.elapsed_ns < max(self._hang_ns, HANG_FACTOR * self.usual_ns, 3 * self._longest_ns):
            return False
        activity = look.activity  # an idle notebook or console has neither a line of the program nor a phase
        return activity.site is not None or activity.phase is not None


def format_length(ns: float) -> str:
    """Format the length of a step, or of one that does not end."""
    return format_span(ns) if ns >= NS_PER_S else format_ns(ns)
