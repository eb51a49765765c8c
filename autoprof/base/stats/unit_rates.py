"""Samples, tokens or frames a second: units over all the time that they took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from operator import attrgetter
from typing import Any, NamedTuple

from ..frame import NO_GAP, FrameRun, Gap, StepFrame
from ..units import NS_PER_S, UNITS


class UnitsSinceLog(NamedTuple):
    """The units of one log, and the time of all steps since the log before, recorded or not."""

    units: float
    ns: int

    @property
    def per_second(self) -> float | None:
        """The units a second; None where no number holds it."""
        rate = self.units * NS_PER_S / self.ns if self.ns > 0 else float("inf")
        return rate if isfinite(rate) else None  # JSON has no infinity


class LogPeriods:
    """Find the steps that each log of a unit covers, all since the log before, recorded or not.

    The units logged in a gap belong to the next log. Where frames are missing, the log that follows covers an unknown
    time, and has no period; nor has one that covers a warm-up step without a log, which takes longer than others. The
    settling steps after a gap are training time like any other.
    """

    def __init__(self) -> None:
        self._ns = self._last_step = 0
        self._since_ns: dict[str, int] = {}
        self._in_gaps: dict[str, float] = {}
        self._unknown: set[str] = set()
        self.is_settling = False
        """Whether the last step is a warm-up step after a gap, or after one like it."""

    def add(self, frame: StepFrame) -> dict[str, UnitsSinceLog]:
        """Add the next frame of the run; return the period that ends with it for each unit that it has."""
        gap = Gap(frame.gap_steps, frame.gap_ns, frame.gap_overhead_ns)
        steps = frame.step, frame.step
        return self.add_steps(*steps, frame.step_ns, gap, frame.scalars, frame.gap_scalars, warmup=frame.warmup)

    def add_steps(
        self,
        first: int,
        last: int,
        ns: int,
        gap: Gap,
        scalars: Mapping[str, float],
        gap_scalars: Mapping[str, float],
        *,
        warmup: bool,
    ) -> dict[str, UnitsSinceLog]:
        """Add the next recorded step, or several without a gap between them that have these scalars together."""
        if first - gap.steps != self._last_step + 1:
            self._unknown.update(UNITS)
        self._last_step = last
        self._ns += gap.ns + gap.overhead_ns + ns
        self.is_settling = gap.steps > 0 or (self.is_settling and warmup)
        found = self._periods(scalars, gap_scalars) if scalars or gap_scalars else {}
        if warmup and not self.is_settling:
            self._unknown.update(unit for unit in UNITS if unit not in scalars)
        return found

    def _periods(self, scalars: Mapping[str, float], gap: Mapping[str, float]) -> dict[str, UnitsSinceLog]:
        found = {}
        for unit in UNITS:
            if unit in gap:
                self._in_gaps[unit] = self._in_gaps.get(unit, 0.0) + gap[unit]
            if unit not in scalars:
                continue
            units = scalars[unit] + self._in_gaps.pop(unit, 0.0)
            ns, self._since_ns[unit] = self._ns - self._since_ns.get(unit, 0), self._ns
            if unit in self._unknown:
                self._unknown.discard(unit)
            elif isfinite(units):
                found[unit] = UnitsSinceLog(units, ns)
        return found


class UnitRates:
    """Add up the units of a run and the time that they took. A period with a warm-up step in it is left out."""

    def __init__(self) -> None:
        self._periods = LogPeriods()
        self._sums: dict[str, UnitsSinceLog] = {}
        self._latest = UNITS[0]

    def add_run(
        self, run: FrameRun, units: Sequence[Mapping[str, float]], gap_units: Sequence[Mapping[str, float]]
    ) -> None:
        """Add the steps of a run with the units of each, and of the gap before each."""
        steps, ns, gaps, count = run.steps, run.step_ns, run.gaps, len(run.steps)
        alike = count > 1 and len(set(map(id, units))) == 1 and not any(map(attrgetter("steps"), gaps))
        for at in range(1 if alike else count):
            self._add(run, steps[at], steps[at], ns[at], gaps[at], units[at], gap_units[at])
        if alike:  # the first one may end a longer period
            rest = {unit: units[0][unit] * (count - 1) for unit in UNITS if unit in units[0]}
            self._add(run, steps[1], steps[-1], sum(ns) - ns[0], NO_GAP, rest, {})

    def _add(self, run: FrameRun, *steps: Any) -> None:
        found = self._periods.add_steps(*steps, warmup=run.warmup)
        if not found or (run.warmup and not self._periods.is_settling):
            return
        self._latest = next(iter(found))
        for unit, (count, ns) in found.items():
            known = self._sums.get(unit, UnitsSinceLog(0.0, 0))
            self._sums[unit] = UnitsSinceLog(known.units + count, known.ns + ns)

    def latest(self) -> tuple[str, float | None]:
        """Return the unit that was logged last, and its count per second; None where there is none."""
        known = self._sums.get(self._latest)
        return self._latest, None if known is None else known.per_second
