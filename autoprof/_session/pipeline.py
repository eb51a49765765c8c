"""Closed steps → frames → statistics, observers and sinks, on the training thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from time import monotonic, perf_counter_ns, sleep
from typing import TYPE_CHECKING, Any, Final

from .._capture.calibration import LimitMeter
from .._capture.mark_cost import MarkCost
from .._capture.recorder import Recorder
from .._notes import Notes
from .._observer import Observer
from .._parts import exhaust
from .._process import lifecycle
from .._process.address_space import require_address_space
from .._process.failures import contain, describe
from .._process.gc_paused import GcPaused
from .._resolve import PENDING, RawStep, Resolver
from .._stats import NO_GAP, Aggregate, OpenGap
from ..devices import Clock
from ..frame import FrameRun
from ..sinks import Sink
from ..summary import Summary
from .outputs import Outputs

if TYPE_CHECKING:
    from .._storage.runs import RunFolder

SLICE_NS: Final = 100_000
"""The time at the end of a step in a gap after which work that may wait goes on at the end of the next step, to keep
steps even. A piece of it that has begun is finished; where the caches are cold, it takes some tenths of a millisecond.

A live summary has a slice of its own: it goes on at the end of another step than one whose slice is used up."""
SLICE_SHARE: Final = 0.01
"""The part of a recorded step that its slice takes at least. A step's work is finished in several pieces: with a tenth
of a millisecond at each end of steps of a second, the live display fell 40 steps behind."""
RECORDED_SLICE_NS: Final = 500_000
"""The same between recorded steps: there the work for many steps at once is finished in fewer, larger parts."""
DELIVER_EVERY_NS: Final = 20_000_000
"""Steps shorter than this are resolved several at a time: after the model's own code the first one finds the caches
cold and costs three times as much as the next ones. ``summary`` and ``close`` resolve at once."""
DELIVER_SHARE: Final = 0.01
"""The part of the training thread's time that resolving steps should take: what took 2 ms is done 200 ms later again.
Beside a GPU's driver, on a slow processor, it takes some milliseconds, every 20 ms a tenth of the time."""
MAX_DELIVER_FACTOR: Final = 12
"""How many times less often at most: the live line is drawn within a quarter of a second."""
CROWDED: Final = PENDING // 2
"""Steps that wait, above which they are resolved at once."""
SHORT_NS: Final = 1_000_000
"""Recorded steps shorter than this wait for the gap after them where a budget is kept: recording has made them longer,
and the work would add to that."""
MAX_SHORT: Final = 3 * PENDING
"""Such steps that wait, above which they are passed on all the same."""
MAX_EVEN: Final = 4 * PENDING
"""Steps that wait where a budget is kept, above which recorded steps have the longer slices, too."""
MAX_WITH_EVENTS: Final = CROWDED
"""Steps of a device's clock that wait, above which short ones are passed on too, and all of them in long slices: each
step holds an event for every mark."""
MAX_FIRST_MARKS: Final = 5_000
"""Marks of the first step that are resolved where it is a warm-up step. In reinforcement learning it has the thousands
of forwards that fill a buffer: resolving 10,000 of them took as long as 200 steps, and spent the credit of minutes."""
PATIENCE_S: Final = 2.0
"""Longest wait for a device, which may hang, at the end on SIGTERM: its sender soon sends SIGKILL."""
FOREIGN_RECOMPUTES: Final = (
    "modules were called inside a backward pass, but not by torch.utils.checkpoint (another package's checkpointing?): "
    "recompute is timed only in targets there, and the rest of it is part of backward"
)
CLOSED: Final = "closed"
"""The end of a session by its own call: postponed work is done then, as at the end of a program without an error."""


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
    """Compute the summary of a run: its statistics, annotated by one observer after the other."""

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
        self._observers = [one for one in observers if _overrides(one, "annotate")]
        self._notes = notes
        self.open_gap = NO_GAP
        """The unsampled steps that no recorded one follows yet."""

    def follow(self, observer: Observer) -> None:
        """Add an observer that annotates summaries."""
        self._observers.append(observer)

    def summary(self) -> Summary:
        """Return the statistics of all frames so far."""
        *_, whole = self.parts()
        assert whole is not None
        return whole

    def parts(self) -> Iterator[Summary | None]:
        """Yield the statistics several times, each time with the annotations of one more observer."""
        require_address_space()
        for _ in self._aggregate.prepare_summary():
            yield None
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
            self._notes.warn_once(FOREIGN_RECOMPUTES)
        summary = self._aggregate.summary(notes=self._notes.all, skipped=skipped, gap=self.open_gap)
        summary = replace(summary, clock_limit_ns=self._limit.span_ns())
        yield summary
        for observer in self._observers:
            parts = iter(observer.annotate_in_parts(summary))
            while (part := self._next_part(observer, parts, summary)) is not None:
                summary = part
                yield summary

    def _next_part(self, observer: Observer, parts: Iterator[Summary], summary: Summary) -> Summary | None:
        """Return the next part of an observer's work; after a failure the summary with its note, then None."""
        with contain(partial(self._note_failure, observer.provides)):
            return next(parts, None)
        return replace(summary, notes=self._notes.all)

    def _note_failure(self, lost: str, error: Exception) -> None:
        self._notes.warn_once(f"no {lost} after {describe(error)}")


class Pipeline:
    """Pass each closed step on: observers, resolver, statistics, observers again, sinks."""

    def __init__(
        self,
        recorder: Recorder,
        clock: Clock,
        mark_cost: MarkCost,
        *,
        observers: Sequence[Observer],
        sinks: Iterable[Sink],
        folder: RunFolder | None,
        notes: Notes,
        even: bool = False,
    ) -> None:
        self._folder = folder
        self._notes = notes
        self._even = even
        """Whether recorded steps too have only the work of a short slice at their ends."""
        self._closed: deque[RawStep] = deque()
        """Steps that are not completed yet."""
        self._mark_cost = mark_cost
        self._is_first = True
        self._resolver = Resolver(recorder.labels, mark_cost)
        self._aggregate = Aggregate()
        self._limit = ClockLimit(clock, folder)
        self._holds_events = clock.device_type is not None
        self._observers = tuple(observers)
        self._observe_step = _methods(observers, "observe_step")
        self._complete_step = _methods(observers, "complete_step")
        self._took_long = _methods(observers, "took_long")
        self._observe_run = _methods(observers, "observe_run")
        alone = [one for one in observers if not _overrides(one, "observe_run")]
        self._observe_frame = _methods(alone, "observe_frame")
        self._summarizer = Summarizer(recorder, self._resolver, self._aggregate, self._limit, observers, notes)
        self._outputs = Outputs(sinks, self._summarizer, notes)
        self._gc_paused = GcPaused()
        self._due_ns = 0
        self._spent_ns = 0
        """Time that passing on the steps that were due last has taken so far."""
        self._resumes = False
        """Whether steps that were completed together wait to be passed on, or the rest of them does."""
        self._left_closed = False
        """Whether steps were left that completing the ones before them took too long for."""
        self._checked_ns = 0
        """The last time at which address space was free."""
        self._owes_summary = False
        """Whether the last slice left no time for a live summary."""
        self._at_end: list[Callable[[], object]] = []
        self._begun: Iterator[bool] | None = None
        """The remaining work for steps that were passed on in part."""

    def use_clock(self, clock: Clock) -> None:
        """Measure the limits of the clock that is read from now on."""
        self._holds_events = clock.device_type is not None
        self._limit.use(clock)

    def follow(self, observer: Observer) -> None:
        """Add an observer that takes frames and annotates summaries."""
        self._observers += (observer,)
        self._observe_run.append(observer.observe_run)
        self._summarizer.follow(observer)

    def discard(self, sinks: Iterable[Sink]) -> None:
        """Close these sinks without a summary."""
        self._outputs.discard(sinks)

    def at_end(self, action: Callable[[], object]) -> None:
        """Call this once all files are closed."""
        self._at_end.append(action)

    # One step after the other.

    def submit(self, raw: RawStep) -> None:
        """Take a closed step; pass on the steps that are ready when it is time to."""
        for observe in self._observe_step:
            raw = observe(raw)
        self._closed.append(raw)
        ended_ns = raw.ended_ns
        if self._resumes or self._left_closed or self._is_due(raw):
            began_ns = perf_counter_ns()
            is_done = self._pass_on_some(ended_ns - raw.clock.host_ns(raw.start))
            self._spent_ns += perf_counter_ns() - began_ns
            if is_done:
                pause_ns = max(round(self._spent_ns / DELIVER_SHARE), DELIVER_EVERY_NS)
                self._due_ns = ended_ns + min(pause_ns, MAX_DELIVER_FACTOR * DELIVER_EVERY_NS)
                self._spent_ns = 0

    def _is_due(self, raw: RawStep) -> bool:
        """Return whether the steps that wait should be passed on at the end of this one."""
        clock, ended_ns = raw.clock, raw.ended_ns
        if self._even and ended_ns - clock.host_ns(raw.start) < SHORT_NS:
            most = MAX_WITH_EVENTS if self._holds_events else MAX_SHORT
            return ended_ns >= self._due_ns + MAX_DELIVER_FACTOR * DELIVER_EVERY_NS or self._waiting >= most
        return ended_ns >= self._due_ns or self._waiting >= CROWDED

    @property
    def open_gap(self) -> OpenGap:
        """The unsampled steps since the last recorded one, which summaries count."""
        return self._summarizer.open_gap

    @open_gap.setter
    def open_gap(self, gap: OpenGap) -> None:
        self._summarizer.open_gap = gap

    @property
    def _waiting(self) -> int:
        return len(self._closed) + self._resolver.waiting

    @property
    def _passes_frames(self) -> bool:
        return bool(self._observe_frame or self._outputs.has_sinks)

    def release_end(self, raw: RawStep) -> None:
        """Release the last reading of a submitted step once it is resolved: no step begins with it."""
        self._resolver.release_end(raw)

    def took_long(self) -> bool:
        """Return, once, whether long work was done since the last call: the next step is then a warm-up step."""
        return True in [took_long() for took_long in self._took_long]

    def _complete(self, until_ns: int | None = None) -> None:
        """Complete the closed steps, at least one; the rest later once ``until_ns`` has come."""
        while self._closed:
            self._complete_one(self._closed.popleft())
            if until_ns is not None and perf_counter_ns() > until_ns:
                return

    def _complete_one(self, raw: RawStep) -> None:
        for complete in self._complete_step:
            raw = complete(raw)
        if self._is_first:
            self._is_first = False
            raw = self._shorten_first(raw)
        self._resolver.submit(raw)

    def _shorten_first(self, raw: RawStep) -> RawStep:
        """Drop the later marks of the first step if no statistics need them; their cost stays in its overhead.

        Later warm-up steps stay whole: steps like them are resolved faster then. So do steps of a device's clock, which
        takes all its readings back, and of several threads, whose marks belong together.
        """
        batch = raw.mark_batch
        excess = batch.mark_count - MAX_FIRST_MARKS
        if excess <= 0 or not raw.warmup or batch.multithreaded or raw.clock.device_type is not None:
            return raw
        batch = batch.up_to(MAX_FIRST_MARKS)._replace(dropped=batch.dropped + excess)
        return raw._replace(mark_batch=batch, overhead_ns=raw.overhead_ns + round(self._mark_cost.of(excess)))

    def _pass_on_all(self, *, wait: bool = False, whole: bool = True) -> Iterator[None]:
        """Pass on the steps that the device has passed; yield after each frame, or after each piece of the work.

        A caller that stops leaves the rest for the next call.
        """
        while True:
            begun, self._begun = self._begun, None
            if begun is None:
                run = self._resolver.next_run(wait=wait)
                if run is None:
                    return
                begun = self._pass_on(run)
                if not whole:
                    self._begun = begun
                    yield
                    continue
            for ends_frame in begun:
                self._begun = begun
                if ends_frame or not whole:
                    yield
                self._begun = None
            yield

    def _pass_on(self, run: FrameRun) -> Iterator[bool]:
        """Add steps to the statistics, and pass their frames on; yield after each piece, True between two frames."""
        self._aggregate.add_run(run)
        yield False
        for observe in self._observe_run:
            observe(run)
            yield False
        if not self._passes_frames:
            return
        for number, frame in enumerate(run.frames):
            if number:
                yield True
            for observe in self._observe_frame:
                observe(frame)
                yield False
            for _ in self._outputs.write_in_parts(frame):
                yield False

    def _pass_on_some(self, step_ns: int) -> bool:
        """Pass on the steps that the device has passed, for one slice of time; return whether all of them.

        The step at whose end this is done took ``step_ns``.

        Steps that are closed before all are passed on wait for the next ones: resolved together they cost much less.
        A live summary goes on in the rest of the slice; where there is none, before the steps of the next one.
        """
        if self._owes_summary:
            self._owes_summary = False
            with self._gc_paused:
                if self._outputs.show():
                    return False
        even = self._even and self._waiting < (MAX_WITH_EVENTS if self._holds_events else MAX_EVEN)
        whole = self._passes_frames and not even
        least_ns = SLICE_NS if even else RECORDED_SLICE_NS
        until_ns = self._begin_slice(max(least_ns, round(SLICE_SHARE * step_ns)))
        if not self._resumes:
            self._complete(until_ns)
            self._left_closed = bool(self._closed)
        is_over = not whole and perf_counter_ns() > until_ns
        if not is_over and self._do_until(until_ns, self._pass_on_all(whole=whole)):
            self._resumes = False
            with self._gc_paused:
                self._outputs.show()
        else:
            self._resumes = bool(self._resolver.waiting or self._begun)
            self._owes_summary = True
        return not (self._resumes or self._left_closed)

    def _begin_slice(self, length_ns: int) -> int:
        """Return the end of a slice of work that begins now."""
        now_ns = perf_counter_ns()
        if now_ns - self._checked_ns >= DELIVER_EVERY_NS:
            require_address_space()
            self._checked_ns = now_ns
        return now_ns + length_ns

    def _do_until(self, until_ns: int, work: Iterator[None]) -> bool:
        """Do this work until the time has come; return whether all is done."""
        with self._gc_paused:
            self._outputs.calibrate(self._limit.span_ns())
            return all(perf_counter_ns() <= until_ns for _ in work)

    def postpone(self, now_ns: int) -> None:
        """Resolve the steps after a gap later: work between them would lengthen their times."""
        self._resumes = False
        self._due_ns = now_ns + DELIVER_EVERY_NS

    def flush(self, *, wait: bool = False) -> None:
        """Pass on the frames of all steps that the device has passed; ``wait`` blocks for the rest."""
        require_address_space()
        self._complete()
        self._outputs.calibrate(self._limit.span_ns())
        exhaust(self._pass_on_all(wait=wait))

    def rest(self, idle_s: float) -> bool:
        """Pass on a slice of the waiting steps, then show them: about ``idle_s`` of unsampled steps follow.

        Return False where more waits, or not all is shown. Each step ends after one piece of work that takes long:
        no recorded step follows that has to wait for the other pieces.
        """
        waited = bool(self._closed or self._resolver.waiting)
        until_ns = self._begin_slice(SLICE_NS)
        if self._closed:
            self._complete(until_ns)  # counting FLOPs takes long and leaves garbage: outside of the paused collector
            if perf_counter_ns() > until_ns:
                return False
        if not self._do_until(until_ns, self._pass_on_all(whole=False)):
            return False
        if waited and perf_counter_ns() > until_ns - SLICE_NS // 2:
            return False
        with self._gc_paused:
            return self._outputs.rest(idle_s)

    def count_unsampled(self, gap: OpenGap) -> None:
        """Count unsampled steps that no recorded one follows."""
        self._aggregate.add_gap(*gap)

    def summary(self) -> Summary:
        """Return the statistics of all frames so far."""
        return self._summarizer.summary()

    # The end.

    def resume_gc(self) -> None:
        """Enable Python's garbage collector again where an exception left a block in which it is disabled."""
        self._gc_paused.resume()

    def finish(self, *, patient: bool) -> None:
        """Wait for the device and pass on the last frames; without patience, only those that it passes soon."""
        until = monotonic() + PATIENCE_S
        self.flush(wait=patient)
        while self._resolver.waiting and monotonic() < until:
            sleep(0.001)
            self.flush()

    def close(self, how: str) -> Summary:
        """Write the reports and close the sinks, in their order (files come first), whatever fails.

        Return the summary of the whole run; where there is none, an empty one.
        """
        self.resume_gc()
        self._resolver.give_up()
        complete = how == CLOSED or (how == lifecycle.EXIT and lifecycle.ended_well())
        for observer in self._observers:
            self._attempt(partial(observer.finish, complete=complete))
        summary: Summary | None = None
        with contain(self._note_no_summary):  # without a summary, everything is closed all the same
            summary = self._summarizer.summary()
        if summary is None:
            summary = Summary.empty(self._notes.all)
        for observer in self._observers:
            self._attempt(observer.close)
        if self._folder is not None:
            self._attempt(self._note_run_info)
            self._attempt(partial(self._write_summary, summary))
            self._attempt(partial(self._folder.finish, how))
        self._outputs.close(summary)
        for action in self._at_end:
            self._attempt(action)
        return summary

    def _attempt(self, action: Callable[[], object]) -> None:
        with self._notes.contain("at the end of the run"):
            action()

    def _note_no_summary(self, error: Exception) -> None:
        self._notes.warn_once(f"no summary after {describe(error)}")

    def _note_run_info(self) -> None:
        for observer in self._observers:
            for key, value in observer.run_info().items():
                if self._folder is not None:
                    self._folder.note(key, value)

    def _write_summary(self, summary: Summary) -> None:
        from .._reports.summary_text import render_summary  # rich is slow to import, and only needed here

        if self._folder is not None:
            self._folder.write_summary(summary, render_summary(summary))

    def abandon(self) -> None:
        """Touch no file any more: this process is a fork of the session's own."""
        for observer in self._observers:
            observer.close()
        self._outputs.abandon()
        self._folder = None


def _overrides(observer: Observer, name: str) -> bool:
    return getattr(type(observer), name) is not getattr(Observer, name)


def _methods(observers: Iterable[Observer], name: str) -> list[Callable[..., Any]]:
    """Return this method of the observers that override it: the others cost nothing."""
    return [getattr(one, name) for one in observers if _overrides(one, name)]
