"""Closed steps → frames → statistics, observers and sinks, in passes on the training thread.

A closed step is a row: it is appended, and nothing else. A pass is due half a second after the one before, sooner at
first, at the end of a step. It resolves all rows that the device has passed, those with equal marks as one matrix, and
hands the frames to each stage in turn. A pass ends when its time is used up, between two frames; the next one goes on
from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import maxsize
from time import perf_counter_ns, sleep
from typing import Final

from ..base.failures import contain, describe
from ..base.frame import FrameRun, StepFrame
from ..base.notes import Notes
from ..base.process import lifecycle
from ..base.process.address_space import require_address_space
from ..base.process.gc_paused import GcPaused
from ..base.signals import raised_by_handler
from ..base.stats import Aggregate
from ..base.storage.runs import RunFolder
from ..base.summary import Summary
from ..base.units import NS_PER_S
from ..capture.calibration import LimitMeter
from ..capture.marks.mark_batch import INTEGER_BYTES
from ..capture.recorder import Recorder
from ..devices import Clock
from ..resolve import PENDING, RawStep, Resolver
from ..resolve.observer import Observer
from ..sinks import Sink
from .account import Account, Part
from .sink_group import SinkGroup
from .summarizer import Summarizer, failure_note

PASS_EVERY_NS: Final = NS_PER_S // 2
"""The least time between two passes: a person who watches sees the present step within half a second."""
FIRST_PASS_NS: Final = NS_PER_S // 10
"""The time from the first step to the first pass. The time between passes doubles from there: they decide which lines
are sampled, also in a run of half a second."""
MAX_PAUSE_NS: Final = 2 * NS_PER_S
"""The longest time between two passes, however long they take: a person still sees a live run."""
PASS_NS: Final = 5_000_000
"""The processor time after which a pass begins nothing more: a step becomes so much longer, twice a second at most. By
the wall clock passes would leave more to the next ones beside other programs, and their cost would look larger."""
LONG_PASS_PART: Final = 0.01
"""The part of the time since the last pass that a pass may take where that is longer than ``PASS_NS``."""
MAX_WAITING_VALUES: Final = 1 << 19
"""Values in the steps that wait, four megabytes, above which a pass is due: the sinks are slower than the program."""
MAX_WITH_EVENTS: Final = PENDING // 2
"""Steps of a device's clock that wait, above which a pass is due: more than ``PENDING`` are given up."""
LONG_PASS_NS: Final = 10 * PASS_NS
"""A pass longer than this, such as one that has counted FLOPs, makes the step after it a warm-up step."""
PATIENCE_NS: Final = 2 * NS_PER_S
"""Longest wait for a device, which may hang, at the end on SIGTERM: its sender soon sends SIGKILL."""
CLOSED: Final = "closed"
"""The end of a session by its own call: postponed work is done then, as at the end of a program without an error."""


class Pipeline:
    """Take closed steps, and pass their frames to the observers, the statistics and the sinks.

    The clock ``now_ns`` alone decides when a pass is due. Passes that take more than their part of the budget come less
    often. Where that is not possible any more, two in a row had more steps than time, or one comes early, for too many
    steps wait, the rest is an excess, which ``spend`` is called with: fewer steps, or fewer marks in them, make those
    shorter, and no others.
    """

    def __init__(
        self,
        recorder: Recorder,
        clock: Clock,
        mark_ns: float,
        *,
        observers: Sequence[Observer],
        sinks: Iterable[Sink],
        folder: RunFolder | None,
        notes: Notes,
        account: Account,
        now_ns: Callable[[], int] = perf_counter_ns,
        spend: Callable[[int], None] = lambda _ns: None,
        reports_cost: bool = True,
    ) -> None:
        self._account = account
        self._spend = spend
        self._folder = folder
        self._notes = notes
        self._now_ns, self._processor_ns = now_ns, account.processor_ns
        self._resolver = Resolver(recorder.labels, mark_ns)
        self._aggregate = Aggregate()
        self._limit = LimitMeter(clock)
        self._observers = list(observers)
        self._steppers = [one for one in observers if _overrides(one, "step")]
        self._stages = [one for one in observers if _overrides(one, "frames")]
        self.summarizer = Summarizer(
            recorder,
            self._resolver,
            self._aggregate,
            self._limit,
            observers,
            notes,
            account if reports_cost else None,
        )
        self._sinks = SinkGroup(sinks, self.summarizer.summary, notes)
        self._unwritten: deque[StepFrame] = deque()
        """Frames that the sinks have not received yet; all other stages have."""
        self._gc_paused = GcPaused()
        self._holds_events = clock.device_type is not None
        self._began_ns = self._now_ns()
        """The time at which the last pass began."""
        self._first_ns = self._due_ns = maxsize
        """The time of the first step; no pass is due before."""
        self.took_long = False
        """Whether a pass was so long that the step which it lengthens must not be counted; that step clears it."""
        self._is_behind = False

    def use_clock(self, clock: Clock) -> None:
        """Measure the limits of the clock that is read from now on."""
        self._holds_events = clock.device_type is not None
        self._limit.use(clock)

    # Steps and passes.

    def submit(self, raw: RawStep) -> None:
        """Take a closed step; make a pass if one is due."""
        for observer in self._steppers:
            try:
                if not observer.is_idle:
                    raw = observer.step(raw)
            except Exception as error:
                self._drop(observer, error)
        self._resolver.waiting.append(raw)
        if self._holds_events:
            self._resolver.give_up_oldest()
        now_ns = self._now_ns()
        if self._first_ns == maxsize:
            self._first_ns, self._due_ns = now_ns, now_ns + FIRST_PASS_NS
        waiting, marks = len(self._resolver.waiting), len(raw.mark_batch.raw_codes) // INTEGER_BYTES
        if self._holds_events:
            # Events of a device's clock in the steps that wait, one for every mark, above which a pass is due.
            is_crowded = waiting >= MAX_WITH_EVENTS or waiting * marks >= 4096
        else:  # a step takes 32 values beside its readings
            is_crowded = waiting * (marks + 32) >= MAX_WAITING_VALUES
        if is_crowded or now_ns >= self._due_ns:
            self._make_pass(now_ns)

    @property
    def is_due(self) -> bool:
        """Whether a pass is due."""
        return self._now_ns() >= self._due_ns

    def make_due_pass(self) -> None:
        """Make a pass if one is due. Called at the end of an unsampled step."""
        if self.is_due:
            self._make_pass(self._now_ns())

    def _make_pass(self, now_ns: int) -> None:
        since_ns, self._began_ns = now_ns - self._began_ns, now_ns
        length_ns = max(PASS_NS, round(LONG_PASS_PART * since_ns))
        passes = self._account.part(Part.PASSES)
        with passes.work(), self._gc_paused:
            spent_ns = passes.spent_ns
            is_done = self._pass_on(self._processor_ns() + length_ns)
            self._account.count_open()
            if (not is_done and self._is_behind) or now_ns < self._due_ns or since_ns >= MAX_PAUSE_NS:
                paid_ns = self._account.rate(Part.PASSES) * max(since_ns, 1)
                self._spend(round(max(passes.spent_ns - spent_ns - paid_ns, 0)))
            self._is_behind = not is_done
            self._sinks.show()
        every_ns = max(min(now_ns - self._first_ns, PASS_EVERY_NS), FIRST_PASS_NS)
        pause_ns = min(max(every_ns, passes.pause_ns()), MAX_PAUSE_NS)
        # The time between two passes while work is left, of which they take a tenth: a live display does not fall back.
        self._due_ns = now_ns + (pause_ns if is_done else 10 * PASS_NS)
        self._note_length(now_ns, max(LONG_PASS_NS, 2 * length_ns))

    def _note_length(self, began_ns: int, long_ns: int = LONG_PASS_NS) -> None:
        self.took_long = self.took_long or self._now_ns() - began_ns >= long_ns

    def flush(self, *, wait: bool = False) -> None:
        """Pass on the frames of all steps that the device has passed; ``wait`` blocks for the rest."""
        began_ns = self._now_ns()
        with self._account.work(Part.PASSES), self._gc_paused:
            self._pass_on(wait=wait)
        self._note_length(began_ns)

    def _pass_on(self, until_ns: int | None = None, *, wait: bool = False) -> bool:
        """Pass on frames until this processor time, and finish one that was begun; return whether none is left."""
        require_address_space()
        self._sinks.calibrate(self._limit.span_ns())
        if self._holds_events:
            self._resolver.device_timer.event_ns = self._limit.event_ns()
        while self._pass_on_next(wait):
            if until_ns is not None and self._processor_ns() >= until_ns:
                return not (self._unwritten or self._resolver.waiting)
        return True

    def _pass_on_next(self, wait: bool) -> bool:
        """Write one frame, or hand on the next run of frames; return whether there was one."""
        if self._unwritten:
            self._sinks.write(self._unwritten.popleft())
            return True
        run = self._resolver.next_run(wait=wait)
        if run is not None:
            self._hand_on(run)
        return run is not None

    def _hand_on(self, run: FrameRun) -> None:
        """Hand the frames of a run to all stages but the sinks, which receive them one by one."""
        for observer in self._stages[:]:
            try:
                observer.frames(run)
            except Exception as error:
                self._drop(observer, error)
        self._aggregate.add_run(run)
        if self._sinks.has_sinks:
            self._unwritten.extend(run.frames)

    def _drop(self, observer: Observer, error: Exception) -> None:
        """Call an observer no more that has failed with its steps; the others go on."""
        if raised_by_handler(error):
            raise error
        self._steppers = [one for one in self._steppers if one is not observer]
        self._stages = [one for one in self._stages if one is not observer]
        self._notes.warn_once(failure_note(observer, error))

    def add_memory(self, readings: Mapping[str, int]) -> None:
        """Add readings of memory that are made after the last recorded step."""
        self._aggregate.add_memory(readings)

    # The end.

    def resume_gc(self) -> None:
        """Enable Python's garbage collector again where an exception left a block in which it is disabled."""
        self._gc_paused.resume()

    def finish(self, *, patient: bool) -> None:
        """Wait for the device and pass on the last frames; without patience, only those that it passes soon."""
        until_ns = self._now_ns() + PATIENCE_NS
        self.flush(wait=patient)
        while self._resolver.waiting and self._now_ns() < until_ns:
            sleep(0.001)
            self.flush()

    def close(self, how: str) -> Summary:
        """Write the reports and close the sinks, in their order (files come first), whatever fails.

        Return the summary of the whole run; where there is none, an empty one.
        """
        self.resume_gc()
        self._resolver.give_up()
        complete, folder = how == CLOSED or (how == lifecycle.EXIT and lifecycle.ended_well()), self._folder
        where = "at the end of the run"
        for observer in reversed(self._observers):  # the exchange between ranks ends before the diagnosis compares them
            with self._notes.contain(where):
                for key, value in observer.finish(complete=complete).items():
                    if folder is not None:
                        folder.note(key, value)
        summary: Summary | None = None
        # Without a summary, everything is closed all the same.
        with contain(lambda error: self._notes.warn_once(f"no summary after {describe(error)}")):
            summary = self.summarizer.summary()
        if summary is None:
            summary = Summary.empty(self._notes.all)
        if folder is not None:
            with self._notes.contain(where):
                from ..reports.summary_text import render_summary  # rich is slow to import, and only needed here

                folder.write_summary(summary, render_summary(summary))
            with self._notes.contain(where):
                folder.finish(how)
        self._sinks.close(summary)
        return summary

    def abandon(self) -> None:
        """Touch no file any more: this process is a fork of the session's own."""
        self._sinks.abandon()
        self._observers.clear()
        self._folder = None


def _overrides(observer: Observer, name: str) -> bool:
    return getattr(type(observer), name) is not getattr(Observer, name)
