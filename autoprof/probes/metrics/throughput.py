"""Samples of a step, time to the end of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite, isnan, nan
from typing import Final, NamedTuple

from ...base.frame import FrameRun
from ...base.stats.unit_rates import UnitRates
from ...base.summary import Progress, Summary
from ...base.units import UNITS
from .. import Fetched
from .model_calls import StepCalls

SAMPLES: Final = UNITS[0]
LOGGED: Final = "session.log"
FETCHED: Final = "batches of the loader"

UNKNOWN: Final = "no DataLoader seen"
SEVERAL_LOADERS: Final = "several loaders feed the steps"
ADVICE: Final = "session.log(samples=...) tells it"
"""The way to a throughput, for a reader of one of the reasons above."""

_NO_SAMPLES: Final[Mapping[str, float]] = {}


class StepRecord(NamedTuple):
    """What is known of a closed step beside its marks."""

    step: int
    calls: StepCalls = StepCalls((), False, None)
    fetched: Fetched | None = None
    warmup: bool = False


class ThroughputMeter:
    """Find the samples of a step: those of the loader, unless the user logs others.

    A log of as many samples as the loader has given in that step, in whichever steps, says nothing new.
    """

    def __init__(self) -> None:
        self.total_steps: int | None = None
        self._is_logged = False
        """Whether the units count that the user logs."""
        self._rates = UnitRates()
        self._steps = self._several = 0
        """The recorded steps with fetches, and those of them that fetched from several data sets."""
        self._has_unknown = False
        """Whether samples have been fetched since those of a step were last known that nothing counted."""
        self._found: Mapping[str, float] = _NO_SAMPLES
        """The samples recognised in the last step that had any: one object for equal steps."""

    def add_run(self, run: FrameRun, records: Sequence[StepRecord]) -> None:
        """Add steps in a row. Their scalars lose ``total_steps``, and get the recognised samples if the user logs none.

        The scalars are replaced in ``run``.
        """
        units: list[Mapping[str, float]] = []
        gap_units: list[Mapping[str, float]] = []
        for at, record in enumerate(records):
            is_plain = record.fetched is None and not run.scalars[at] and not run.gap_scalars[at]
            if not is_plain and self._complete(run, at, record):
                self._rates = UnitRates()
                units, gap_units = [_NO_SAMPLES] * at, [_NO_SAMPLES] * at
            units.append(run.scalars[at])
            gap_units.append(run.gap_scalars[at])
        self._rates.add_run(run, units, gap_units)

    def _complete(self, run: FrameRun, at: int, record: StepRecord) -> bool:
        """Replace the scalars of one step; return whether those that the user logs begin to count in it."""
        # The key of `session.log` that sets the length of the run; it is no scalar of the step.
        total = "total_steps"
        scalars = run.scalars[at]
        if scalars and total in scalars:
            steps = float(scalars[total])
            if isfinite(steps) and steps >= 1:
                self.total_steps = round(steps)
            scalars = run.scalars[at] = {name: value for name, value in scalars.items() if name != total}
        samples, gap_samples = self._recognise(record.fetched)
        if self._is_logged:
            return False
        if self._differ(scalars, run.gap_scalars[at], samples):
            self._is_logged = True
            return True
        if samples is not None:
            if samples != self._found.get(SAMPLES):
                self._found = {SAMPLES: samples}
            run.scalars[at] = {**self._found, **scalars} if scalars else self._found
        if gap_samples is not None:
            run.gap_scalars[at] = {SAMPLES: gap_samples}
        return False

    def _differ(self, scalars: Mapping[str, float], in_gap: Mapping[str, float], samples: float | None) -> bool:
        """Return whether the user logs other units than these samples of the loader."""
        units = [unit for unit in UNITS if unit in scalars or unit in in_gap]
        if not units or units != [SAMPLES] or samples is None or self._feeds_several():
            return bool(units)
        # The largest difference of two counts of the same samples.
        return abs(scalars.get(SAMPLES, samples) - samples) > 0.05 * samples

    def _recognise(self, fetched: Fetched | None) -> tuple[float | None, float | None]:
        """Return the samples of the step and of the gap before it; None where there are none, or are not known.

        Those of the gap are NaN in the first known step after unknown ones: its log covers more than is counted.
        """
        if fetched is None:
            return None, None
        self._steps += fetched.samples is not None
        self._several += fetched.several
        samples, gap_samples = (None if one is None or isnan(one) else one for one in fetched[:2])
        self._has_unknown |= gap_samples != fetched.gap_samples
        if samples is not None and self._has_unknown:
            gap_samples = nan
        self._has_unknown = samples is None and (self._has_unknown or fetched.samples is not None)
        return samples, gap_samples

    def _feeds_several(self) -> bool:
        # The largest share of steps that fetch from several data sets: the first validation, or the begin of an epoch.
        return self._several > 0.1 * self._steps + 1

    def annotate(self, summary: Summary, done: int) -> Summary:
        """Return the summary with the throughput, and with the run's progress after ``done`` steps."""
        unit, rate = self._rates.latest()
        reason = ""
        if not self._is_logged:
            reason = SEVERAL_LOADERS if self._feeds_several() else UNKNOWN if rate is None else ""
            unit, rate = SAMPLES, None if reason else rate
        source = "" if rate is None else LOGGED if self._is_logged else FETCHED
        progress = self._progress(summary, done, source, reason if summary.steps else "")
        return replace(summary, throughput=rate, throughput_unit=unit, progress=progress)

    def _progress(self, summary: Summary, done: int, source: str, reason: str) -> Progress | None:
        step_ns = summary.run_mean_ns if summary.steps else None
        remaining = None if self.total_steps is None else max(self.total_steps - done, 0)
        if not source and not reason and remaining is None:
            return None
        return Progress(
            source=source,
            no_throughput=f"{reason}; {ADVICE}" if reason else "",
            total_steps=self.total_steps,
            remaining_steps=remaining,
            remaining_ns=None if remaining is None or step_ns is None else round(remaining * step_ns),
        )
