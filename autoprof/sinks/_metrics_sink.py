"""Sinks that report means of several steps now and then: to trackers and monitors, which take few points.

``MetricsSink`` calls ``report`` when one is due; ``SlowSink`` calls its receiver on a thread of its own.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from pydantic import Field

from ..base.frame import Phase, StepFrame
from ..base.options import Options
from ..base.stats import Aggregate
from ..base.stats.unit_rates import LogPeriods
from ..base.summary import Finding, Summary
from ..base.units import NS_PER_S, UNITS
from ..errors import OutputError, import_extra

LOOK_S: Final = 60.0
"""The time between two looks at the summary."""
QUEUE_SIZE: Final = 64
"""Reports that may wait for a slow receiver; further ones are dropped and counted."""


class MetricsOptions(Options):
    """A few numbers now and then."""

    every: int = Field(default=10, ge=1, strict=True)
    """The fewest recorded steps between two reports, each of the means over the steps since the last one."""
    interval_s: float = Field(default=10.0, ge=0, strict=True, allow_inf_nan=False)
    """The least time between two reports, in seconds."""
    top: int = Field(default=20, ge=0, strict=True)
    """Number of names reported, the longest first."""


@dataclass(frozen=True, slots=True)
class MetricsReport:
    """Statistics of the recorded steps since the last report, up to ``step``.

    ``throughput`` is that of the logs in these steps, each over all steps since the log before. ``recorded`` counts
    the steps from the run's start.
    """

    step: int
    time_unix_ns: int
    statistics: Summary
    throughput: float | None
    recorded: int

    @property
    def step_s(self) -> float:
        """The mean time of a step."""
        return self.statistics.total_step_ns / self.statistics.steps / NS_PER_S

    def phases_s(self) -> dict[Phase, float]:
        """Return the time of each phase, a step."""
        return {phase: ns / self.statistics.steps / NS_PER_S for phase, ns in self.statistics.phases.items()}

    def rows_s(self, top: int) -> list[tuple[str, Phase, float]]:
        """Return name, phase and seconds a step of the longest rows."""
        rows: Counter[tuple[str, Phase]] = Counter()
        for row in self.statistics.rows:
            rows[row.name, row.phase] += row.total_ns
        longest = sorted(rows.items(), key=lambda item: (-item[1], item[0][0], str(item[0][1])))[:top]
        return [(name, phase, ns / self.statistics.steps / NS_PER_S) for (name, phase), ns in longest]

    def named(self, top: int, prefix: str = "autoprof/") -> dict[str, float]:
        """Return all numbers by name, times in milliseconds a step; NaN and infinity are kept."""
        numbers = {"step_ms": self.step_s * 1000}
        numbers |= {f"phase_ms/{phase}": seconds * 1000 for phase, seconds in self.phases_s().items()}
        numbers |= {f"ms/{name}/{phase}": seconds * 1000 for name, phase, seconds in self.rows_s(top)}
        numbers |= {} if self.throughput is None else {"throughput": self.throughput}
        numbers["overhead"] = self.statistics.overhead
        numbers |= {f"memory/{name}": float(value) for name, value in self.statistics.memory.items()}
        numbers |= {f"scalar/{name}": float(value) for name, value in self.statistics.scalars.items()}
        return {f"{prefix}{name}": value for name, value in numbers.items()}


class MetricsSink(ABC):
    """A sink that reports the steps past the warm-up, at most each ``every`` steps and ``interval_s`` seconds."""

    def __init__(self, options: MetricsOptions, clock: Callable[[], float]) -> None:
        self._every = options.every
        self._interval_s = options.interval_s
        self._clock = clock
        self._due = clock() + options.interval_s
        self._periods = LogPeriods()
        self._recorded = 0
        self._begin()

    def _begin(self) -> None:
        self._aggregate = Aggregate()
        self._samples, self._sampled_ns = 0.0, 0
        self._last = 0, 0

    def write(self, frame: StepFrame) -> None:
        """Add one step's frame; report when enough steps and enough time have passed."""
        samples = self._periods.add(frame).get(UNITS[0])  # also of the warm-up: a later log may cover its time
        if frame.warmup:
            return
        if samples is not None:
            self._samples += samples.units
            self._sampled_ns += samples.ns
        steps = self._aggregate.steps
        self._aggregate.add(frame)  # which leaves out a step whose device time is unknown
        if self._aggregate.steps > steps:
            self._last = frame.step, frame.start_unix_ns
        if self._aggregate.steps >= self._every and self._clock() >= self._due:
            self._report_steps()

    def _report_steps(self) -> None:
        self._due = self._clock() + self._interval_s
        if not self._aggregate.steps:
            return
        statistics = self._aggregate.summary()
        self._recorded += statistics.steps
        throughput = self._samples * NS_PER_S / self._sampled_ns if self._sampled_ns else None
        report = MetricsReport(*self._last, statistics, throughput, self._recorded)
        self._begin()
        self.report(report)

    @abstractmethod
    def report(self, report: MetricsReport) -> None:
        """Report some steps; called on the training thread, so it must not wait."""

    def close(self, summary: Summary) -> None:
        """Report the last steps and release the receiver."""
        try:
            self._report_steps()
        finally:
            self.end()

    @abstractmethod
    def end(self) -> None:
        """Release the receiver."""


class SummarySink:
    """A part of a sink that reports findings and stages too: a summary costs more than a report, so it asks for few."""

    findings: tuple[Finding, ...] = ()
    """Those of the last summary."""
    stages_s: Mapping[str, float] = MappingProxyType({})
    """The time of each stage until the last summary."""
    _next_look_s = 0.0

    def __init__(self, clock: Callable[[], float]) -> None:
        self._seconds = clock

    def due(self) -> bool:
        """Return whether the next summary is to be looked at."""
        now_s = self._seconds()
        if now_s < self._next_look_s:
            return False
        self._next_look_s = now_s + LOOK_S
        return True

    def show(self, summary: Summary, step: int) -> None:
        """Keep the findings and the stages so far."""
        self.findings = summary.findings
        self.stages_s = {one.kind: one.total_ns / NS_PER_S for one in summary.all_stages}


class SlowSink(MetricsSink):
    """A sink whose receiver may be slow: ``send`` is called on a thread of its own.

    An exception of ``send`` is raised by the next ``report``, or by ``end``.
    """

    def __init__(self, name: str, options: MetricsOptions, clock: Callable[[], float]) -> None:
        super().__init__(options, clock)
        self.lost = 0
        self._name = name
        self._failure: Exception | None = None
        self._waiting: queue.Queue[MetricsReport | None] = queue.Queue()
        self._thread = threading.Thread(target=self._send_all, name=f"autoprof {name}", daemon=True)
        self._thread.start()

    @abstractmethod
    def send(self, report: MetricsReport) -> None:
        """Send a report to the receiver; called on the sink's thread."""

    @abstractmethod
    def finish(self) -> None:
        """Release the receiver, after the last report."""

    def report(self, report: MetricsReport) -> None:
        """Queue a report, or drop and count it where too many wait."""
        if self._failure is not None:
            raise self._failure
        if self._waiting.qsize() >= QUEUE_SIZE:
            self.lost += 1
        else:
            self._waiting.put_nowait(report)

    def _send_all(self) -> None:
        while (report := self._waiting.get()) is not None:
            if self._failure is None:
                try:
                    self.send(report)
                except Exception as error:  # raised on the training thread: an exception here would go unseen
                    self._failure = error

    def end(self) -> None:
        """Wait for the reports in the queue, for a limited time. Raises the receiver's exception, once."""
        self._waiting.put_nowait(None)
        self._thread.join(30.0)
        failure, self._failure = self._failure, None
        try:
            if failure is not None:
                raise failure
            if self._thread.is_alive():
                raise OutputError(f"sinks.{self._name}: the server did not take the last reports within 30 s")
            if self.lost:
                raise OutputError(
                    f"sinks.{self._name}: {self.lost} reports were dropped because the server was too slow; "
                    f"raise sinks.{self._name}.interval_s"
                )
        finally:
            self.finish()


def load_extra(module: str, extra: str) -> Any:
    """Import a module of a sink's optional package. Raises ``MissingExtra``."""
    return import_extra(module, extra, f"sinks.{extra}", f", or remove the key {extra} from sinks")
