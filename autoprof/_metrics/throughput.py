"""How many samples a step takes, how long an epoch is, and how long the run has to go."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

from .._process.signals import raised_by_handler
from .._resolve import RawStep
from .._units import UNITS
from ..frame import Phase
from ..summary import Progress, Summary
from .calls import Shape, StepCalls

TOTAL: Final = "total_steps"
"""What ``session.log`` takes for the run's length, not for a scalar."""
LOGGED: Final = "session.log"
RECOGNISED: Final = "dimension 0 of what the model takes and returns"


class ThroughputMeter:
    """Know the units of a step: those that the user logs, else the batch size where it can be told."""

    def __init__(self) -> None:
        self.total_steps: int | None = None
        self._loader: Any = None
        self._logged = False
        self._recognised = False
        self._batches: dict[tuple[int, ...], int | None] = {}

    def loads(self, loader: Any) -> None:
        """Take note of a loader: the longest one that knows its length makes an epoch."""
        if _length(loader) is not None and (_length(self._loader) or 0) < (_length(loader) or 0):
            self._loader = loader

    def closed(self, raw: RawStep, calls: StepCalls, shapes: list[Shape]) -> None:
        """Take the run's length out of a step's scalars, and add the samples that nobody logged."""
        scalars = raw.scalars
        if TOTAL in scalars:
            self._take_total(scalars.pop(TOTAL))
        if not self._logged and any(unit in scalars for unit in UNITS):
            self._logged = True
        if self._logged or not calls.shapes:
            return
        key = calls.shapes
        if key not in self._batches:
            self._batches[key] = _samples(calls, shapes)
        samples = self._batches[key]
        if samples is not None:
            scalars["samples"] = float(samples)
            self._recognised = True

    def _take_total(self, value: Any) -> None:
        total = float(value)
        if isfinite(total) and total >= 1:
            self.total_steps = round(total)

    def of(self, summary: Summary, done: int) -> Progress | None:
        """Return the run's progress, ``done`` steps after its start."""
        source = "" if summary.throughput is None else LOGGED if self._logged or not self._recognised else RECOGNISED
        epoch = self._epoch_steps(summary)
        step_ns = summary.step_p50_ns if summary.steps else None
        left = None if self.total_steps is None else max(self.total_steps - done, 0)
        if not source and epoch is None and left is None:
            return None
        return Progress(
            source=source,
            epoch_steps=epoch,
            epoch_ns=None if epoch is None or step_ns is None else round(epoch * step_ns),
            total_steps=self.total_steps,
            remaining_steps=left,
            remaining_ns=None if left is None or step_ns is None else left * step_ns,
        )

    def _epoch_steps(self, summary: Summary) -> float | None:
        """Return the steps of an epoch: the loader's batches over those that a step fetches."""
        length = _length(self._loader)
        fetched = next((row for row in summary.rows if row.phase is Phase.DATA and row.name == "Data"), None)
        if length is None or fetched is None or not fetched.calls:
            return None
        return length * summary.steps / fetched.calls


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except Exception as error:  # an iterable data set has none; what a user's own raises is none of ours
        if raised_by_handler(error):
            raise
        return None


def _samples(calls: StepCalls, shapes: list[Shape]) -> int | None:
    """Add the batches of a step's calls; None where a call is not one batch, as when a batch is seen twice."""
    if calls.outside or any(number < 0 for number in calls.shapes):
        return None
    training = [shapes[number] for number in calls.shapes if shapes[number].call.backward]
    batches = [shape.batch for shape in training]
    if not batches or None in batches or (len(batches) > 1 and calls.passes != len(batches)):
        return None
    return sum(batch for batch in batches if batch is not None)
