"""What a session feeds at the end of each step, and what its summaries ask beside the statistics of time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .._process.signals import raised_by_handler
from .._resolve import RawStep
from ..summary import Summary
from .calls import RootProbe, StepCalls
from .flop_meter import FlopMeter
from .telemetry import Telemetry
from .throughput import ThroughputMeter

_NO_CALLS = StepCalls((), False, None)


class Metrics:
    """Pace, readings and work of a run. A part that fails is switched off and loses only itself."""

    def __init__(
        self,
        root: RootProbe | None = None,
        readings: Telemetry | None = None,
        work: FlopMeter | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._root = root
        self._readings = readings
        self._work = work
        self._say = say
        self._pace = ThroughputMeter()
        self._waiting: deque[tuple[RawStep, StepCalls]] = deque()
        self._steps = 0
        self._apart = False
        self._off = False

    def loads(self, loader: Any) -> None:
        """Take note of a loader that the session wraps."""
        self._pace.loads(loader)

    def took_apart(self) -> bool:
        """Tell, once, whether something long was done since the last step was closed: the next one is kept apart."""
        apart, self._apart = self._apart, False
        return apart

    def closed(self, raw: RawStep) -> None:
        """Take a closed step, on the training thread, before the next one counts; never raises.

        Only what is gone later is taken now: the caches are cold here. ``account`` does the rest.
        """
        self._steps = raw.step
        if self._off:
            return
        try:
            self._waiting.append((raw, self._calls(raw)))
        except Exception as error:
            self._fail(error)

    def _calls(self, raw: RawStep) -> StepCalls:
        root = self._root
        if root is None:
            return _NO_CALLS
        raw.overhead_ns += root.spent_ns
        root.spent_ns = 0
        return root.take(raw.taken)

    def account(self) -> None:
        """Take account of the steps closed since it was called last, before their frames are made; never raises."""
        while self._waiting:
            try:
                self._take(*self._waiting.popleft())
            except Exception as error:
                self._fail(error)

    def _take(self, raw: RawStep, calls: StepCalls) -> None:
        shapes = [] if self._root is None else self._root.shapes
        self._pace.closed(raw, calls, shapes)
        if self._readings is not None:
            self._readings.closed(raw)
        if self._work is not None and self._root is not None:
            self._apart |= self._work.closed(raw, calls, shapes)

    def _fail(self, error: Exception) -> None:
        if raised_by_handler(error):
            raise error
        self._off = True
        self._waiting.clear()
        if self._say is not None:
            self._say(f"throughput, readings and work are off after {type(error).__name__}: {error}")

    def of(self, summary: Summary) -> Summary:
        """Return the summary with its pace, what was read, and the work."""
        stats = {} if self._readings is None else self._readings.metrics()
        if self._readings is not None and (problem := self._readings.problem()) and problem not in summary.notes:
            summary = summary.with_note(problem)
        work = None if self._work is None else self._work.of(summary)
        return replace(summary, progress=self._pace.of(summary, self._steps), metrics=stats, work=work)

    def finish(self, *, count: bool) -> None:
        """Take a last reading and, to ``count``, count what could not be counted while the run went on."""
        if self._off:
            return
        try:
            if self._readings is not None:
                self._readings.finish()
            if self._work is not None and count:
                self._work.finish()
        except Exception as error:
            self._fail(error)

    def close(self) -> None:
        """Stop reading."""
        if self._readings is not None:
            self._readings.close()
