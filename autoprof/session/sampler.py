"""Choose the steps and rows to record: all of them, as far as the budget affords.

The account counts processor time of the training thread: autoprof's own work at the ends of steps, passes included, and
the marks by their calibrated cost. Other programs cannot change it. A step is as long as its median processor time and
the shortest time that a step waits, for a device or a loader: other programs make a step wait longer, never shorter, so
they can make recording look more affordable only. On a device the work of the host makes a step longer only where the
device waits for it: it costs at most that time, and the events at least the device's own time for them.

Where a step costs more than its part of the budget, and all together more than that part may cost at first, rows that
hold least time are closed first (``ClosableRows``). Where that is not enough, one step of each k in a row is recorded,
at a place drawn by lot: steps of one distance would fall together with a rhythm of the program. k is a power of two,
and the step of 2 k is one of the two of k, so ranks that afford different ones share the steps of the largest. The rows
of such a step cost at most as much as its other work, so that they halve the steps recorded at most.
"""

from __future__ import annotations

from collections import deque
from math import isinf
from typing import Final, Protocol

from ..base.frame import FrameRun
from ..base.stats.median import median
from ..resolve.observer import Observer
from .account import RECORDING, TABLE, Account

FIRST_STEPS: Final = 3
"""The first recorded steps of a run, of which only the marks count: the rest allocates and initialises."""
MIN_EARLY: Final = 4
"""Fewest recorded steps by which less is recorded before a window is whole: one of them is the usual one."""
FIRST_RECORDING_NS: Final = sum(TABLE[part].first_ns for part in RECORDING)
"""Recording may cost so much more than its part of the budget before less is recorded."""
MIN_WINDOW: Final = 8
"""Fewest recorded steps of a window: a median of fewer follows single steps."""
MAX_WINDOW: Final = 8192
"""Most steps of a window, recorded or not. Windows double up to it, so that they hold whole passes, which are half a
second apart."""
KEPT_STEPS: Final = 64
"""Steps of a window whose lengths and costs are kept: enough for a median."""
COST_QUANTILE: Final = 0.25
"""The cost of a step is this quantile of a window. Work that is done once makes single steps cost more, and other
programs, which use the caches, make many; nothing makes a step cost less."""
HEADROOM: Final = 1.25
"""More is recorded where that is expected to cost the budget divided by this, so that rows do not come and go."""
MAX_EVERY: Final = 4096
"""The largest k: of steps of 0.1 ms one in half a second is recorded."""


class ClosableRows(Protocol):
    """The rows that are recorded."""

    def fit(self, share: float) -> float:
        """Close rows until at most ``share`` of the present marks is left; return the share that is left."""


class _Window:
    """Consecutive recorded steps that are judged together."""

    def __init__(self) -> None:
        self.steps = self.between_ns = 0
        """Recorded steps, and the cost of passes between them beyond their part of the budget."""
        self._marks_ns = 0
        self._costs_ns: list[int] = []
        self._cpu_ns: list[int] = []
        self._waits_ns: list[int] = []

    def add(self, cost_ns: int, cpu_ns: int, wall_ns: int, marks_ns: int) -> None:
        self.steps += 1
        self._marks_ns += marks_ns
        if len(self._costs_ns) < KEPT_STEPS:
            self._costs_ns.append(cost_ns)
            self._cpu_ns.append(cpu_ns)
            self._waits_ns.append(max(wall_ns - cpu_ns, 0))

    @property
    def cost_ns(self) -> float:
        """The cost of a recorded step, with its part of the work between steps."""
        cost_ns = sorted(self._costs_ns)[int(COST_QUANTILE * len(self._costs_ns))]
        return cost_ns + self.between_ns / self.steps

    @property
    def rows_ns(self) -> float:
        """The mean cost of a recorded step's marks, and of their passes."""
        return (self._marks_ns + self.between_ns) / self.steps

    @property
    def length_ns(self) -> float:
        """The length of a step without the cost of recording it, at least 1."""
        return max(float(median(self._cpu_ns)) + min(self._waits_ns), 1.0)


class Sampler(Observer):
    """Choose what is recorded, so that it costs no more than the account has for it.

    ``every``: of so many steps one is considered at all, the first one of them.
    """

    def __init__(self, account: Account, every: int = 1) -> None:
        self._rate = account.rate(*RECORDING)
        """The part of the run's time that recording may take."""
        self._every = every
        self.rows: ClosableRows | None = None
        """The rows to fit into the budget; None where rules name them."""
        self.k = 1
        """This rank affords one of each k steps that are considered."""
        self.agreed_rate = 1.0
        """The part of the steps that each of the other ranks affords, as far as it is known."""
        self._recorded = 0
        self._size = MIN_WINDOW
        self._debt_ns = 0.0
        """The cost of the steps so far beyond their part; without credit, so that it is not below 0. By the lengths of
        steps it is the same beside other programs, as the account's own rest is not."""
        self._first, self._window = _Window(), _Window()
        self._before: _Window | None = None
        self._waits_ns: deque[int] = deque(maxlen=KEPT_STEPS)
        """How long the device waited for the host in each of the last recorded steps; empty without a device."""
        self._events_ns = 0
        """The device's time for the events of the last one."""
        self._reserved: list[tuple[int, int]] = []
        self._is_noted = False

    @property
    def affordable_rate(self) -> float:
        """The part of the steps that this rank affords."""
        return 1 / self.k

    @property
    def stride(self) -> int:
        """The distance of recorded steps: that of the rank that affords fewest."""
        return self._every * max(self.k, _power_of_two(1 / max(self.agreed_rate, 1 / MAX_EVERY)))

    def gap(self, step: int) -> int:
        """Return how many steps to skip after this one.

        Where the budget chooses, one step of each ``stride`` in a row is recorded, at a place that looks drawn by lot.
        """
        if self.k == self._every == self.agreed_rate == 1:  # as in most runs: calls cost time in each step
            return 0
        stride = self.stride
        if self._every > 1:
            return (1 - step - 1) % stride
        run = step // stride
        place = _place(run, stride)
        return (place if place >= step else _place(run + 1, stride)) - step

    def next_recorded(self, step: int) -> int:
        """Return the number of the first step from this one on that is recorded."""
        chosen = step + self.gap(step - 1)
        if not self._reserved:
            return chosen
        return min([chosen, *(max(first, step) for first, end in self._reserved if step < end)])

    def reserve(self, first: int, count: int) -> None:
        """Record these steps whatever their cost."""
        self._reserved.append((first, first + count))

    def release(self, first: int, count: int) -> None:
        """Cancel a reservation."""
        if (first, first + count) in self._reserved:
            self._reserved.remove((first, first + count))

    def note_limit(self, step: int) -> str | None:
        """Return, once, a note that the budget chooses which steps are recorded from this one on."""
        if self._is_noted or self.k == self.agreed_rate == 1:
            return None
        self._is_noted = True
        return f"to keep the budget: from step {step} on, not every step is recorded"

    def frames(self, run: FrameRun) -> None:
        """Note how long the device waited for the host in these steps."""
        if run.waited_ns is not None:
            self._waits_ns.extend(run.waited_ns)
            self._events_ns = run.events_ns

    def spend_on_rows(self, ns: int) -> None:
        """Count processor time between the steps that fewer marks would save."""
        self._window.between_ns += ns

    def close(self, cost_ns: int, cpu_ns: int, wall_ns: int, marks_ns: int | None = None) -> None:
        """Count a recorded step; decide at the end of a window, and earlier where recording has spent its part.

        ``cost_ns`` is processor time of autoprof, ``marks_ns`` of its marks, by default all of it. The step itself took
        ``cpu_ns`` of its thread's, ``wall_ns`` in all.
        """
        rate = self._rate
        if isinf(rate):
            return
        self._recorded += 1
        marks_ns = cost_ns if marks_ns is None else marks_ns
        is_first, window = self._recorded <= FIRST_STEPS, self._window
        if is_first:
            window, cost_ns = self._first, marks_ns
        window.add(cost_ns, cpu_ns, wall_ns, marks_ns)
        if not is_first and window.steps >= MIN_WINDOW and window.steps * self.k >= self._size:
            self._decide(rate)
        elif is_first or window.steps % MIN_EARLY == 0:
            limit_ns = max(rate * window.length_ns, 1.0)
            has_acted = self._record_less(window, limit_ns, window.steps)
            if self._recorded == FIRST_STEPS and not has_acted:
                self._debt_ns = self._debt_after(window.steps, cost_ns, limit_ns)

    def restart(self) -> None:
        """Judge no step before this one any more: others cost as much from now on."""
        self._first, self._window, self._before = _Window(), _Window(), None

    def _decide(self, rate: float) -> None:
        """Choose the rows and k by two windows: work that was done in one of them only is done once.

        One window is enough to record less where the first steps have cost too much.
        """
        window, before = self._window, self._before or self._window
        is_alone = self._before is None
        self._window, self._before = _Window(), window
        cheaper = min(window, before, key=lambda one: one.cost_ns)
        limit_ns = max(rate * min(window.length_ns, before.length_ns), 1.0)
        if self._record_less(cheaper, limit_ns, window.steps):
            return
        cost_ns, marks_ns = self._costs(cheaper)
        need = cost_ns / limit_ns
        self._debt_ns = self._debt_after(window.steps, cost_ns, limit_ns)
        if is_alone:
            return
        self._size = min(2 * self._size, MAX_WINDOW)
        if self.k > 1 and HEADROOM * need <= self.k / 2:
            self._record_every(_power_of_two(HEADROOM * need))
        elif self.k == 1 and HEADROOM * need < 1 and self.rows is not None:
            self.rows.fit((limit_ns / HEADROOM - (cost_ns - marks_ns)) / max(marks_ns, 1.0))

    def _record_less(self, window: _Window, limit_ns: float, steps: int) -> bool:
        """Close rows and leave steps out where these steps cost more than the account lends; return whether it did."""
        cost_ns, marks_ns = self._costs(window)
        debt_ns = self._debt_after(steps, cost_ns, limit_ns)
        if cost_ns <= self.k * limit_ns or debt_ns < FIRST_RECORDING_NS:
            return False
        self._debt_ns = debt_ns
        other_ns = cost_ns - marks_ns
        rows_ns = limit_ns - other_ns if other_ns < limit_ns else other_ns
        if self.rows is not None and rows_ns < marks_ns:
            cost_ns = other_ns + marks_ns * self.rows.fit(rows_ns / marks_ns)
        self._record_every(_power_of_two(cost_ns / limit_ns))
        self.restart()
        return True

    def _debt_after(self, steps: int, cost_ns: float, limit_ns: float) -> float:
        return max(self._debt_ns + steps * (cost_ns - self.k * limit_ns), 0.0)

    def _costs(self, window: _Window) -> tuple[float, float]:
        """Return by how much longer recording makes a step, and the part of the marks in that."""
        cost_ns = self._visible(window.cost_ns)
        return cost_ns, min(max(window.rows_ns, self._events_ns), cost_ns)

    def _visible(self, cost_ns: float) -> float:
        """Return by how much longer a step becomes that costs the host so much."""
        return max(min(cost_ns, median(self._waits_ns)), self._events_ns) if self._waits_ns else cost_ns

    def _record_every(self, k: int) -> None:
        if k != self.k:
            self.k = min(k, MAX_EVERY)
            self.restart()


def _place(run: int, stride: int) -> int:
    """Return the number of the step, from 0, that is recorded in a run of ``stride`` steps, a power of two.

    Halves are chosen by bits without a visible pattern, the same on every rank; so the step of a run is that of one of
    its halves. The bits are those of the finalizer of MurmurHash3 (A. Appleby), which mixes 32 bits.
    """
    while stride > 1:
        mixed = 2 * run + stride
        for factor, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
            mixed = ((mixed ^ (mixed >> shift)) * factor) & 0xFFFFFFFF
        run, stride = 2 * run + (mixed >> 16 & 1), stride // 2
    return run


def _power_of_two(least: float) -> int:
    """Return the smallest power of two that is not below ``least``; 1 below 1."""
    found = 1
    while found < least and found < MAX_EVERY:
        found *= 2
    return found
