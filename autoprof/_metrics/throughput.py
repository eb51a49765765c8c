"""Samples of a step, length of an epoch, time to the end of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final, NamedTuple

from .._core.signals import raised_by_handler
from .._core.units import UNITS
from .._stats.unit_rates import UnitRates
from ..frame import FrameRun, Phase
from ..probes import Fetched, Kind
from ..summary import Progress, Summary
from .model_calls import StepCalls

SAMPLES: Final = UNITS[0]
LOGGED: Final = "session.log"
FETCHED: Final = "batches of the loader"

UNKNOWN: Final = "the samples of a step are unknown"
SEVERAL_LOADERS: Final = "several loaders feed the steps"
ADVICE: Final = "feed the model from a torch DataLoader, or, with autoprof.instrument, pass samples= to session.log"
"""The way to a throughput, for a reader of one of the reasons above."""

_NO_SAMPLES: Final[Mapping[str, float]] = {}


class StepRecord(NamedTuple):
    """What is known of a closed step beside its marks."""

    step: int
    calls: StepCalls = StepCalls((), False, None)
    fetched: Fetched | None = None
    warmup: bool = False


class _DataSet:
    """The samples of one kind of data set, the steps that fetched them, and those that fetched from several sets."""

    __slots__ = ("samples", "several", "steps")

    def __init__(self) -> None:
        self.steps, self.several, self.samples = 0, 0, 0.0


class ThroughputMeter:
    """Find the samples of a step: those that the user logs, else those of the loader."""

    def __init__(self) -> None:
        self.total_steps: int | None = None
        self._loader: Any = None
        self._logged_from: int | None = None
        self._logs_of_one_step: bool | None = None
        """Whether each log so far had the samples recognised in its step: logged every tenth step, the samples may be
        those of ten steps, or of one. None before the first one."""
        self._logged = UnitRates()
        self._recognised = UnitRates()
        self._sources: dict[Kind, _DataSet] = {}
        self._found: Mapping[str, float] = _NO_SAMPLES
        """The samples recognised in the last step that had any."""

    def add_loader(self, loader: Any) -> None:
        """Register a loader; the longest one with a length defines the epoch."""
        if _length(loader) is not None and (_length(self._loader) or 0) < (_length(loader) or 0):
            self._loader = loader

    def add_run(self, run: FrameRun, records: Sequence[StepRecord]) -> None:
        """Add steps in a row. Their scalars lose ``total_steps``, and get the recognised samples if the user logs none.

        The scalars are replaced in ``run``.
        """
        recognised = [self._complete(run, at, record) for at, record in enumerate(records)]
        logged_from = self._logged_from
        samples, gap_samples = zip(*recognised, strict=True)
        self._recognised.add_run(run, samples, gap_samples)
        logs = [logged_from is not None and step >= logged_from for step in run.steps]
        self._logged.add_run(
            run,
            [one if at else _NO_SAMPLES for at, one in zip(logs, run.scalars, strict=True)],
            [one if at else _NO_SAMPLES for at, one in zip(logs, run.gap_scalars, strict=True)],
        )

    def _complete(self, run: FrameRun, at: int, record: StepRecord) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Replace the scalars of one step; return the samples recognised in it, and those in the gap before it."""
        # The key of `session.log` that sets the length of the run; it is no scalar of the step.
        total = "total_steps"
        scalars = run.scalars[at]
        if scalars and total in scalars:
            self._set_total(scalars[total])
            scalars = run.scalars[at] = {name: value for name, value in scalars.items() if name != total}
        gap_scalars = run.gap_scalars[at]
        if self._logged_from is None and any(unit in scalars or unit in gap_scalars for unit in UNITS):
            self._logged_from = record.step
        samples, gap_samples = self._recognise(record.fetched)
        if samples is not None and self._logged_from is not None and SAMPLES in scalars:
            # The largest difference of two counts of the same samples.
            is_equal = abs(scalars[SAMPLES] - samples) <= 0.05 * samples
            self._logs_of_one_step = is_equal and self._logs_of_one_step is not False
        if samples is None:
            found = _NO_SAMPLES
        elif samples == self._found.get(SAMPLES):  # as in the step before: one object is passed on
            found = self._found
        else:
            found = self._found = {SAMPLES: samples}
        gap = _NO_SAMPLES if gap_samples is None else {SAMPLES: gap_samples}
        if self._logged_from is None:
            if found:
                run.scalars[at] = {**scalars, **found} if scalars else found
            if gap:
                run.gap_scalars[at] = gap
        return found, gap

    def _recognise(self, fetched: Fetched | None) -> tuple[float | None, float | None]:
        """Return the samples of the step and of the gap before it; None where there are none, or are not known."""
        if fetched is not None:
            for source, samples in fetched.samples.items():
                known = self._sources.setdefault(source, _DataSet())
                known.steps += 1
                known.several += fetched.sources > 1
                known.samples += samples
        if fetched is None or not self._sources:
            return None, None
        main = max(self._sources, key=lambda source: self._sources[source].samples)
        return fetched.samples.get(main), fetched.gap_samples.get(main)

    def _reason(self) -> str:
        """Return the reason why the recognised samples give no throughput; empty where they do."""
        if not self._sources:
            return UNKNOWN
        main = max(self._sources.values(), key=lambda source: source.samples)
        # The largest share of steps that fetch from several data sets: the first validation, or the begin of an epoch.
        return SEVERAL_LOADERS if main.several > 0.1 * main.steps + 1 else ""

    def throughput(self) -> tuple[str, float | None, str, str]:
        """Return the unit, its count per second, the source of the count, and the reason where there is no count."""
        unit, logged = self._logged.latest()
        recognised, reason = self._recognised.latest()[1], self._reason()
        if self._logged_from is not None:
            if logged is None:
                return unit, None, "", ""
            if unit == SAMPLES and self._logs_of_one_step and recognised and not reason:
                logged = recognised
            return unit, logged, LOGGED, ""
        if reason or recognised is None:
            return SAMPLES, None, "", reason
        return SAMPLES, recognised, FETCHED, ""

    def _set_total(self, value: Any) -> None:
        total = float(value)
        if isfinite(total) and total >= 1:
            self.total_steps = round(total)

    def progress(self, summary: Summary, done: int, source: str = "", reason: str = "") -> Progress | None:
        """Return the run's progress after ``done`` steps."""
        epoch = self._epoch_steps(summary)
        step_ns = summary.run_mean_ns if summary.steps else None
        remaining = None if self.total_steps is None else max(self.total_steps - done, 0)
        if not source and not reason and epoch is None and remaining is None:
            return None
        return Progress(
            source=source,
            no_throughput=f"{reason}; {ADVICE}" if reason else "",
            epoch_steps=epoch,
            epoch_ns=None if epoch is None or step_ns is None else round(epoch * step_ns),
            total_steps=self.total_steps,
            remaining_steps=remaining,
            remaining_ns=None if remaining is None or step_ns is None else round(remaining * step_ns),
        )

    def _epoch_steps(self, summary: Summary) -> float | None:
        """Return the steps of an epoch: the loader's batches over the fetches of a step."""
        length = _length(self._loader)
        fetched = next((row for row in summary.rows if row.phase is Phase.DATA and row.name == "Data"), None)
        if length is None or fetched is None or not fetched.calls:
            return None
        return length * summary.steps / fetched.calls


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except Exception as error:  # an iterable data set has no length; the user's own method may raise anything
        if raised_by_handler(error):
            raise
        return None
