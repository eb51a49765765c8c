"""``Metrics``: the observer that adds throughput, telemetry and FLOPs to steps and to the summary."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from statistics import median
from typing import Any, Final

from ...base.frame import FrameRun
from ...base.summary import Summary
from ...base.units import INPUT_SCALAR
from ...resolve import RawStep
from ...resolve.observer import Observer
from .. import FetchedBatches
from .flop_meter import FlopMeter
from .model_calls import RootProbe, StepCalls
from .telemetry import Telemetry
from .throughput import StepRecord, ThroughputMeter

UNCOUNTED: Final = 1.5
"""Between products, which grow with the length of a sequence, and attention, which grows with its square: most models
have both."""


class StepInputs:
    """The inputs of the model in the last recorded steps, ``most`` of them: how much longer they let a step take."""

    def __init__(self, most: int) -> None:
        self._calls: deque[tuple[int, StepCalls]] = deque(maxlen=most)
        self.flops: dict[tuple[int, ...], int] = {}
        """The operations of a sequence of shapes, where they are counted."""

    def add(self, steps: Iterable[StepRecord]) -> None:
        """Add steps."""
        self._calls.extend([(one.step, one.calls) for one in steps])

    def explained(self) -> dict[int, float]:
        """Return how many times as long as a step of usual inputs each step with larger ones may take.

        That is the multiple of the operations, or of the elements, whichever is more. Where operations are not counted
        it is the elements' multiple to the power of ``UNCOUNTED``.
        """
        if len({calls.elements for _, calls in self._calls}) < 2:
            return {}
        # By the mean call: further calls are other work than larger inputs.
        sizes = {step: calls.elements / max(len(calls.shapes), 1) for step, calls in self._calls}
        flops = {
            step: self.flops[calls.shapes] / len(calls.shapes)
            for step, calls in self._calls
            if calls.shapes in self.flops
        }
        usual, work = median(sizes.values()), median(filter(None, flops.values())) if any(flops.values()) else 0
        found = {}
        for step, size in sizes.items():
            times = size / max(usual, 1)
            if times > 1:
                counted = flops.get(step)
                found[step] = max(times, times**UNCOUNTED if counted is None else counted / work if work else 1.0)
        return found


class Metrics(Observer):
    """Follow the steps of a run. ``inputs`` gets those of each; with ``shares_inputs`` they are scalars of the step."""

    provides = "throughput, telemetry and FLOPs"

    def __init__(
        self,
        root: RootProbe,
        batches: FetchedBatches,
        telemetry: Telemetry | None = None,
        flops: FlopMeter | None = None,
        inputs: StepInputs | None = None,
        *,
        shares_inputs: bool = False,
    ) -> None:
        self._root = root
        self._batches = batches
        self._telemetry = telemetry
        self._flops = flops
        self._throughput = ThroughputMeter()
        self._taken: deque[StepRecord] = deque()
        """The records of the closed steps whose frames have not come yet, in order."""
        self._steps = 0
        self._inputs = StepInputs(0) if inputs is None else inputs
        self._shares_inputs = shares_inputs

    def step(self, raw: RawStep) -> RawStep:
        """Take the model calls and the batches of a step that has just ended."""
        self._steps = raw.step
        calls, fetched = self._root.take(raw.mark_batch), self._batches.take() if self._batches.are_new else None
        self._taken.append(StepRecord(raw.step, calls, fetched, raw.warmup))
        return raw

    def frames(self, run: FrameRun) -> None:
        """Add samples and new telemetry to the scalars of the steps; count their FLOPs if due."""
        records, taken = list[StepRecord](), self._taken
        for step in run.steps:
            while taken and taken[0].step < step:  # the device has not passed it in time
                taken.popleft()
            records.append(taken.popleft() if taken and taken[0].step == step else StepRecord(step))
        if self._telemetry is not None:  # first: the throughput may ask for the frames
            run.scalars[-1] = self._telemetry.complete(run.scalars[-1], warmup=records[-1].warmup)
        self._inputs.add(records)
        self._throughput.add_run(run, records)
        if self._shares_inputs:
            for at, one in enumerate(records):
                if one.calls.elements:
                    run.scalars[at] = {**run.scalars[at], INPUT_SCALAR: float(one.calls.elements)}
        if self._flops is not None:
            for (calls, warmup), steps in Counter([(one.calls, one.warmup) for one in records]).items():
                self._flops.add_steps(calls, self._root.shapes, warmup=warmup, steps=steps)

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with progress, telemetry and FLOPs."""
        stats = {} if self._telemetry is None else self._telemetry.statistics()
        problem = None if self._telemetry is None else self._telemetry.problem()
        if problem is not None and problem not in summary.notes:
            summary = summary.with_note(problem)
        work = None
        if self._flops is not None:
            work, self._inputs.flops = self._flops.work(summary), self._flops.by_shapes()
        done = max(self._steps, summary.all_steps)  # the last steps of a run may be unsampled
        return replace(self._throughput.annotate(summary, done), metrics=stats, work=work)

    def finish(self, *, complete: bool) -> Mapping[str, Any]:
        """Take a last reading and stop telemetry; with ``complete`` also count the FLOPs that were postponed."""
        try:
            if self._telemetry is not None:
                self._telemetry.finish()
            if self._flops is not None and complete:
                self._flops.finish()
        finally:
            self.close()
        return {}

    def close(self) -> None:
        if self._telemetry is not None:
            self._telemetry.close()
