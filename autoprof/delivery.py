"""The second half of a run: closed steps become frames, frames go to the statistics and the sinks, and the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from .aggregate import Aggregate
from .price import Price
from .recorder import Recorder
from .resolve import RawStep, Resolver
from .span import StepFrame
from .summary import Summary
from .units import format_percent

if TYPE_CHECKING:
    from .runs import RunFolder
    from .sinks import Sink

SLICE_NS: Final = 500_000
"""The time after which the rest of the steps that wait is left to the end of the next step: no step is to stand out."""
DELIVER_EVERY_NS: Final = 20_000_000
"""Steps shorter than this are resolved several at a time: after the model's own code the first one finds the caches
cold and costs three times what the next ones cost. ``summary`` and ``close`` wait for nobody."""
JUDGED_STEPS: Final = 50
"""Steps after which the measured overhead is held against the budget."""

logger = logging.getLogger("autoprof")


class Delivery:
    """Resolve, aggregate and write, on the training thread; a sink that fails loses only itself."""

    def __init__(
        self, recorder: Recorder, price: Price, folder: RunFolder | None, budget: float | None, notes: Iterable[str]
    ) -> None:
        self.folder = folder
        self.skipped: dict[str, int] = {}
        self.unsampled_steps = 0
        self._recorder = recorder
        self._budget = budget
        self._notes = list(notes)
        self._sinks: list[Sink] = []
        self._resolver = Resolver(recorder.labels, price)
        self._aggregate = Aggregate()
        self._due_ns = 0

    def open(self, sinks: Iterable[Sink]) -> None:
        """Take the sinks that frames go to."""
        self._sinks = list(sinks)

    def submit(self, raw: RawStep) -> None:
        """Take a closed step, and deliver what is ready when it is time to."""
        self._resolver.submit(raw)
        now = raw.clock.host_ns(raw.end)
        if now >= self._due_ns or self._resolver.crowded:
            until_ns = perf_counter_ns() + SLICE_NS
            for frame in self._resolver.ready():
                self._hand_on(frame)
                if perf_counter_ns() > until_ns:
                    return
            self._due_ns = now + DELIVER_EVERY_NS

    def deliver(self, *, wait: bool = False) -> None:
        """Hand on the frames of all steps that the device has passed; ``wait`` blocks for the rest."""
        for frame in self._resolver.ready(wait=wait):
            self._hand_on(frame)

    def _hand_on(self, frame: StepFrame) -> None:
        self._aggregate.add(frame)
        for sink in self._sinks[:]:
            self._write(sink, frame)

    def _write(self, sink: Sink, frame: StepFrame) -> None:
        try:
            sink.write(frame)
        except Exception as error:
            self._sinks.remove(sink)
            self.say(f"{type(sink).__name__} is off after {type(error).__name__}: {error}")
            with suppress(Exception):
                sink.close(self.summary())

    def say(self, note: str) -> None:
        """Keep a note for the reports, and say it once."""
        if note not in self._notes:
            self._notes.append(note)
            logger.warning(note)

    def summary(self) -> Summary:
        """Return the statistics of everything delivered so far."""
        resolver = self._resolver
        lost = {
            "steps that the device had not passed": resolver.late_steps,
            "marks without a counterpart": resolver.unmatched,
            **{f"failures in {where}": count for where, count in self._recorder.failures.items()},
            **self.skipped,
        }
        summary = self._aggregate.summary(
            notes=tuple(self._notes),
            unsampled_steps=self.unsampled_steps,
            skipped={reason: count for reason, count in lost.items() if count},
        )
        return summary if summary.steps < JUDGED_STEPS else self._judged(summary)

    def _judged(self, summary: Summary) -> Summary:
        if self._budget is None or summary.overhead <= self._budget:
            return summary
        note = (
            f"autoprof's own work takes {format_percent(summary.overhead)} of the step, more than the budget of "
            f"{format_percent(self._budget)}; a larger sample.every or fewer targets lower it"
        )
        return summary.with_note(note)

    def close(self, how: str) -> None:
        """Write the reports and close the sinks, the last one first, whatever fails."""
        try:
            summary = self.summary()
        except Exception as error:  # nothing to report, but everything to close
            self.say(f"no summary after {type(error).__name__}: {error}")
            summary = Summary.empty(tuple(self._notes))
        actions: list[Callable[[], None]] = []
        if self.folder is not None:
            folder = self.folder
            actions += [lambda: folder.write_summary(summary), lambda: folder.finish(how)]
        actions += [lambda sink=sink: sink.close(summary) for sink in reversed(self._sinks)]  # type: ignore[misc]
        for action in actions:
            try:
                action()
            except Exception as error:
                self.say(f"at the end of the run: {type(error).__name__}: {error}")
        self._sinks.clear()

    def abandon(self) -> None:
        """Touch no file any more."""
        self._sinks.clear()
        self.folder = None
