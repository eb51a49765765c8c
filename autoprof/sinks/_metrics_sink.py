"""What the sinks share that report a few numbers now and then: when a report is due, and a thread for slow ones."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from .._reports.scalars import Metrics, Stretch
from ..errors import MissingExtra, OutputError
from ..frame import StepFrame
from ..summary import Summary

if TYPE_CHECKING:
    from ..config.options import MetricsOptions

WAITING: Final = 64
"""Reports that may wait for a slow receiver; what comes beyond is counted as lost."""
PATIENCE_S: Final = 30.0
"""How long the end of a run waits for a slow receiver."""


class Reports:
    """Gather frames past the warm-up, and hand their means on when a report is due."""

    def __init__(self, options: MetricsOptions, clock: Callable[[], float], report: Callable[[Metrics], None]) -> None:
        self._every = options.every
        self._interval_s = options.interval_s
        self._clock = clock
        self._report = report
        self._stretch = Stretch()
        self._due = clock() + options.interval_s

    def write(self, frame: StepFrame) -> None:
        """Take one step; report when enough steps and enough time have passed."""
        if frame.warmup:
            return
        self._stretch.add(frame)
        if len(self._stretch) >= self._every and self._clock() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Report what has been gathered."""
        self._due = self._clock() + self._interval_s
        metrics = self._stretch.take()
        if metrics is not None:
            self._report(metrics)


class Courier:
    """Carry reports to a receiver that may be slow, on a thread of its own; ``put`` never waits.

    What the receiver raises is raised by the next ``put``, or by ``close``.
    """

    def __init__(self, name: str, deliver: Callable[[Metrics], None]) -> None:
        self.lost = 0
        self._name = name
        self._deliver = deliver
        self._failure: Exception | None = None
        self._waiting: queue.Queue[Metrics | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name=f"autoprof {name}", daemon=True)
        self._thread.start()

    def put(self, metrics: Metrics) -> None:
        """Hand a report over, or count it as lost where too many wait."""
        if self._failure is not None:
            raise self._failure
        if self._waiting.qsize() >= WAITING:
            self.lost += 1
        else:
            self._waiting.put_nowait(metrics)

    def _run(self) -> None:
        while (metrics := self._waiting.get()) is not None:
            if self._failure is None:
                try:
                    self._deliver(metrics)
                except Exception as error:  # told to whoever puts next: nobody looks at this thread
                    self._failure = error

    def close(self, patience_s: float = PATIENCE_S) -> None:
        """Wait for what is under way. Raises what went wrong, once."""
        self._waiting.put_nowait(None)
        self._thread.join(patience_s)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        if self._thread.is_alive():
            raise OutputError(f"sinks.{self._name}: the last reports were not taken within {patience_s:g} s")
        if self.lost:
            raise OutputError(f"sinks.{self._name}: {self.lost} reports are lost, because too many were waiting")


class MetricsSink(ABC):
    """A sink that reports: what it does with a report, and how it lets the receiver go."""

    def __init__(self, options: MetricsOptions, clock: Callable[[], float]) -> None:
        self._reports = Reports(options, clock, self.report)

    @abstractmethod
    def report(self, metrics: Metrics) -> None:
        """Take the means of a stretch of steps; on the training thread, so it must not wait."""

    def write(self, frame: StepFrame) -> None:
        """Take one step's frame."""
        self._reports.write(frame)

    def close(self, summary: Summary) -> None:
        """Report the last steps and let the receiver go."""
        try:
            self._reports.flush()
        finally:
            self.end()

    @abstractmethod
    def end(self) -> None:
        """Let the receiver go."""


def load_extra(module: str, extra: str) -> Any:
    """Import a module of an optional package. Raises ``MissingExtra``, which says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtra(
            f"sinks.{extra}: needs the package {package}, which cannot be imported ({error}); "
            f"install it with: pip install 'torch-autoprof[{extra}]', or take the key {extra} out of sinks"
        ) from error
