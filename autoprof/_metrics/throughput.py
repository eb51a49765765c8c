"""Samples of a step, length of an epoch, time to the end of the run."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from .._process.signals import raised_by_handler
from .._units import UNITS
from ..frame import Phase
from ..summary import Progress, Summary
from .model_calls import Shape, StepCalls

TOTAL: Final = "total_steps"
"""The key of ``session.log`` that sets the length of the run; it is no scalar of the step."""
LOGGED: Final = "session.log"
RECOGNISED: Final = "dimension 0 of the model's first input and output"


class ThroughputMeter:
    """Find the samples of a step: those that the user logs, else the batch size where it is recognisable."""

    def __init__(self) -> None:
        self.total_steps: int | None = None
        self._loader: Any = None
        self._logged = False
        self._recognised = False
        self._batches: dict[tuple[int, ...], int | None] = {}

    def add_loader(self, loader: Any) -> None:
        """Register a loader; the longest one with a length defines the epoch."""
        if _length(loader) is not None and (_length(self._loader) or 0) < (_length(loader) or 0):
            self._loader = loader

    def complete(self, scalars: Mapping[str, Any], calls: StepCalls, shapes: list[Shape]) -> Mapping[str, Any]:
        """Return a step's scalars without ``total_steps``, and with the recognised samples if the user logs none."""
        if TOTAL in scalars:
            self._set_total(scalars[TOTAL])
            scalars = {name: value for name, value in scalars.items() if name != TOTAL}
        if not self._logged and any(unit in scalars for unit in UNITS):
            self._logged = True
        if self._logged or not calls.shapes:
            return scalars
        key = calls.shapes
        if key not in self._batches:
            self._batches[key] = _samples(calls, shapes)
        samples = self._batches[key]
        if samples is None:
            return scalars
        self._recognised = True
        return {**scalars, "samples": float(samples)}

    def _set_total(self, value: Any) -> None:
        total = float(value)
        if isfinite(total) and total >= 1:
            self.total_steps = round(total)

    def progress(self, summary: Summary, done: int) -> Progress | None:
        """Return the run's progress after ``done`` steps."""
        source = "" if summary.throughput is None else LOGGED if self._logged or not self._recognised else RECOGNISED
        epoch = self._epoch_steps(summary)
        step_ns = summary.step_p50_ns if summary.steps else None
        remaining = None if self.total_steps is None else max(self.total_steps - done, 0)
        if not source and epoch is None and remaining is None:
            return None
        return Progress(
            source=source,
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


def _samples(calls: StepCalls, shapes: list[Shape]) -> int | None:
    """Add up the batches of a step's calls; None where a call is no batch of its own, as for two views of one batch."""
    if calls.outside or any(number < 0 for number in calls.shapes):
        return None
    training = [shapes[number] for number in calls.shapes if shapes[number].call.backward]
    batches = [shape.batch for shape in training]
    if not batches or None in batches or (len(batches) > 1 and calls.passes != len(batches)):
        return None
    return sum(batch for batch in batches if batch is not None)
