"""The account of autoprof's own work in the steps of a session, and of the length of each step without it."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns, thread_time_ns
from typing import Protocol

from .pipeline import Pipeline
from .sampler import Sampler


class CostMeter(Protocol):
    """A part whose own work in the step is counted while it is done."""

    spent_ns: int
    """Nanoseconds since this was last set to 0."""


class StepCost:
    """Count processor time of the training thread, and give the sampler the cost and the length of each recorded step.

    ``mark_ns`` is the calibrated cost of a mark, ``meters`` are the parts that count their own work.
    """

    def __init__(self, sampler: Sampler, pipeline: Pipeline, mark_ns: float, meters: Sequence[CostMeter]) -> None:
        self._sampler = sampler
        self._pipeline = pipeline
        self._mark_ns = mark_ns
        self._meters = tuple(meters)
        self.work_ns = 0
        """Processor time of autoprof's own work at the ends of steps so far."""
        self._metered_ns = 0
        """The time of the meters so far."""
        self._charged_ns = self._paid_ns = 0
        """The work that frames have been charged with, and the work that the sampler has counted."""
        self._began_ns = self._began_cpu_ns = 0
        """The begin of the open recorded step, without the pauses in it, by both clocks."""
        self._paused_ns = self._paused_cpu_ns = 0
        """The begin of the outermost open pause by both clocks."""

    @property
    def uncharged_ns(self) -> int:
        """The work that no frame has been charged with yet."""
        return self.work_ns - self._charged_ns

    def begin_step(self) -> None:
        """Called once autoprof's own work at the end of a step is done, before a recorded step goes on."""
        self._began_ns, self._began_cpu_ns = perf_counter_ns(), thread_time_ns()

    def charge(self) -> int:
        """Return the overhead of the step that ends: the work since the last one, and the time of the meters."""
        overhead_ns, self._charged_ns = self.uncharged_ns, self.work_ns
        for meter in self._meters:
            if meter.spent_ns:
                overhead_ns += meter.spent_ns
                self._metered_ns += meter.spent_ns
                meter.spent_ns = 0
        return overhead_ns

    def end_step(self, marks: int, ended_ns: int, ended_cpu_ns: int, *, counts: bool) -> None:
        """Give the sampler the cost and the length of a recorded step that ended at these times of both clocks."""
        paid_ns = self.work_ns + self._metered_ns + thread_time_ns() - ended_cpu_ns - self._pipeline.passes_ns
        work_ns, self._paid_ns = paid_ns - self._paid_ns, paid_ns
        marks_ns = round(self._mark_ns * marks)
        wall_ns = max(ended_ns - self._began_ns - marks_ns, 1)
        cpu_ns = min(max(ended_cpu_ns - self._began_cpu_ns - marks_ns, 0), wall_ns)
        if counts:
            self._sampler.close(work_ns + marks_ns, cpu_ns, wall_ns, marks_ns)

    def pause(self, now_ns: int) -> None:
        """Note that the outermost pause has begun."""
        self._paused_ns, self._paused_cpu_ns = now_ns, thread_time_ns()

    def resume(self, now_ns: int) -> int:
        """Leave the pause that ends out of the open step; return its length."""
        ns = now_ns - self._paused_ns
        self._began_ns += ns
        self._began_cpu_ns += thread_time_ns() - self._paused_cpu_ns
        return ns
