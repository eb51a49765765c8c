"""``Metrics``: the observer that adds throughput, telemetry and FLOPs to steps and to the summary."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .._resolve import RawStep
from .._resolve.observer import Observer
from ..frame import FrameRun
from ..probes import FetchedBatches
from ..summary import Summary
from .flop_meter import FlopMeter
from .model_calls import RootProbe
from .telemetry import Telemetry
from .throughput import StepRecord, ThroughputMeter

InputSizes = deque[tuple[int, int]]
"""The last recorded steps, and the elements of the model's inputs in each."""


class Metrics(Observer):
    """Follow the steps of a run. ``input_sizes`` gets the inputs of each."""

    provides = "throughput, telemetry and FLOPs"

    def __init__(
        self,
        root: RootProbe,
        batches: FetchedBatches,
        telemetry: Telemetry | None = None,
        flops: FlopMeter | None = None,
        input_sizes: InputSizes | None = None,
    ) -> None:
        self._root = root
        self._batches = batches
        self._telemetry = telemetry
        self._flops = flops
        self._throughput = ThroughputMeter()
        self._taken: deque[StepRecord] = deque()
        """The records of the closed steps whose frames have not come yet, in order."""
        self._steps = 0
        self._input_sizes: InputSizes = deque(maxlen=0) if input_sizes is None else input_sizes

    def step(self, raw: RawStep) -> RawStep:
        """Take the model calls and the batches of a step that has just ended."""
        self._steps = raw.step
        calls, fetched = self._root.take(raw.mark_batch), self._batches.take()
        self._taken.append(StepRecord(raw.step, calls, fetched, raw.warmup))
        return raw

    def frames(self, run: FrameRun) -> None:
        """Add samples and new telemetry to the scalars of the steps; count their FLOPs if due."""
        records = [self._record_of(step) for step in run.steps]
        if self._telemetry is not None:  # first: the throughput may ask for the frames
            run.scalars[-1] = self._telemetry.complete(run.scalars[-1], warmup=records[-1].warmup)
        self._input_sizes.extend((one.step, one.calls.elements) for one in records)
        self._throughput.add_run(run, records)
        if self._flops is not None:
            for (calls, warmup), steps in Counter((one.calls, one.warmup) for one in records).items():
                self._flops.add_steps(calls, self._root.shapes, warmup=warmup, steps=steps)

    def _record_of(self, step: int) -> StepRecord:
        """Return the record of a step; those before it, which the device has not passed in time, are dropped."""
        while self._taken and self._taken[0].step < step:
            self._taken.popleft()
        return self._taken.popleft() if self._taken and self._taken[0].step == step else StepRecord(step)

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with progress, telemetry and FLOPs."""
        stats = {} if self._telemetry is None else self._telemetry.statistics()
        problem = None if self._telemetry is None else self._telemetry.problem()
        if problem is not None and problem not in summary.notes:
            summary = summary.with_note(problem)
        work = None if self._flops is None else self._flops.work(summary)
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
