"""``Metrics``: the observer that adds throughput, telemetry and FLOPs to steps and to the summary."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from .._notes import Notes
from .._observer import Observer
from .._process.failures import contain, describe
from .._resolve import RawStep
from ..frame import FrameRun, StepFrame
from ..probes import Fetched, FetchedBatches
from ..summary import Summary
from .flop_meter import FlopMeter
from .model_calls import RootProbe, StepCalls
from .telemetry import Telemetry
from .throughput import ThroughputMeter

_NO_CALLS = StepCalls((), False, None)


class Metrics(Observer):
    """Follow the steps of a run. A failure is noted once and switches these metrics off, nothing else."""

    provides = "throughput, telemetry and FLOPs"

    def __init__(
        self,
        root: RootProbe,
        batches: FetchedBatches,
        notes: Notes,
        telemetry: Telemetry | None = None,
        flops: FlopMeter | None = None,
    ) -> None:
        self._root = root
        self._batches = batches
        self._notes = notes
        self._telemetry = telemetry
        self._flops = flops
        self._throughput = ThroughputMeter()
        self._calls: deque[tuple[StepCalls, Fetched | None]] = deque()
        """The model calls and the batches of the steps that are not completed yet, in order."""
        self._steps = 0
        self._counted = False
        self._off = False

    def add_loader(self, loader: Any) -> None:
        """Register a loader that the session wraps; the longest one defines the epoch."""
        self._throughput.add_loader(loader)

    def observe_step(self, raw: RawStep) -> RawStep:
        """Take the model calls of a step that has just ended, on the training thread; never raises.

        Only data that the next step would overwrite is taken: the caches are cold. ``complete_step`` does the rest.
        """
        self._steps = raw.step
        if not self._off:
            calls, fetched = _NO_CALLS, None
            with contain(self._switch_off):
                calls, fetched = self._root.take(raw.mark_batch), self._batches.take()
            self._calls.append((calls, fetched))
        return raw

    def complete_step(self, raw: RawStep) -> RawStep:
        """Return the step with samples and new telemetry among its scalars; count its FLOPs if due; never raises.

        Called once for each observed step, in their order, before its frame is made.
        """
        if not self._off:
            with contain(self._switch_off):
                return self._completed(raw, *self._calls.popleft())
        return raw

    def _completed(self, raw: RawStep, calls: StepCalls, fetched: Fetched | None) -> RawStep:
        shapes = self._root.shapes
        raw = self._throughput.complete(raw, calls, shapes, fetched)
        scalars = raw.scalars
        if self._telemetry is not None:
            scalars = self._telemetry.complete(scalars, warmup=raw.warmup)
        if self._flops is not None:
            self._counted |= self._flops.add_step(calls, shapes, warmup=raw.warmup)
        return raw if scalars is raw.scalars else raw.with_scalars(scalars)

    def observe_frame(self, frame: StepFrame) -> None:
        """Add the time of a step to its samples; never raises."""
        if not self._off:
            with contain(self._switch_off):
                self._throughput.add(frame)

    def observe_run(self, run: FrameRun) -> None:
        """Add the times of several steps to their samples; never raises."""
        if not self._off:
            with contain(self._switch_off):
                self._throughput.add_run(run)

    def took_long(self) -> bool:
        """Return, once, whether FLOPs were counted since the last call: the next step is then a warm-up step."""
        counted, self._counted = self._counted, False
        return counted

    def _switch_off(self, error: Exception) -> None:
        self._off = True
        self._notes.warn_once(f"{self.provides} are off after {describe(error)}")

    def annotate(self, summary: Summary) -> Summary:
        """Return the summary with progress, telemetry and FLOPs."""
        stats = {} if self._telemetry is None else self._telemetry.statistics()
        problem = None if self._telemetry is None else self._telemetry.problem()
        if problem is not None and problem not in summary.notes:
            summary = summary.with_note(problem)
        work = None if self._flops is None else self._flops.work(summary)
        unit, rate, source, reason = self._throughput.throughput()
        done = max(self._steps, summary.all_steps)  # the last steps of a run may be unsampled
        progress = self._throughput.progress(summary, done, source, reason if summary.steps else "")
        return replace(summary, throughput=rate, throughput_unit=unit, progress=progress, metrics=stats, work=work)

    def finish(self, *, complete: bool) -> None:
        """Take a last reading; with ``complete`` also count the FLOPs that the budget postponed."""
        if self._off:
            return
        with contain(self._switch_off):
            if self._telemetry is not None:
                self._telemetry.finish()
            if self._flops is not None and complete:
                self._flops.finish()

    def close(self) -> None:
        """Stop reading telemetry."""
        if self._telemetry is not None:
            self._telemetry.close()
