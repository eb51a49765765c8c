"""Samples, tokens or frames a second: units over all the time that they took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import NamedTuple

from .._units import NS_PER_S, UNITS
from ..frame import StepFrame


@dataclass(slots=True)
class _Period:
    """The units of one kind logged at the end of a period, and the time and the steps since the log before."""

    units: float = 0.0
    ns: int = 0
    steps: int = 0
    logs: int = 0

    def add(self, other: _Period) -> None:
        """Add another period."""
        self.units += other.units
        self.ns += other.ns
        self.steps += other.steps
        self.logs += other.logs


@dataclass(slots=True)
class _Rate:
    """The periods of one unit. The first one is kept separately: an earlier window may have a part of it.

    ``first_warmups`` is None as long as nothing was logged. The ``since`` are the totals of the run at the last log.
    """

    first: _Period = field(default_factory=_Period)
    first_warmups: int | None = None
    rest: _Period = field(default_factory=_Period)
    since_ns: int = 0
    since_steps: int = 0
    since_warmups: int = 0
    segment: int = 0

    def add(self, period: _Period, warmups: int) -> None:
        """Add the period that ends now, with so many warm-up steps in it."""
        if self.first_warmups is None:
            self.first, self.first_warmups = period, warmups
        elif not warmups:
            self.rest.add(period)

    def whole(self) -> _Period:
        """Return the sum of all periods without a warm-up step."""
        found = replace(self.rest)
        if self.first_warmups == 0:
            found.add(self.first)
        return found


class UnitRates:
    """Add up units and the time that they took: all steps since the last log of that unit, recorded or not.

    A period with a warm-up step in it is left out. The settling steps after a gap are training time like any other, and
    so is autoprof's own work.
    """

    def __init__(self) -> None:
        self._rates: dict[str, _Rate] = {}
        self._ns = self._steps = self._warmups = self._segments = 0
        self._settling = False

    def add(
        self, frame: StepFrame, units: Mapping[str, float] | None = None, gap_units: Mapping[str, float] | None = None
    ) -> None:
        """Add a step and the gap before it; by default with the units that the frame has."""
        if frame.gap_steps:
            gap = frame.gap_scalars if gap_units is None else gap_units
            self._add(frame.gap_ns + frame.gap_overhead_ns, frame.gap_steps, gap)
            self._settling = True
        elif not frame.warmup:
            self._settling = False
        if frame.warmup:
            self._warmups += not self._settling
        self._add(frame.duration_ns, 1, frame.scalars if units is None else units)

    def add_steps(self, ns: Sequence[int], units: Sequence[Mapping[str, float]]) -> None:
        """Add recorded steps without a gap before them: their lengths, and the units of each."""
        self._settling = False
        first = units[0]
        if all(one is first for one in units) and self._add_alike(sum(ns), len(ns), first):
            return
        if any(units):
            for length_ns, one in zip(ns, units, strict=True):
                self._add(length_ns, 1, one)
        else:
            self._ns += sum(ns)
            self._steps += len(ns)
            self._segments += len(ns)

    def _add_alike(self, ns: int, steps: int, units: Mapping[str, float]) -> bool:
        """Add steps that log the same units each; return False where they are not added up as they are, one by one."""
        logged = [(unit, units[unit]) for unit in UNITS if unit in units] if units else []
        for unit, value in logged:
            rate = self._rates.get(unit)
            if rate is None or rate.first_warmups is None or self._warmups != rate.since_warmups:
                return False
            if not (value.is_integer() and rate.rest.units.is_integer()):  # else one addition is rounded otherwise
                return False
        self._ns += ns
        self._steps += steps
        self._segments += steps
        for unit, value in logged:
            rate = self._rates[unit]
            rate.rest.add(_Period(value * steps, self._ns - rate.since_ns, self._steps - rate.since_steps, steps))
            rate.since_ns, rate.since_steps, rate.segment = self._ns, self._steps, self._segments
        return True

    def _add(self, ns: int, steps: int, units: Mapping[str, float]) -> None:
        self._ns += ns
        self._steps += steps
        self._segments += 1
        for unit in UNITS if units else ():
            value = units.get(unit)
            if value is None:
                continue
            rate = self._rates.get(unit)
            if rate is None:
                rate = self._rates[unit] = _Rate()
            rest = rate.rest
            if rate.first_warmups is not None and isfinite(value) and self._warmups == rate.since_warmups:
                rest.units += value  # as ``add`` does for nearly all logs of a run
                rest.ns += self._ns - rate.since_ns
                rest.steps += self._steps - rate.since_steps
                rest.logs += 1
            else:
                period = _Period(value, self._ns - rate.since_ns, self._steps - rate.since_steps, 1)
                # What was logged is no number: the time until now belongs to no unit.
                rate.add(period if isfinite(value) else _Period(), self._warmups - rate.since_warmups)
            rate.since_ns, rate.since_steps, rate.since_warmups = self._ns, self._steps, self._warmups
            rate.segment = self._segments

    def merge(self, other: UnitRates) -> None:
        """Add the units of a later window."""
        for unit, theirs in other._rates.items():
            own = self._rates.setdefault(unit, _Rate())
            if theirs.first_warmups is None:
                continue
            first = replace(theirs.first)
            if first.logs:
                first.ns += self._ns - own.since_ns
                first.steps += self._steps - own.since_steps
            own.add(first, theirs.first_warmups + self._warmups - own.since_warmups)
            own.rest.add(theirs.rest)
            own.since_ns, own.since_steps = self._ns + theirs.since_ns, self._steps + theirs.since_steps
            own.since_warmups, own.segment = self._warmups + theirs.since_warmups, self._segments + theirs.segment
        self._ns += other._ns
        self._steps += other._steps
        self._warmups += other._warmups
        self._segments += other._segments

    def latest(self) -> tuple[str, float | None]:
        """Return the unit that was logged last, and its count per second; None where there is none."""
        known = {unit: whole for unit, rate in self._rates.items() if (whole := rate.whole()).ns}
        if not known:
            return UNITS[0], None
        unit = max(UNITS, key=lambda one: self._rates[one].segment if one in known else -1)
        rate = known[unit].units * NS_PER_S / known[unit].ns
        return unit, rate if isfinite(rate) else None  # JSON has no infinity

    def steps_per_log(self, unit: str) -> float:
        """Return the number of steps from one log of the unit to the next, on average; 1 where there is none."""
        whole = self._rates[unit].whole() if unit in self._rates else _Period()
        return whole.steps / whole.logs if whole.logs else 1.0


class UnitsSinceLog(NamedTuple):
    """The units of one log, and the time of all steps since the log before, recorded or not."""

    units: float
    ns: int

    @property
    def per_second(self) -> float | None:
        """The units a second; None where no number holds it."""
        rate = self.units * NS_PER_S / self.ns if self.ns > 0 else float("inf")
        return rate if isfinite(rate) else None


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
