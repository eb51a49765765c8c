"""The summary of a run so far: its statistics, annotated by one observer after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..base.failures import contain, describe
from ..base.frame import NO_GAP
from ..base.notes import Notes
from ..base.process.address_space import require_address_space
from ..base.stats import Aggregate
from ..base.summary import Summary
from ..capture.calibration import LimitMeter
from ..capture.recorder import Recorder
from ..resolve import Resolver
from ..resolve.observer import Observer
from .account import Account, Part


class Summarizer:
    """Compute the summary of a run. An observer that fails costs its own annotation."""

    def __init__(
        self,
        recorder: Recorder,
        resolver: Resolver,
        aggregate: Aggregate,
        limit: LimitMeter,
        observers: Sequence[Observer],
        notes: Notes,
        account: Account | None,
    ) -> None:
        self._recorder = recorder
        self._resolver = resolver
        self._aggregate = aggregate
        self._limit = limit
        self._observers = [one for one in observers if type(one).annotate is not Observer.annotate]
        self._notes = notes
        self._account = account
        """The cost of the start and the end; None where it is not measured."""
        self.open_gap = NO_GAP
        """The unsampled steps that no recorded one follows yet."""

    def summary(self) -> Summary:
        """Return the statistics of all frames so far."""
        require_address_space()
        resolver = self._resolver
        lost = {
            "steps that the device had not passed": resolver.late_steps,
            "marks without a counterpart": resolver.unmatched,
            **{f"failures in {where}": count for where, count in self._recorder.failures.items()},
            **self._recorder.untimed,
            **resolver.device_timer.untimed,
            **self._notes.skipped,
        }
        skipped = {reason: count for reason, count in lost.items() if count}
        summary = self._aggregate.summary(notes=self._notes.all, skipped=skipped, gap=self.open_gap)
        summary = replace(summary, clock_limit_ns=self._limit.span_ns())
        for observer in self._observers:
            summary = self._annotate(observer, summary)
        if self._account is None:
            return summary
        return replace(summary, start_ns=self._account.spent_ns(Part.START), end_ns=self._account.end_ns)

    def _annotate(self, observer: Observer, summary: Summary) -> Summary:
        with contain(lambda error: self._notes.warn_once(failure_note(observer, error))):
            return observer.annotate(summary)
        return replace(summary, notes=self._notes.all)


def failure_note(observer: Observer, error: Exception) -> str:
    """Return the note of a failure of an observer."""
    return f"no {observer.provides} after {describe(error)}"
