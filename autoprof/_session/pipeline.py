"""The second half of a run: closed steps become frames, frames go to the statistics and the sinks, and the end."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from time import monotonic, perf_counter_ns, sleep
from typing import TYPE_CHECKING, Any, Final

from .._capture.calibration import LimitMeter
from .._capture.mark_cost import MarkCost
from .._capture.marks import ENTER, INDEX_MASK, KIND_BITS, KIND_MASK
from .._capture.memory import Footprint, tabulate
from .._capture.recorder import Recorder
from .._metrics import Metrics
from .._names import shorten, visible
from .._process.gc_paused import GcPaused
from .._process.signals import raised_by_handler
from .._resolve import RawStep, Resolver
from .._stats import Aggregate
from ..devices import Clock, Memory
from ..diagnose import Diagnosis
from ..frame import StepFrame
from ..sinks import Display, Sink
from ..summary import Summary

if TYPE_CHECKING:
    from .._storage.runs import RunFolder

SLICE_NS: Final = 500_000
"""The time after which the rest of the steps that wait is left to the end of the next step: no step is to stand out."""
DELIVER_EVERY_NS: Final = 20_000_000
"""Steps shorter than this are resolved several at a time: after the model's own code the first one finds the caches
cold and costs three times what the next ones cost. ``summary`` and ``close`` wait for nobody."""
PATIENCE_S: Final = 2.0
"""How long the end on SIGTERM waits for a device, which may hang; whoever sent it soon sends SIGKILL."""
COMPILED: Final = "steps in which torch compiled, kept apart as warm-up"
"""Why a step is in no statistic: compiling takes seconds that no other step takes."""
CLOSED: Final = "closed"
"""How a session ends that was asked to, its process going on: work that is not yet counted is counted then."""

logger = logging.getLogger("autoprof")


class Pipeline:
    """Resolve, aggregate and write, on the training thread; a sink that fails loses only itself."""

    def __init__(self, recorder: Recorder, price: MarkCost, folder: RunFolder | None, notes: Iterable[str]) -> None:
        self.folder = folder
        self.skipped: dict[str, int] = {}
        self.diagnosis = Diagnosis()
        self.outside: Callable[[], dict[str, Any]] = dict
        """What a summary says of the run beside its steps: fields of ``Summary``."""
        self.expected: Callable[[], frozenset[str]] = frozenset
        """Asks which modules are recorded when they are called."""
        self.footprint: Footprint | None = None
        self.memory: Memory | None = None
        self.metrics = Metrics()
        self._incomplete: deque[RawStep] = deque()
        self.hidden: set[str] = set()
        """The fqns of modules of which it has been said that hooks do not fire there."""
        self._recorder = recorder
        self._notes = list(notes)
        self._sinks: list[Sink] = []
        self._resolver = Resolver(recorder.labels, price)
        self._aggregate = Aggregate()
        self._meter: LimitMeter | None = None
        self._noted: LimitMeter | None = None
        self._gc_paused = GcPaused()
        self._due_ns = 0
        self._compiled = False

    def open(self, sinks: Iterable[Sink]) -> None:
        """Take the sinks that frames go to."""
        self._sinks = list(sinks)

    def calibrate(self, clock: Clock) -> None:
        """Find out the limits of the clock that is read from now on."""
        self._meter = LimitMeter(clock)
        self.clock_limit_ns()

    def clock_limit_ns(self) -> int:
        """Return the length below which a span is perhaps none; 0 as long as the device has not said."""
        meter = self._meter
        limits = None if meter is None else meter.limits
        if limits is None:
            return 0
        if self._noted is not meter:
            self._noted = meter
            if self.folder is not None:
                with suppress(OSError):
                    self.folder.note("clock", {**asdict(limits), "limit_ns": limits.span_ns})
        return limits.span_ns

    def submit(self, raw: RawStep) -> None:
        """Take a closed step, and deliver what is ready when it is time to."""
        end_ns = raw.clock.host_ns(raw.end)
        self.diagnosis.observe_step(raw)
        for source in (self.memory, self.footprint):
            if source is not None and source.spent_ns:
                raw.overhead_ns += source.spent_ns
                source.spent_ns = 0
        self.metrics.observe_step(raw)
        self._incomplete.append(raw)
        if self._compiled:
            self._name_unseen(raw)
            if not raw.warmup:
                raw.warmup = True
                self.skipped[COMPILED] = self.skipped.get(COMPILED, 0) + 1
        self._resolver.submit(raw)
        if (end_ns >= self._due_ns or self._resolver.crowded) and self._deliver_some():
            self._due_ns = end_ns + DELIVER_EVERY_NS

    def _deliver_some(self) -> bool:
        """Hand on what the device has passed, for as long as a slice lasts; say whether that was all."""
        self._complete()  # where FLOPs are counted, that takes long, and leaves garbage
        with self._gc_paused:
            until_ns = perf_counter_ns() + SLICE_NS
            for frame in self._resolver.ready():
                self._hand_on(frame)
                if perf_counter_ns() > until_ns:
                    return False
        return True

    def _complete(self) -> None:
        while self._incomplete:
            self.metrics.complete_step(self._incomplete.popleft())

    def put_off(self, now_ns: int) -> None:
        """Let the steps that follow a gap wait: what delivering leaves in the caches would be in their times."""
        self._due_ns = now_ns + DELIVER_EVERY_NS

    def deliver(self, *, wait: bool = False) -> None:
        """Hand on the frames of all steps that the device has passed; ``wait`` blocks for the rest."""
        self._complete()
        for frame in self._resolver.ready(wait=wait):
            self._hand_on(frame)

    def rest(self, seconds: float) -> bool:
        """Deliver a slice of what waits; when that is all, have it shown: steps are left alone for about this long.

        Returns False where more waits, or not all is shown.
        """
        if not self._deliver_some():
            return False
        with self._gc_paused:
            shown = [self._tell(sink, sink.rest, seconds) for sink in self._sinks[:] if isinstance(sink, Display)]
        return False not in shown

    def finish(self, *, patient: bool) -> None:
        """Wait for the device and hand on the last frames; without patience, only those that it passes soon."""
        until = monotonic() + PATIENCE_S
        self.deliver(wait=patient)
        while self._resolver.waits and monotonic() < until:
            sleep(0.001)
            self.deliver()

    def left_alone(self, steps: int, elapsed_ns: int) -> None:
        """Take account of steps that no recorded one comes after."""
        self._aggregate.add_gap(steps, elapsed_ns)

    def compiled(self) -> None:
        """Take word that torch has compiled something: the step shows what hooks no longer see."""
        self._compiled = True

    def _name_unseen(self, raw: RawStep) -> None:
        self._compiled = False
        seen = {code >> KIND_BITS & INDEX_MASK for code in raw.taken.codes if code & KIND_MASK == ENTER}
        labels = [label for at, label in enumerate(self._recorder.labels) if at not in seen]
        expected = self.expected() - self.hidden
        unseen = {label.fqn: label.fqn or label.name for label in labels if label.fqn in expected}
        self.hidden.update(fqn for fqn in unseen if fqn is not None)
        if unseen:
            self.say(
                f"since torch.compile has compiled, hooks do not fire inside its graphs: step {raw.step} did not call "
                f"{shorten(visible(', '.join(unseen.values())), 200)}"
            )

    def _hand_on(self, frame: StepFrame) -> None:
        self._aggregate.add(frame)
        self.diagnosis.observe_frame(frame)
        for sink in self._sinks[:]:
            self._tell(sink, sink.write, frame)

    def _tell(self, sink: Sink, tell: Callable[[Any], Any], what: Any) -> Any:
        try:
            return tell(what)
        except Exception as error:
            if raised_by_handler(error):
                raise
            self._sinks.remove(sink)
            self.say(f"{type(sink).__name__} is off after {type(error).__name__}: {error}")
            with suppress(Exception):
                sink.close(self.summary())

    def cut_short(self) -> None:
        """Take word that an exception got out of our work: nothing of the program's is held any more."""
        self._gc_paused.resume()

    def say(self, note: str) -> None:
        """Keep a note for the reports, and say it once."""
        if note not in self._notes:
            self._notes.append(note)
            logger.warning(note)

    def summary(self) -> Summary:
        """Return the statistics of everything delivered so far."""
        *_, whole = self.refined()
        return whole

    def refined(self) -> Iterator[Summary]:
        """Yield them in parts: times and memory first, then with pace, readings and work, then with the verdict."""
        resolver = self._resolver
        lost = {
            "steps that the device had not passed": resolver.late_steps,
            "marks without a counterpart": resolver.unmatched,
            **{f"failures in {where}": count for where, count in self._recorder.failures.items()},
            **self._recorder.untimed,
            **resolver.untimed,
            **self.skipped,
        }
        summary = self._aggregate.summary(
            notes=tuple(self._notes),
            skipped={reason: count for reason, count in lost.items() if count},
        )
        summary = replace(self._tabulated(summary), clock_limit_ns=self.clock_limit_ns(), **self.outside())
        yield summary
        summary = self._gauged(summary)
        yield summary
        yield self._diagnosed(summary)

    def _tabulated(self, summary: Summary) -> Summary:
        footprint = self.footprint
        return summary if footprint is None else tabulate(summary, footprint.holdings(), footprint.failure)

    def _gauged(self, summary: Summary) -> Summary:
        try:
            return self.metrics.annotate(summary)
        except Exception as error:
            if raised_by_handler(error):
                raise
            self.say(f"no throughput, readings and work after {type(error).__name__}: {error}")
            return replace(summary, notes=tuple(self._notes))

    def _diagnosed(self, summary: Summary) -> Summary:
        try:
            return self.diagnosis.annotate(summary)
        except Exception as error:  # a rule that fails loses the verdict, not the statistics
            if raised_by_handler(error):
                raise
            self.say(f"no verdict after {type(error).__name__}: {error}")
            return replace(summary, notes=tuple(self._notes))

    def close(self, how: str) -> None:
        """Write the reports and close the sinks, in their order (files come first), whatever fails."""
        self.cut_short()  # an exception may have got out of the last pipeline
        self._resolver.give_up()
        if self.footprint is not None:
            self.footprint.holdings(again=True)
        self._attempt(partial(self.metrics.finish, complete=how == CLOSED))
        self.diagnosis.finish(complete=how == CLOSED)
        try:
            summary = self.summary()
        except Exception as error:  # nothing to report, but everything to close
            if raised_by_handler(error):
                raise
            self.say(f"no summary after {type(error).__name__}: {error}")
            summary = Summary.empty(tuple(self._notes))
        self._attempt(self.metrics.close)
        if self.folder is not None:
            self._attempt(partial(self._note_facts, self.folder))
            self._attempt(partial(_write_summary, self.folder, summary))
            self._attempt(partial(self.folder.finish, how))
        while self._sinks:  # one that a Ctrl-C gets out of is not closed again
            self._attempt(partial(self._sinks.pop(0).close, summary))

    def _note_facts(self, folder: RunFolder) -> None:
        folder.note("facts", self.diagnosis.facts().to_dict())

    def _attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            if raised_by_handler(error):
                raise
            self.say(f"at the end of the run: {type(error).__name__}: {error}")

    def abandon(self) -> None:
        """Touch no file any more."""
        self.metrics.close()
        self._sinks.clear()
        self.folder = None


def _write_summary(folder: RunFolder, summary: Summary) -> None:
    from .._reports.summary_text import render_summary  # rich is slow to import, and only needed here

    folder.write_summary(summary, render_summary(summary))
