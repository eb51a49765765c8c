"""Samples, tokens or frames a second: units over all the time that they took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

from .._core.units import NS_PER_S, UNITS
from ..frame import FrameRun, StepFrame


@dataclass(slots=True)
class _Rate:
    """The units of one kind, with the time of their periods: from each log to the next.

    The ``since`` are the totals of the run at the last log.
    """

    units: float = 0.0
    ns: int = 0
    since_ns: int = 0
    since_warmups: int = 0
    segment: int = 0


class UnitRates:
    """Add up units and the time that they took: all steps since the last log of that unit, recorded or not.

    A period with a warm-up step in it is left out. The settling steps after a gap are training time like any other, and
    so is autoprof's own work.
    """

    def __init__(self) -> None:
        self._rates: dict[str, _Rate] = {}
        self._ns = self._warmups = self._segments = 0
        self._settling = False

    def add_run(
        self, run: FrameRun, units: Sequence[Mapping[str, float]], gap_units: Sequence[Mapping[str, float]]
    ) -> None:
        """Add the steps of a run with the units of each, and of the gap before each."""
        ns, gaps, first = run.step_ns, run.gaps, units[0]
        self._settling = gaps[-1].steps > 0 or (self._settling and run.warmup)
        if len(ns) > 1 and all(one is first for one in units) and not any(gap.steps for gap in gaps):
            self._add(ns[0], first)  # its period may have begun before a warm-up step
            self._add(sum(ns) - ns[0], first, len(ns) - 1)
            return
        for length_ns, one, gap, in_gap in zip(ns, units, gaps, gap_units, strict=True):
            if gap.steps:
                self._add(gap.ns + gap.overhead_ns, in_gap)
            self._warmups += run.warmup and not self._settling
            self._add(length_ns, one)

    def _add(self, ns: int, units: Mapping[str, float], logs: int = 1) -> None:
        self._ns += ns
        self._segments += 1
        for unit in UNITS if units else ():
            value = units.get(unit)
            if value is None:
                continue
            rate = self._rates.get(unit)
            if rate is None:
                rate = self._rates[unit] = _Rate()
            # Where a value is no number, the time until now belongs to no unit.
            if isfinite(value) and self._warmups == rate.since_warmups:
                rate.units += value * logs
                rate.ns += self._ns - rate.since_ns
            rate.since_ns, rate.since_warmups = self._ns, self._warmups
            rate.segment = self._segments

    def forget_units(self) -> None:
        """Forget the units so far, but not the time: the next log of each covers all of it."""
        self._rates.clear()

    def latest(self) -> tuple[str, float | None]:
        """Return the unit that was logged last, and its count per second; None where there is none."""
        known = [unit for unit in UNITS if unit in self._rates and self._rates[unit].ns]
        if not known:
            return UNITS[0], None
        unit = max(known, key=lambda one: self._rates[one].segment)
        return unit, _per_second(self._rates[unit].units, self._rates[unit].ns)


class UnitsSinceLog(NamedTuple):
    """The units of one log, and the time of all steps since the log before, recorded or not."""

    units: float
    ns: int

    @property
    def per_second(self) -> float | None:
        """The units a second; None where no number holds it."""
        return _per_second(self.units, self.ns)


def _per_second(units: float, ns: int) -> float | None:
    rate = units * NS_PER_S / ns if ns > 0 else float("inf")
    return rate if isfinite(rate) else None  # JSON has no infinity


class LogPeriods:
    """Find the steps that each log of a unit covers, for the records of single steps: all since the log before.

    The units logged in a gap belong to the next log. Where frames are missing, the log that follows covers an unknown
    time, and has no period; nor has one that covers a warm-up step without a log, which takes longer than others.
    """

    def __init__(self) -> None:
        self._ns = self._last_step = 0
        self._since_ns: dict[str, int] = {}
        self._in_gaps: dict[str, float] = {}
        self._unknown: set[str] = set()
        self._settling = False

    def add(self, frame: StepFrame) -> dict[str, UnitsSinceLog]:
        """Add the next frame of the run; return the period that ends with it for each unit that it has."""
        if frame.step - frame.gap_steps != self._last_step + 1:
            self._unknown.update(UNITS)
        self._last_step = frame.step
        self._ns += frame.gap_ns + frame.gap_overhead_ns + frame.step_ns
        self._settling = frame.gap_steps > 0 or (self._settling and frame.warmup)
        scalars, gap = frame.scalars, frame.gap_scalars
        found = self._periods(scalars, gap) if scalars or gap else {}
        if frame.warmup and not self._settling:
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
