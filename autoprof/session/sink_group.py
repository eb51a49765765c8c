"""Frames and summaries → sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial

from ..base.failures import contain, describe, ignore
from ..base.frame import StepFrame
from ..base.notes import Notes
from ..base.summary import Summary
from ..sinks import CalibratedSink, LiveSink, Sink


class SinkGroup:
    """Pass frames and summaries to the sinks. A sink that fails is switched off; the others go on.

    ``summary`` returns the statistics of the run so far.
    """

    def __init__(self, sinks: Iterable[Sink], summary: Callable[[], Summary], notes: Notes) -> None:
        self._sinks = list(sinks)
        self._summary = summary
        self._notes = notes
        self._limit_ns = 0
        self._step = 0
        self._written = False
        """Whether a frame was written since the last live summary."""

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

    def write(self, frame: StepFrame) -> None:
        """Pass a frame to every sink."""
        for sink in self._sinks[:]:
            with self._containing(sink):
                sink.write(frame)
        self._step = frame.step
        self._written = True

    def show(self) -> None:
        """Show a live summary to the sinks that are due, where there is a new frame."""
        if not self._written:
            return
        due: list[LiveSink] = []
        for sink in self._sinks[:]:
            with self._containing(sink):
                if isinstance(sink, LiveSink) and sink.due():
                    due.append(sink)
        if not due:
            return
        with contain(partial(self._switch_off_all, due)):
            summary = self._summary()
            for sink in due:
                with self._containing(sink):
                    sink.show(summary, self._step)
        self._written = False

    def _switch_off_all(self, sinks: Iterable[Sink], error: Exception) -> None:
        for sink in sinks:
            self._switch_off(sink, error)

    def _containing(self, sink: Sink) -> AbstractContextManager[None]:
        return contain(partial(self._switch_off, sink))

    def _switch_off(self, sink: Sink, error: Exception) -> None:
        if sink not in self._sinks:
            return
        self._sinks.remove(sink)
        self._notes.warn_once(f"{type(sink).__name__} is off after {describe(error)}")
        summary: Summary | None = None
        with contain(ignore):
            summary = self._summary()
        with contain(ignore):
            sink.close(summary or Summary.empty(self._notes.all))

    def close(self, summary: Summary) -> None:
        """Close every sink in order, whatever fails."""
        while self._sinks:  # removed first: a sink that a Ctrl-C interrupts is not closed again
            with self._notes.contain("at the end of the run"):
                self._sinks.pop(0).close(summary)

    def abandon(self) -> None:
        """Forget the sinks without closing them: this process is a fork, and they belong to its parent."""
        self._sinks.clear()
