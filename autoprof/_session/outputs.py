"""Pass frames, live summaries and the final summary to the sinks of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import Any, Final, Protocol, cast

from .._notes import Notes
from .._process.failures import contain, describe, ignore
from .._units import NS_PER_S
from ..frame import StepFrame
from ..sinks import (
    CalibratedSink,
    DiscardedSink,
    LimitedSink,
    LiveSink,
    PartedLiveSink,
    PartedSink,
    RefreshedSink,
    Sink,
)
from ..summary import Summary

PART_S: Final = 0.0001
"""The time in a step after which the rest of a live summary waits for the next step, to keep steps even. A part
that has begun is finished."""
SHARE: Final = 0.02
"""The share of a long step that may be spent at once."""


class SummarySource(Protocol):
    """The statistics of a run so far."""

    def parts(self) -> Iterator[Summary | None]:
        """Yield the statistics several times, each time with more in them; the last is complete.

        There are none before the first parts of the work are done.
        """


class Outputs:
    """Pass frames and summaries to the sinks. A sink that fails is switched off; the others go on.

    A live summary is computed in parts, one at the end of each step where steps are short: computed at once it takes
    4 to 7 ms for some hundred names.
    """

    def __init__(
        self,
        sinks: Iterable[Sink],
        summaries: SummarySource,
        notes: Notes,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._sinks = list(sinks)
        self._live = [sink for sink in self._sinks if isinstance(sink, LiveSink)]
        self._refreshed = [sink for sink in self._live if isinstance(sink, RefreshedSink)]
        self._parted = [sink for sink in self._sinks if isinstance(sink, PartedSink)]
        self._limited = [sink for sink in self._sinks if isinstance(sink, LimitedSink)]
        self._summaries = summaries
        self._notes = notes
        self._now_s = now_s
        self._limit_ns = 0
        self._parts: Iterator[None] | None = None
        """The remaining parts of a live summary in progress."""
        self._due: list[LiveSink] = []
        self._step = self._step_ns = 0
        self._written = False
        """Whether a frame was written since a live summary was last asked for."""

    @property
    def has_sinks(self) -> bool:
        """Whether a sink takes frames."""
        return bool(self._sinks)

    def calibrate(self, limit_ns: int) -> None:
        """Pass the limit of the clock on: a span shorter than it may be none."""
        if limit_ns == self._limit_ns:
            return
        self._limit_ns = limit_ns
        for sink in self._sinks[:]:
            if isinstance(sink, CalibratedSink):
                with self._containing(sink):
                    sink.calibrate(limit_ns)

    def write_in_parts(self, frame: StepFrame) -> Iterator[bool]:
        """Pass a frame to every sink; yield True after each part of the work."""
        for sink in self._sinks[:]:
            if sink not in self._sinks:  # it has failed in a drawing since the last part
                continue
            with self._containing(sink):
                for _ in self._write(sink, frame):
                    yield True
                    if sink not in self._sinks:
                        break
            yield True
        for limited in self._limited[:]:
            self._note_limit(limited)
        self._step, self._step_ns = frame.step, frame.duration_ns
        self._written = True

    def _write(self, sink: Sink, frame: StepFrame) -> Iterator[object]:
        for parted in self._parted:
            if parted is sink:
                yield from parted.write_in_parts(frame)
                return
        sink.write(frame)

    def show(self) -> bool:
        """Begin a live summary that is due since the last frames, or continue one; return whether there is one."""
        if not self._live or not (self._written or self._parts is not None):
            return False
        self._written = False
        return self._show_due(max(PART_S, SHARE * self._step_ns / NS_PER_S))

    def _note_limit(self, sink: LimitedSink) -> None:
        """Note once that a sink has reached its limit."""
        with self._containing(sink):
            note = sink.limit_note
            if note is not None:
                self._limited.remove(sink)
                self._notes.warn_once(note)

    def rest(self, idle_s: float) -> bool:
        """Show a summary that is due before a gap of about this length; return False where a part remains.

        Within the gap, show the age of the last summary.
        """
        if self._live:
            self._show_due(PART_S, idle_s)
        if self._parts is not None:
            return False
        for sink in self._refreshed[:]:
            with self._containing(sink):
                sink.refresh()
        return True

    def _show_due(self, limit_s: float, idle_s: float | None = None) -> bool:
        """Begin or continue a live summary that is due, for about ``limit_s``; return whether there is one."""
        if self._parts is None:
            self._due = []
            for sink in self._live[:]:
                with self._containing(sink):
                    if sink.due(idle_s):
                        self._due.append(sink)
            if not self._due:
                return False
            self._parts = self._show_in_parts(self._step)
        parts, self._parts = self._parts, None  # an exception from a part ends this summary
        with contain(self._switch_off_due):
            until_s = self._now_s() + limit_s
            for _ in parts:
                if self._now_s() > until_s:
                    self._parts = parts
                    return True
        return True

    def _show_in_parts(self, step: int) -> Iterator[None]:
        """Compute the statistics up to ``step`` and pass them to the sinks that are due; yield between the parts."""
        latest: Summary | None = None
        for part in self._summaries.parts():
            latest = part
            yield
        if latest is None:
            return
        for at, sink in enumerate(self._due):
            if at:
                yield
            with self._containing(sink):
                if isinstance(sink, PartedLiveSink):
                    for _ in sink.show_in_parts(latest, step):
                        yield
                else:
                    sink.show(latest, step)

    def _switch_off_due(self, error: Exception) -> None:
        for sink in self._due:
            self._switch_off(sink, error)

    def _containing(self, sink: Sink) -> contain:
        return contain(lambda error: self._switch_off(sink, error))

    def _switch_off(self, sink: Sink, error: Exception) -> None:
        if sink not in self._sinks:
            return
        self._remove(sink)
        self._notes.warn_once(f"{type(sink).__name__} is off after {describe(error)}")
        summary: Summary | None = None
        with contain(ignore):
            *_, summary = self._summaries.parts()
        with contain(ignore):
            sink.close(summary or Summary.empty(self._notes.all))

    def _remove(self, sink: Sink) -> None:
        for sinks in (self._sinks, self._live, self._refreshed, self._parted, self._limited, self._due):
            if sink in sinks:
                cast("list[Any]", sinks).remove(sink)

    def discard(self, sinks: Iterable[Sink]) -> None:
        """Close these sinks without a summary: they belong to rank 0, and this is another one."""
        for sink in sinks:
            self._remove(sink)
            with contain(ignore):
                if isinstance(sink, DiscardedSink):
                    sink.discard()
                else:
                    sink.close(Summary.empty())

    def close(self, summary: Summary) -> None:
        """Finish a live summary that has begun, then close every sink in order, whatever fails."""
        if self._parts is not None:
            self._show_due(float("inf"))
        while self._sinks:  # removed first: a sink that a Ctrl-C interrupts is not closed again
            with self._notes.contain("at the end of the run"):
                self._sinks.pop(0).close(summary)

    def abandon(self) -> None:
        """Forget the sinks without closing them: this process is a fork, and they belong to its parent."""
        self._sinks.clear()
        self._live.clear()
        self._refreshed.clear()
        self._parted.clear()
        self._limited.clear()
