"""The summary of a run so far: its statistics, annotated by one observer after the other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace

from .._capture.calibration import LimitMeter
from .._capture.recorder import Recorder
from .._core.failures import contain, describe
from .._core.notes import Notes
from .._process.address_space import require_address_space
from .._resolve import Resolver
from .._resolve.observer import Observer
from .._stats import Aggregate
from .._storage.runs import RunFolder
from ..devices import Clock
from ..frame import NO_GAP
from ..summary import Summary


class ClockLimit:
    """The shortest measurable span of the clock that is read now; noted in the run's folder."""

    def __init__(self, clock: Clock, folder: RunFolder | None) -> None:
        self._folder = folder
        self.use(clock)

    def use(self, clock: Clock) -> None:
        """Measure this clock, which is read from now on."""
        self._meter = LimitMeter(clock)
        self._noted = False
        self.span_ns()

    def event_ns(self) -> int:
        """Return how much longer an event makes the work of a device; 0 as long as it is not known."""
        limits = self._meter.limits
        # An event costs the device so many times the least time between two events: the kernels around it cannot
        # overlap. On an H200 it was 1.6 to 2.7 times (2.1 to 3.5 µs beside 1.3), and the budget is an upper limit.
        return 0 if limits is None else 3 * limits.resolution_ns

    def span_ns(self) -> int:
        """Return the limit; 0 as long as the device has not passed the readings that show it."""
        limits = self._meter.limits
        if limits is None:
            return 0
        if not self._noted:
            self._noted = True
            if self._folder is not None:
                with suppress(OSError):
                    self._folder.note("clock", {**asdict(limits), "limit_ns": limits.span_ns})
        return limits.span_ns


class Summarizer:
    """Compute the summary of a run. An observer that fails costs its own annotation."""

    def __init__(
        self,
        recorder: Recorder,
        resolver: Resolver,
        aggregate: Aggregate,
        limit: ClockLimit,
        observers: Sequence[Observer],
        notes: Notes,
    ) -> None:
        self._recorder = recorder
        self._resolver = resolver
        self._aggregate = aggregate
        self._limit = limit
        self._observers = [one for one in observers if type(one).annotate is not Observer.annotate]
        self._notes = notes
        self.open_gap = NO_GAP
        """The unsampled steps that no recorded one follows yet."""

    def summary(self) -> Summary:
        """Return the statistics of all frames so far."""
        require_address_space()
        resolver = self._resolver
        lost = {
            "steps that the device had not passed": resolver.late_steps,
            "marks without a counterpart": resolver.unmatched,
            **{f"failures in {where}": count for where, count in self._recorder.failures.items()},
            **self._recorder.untimed,
            **resolver.untimed,
            **self._notes.skipped,
        }
        skipped = {reason: count for reason, count in lost.items() if count}
        if resolver.foreign_recomputes:
            self._notes.warn_once(
                "modules were called inside a backward pass, but not by torch.utils.checkpoint (another package's "
                "checkpointing?): recompute is timed only in targets there, and the rest of it is part of backward"
            )
        summary = self._aggregate.summary(notes=self._notes.all, skipped=skipped, gap=self.open_gap)
        summary = replace(summary, clock_limit_ns=self._limit.span_ns())
        for observer in self._observers:
            summary = self._annotate(observer, summary)
        return summary

    def _annotate(self, observer: Observer, summary: Summary) -> Summary:
        with contain(lambda error: self._notes.warn_once(failure_note(observer, error))):
            return observer.annotate(summary)
        return replace(summary, notes=self._notes.all)


def failure_note(observer: Observer, error: Exception) -> str:
    """Return the note of a failure of an observer."""
    return f"no {observer.provides} after {describe(error)}"
