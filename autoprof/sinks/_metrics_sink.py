"""Sinks that report means of several steps now and then: to trackers and monitors, which take few points.

``MetricsSink`` gathers frames in a ``MeansOfSteps`` and calls ``report`` with the ``StepSums`` when a report is due. A
``BackgroundSender`` calls a slow receiver on a thread of its own.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import Field

from .._core.options import Options
from .._core.units import NS_PER_MS, NS_PER_S, UNITS
from .._stats import Aggregate
from .._stats.unit_rates import LogPeriods
from ..errors import OutputError, import_extra
from ..frame import Phase, StepFrame
from ..summary import Summary

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
class StepSums:
    """Sums over several recorded steps, and the last value of each logged scalar and memory reading.

    ``rows`` and ``phases`` are nanoseconds over these steps; a row counts a span nested in its own row once.
    ``throughput`` is that of the logs in these steps, each over all steps since the log before; ``overhead`` is by the
    host's clock. ``recorded`` and ``dropped`` count from the run's start.
    """

    step: int
    time_unix_ns: int
    steps: int
    step_ns: int
    overhead: float
    phases: Mapping[Phase, int]
    rows: Mapping[tuple[str, Phase], int]
    throughput: float | None = None
    scalars: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, int] = field(default_factory=dict)
    recorded: int = 0
    dropped: int = 0

    def top(self, count: int) -> list[tuple[str, Phase, float]]:
        """Return the longest rows: name, phase and seconds a step."""
        longest = sorted(self.rows.items(), key=lambda item: (-item[1], item[0][0], str(item[0][1])))[:count]
        return [(name, phase, ns / self.steps / NS_PER_S) for (name, phase), ns in longest]

    def named(self, top: int, prefix: str = "autoprof") -> dict[str, float]:
        """Return all numbers by name, times in milliseconds a step; NaN and infinity are kept."""
        mean_ms = {
            "step_ms": self.step_ns / self.steps / NS_PER_MS,
            **{f"phase_ms/{phase}": ns / self.steps / NS_PER_MS for phase, ns in self.phases.items()},
            **{f"ms/{name}/{phase}": seconds * 1000 for name, phase, seconds in self.top(top)},
        }
        others: dict[str, float] = {} if self.throughput is None else {"throughput": self.throughput}
        others["overhead"] = self.overhead
        others |= {f"memory/{name}": float(value) for name, value in self.memory.items()}
        others |= {f"scalar/{name}": float(value) for name, value in self.scalars.items()}
        return {f"{prefix}/{name}" if prefix else name: value for name, value in {**mean_ms, **others}.items()}


class MeansOfSteps:
    """Sum frames between two reports."""

    def __init__(self) -> None:
        self._recorded = self._dropped = 0
        self._periods = LogPeriods()
        self._begin()

    def _begin(self) -> None:
        self._aggregate = Aggregate()
        self._samples, self._sampled_ns = 0.0, 0
        self._last = 0, 0

    def __len__(self) -> int:
        return self._aggregate.steps

    def skip(self, frame: StepFrame) -> None:
        """Pass over a step of the warm-up: samples that are logged later may be those of its time too."""
        self._periods.add(frame)

    def add(self, frame: StepFrame) -> None:
        """Add one step. A step whose device time is unknown is left out, as it is from the statistics."""
        samples = self._periods.add(frame).get(UNITS[0])
        if samples is not None:
            self._samples += samples.units
            self._sampled_ns += samples.ns
        steps = self._aggregate.steps
        self._aggregate.add(frame)
        if self._aggregate.steps > steps:
            self._last = frame.step, frame.start_unix_ns

    def take(self) -> StepSums | None:
        """Return the metrics of the steps added and start anew; None where there was no step."""
        if not self._aggregate.steps:
            return None
        summary = self._aggregate.summary()
        self._recorded += summary.steps
        self._dropped += sum(summary.dropped.values())
        rows: Counter[tuple[str, Phase]] = Counter()
        for row in summary.rows:
            rows[row.name, row.phase] += row.total_ns
        step, time_unix_ns = self._last
        metrics = StepSums(
            step=step,
            time_unix_ns=time_unix_ns,
            steps=summary.steps,
            step_ns=summary.total_step_ns,
            overhead=summary.overhead,
            phases=summary.phases,
            rows=rows,
            throughput=self._samples * NS_PER_S / self._sampled_ns if self._sampled_ns else None,
            scalars=summary.scalars,
            memory=summary.memory,
            recorded=self._recorded,
            dropped=self._dropped,
        )
        self._begin()
        return metrics


class MetricsSink(ABC):
    """A sink that reports the steps past the warm-up, at most each ``every`` steps and ``interval_s`` seconds."""

    def __init__(self, options: MetricsOptions, clock: Callable[[], float]) -> None:
        self._every = options.every
        self._interval_s = options.interval_s
        self._clock = clock
        self._means = MeansOfSteps()
        self._due = clock() + options.interval_s

    def write(self, frame: StepFrame) -> None:
        """Add one step's frame; report when enough steps and enough time have passed."""
        if frame.warmup:
            self._means.skip(frame)
            return
        self._means.add(frame)
        if len(self._means) >= self._every and self._clock() >= self._due:
            self._report_means()

    def _report_means(self) -> None:
        self._due = self._clock() + self._interval_s
        metrics = self._means.take()
        if metrics is not None:
            self.report(metrics)

    @abstractmethod
    def report(self, metrics: StepSums) -> None:
        """Report the metrics of some steps; called on the training thread, so it must not wait."""

    def close(self, summary: Summary) -> None:
        """Report the last steps and release the receiver."""
        try:
            self._report_means()
        finally:
            self.end()

    @abstractmethod
    def end(self) -> None:
        """Release the receiver."""


class BackgroundSender:
    """Call a receiver that may be slow on a thread of its own; ``send`` never waits.

    An exception of the receiver is raised by the next ``send``, or by ``close``.
    """

    def __init__(self, name: str, receiver: Callable[[StepSums], None]) -> None:
        self.lost = 0
        self._name = name
        self._receiver = receiver
        self._failure: Exception | None = None
        self._waiting: queue.Queue[StepSums | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name=f"autoprof {name}", daemon=True)
        self._thread.start()

    def send(self, metrics: StepSums) -> None:
        """Queue a report, or drop and count it where too many wait."""
        if self._failure is not None:
            raise self._failure
        if self._waiting.qsize() >= QUEUE_SIZE:
            self.lost += 1
        else:
            self._waiting.put_nowait(metrics)

    def _run(self) -> None:
        while (metrics := self._waiting.get()) is not None:
            if self._failure is None:
                try:
                    self._receiver(metrics)
                except Exception as error:  # raised on the training thread: an exception here would go unseen
                    self._failure = error

    def close(self, timeout_s: float = 30.0) -> None:
        """Wait for the reports in the queue. Raises the receiver's exception, once."""
        self._waiting.put_nowait(None)
        self._thread.join(timeout_s)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._thread.is_alive():
            raise OutputError(f"sinks.{self._name}: the server did not take the last reports within {timeout_s:g} s")
        if self.lost:
            raise OutputError(
                f"sinks.{self._name}: {self.lost} reports were dropped because the server was too slow; "
                f"raise sinks.{self._name}.interval_s"
            )


def load_extra(module: str, extra: str) -> Any:
    """Import a module of a sink's optional package. Raises ``MissingExtra``."""
    return import_extra(module, extra, f"sinks.{extra}", f", or remove the key {extra} from sinks")
