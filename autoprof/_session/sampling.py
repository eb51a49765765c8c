"""Which steps are recorded, and what is on the model meanwhile: all of it in these steps, nothing in the others."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import NamedTuple

from .._capture.handle import Probe
from .._capture.mark_cost import MarkCost
from .._capture.recorder import Recorder, activate
from .._units import NS_PER_S
from .governor import MAX_SETTLING_STEPS, MIN_SETTLING_STEPS, SETTLING_NS, Governor


class Level(NamedTuple):
    """A level of detail: its probes, in words what they record, and the modules that are."""

    probes: Sequence[Probe] = ()
    words: str = "nothing is"
    fqns: frozenset[str] = frozenset()


class Sampling:
    """Count the steps that are left alone, and switch the probes on for the others.

    ``levels`` start with the finest. ``every`` asks for each Nth step, of which
    the governor skips as many as its budget requires. ``step_probes`` are attached at every level.
    """

    def __init__(
        self,
        recorder: Recorder,
        governor: Governor,
        levels: Sequence[Level] = (),
        step_probes: Sequence[Probe] = (),
        *,
        every: int = 1,
        mark_cost: MarkCost | None = None,
    ) -> None:
        self.gap_remaining = 0
        """Steps of the open gap until somebody has to look up; 0 outside of gaps."""
        self._step_probes = tuple(step_probes)
        self.settling = False
        """Whether the open step is kept apart, because what records it is in no cache yet."""
        self._governor = governor
        self._always = not governor.active and every == 1
        self._settles = governor.active and every == 1  # with ``every`` > 1 each sampled step stands alone
        self._settled = self._settled_ns = 0
        self._recorder = recorder
        self._levels = levels or [Level()]
        self._every = every
        self._mark_cost = mark_cost or MarkCost()
        self._on: Sequence[Probe] | None = None
        self._toggle_ns = 0
        self._began_ns = 0
        self._paid_ns = 0
        self._steps = 0
        self._rest = 0
        self._per_step = 1
        self._reserved: list[tuple[int, int]] = []
        self._first = 0
        self._lead = False
        self._compared_ns = 0
        self._switching = False
        self._said = 0

    def switch(self, on: bool) -> None:
        """Put everything of the level on, or take off what is on."""
        if on == (self._on is not None):
            return
        began = perf_counter_ns()
        activate(self._recorder, on)
        if on:
            self._on = [*self._levels[self._governor.level].probes, *self._step_probes]
            for probe in self._on:
                probe.attach()
            now_ns = perf_counter_ns()
            self._toggle_ns = now_ns - began
            if self._switching:  # what it takes is charged by the burst, not with its first step
                self._switching = False
                self._paid_ns += self._toggle_ns
                self._began_ns = now_ns
            elif not self._began_ns:
                self._began_ns = now_ns
        else:
            probes, self._on = self._on or (), None
            for probe in probes:
                probe.detach()
            self._toggle_ns += perf_counter_ns() - began

    def detach_all(self) -> None:
        """Take everything off, also where switching was cut short; go on after a failure and raise the first."""
        self._on = None
        activate(self._recorder, False)
        failed: list[Exception] = []
        every = (*(probe for level in self._levels for probe in level.probes), *self._step_probes)
        for probe in {id(probe): probe for probe in every}.values():
            try:
                probe.detach()
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def reserve(self, first: int, count: int) -> None:
        """Have these steps recorded, whatever it costs."""
        self._reserved.append((first, first + count))

    def asked(self, ns: int) -> None:
        """Leave out of every account what the user has asked for: it is no cost of recording."""
        self._paid_ns += ns
        self._began_ns += ns

    def end_gap_early(self) -> int:
        """Have an open gap end with the step that is open; return its steps."""
        if not self.gap_remaining:
            return 0
        left = self.gap_remaining + self._rest
        self.gap_remaining = left % self._per_step or self._per_step
        self._steps -= (left - self.gap_remaining) // self._per_step
        self._rest = self._first = 0
        self._lead = False
        return self._steps

    def release(self, first: int, count: int) -> None:
        """Take a reservation back."""
        if (first, first + count) in self._reserved:
            self._reserved.remove((first, first + count))

    def close(self, step: int, marks: int, paid_ns: int) -> int:
        """Return how many steps to leave alone after this one, which ends now.

        ``marks`` were made in it; ``paid_ns`` is what our own work has taken so far in the whole run.
        """
        if self._always:
            return 0
        now_ns = perf_counter_ns()
        length_ns, self._began_ns = now_ns - self._began_ns, now_ns
        cost_ns = round(paid_ns - self._paid_ns + self._mark_cost.of(marks))
        self._paid_ns = paid_ns
        gap = self._governor.after_recorded(length_ns, cost_ns, self._toggle_ns, settles=self.settling)
        if self.settling:
            self._settle(length_ns)
        gap = -(-(gap + 1) // self._every) * self._every - 1
        for first, end in self._reserved:
            if step < end - 1:
                gap = min(gap, max(first - step - 1, 0))
        return gap

    def _settle(self, length_ns: int) -> None:
        self._settled += 1
        self._settled_ns += length_ns
        enough = self._settled_ns >= SETTLING_NS or self._settled >= MAX_SETTLING_STEPS
        self.settling = self._settled < MIN_SETTLING_STEPS or not enough

    def begin_gap(self, steps: int, per_step: int = 1, *, inside: bool = False) -> None:
        """Leave alone as many steps, of each of which ``left`` is told ``per_step`` times.

        ``inside`` says that it is told in the middle of a step: steps are then compared from the first one's middle on.
        """
        toggle_ns = self._toggle_ns
        self.switch(False)
        self._paid_ns += self._toggle_ns - toggle_ns
        self._recorder.suspend()
        self._steps, self._per_step = steps, per_step
        first = max(self._governor.comparable, 1)
        self._first = min(first, steps - inside)
        self._lead = inside and steps > 1
        self.gap_remaining = (1 if self._lead else self._first or 1) * per_step
        self._rest = steps * per_step - self.gap_remaining
        self._began_ns = self._compared_ns = perf_counter_ns()

    def check_gap(self, now_ns: int) -> bool:
        """Tell whether the gap goes on when ``left`` is at its end; compare the steps so far with the recorded ones."""
        if self._lead:
            self._lead, self._compared_ns = False, now_ns
            self.gap_remaining = self._first * self._per_step
            self._rest -= self.gap_remaining
            return True
        if self._first:
            self._governor.compare(self._first, now_ns - self._compared_ns)
            self._first = 0
        self.gap_remaining, self._rest = self._rest, 0
        return self.gap_remaining > 0

    def check_after_next_step(self) -> None:
        """Have somebody look up again after the next step: what there was to do was too much for one."""
        if self.gap_remaining > self._per_step:
            self._rest += self.gap_remaining - self._per_step
            self.gap_remaining = self._per_step

    def gap_remaining_s(self) -> float:
        """Return about how many seconds of the gap are left."""
        return (self.gap_remaining + self._rest) / self._per_step * self._governor.bare_ns / NS_PER_S

    def end_gap(self, now_ns: int, paid_ns: int) -> tuple[int, int]:
        """Record again; return the steps left alone and their nanoseconds."""
        steps, elapsed_ns = self._steps, now_ns - self._began_ns
        self.gap_remaining = self._steps = 0
        spent_ns, self._paid_ns = paid_ns - self._paid_ns, paid_ns
        self._switching = True
        self.settling = self._settles
        self._settled = self._settled_ns = 0
        self._governor.after_gap(steps, elapsed_ns, spent_ns)
        self._recorder.resume()
        return steps, elapsed_ns

    @property
    def instrumented(self) -> frozenset[str]:
        """The fqns of the modules that are recorded when they are called."""
        return self._levels[self._governor.level].fqns

    def change(self, step: int) -> str | None:
        """Say it, once, when another level of detail is recorded from this step on."""
        level = self._governor.level
        if level == self._said:
            return None
        why = "to keep the budget" if level > self._said else "there is room in the budget again"
        self._said = level
        return f"{why}: from step {step} on, {self._levels[level].words} recorded"

    def abort_gap(self) -> tuple[int, int]:
        """End the gap where it is; return its steps so far and their nanoseconds."""
        steps = self._steps - -(-(self.gap_remaining + self._rest) // self._per_step)
        self.gap_remaining = self._steps = self._rest = 0
        return steps, perf_counter_ns() - self._began_ns

    def skip(self, ns: int) -> None:
        """Leave out of the open step or gap what it was interrupted for."""
        self._began_ns += ns
        self._compared_ns += ns
