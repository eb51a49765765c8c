"""Samples of a step, length of an epoch, time to the end of the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite, sqrt
from typing import Any, Final, NamedTuple

from .._process.signals import raised_by_handler
from .._stats.unit_rates import UnitRates
from .._units import UNITS
from ..frame import FrameRun, Phase
from ..probes import Fetched, Kind
from ..summary import Progress, Summary
from .model_calls import NO_TRAINING, Shape, StepCalls

TOTAL: Final = "total_steps"
"""The key of ``session.log`` that sets the length of the run; it is no scalar of the step."""
SAMPLES: Final = UNITS[0]
LOGGED: Final = "session.log"
FETCHED: Final = "batches of the loader"
RECOGNISED: Final = "dimension 0 of the model's input"

SEVERAL_LOADERS: Final = "several loaders feed the steps"
SEVERAL_CALLS: Final = "the model is called several times in a step"
TOO_MANY: Final = "the inputs have too many shapes"
VARIES: Final = "the steps that were not sampled may have held another number of samples"
ADVICE: Final = "feed the model from a torch DataLoader, or, with autoprof.instrument, pass samples= to session.log"
"""The way to a throughput, for a reader of one of the reasons above."""

TOLERANCE: Final = 0.01
"""The largest share of steps with an unknown number of samples, and the largest error of an estimate for all steps."""
MIXED: Final = 0.1
"""The largest share of steps that fetch from several data sets: the first validation, or the begin of an epoch."""
PER_STEP: Final = 0.05
"""The largest difference of two counts of the same samples."""
_NO_SAMPLES: Final[Mapping[str, float]] = {}


class StepRecord(NamedTuple):
    """What is known of a closed step beside its marks."""

    step: int
    calls: StepCalls = StepCalls((), False, None)
    fetched: Fetched | None = None
    warmup: bool = False
    gap_steps: int = 0
    training_version: int = 0
    """A number that changes when parameters are frozen or unfrozen."""


class _DataSet:
    """The samples of one kind of data set, the steps that fetched them, and those that fetched from several sets."""

    __slots__ = ("samples", "several", "steps")

    def __init__(self) -> None:
        self.steps, self.several, self.samples = 0, 0, 0.0


class ThroughputMeter:
    """Find the samples of a step: those that the user logs, else those of the loader, else the size of the batch.

    The size of a batch counts where the model is called once in a step and its batch dimension is certain.
    """

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
        self._reasons = Counter[str]()
        self._certain = 0
        self._sum = self._squares = 0.0
        self._estimated_steps = 0
        self._found: Mapping[str, float] = _NO_SAMPLES
        """The samples recognised in the last step that had any."""

    def add_loader(self, loader: Any) -> None:
        """Register a loader; the longest one with a length defines the epoch."""
        if _length(loader) is not None and (_length(self._loader) or 0) < (_length(loader) or 0):
            self._loader = loader

    def add_run(self, run: FrameRun, records: Sequence[StepRecord], shapes: list[Shape]) -> None:
        """Add steps in a row. Their scalars lose ``total_steps``, and get the recognised samples if the user logs none.

        The scalars are replaced in ``run``.
        """
        recognised = [self._complete(run, at, record, shapes) for at, record in enumerate(records)]
        logged_from = self._logged_from
        if run.plain:
            samples, gap_samples = zip(*recognised, strict=True)
            self._recognised.add_run(run, samples, gap_samples)
            logs = [logged_from is not None and step >= logged_from for step in run.steps]
            self._logged.add_run(
                run,
                [one if at else _NO_SAMPLES for at, one in zip(logs, run.scalars, strict=True)],
                [one if at else _NO_SAMPLES for at, one in zip(logs, run.gap_scalars, strict=True)],
            )
            return
        for frame, found in zip(run.frames, recognised, strict=True):
            self._recognised.add(frame, *found)
            counts = logged_from is not None and frame.step >= logged_from
            self._logged.add(frame, *(() if counts else (_NO_SAMPLES, _NO_SAMPLES)))

    def _complete(
        self, run: FrameRun, at: int, record: StepRecord, shapes: list[Shape]
    ) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Replace the scalars of one step; return the samples recognised in it, and those in the gap before it."""
        scalars = run.scalars[at]
        if scalars and TOTAL in scalars:
            self._set_total(scalars[TOTAL])
            scalars = run.scalars[at] = {name: value for name, value in scalars.items() if name != TOTAL}
        gap_scalars = run.gap_scalars[at]
        if self._logged_from is None and any(unit in scalars or unit in gap_scalars for unit in UNITS):
            self._logged_from = record.step
        samples, gap_samples = self._recognise(record, shapes)
        if samples is not None and self._logged_from is not None and SAMPLES in scalars:
            is_equal = abs(scalars[SAMPLES] - samples) <= PER_STEP * samples
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

    # Recognised samples.

    def _recognise(self, record: StepRecord, shapes: list[Shape]) -> tuple[float | None, float | None]:
        """Return the samples of the step and of the gap before it; None where there are none, or are not known."""
        fetched, gap_steps = record.fetched, record.gap_steps
        for source, samples in fetched.samples.items() if fetched is not None else ():
            known = self._sources.setdefault(source, _DataSet())
            known.steps += 1
            known.several += fetched is not None and fetched.sources > 1
            known.samples += samples
        if self._sources:
            main = max(self._sources, key=lambda source: self._sources[source].samples)
            return (None, None) if fetched is None else (fetched.samples.get(main), fetched.gap_samples.get(main))
        batch = _batch(record.calls, shapes)
        if isinstance(batch, str):
            if not record.warmup:
                self._reasons[batch] += 1
            return None, None
        self._certain += 1
        self._sum += batch
        self._squares += batch * batch
        self._estimated_steps += gap_steps
        return float(batch), gap_steps * self._sum / self._certain if gap_steps else None

    def _reason(self) -> str:
        """Return the reason why the recognised samples give no throughput; empty where they do."""
        if self._sources:
            main = max(self._sources.values(), key=lambda source: source.samples)
            return SEVERAL_LOADERS if main.several > MIXED * main.steps + 1 else ""
        unknown = sum(self._reasons.values())
        if unknown > TOLERANCE * (unknown + self._certain):
            return self._reasons.most_common(1)[0][0]
        return VARIES if self._estimate_error() > TOLERANCE else ""

    def _estimate_error(self) -> float:
        """Return the standard error of the samples of all steps, as a fraction."""
        if not self._certain or not self._estimated_steps:
            return 0.0
        mean = self._sum / self._certain
        spread = sqrt(max(self._squares / self._certain - mean * mean, 0.0)) / max(mean, 1e-9)
        return spread / sqrt(self._certain) * self._estimated_steps / (self._estimated_steps + self._certain)

    # The figures.

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
        return SAMPLES, recognised, FETCHED if self._sources else RECOGNISED, ""

    def _set_total(self, value: Any) -> None:
        total = float(value)
        if isfinite(total) and total >= 1:
            self.total_steps = round(total)

    def progress(self, summary: Summary, done: int, source: str = "", reason: str = "") -> Progress | None:
        """Return the run's progress after ``done`` steps."""
        epoch = self._epoch_steps(summary)
        step_ns = summary.step_p50_ns if summary.steps else None
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
            remaining_ns=None if remaining is None or step_ns is None else remaining * step_ns,
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


def _batch(calls: StepCalls, shapes: list[Shape]) -> int | str:
    """Return the samples of a step with one training call of the model; the reason where they are not certain."""
    if len(calls.shapes) == 1 and not calls.outside and calls.shapes[0] >= 0:  # most steps of a run
        shape = shapes[calls.shapes[0]]
        return shape.batch if shape.call.backward else NO_TRAINING
    if any(number < 0 for number in calls.shapes):
        return TOO_MANY
    training = [shapes[number] for number in calls.shapes if shapes[number].call.backward]
    if not training:
        return NO_TRAINING
    return training[0].batch if len(training) == 1 and not calls.outside else SEVERAL_CALLS
