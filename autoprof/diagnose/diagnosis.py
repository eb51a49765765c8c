"""The diagnosis of a live run: what a session feeds, and what its summaries ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from .._resolve import RawStep
from ..frame import StepFrame
from ..summary import Summary
from .evidence import Facts, OptimizerFact
from .garbage import Collections
from .observer import Observer
from .optimizers import describe_optimizers
from .ranks import Watch
from .rules import diagnose
from .signals import Signals
from .thresholds import MIN_STEPS


class Diagnosis:
    """Keep what the rules need of a live run. Nothing is judged but when a summary is asked for."""

    def __init__(
        self,
        facts: Facts | None = None,
        optimizers: Callable[[], Iterable[Any]] = tuple,
        signals: Signals | None = None,
        ranks: Watch | None = None,
    ) -> None:
        self._facts = facts or Facts()
        self._optimizers = optimizers
        self._described: tuple[OptimizerFact, ...] | None = None
        self._settled = False
        """Whether an optimizer that has no state by now keeps none."""
        self._observer = Observer()
        self._collections = Collections()
        self._signals = signals
        self._ranks = ranks
        self.final = False
        """Whether the run is over: what takes longer may be looked at now."""
        self.add: Callable[[StepFrame], None] = self._observer.add if signals is None else self._add

    def closed(self, raw: RawStep, end_ns: int) -> None:
        """Take note that a step has ended, at ``end_ns`` of the host's clock."""
        begun_ns = raw.clock.host_ns(raw.start)
        self._collections.closed(raw.step, end_ns - begun_ns)
        if self._signals is not None:
            self._signals.closed(raw, begun_ns, end_ns - begun_ns)

    def _add(self, frame: StepFrame) -> None:
        self._observer.add(frame)
        self._signals.add(frame)  # type: ignore[union-attr]

    def facts(self) -> Facts:
        """Return what is known by now. The optimizers are described once, when they have their state, if any."""
        alive = list(self._optimizers())
        if alive and self._described is None and (self._settled or all(optimizer.state for optimizer in alive)):
            self._described = describe_optimizers(alive)
        steps = set(self._collections.steps)
        collected = tuple(sorted(long.step for long in self._observer.longest() if long.step in steps))
        longest = tuple(long.step for long in self._observer.longest())
        return replace(
            self._facts,
            collected=collected,
            collections=self._collections.count,
            optimizers=self._described,
            ranks=None if self._ranks is None else self._ranks.facts(longest, final=self.final),
            **({} if self._signals is None else self._signals.facts()),
        )

    def of(self, summary: Summary) -> Summary:
        """Return the summary with its findings and its what-if table."""
        self._settled = summary.steps >= MIN_STEPS
        return diagnose(self._observer.evidence(summary, self.facts())) if summary.steps else summary
