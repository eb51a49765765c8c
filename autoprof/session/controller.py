"""Choose the steps and rows to record: all of them, as far as the budget affords.

``plan`` is the whole choice: from the cost of a recorded step, its limit and the rows it returns the rows to open, and
k: one of k steps is recorded. The longest rows that fit are opened; steps are left out where the rest alone does not
fit. The ``Controller`` measures cost and limit, and keeps what it records where another plan is not clearly better.

The account counts processor time of the training thread: autoprof's own work at the ends of steps, passes included, and
the marks by their calibrated cost. Other programs cannot change it. A step is as long as its median processor time and
the shortest time that a step waits, for a device or a loader: other programs make a step wait longer, never shorter, so
they can make recording look more affordable only. On a device the work of the host makes a step longer only where the
device waits for it: it costs at most that time, and the events at least the device's own time for them.

One step of each k in a row is recorded, at a place drawn by lot: steps of one distance would fall together with a
rhythm of the program. k is a power of two, and the step of 2 k is one of the two of k, so ranks that afford different
ones share the steps of the largest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import fsum
from typing import Final, NamedTuple

from ..base.frame import FrameRun
from ..base.stats.median import median
from ..resolve.observer import Observer
from .account import RECORDING, TABLE, Account
from .session_probes import TargetSet

FIRST_STEPS: Final = 3
"""The first recorded steps of a run, of which only the marks count: the rest allocates and initialises."""
MIN_EARLY: Final = 4
"""Fewest recorded steps by which less is recorded before a window is whole: one of them is the usual one."""
FIRST_RECORDING_NS: Final = sum(TABLE[part].first_ns for part in RECORDING)
"""Recording may cost so much more than its part of the budget before less is recorded."""
MIN_WINDOW: Final = 16
"""Fewest recorded steps of a window: a median of fewer follows single steps."""
MAX_WINDOW: Final = 8192
"""Most steps of a window, recorded or not. Windows double up to it, so that they hold whole passes, which are half a
second apart."""
KEPT_STEPS: Final = 64
"""Steps of a window whose lengths and costs are kept, the last ones: enough for a median."""
COST_QUANTILE: Final = 0.25
"""The cost of a step is this quantile of a window. Work that is done once makes single steps cost more, and other
programs, which use the caches, make many; nothing makes a step cost less."""
HEADROOM: Final = 1.25
"""More is recorded where that is expected to cost the budget divided by this, and a row replaces an open one where it
is longer by this factor: rows do not come and go."""
FIRST_MARK: Final = 1.6
"""A mark with its resolution and statistics costs about so many times the mark, before the account shows it."""
MAX_EVERY: Final = 4096
"""The largest k: of steps of 0.1 ms one in half a second is recorded."""


class RowOption(NamedTuple):
    """A row that is open, or may be opened: the modules inside it are then recorded too."""

    name: str
    share: float
    """Its part of the step."""
    marks: float
    """The marks that a step has only while the row is open."""
    is_open: bool = True
    stays: bool = False
    """Whether it is open whatever it costs."""
    inside: str | None = None
    """The row around it, which has to be open too unless this one stays."""

    @property
    def worth(self) -> float:
        """The share by which it competes with others."""
        return HEADROOM * self.share if self.is_open else self.share


class Cost(NamedTuple):
    """The time by which recording makes a step longer."""

    rest_ns: float
    """The part that does not depend on the rows."""
    mark_ns: float
    """The part of each mark."""

    def of(self, marks: float) -> float:
        """Return the cost of a step with so many marks."""
        return self.rest_ns + self.mark_ns * marks


def plan(cost: Cost, limit_ns: float, rows: Iterable[RowOption]) -> tuple[list[RowOption], int]:
    """Return the rows to open, and k: if one of k steps is recorded, a step costs ``limit_ns`` on average.

    Every step is recorded where that is possible without rows. Otherwise rows halve the steps recorded at most.
    """
    k = _power_of_two(cost.rest_ns / limit_ns)
    affordable_ns = limit_ns if k == 1 else 2 * k * limit_ns
    opened: dict[str, RowOption] = {}
    marks = 0.0
    for row in sorted(rows, key=lambda row: (row.stays, row.worth), reverse=True):
        if row.stays or (row.inside in opened and cost.of(marks + row.marks) <= affordable_ns):
            opened[row.name] = row
            marks += row.marks
    return list(opened.values()), _power_of_two(cost.of(marks) / limit_ns)


def _value(rows: Iterable[RowOption], k: int) -> tuple[bool, float, int]:
    """Return the value of a plan: the better one records every step, else rows of more time, else more steps."""
    return k == 1, fsum(row.worth for row in rows), -k


class RecordedRows:
    """The rows of rules: all are recorded, whatever they cost. A subclass has rows to choose from."""

    is_measured = False
    """Whether shares are new since the last choice."""
    shortest_ns = 0
    """The length of the shortest step by which the shares were measured."""

    def __init__(self, chosen: TargetSet) -> None:
        self.chosen = chosen
        """The targets to record from the next step on."""

    @property
    def options(self) -> list[RowOption]:
        """The rows that are open or worth opening, each after the row that it lies in."""
        return [RowOption("", 1.0, 1.0, stays=True)]

    def use(self, _rows: Iterable[RowOption]) -> bool:
        """Open these rows and no others; return whether that changes anything."""
        return False


class _Window:
    """Consecutive recorded steps that are judged together: after ``check_at`` of them, at last after ``size``."""

    def __init__(self, check_at: int, size: int) -> None:
        self.check_at, self.size = check_at, size
        self.steps = self.between_ns = 0
        """Recorded steps, and the cost of passes between them beyond their part of the budget."""
        self.kept: deque[tuple[int, int, int, int]] = deque(maxlen=KEPT_STEPS)
        """The cost, processor time, wait and cost of the marks of each of the last steps."""

    def sum_up(self) -> tuple[float, float, float]:
        """Return the cost of a recorded step, the part of its marks, and the length of the step without its cost.

        The work between steps belongs to the marks.
        """
        costs_ns, cpu_ns, waits_ns, marks_ns = zip(*self.kept, strict=True)
        between_ns, kept = self.between_ns / self.steps, len(self.kept)
        cost_ns = sorted(costs_ns)[int(COST_QUANTILE * kept)] + between_ns
        length_ns = max(float(median(cpu_ns)) + max(min(waits_ns), 0), 1.0)
        return cost_ns, sum(marks_ns) / kept + between_ns, length_ns


class Controller(Observer):
    """Choose what is recorded, so that it costs no more than the account has for it.

    ``every``: of so many steps one is considered at all, the first one of them. ``mark_ns`` is the calibrated cost of a
    mark.
    """

    def __init__(self, account: Account, every: int = 1, mark_ns: float = 0.0) -> None:
        self._rate = account.rate(*RECORDING)
        """The part of the run's time that recording may take, infinity without a budget."""
        self._every = every
        self.rows = RecordedRows(TargetSet())
        """The rows to fit into the budget."""
        self.k = 1
        """This rank affords one of each k steps that are considered."""
        self.agreed_rate = 1.0
        """The part of the steps that each of the other ranks affords, as far as it is known."""
        self._recorded = 0
        self._size = MIN_WINDOW
        """The steps of the next window, recorded or not."""
        self._debt_ns = 0.0
        """The cost of the steps so far beyond their part; without credit, so that it is not below 0. By the lengths of
        steps it is the same beside other programs, as the account's own rest is not."""
        self._window = _Window(1, FIRST_STEPS)
        self._cost = Cost(0.0, FIRST_MARK * mark_ns)
        self._limit_ns: float | None = None
        """The cost of a step that the budget affords; None before it was measured."""
        self._waits_ns: deque[int] = deque(maxlen=KEPT_STEPS)
        """How long the device waited for the host in each of the last recorded steps; empty without a device."""
        self._events_ns = 0
        """The device's time for the events of the last one."""
        self._reserved: list[tuple[int, int]] = []
        self._is_noted = False

    # The steps to record.

    @property
    def affordable_rate(self) -> float:
        """The part of the steps that this rank affords."""
        return 1 / self.k

    @property
    def stride(self) -> int:
        """The distance of recorded steps: that of the rank that affords fewest."""
        return self._every * max(self.k, _power_of_two(1 / max(self.agreed_rate, 1 / MAX_EVERY)))

    def next_recorded(self, step: int) -> int:
        """Return the number of the first step from this one on that is recorded.

        Where the budget chooses, one step of each ``stride`` in a row is recorded, at a place that looks drawn by lot.
        """
        if self.k == self._every == self.agreed_rate == 1:  # as in most runs: calls cost time in each step
            return step
        stride = self.stride
        if self._every > 1:
            chosen = step + (1 - step) % stride
        else:
            run = (step - 1) // stride
            place = _place(run, stride)
            chosen = 1 + (place if place >= step - 1 else _place(run + 1, stride))
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

    # The cost of a step, and its limit.

    def frames(self, run: FrameRun) -> None:
        """Note how long the device waited for the host in these steps."""
        if run.waited_ns is not None:
            self._waits_ns.extend(run.waited_ns)
            self._events_ns = run.events_ns

    def spend_on_rows(self, ns: int) -> None:
        """Count processor time between the steps that fewer marks would save."""
        if self._recorded >= FIRST_STEPS:
            self._window.between_ns += ns

    def close(self, cost_ns: int, cpu_ns: int, wall_ns: int, marks_ns: int | None = None) -> None:
        """Count a recorded step; choose anew where a window ends, recording has spent its part, or shares are new.

        ``cost_ns`` is processor time of autoprof, ``marks_ns`` of its marks, by default all of it. The step itself took
        ``cpu_ns`` of its thread's, ``wall_ns`` in all.
        """
        self._recorded += 1
        marks_ns = cost_ns if marks_ns is None else marks_ns
        window = self._window
        window.steps += 1
        window.kept.append((marks_ns if self._recorded <= FIRST_STEPS else cost_ns, cpu_ns, wall_ns - cpu_ns, marks_ns))
        if window.steps >= window.check_at:
            self._check()
        if self.rows.is_measured:
            self._choose()

    def _check(self) -> None:
        """Judge the open window: record less where its steps have cost more than the account lends, at its end more."""
        window, is_first = self._window, self._recorded <= FIRST_STEPS
        cost_ns, rows_ns, length_ns = window.sum_up()
        cost_ns, limit_ns = self._visible(cost_ns), max(self._rate * length_ns, 1.0)
        debt_ns = max(self._debt_ns + window.steps * (cost_ns - self.k * limit_ns), 0.0)
        is_over = cost_ns > self.k * limit_ns and debt_ns >= FIRST_RECORDING_NS
        if not is_over and window.steps < window.size:
            window.check_at = min(window.steps + (1 if is_first else max(MIN_EARLY, window.steps // 8)), window.size)
            return
        self._debt_ns = debt_ns
        if is_over or not is_first:
            marks_ns = min(max(rows_ns, self._events_ns), cost_ns)
            marks = sum(row.marks for row in self.rows.options if row.is_open)
            self._cost, self._limit_ns = Cost(cost_ns - marks_ns, marks_ns / marks), limit_ns
            self._size = self._size if is_over else min(2 * self._size, MAX_WINDOW)
            self._choose(is_over=is_over)
        self._begin_window()

    def _visible(self, cost_ns: float) -> float:
        """Return by how much longer a step becomes that costs the host so much."""
        return max(min(cost_ns, median(self._waits_ns)), self._events_ns) if self._waits_ns else cost_ns

    def _begin_window(self) -> None:
        """Judge the next steps alone. Of the first ones each is judged: those of a large model cost much."""
        left = FIRST_STEPS - self._recorded
        self._window = _Window(1, left) if left > 0 else _Window(MIN_EARLY, max(self._size // self.k, MIN_WINDOW))

    def _choose(self, *, is_over: bool = False) -> None:
        """Record as planned where the present choice costs too much, or the plan is as good with headroom."""
        self.rows.is_measured = False
        limit_ns = self._limit_ns or self._rate * self.rows.shortest_ns
        options = self.rows.options
        rows, k = plan(self._cost, max(limit_ns if is_over else limit_ns / HEADROOM, 1.0), options)
        if is_over or _value(rows, k) >= _value([row for row in options if row.is_open], self.k):
            has_changed = self.rows.use(rows) or k != self.k
            self.k = k
            if has_changed:  # the steps before cost more or less
                self._begin_window()


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
    """Return the smallest power of two that is not below ``least``; 1 below 1, ``MAX_EVERY`` at most."""
    found = 1
    while found < least and found < MAX_EVERY:
        found *= 2
    return found
