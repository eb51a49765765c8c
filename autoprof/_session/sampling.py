"""Choose which steps to record; attach the probes in these steps, and detach them in the others."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from .._capture.handle import Probe
from .._capture.mark_cost import MarkCost
from .._capture.other_threads import NO_OTHER_MARKS, OtherMarks
from .._capture.recorder import Recorder, activate
from .._units import NS_PER_S
from .governor import MAX_SETTLING_STEPS, MIN_SETTLING_STEPS, SETTLING_NS, Governor

if TYPE_CHECKING:
    from .._flight import FlightRecorder
    from .._targets import Target


class Level(NamedTuple):
    """A level of detail: its probes, a description of them, their targets, and the number of this set of targets."""

    probes: Sequence[Probe] = ()
    words: str = "nothing is"
    targets: tuple[Target, ...] = ()
    cut: int = 0

    @property
    def fqns(self) -> frozenset[str]:
        """The fqns of the modules that are recorded when called."""
        return frozenset(target.fqn for target in self.targets)


class FinestLevel(Protocol):
    """The source of the finest level, which may change from step to step."""

    @property
    def level(self) -> Level:
        """The level to record from the next step on."""


class Sampling:
    """Count the steps of a gap, and attach the probes in recorded steps.

    ``levels`` start with the finest; ``finest`` replaces that one where it changes during the run. ``every`` asks for
    each Nth step, of which the governor skips as many as its budget requires. ``step_probes`` are attached at every
    level.
    """

    def __init__(
        self,
        recorder: Recorder,
        governor: Governor,
        levels: Sequence[Level] = (),
        step_probes: Sequence[Probe] = (),
        *,
        finest: FinestLevel | None = None,
        every: int = 1,
        mark_cost: MarkCost | None = None,
        flight: FlightRecorder | None = None,
    ) -> None:
        self.flight = flight
        """The flight recorder, where there is one: it is given the end of each step."""
        self._step_probes = tuple(step_probes)
        self.settling = False
        """Whether the open step is excluded from statistics: the code that records is in no cache yet."""
        self._governor = governor
        self._always = not governor.active and every == 1
        self._settles = governor.active and every == 1  # with ``every`` > 1 each sampled step stands alone
        self._settled = self._settled_ns = 0
        self._recorder = recorder
        self._levels = levels or [Level()]
        self._finest = finest
        self._level = self._chosen_level()
        self._fqns = self._level.fqns
        self._every = every
        self._mark_cost = mark_cost or MarkCost()
        self._attached: Sequence[Probe] | None = None
        self._toggle_ns = 0
        self._began_ns = 0
        self._paid_ns = 0
        self._resume_at = 1
        """The number of the step with which recording goes on."""
        self._closed = 0
        self._reserved: list[tuple[int, int]] = []
        self._begins_burst = False
        self._described_level = 0

    def _chosen_level(self) -> Level:
        level = self._governor.level
        return self._finest.level if self._finest is not None and not level else self._levels[level]

    def begin_step(self) -> None:
        """Take over a change of level: the probes attached are those of the step that begins now."""
        level = self._chosen_level()
        if level is self._level:
            return
        self.switch(False)
        self._level, self._fqns = level, level.fqns
        self.settling = self._settles
        self._settled = self._settled_ns = 0

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets recorded in the open step, or in the last one."""
        return self._level.targets

    def switch(self, on: bool) -> None:
        """Attach all probes of the level, or detach those attached."""
        if on == (self._attached is not None):
            return
        began = perf_counter_ns()
        activate(self._recorder, on)
        if on:
            self._attached = [*self._level.probes, *self._step_probes]
            for probe in self._attached:
                probe.attach()
            now_ns = perf_counter_ns()
            self._toggle_ns = now_ns - began
            if self._begins_burst:  # this cost is charged to the burst, not to its first step
                self._begins_burst = False
                self._paid_ns += self._toggle_ns
                self._began_ns = now_ns
            elif not self._began_ns:
                self._began_ns = now_ns
        else:
            probes, self._attached = self._attached or (), None
            for probe in probes:
                probe.detach()
            self._toggle_ns += perf_counter_ns() - began

    def detach_all(self) -> None:
        """Detach all probes, also where a signal interrupted ``switch``; raise the first failure at the end."""
        self._attached = None
        activate(self._recorder, False)
        failed: list[Exception] = []
        levels = (*self._levels, self._level)
        every = (*(probe for level in levels for probe in level.probes), *self._step_probes)
        for probe in {id(probe): probe for probe in every}.values():
            try:
                probe.detach()
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def let_go(self) -> None:
        """Let go of all probes; the targets stay."""
        self._level = Level(targets=self._level.targets)
        self._levels, self._step_probes, self._finest, self.flight = [Level()], (), None, None

    def reserve(self, first: int, count: int) -> None:
        """Record these steps whatever their cost."""
        self._reserved.append((first, first + count))

    def exclude(self, ns: int) -> None:
        """Exclude work that the user has asked for from the step and from the cost of recording."""
        self._paid_ns += ns
        self._began_ns += ns

    def release(self, first: int, count: int) -> None:
        """Cancel a reservation."""
        if (first, first + count) in self._reserved:
            self._reserved.remove((first, first + count))

    def close(self, step: int, marks: int, paid_ns: int, other: OtherMarks = NO_OTHER_MARKS) -> None:
        """Choose the next step to record: a recorded one ends now.

        ``marks`` were made in it, ``other`` on other threads; ``paid_ns`` is the time of autoprof's own work so far in
        the whole run.
        """
        self._closed, self._resume_at = step, step + 1
        if self._always:
            return
        now_ns = perf_counter_ns()
        length_ns, self._began_ns = now_ns - self._began_ns, now_ns
        work_ns, others_ns, self._paid_ns = paid_ns - self._paid_ns, self.cost_of(other), paid_ns
        cost_ns = work_ns + others_ns + round(self._mark_cost.of(marks))
        if other.marks:  # each of them follows a mark that names its thread
            self._charge_other_threads(others_ns + work_ns * min(2 * other.marks / marks, 1.0))
        gap = self._governor.after_recorded(length_ns, cost_ns, self._toggle_ns, settles=self.settling, step=step)
        if self.settling:
            self._settle(length_ns)
        if not self._governor.follows_common_steps:
            gap = -(-(gap + 1) // self._every) * self._every - 1
        self._resume_at += gap

    def cost_of(self, other: OtherMarks) -> int:
        """Return the cost of module calls on other threads, on these threads, in nanoseconds."""
        return 0 if other is NO_OTHER_MARKS else other.ns + round(self._mark_cost.of(other.skipped))

    def _charge_other_threads(self, cost_ns: float) -> None:
        self._governor.charge_other_threads(round(cost_ns))
        if not self._governor.affords_other_threads:
            self._recorder.others.switch_off()

    @property
    def records_other_threads(self) -> bool:
        """Whether module calls on other threads are recorded: the budget still pays for them."""
        return self._governor.affords_other_threads

    def _settle(self, length_ns: int) -> None:
        self._settled += 1
        self._settled_ns += length_ns
        enough = self._settled_ns >= SETTLING_NS or self._settled >= MAX_SETTLING_STEPS
        self.settling = self._settled < MIN_SETTLING_STEPS or not enough

    def next_recorded(self, step: int) -> int:
        """Return the number of the first step from this one on that is recorded."""
        starts = [max(first, step) for first, end in self._reserved if step < end]
        return min([max(self._resume_at, step), *starts])

    def rest_s(self, step: int) -> float:
        """Return about how many seconds of unsampled steps follow, the open one included."""
        return (self.next_recorded(step) - step) * self._governor.bare_ns / NS_PER_S

    @property
    def instrumented(self) -> frozenset[str]:
        """The fqns of the modules that are recorded when called."""
        return self._fqns

    @property
    def cut(self) -> int:
        """The number of the set of targets of the open step."""
        return self._level.cut

    def describe_change(self, step: int) -> str | None:
        """Return, once, the note that another level of detail is recorded from this step on."""
        level = self._governor.level
        if level == self._described_level:
            return None
        why = "to keep the budget" if level > self._described_level else "there is room in the budget again"
        self._described_level = level
        return f"{why}: from step {step} on, {self._chosen_level().words} recorded"

    def begin_recorded(self, number: int) -> None:
        """Called before a recorded step of this number begins."""
        skipped, now_ns = number - self._closed - 1, perf_counter_ns()
        if skipped > 0:
            self._begins_burst = True
            self.settling = self._settles
            self._settled = self._settled_ns = 0
            self._governor.after_gap(skipped, max(now_ns - self._began_ns, 0), 0)
        if self.flight is not None:
            self.flight.ring.begin_recorded(number)

    def step_ends(self, number: int, now_ns: int) -> None:
        """Called when a step ends, recorded or not."""
        if self.flight is not None and self.flight.end_step(now_ns):  # a deep capture begins with the next one
            self._resume_at = min(self._resume_at, number + 1)

    def exclude_own(self, ns: int) -> None:
        """Take autoprof's own work between two steps off the length that the flight recorder writes."""
        if self.flight is not None:
            self.flight.ring.exclude(ns)

    def exclude_pause(self, ns: int) -> None:
        """Exclude a pause from the open step or gap."""
        if self.flight is not None:
            self.flight.ring.exclude(ns)
        self._began_ns += ns
