"""``Plan`` × times → runs of ``StepFrame``s: a few array operations for all steps that share the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np

from ..base.frame import NO_GAP, NOT_MEASURED, FrameRun, Gap, Layout, Nanoseconds, Phase, StepFrame
from .device import DeviceColumns
from .memory import NO_MEMORY, memory_columns
from .plan import Plan
from .raw import RawStep

_NOTHING: Final[Mapping[Any, Any]] = {}


def make_runs(
    raws: Sequence[RawStep], plan: Plan, values: Nanoseconds, times: Nanoseconds, device: DeviceColumns | None = None
) -> list[FrameRun]:
    """Measure the plan's spans in each of these steps, which are in a row, of one clock, and have the same marks.

    ``times`` (steps × marks + 1; the last is the step's end) are host nanoseconds since the step's start. ``values``
    (steps × marks) has the values that stand in place of clock readings.
    """
    if plan.pauses:
        times = _without_pauses(times, plan.pauses)
    host = times.take(plan.ends, axis=1)
    host -= times.take(plan.starts, axis=1)
    spans = np.flatnonzero(plan.logged >= 0)
    if len(spans):
        host[:, spans] = values[:, plan.logged[spans]]
        if device is not None:
            device = _with_logged(device, spans, host)
    on_host = device is None or None in device.duration_ns
    total = host if device is None or on_host else device.ns.clip(min=0)
    layout, model_ns = plan.layout, dict[Phase, list[int]]()
    if plan.hidden:
        model_ns = {phase: (total.take(spans, axis=1) @ signs).tolist() for phase, spans, signs in plan.shown.hidden}
        layout, shown = plan.shown.layout, plan.shown.spans
        host = host.take(shown, axis=1)
        total = host if on_host else total.take(shown, axis=1)
        device = None if device is None else device.only(shown)
    measured = _MeasuredSteps(raws, plan, values, times, layout, host, total, device, model_ns)
    kinds = [None if raw.warmup or raw.mark_batch.dropped else raw.cut for raw in raws]
    bounds = [at for at in range(1, len(kinds)) if kinds[at] is None or kinds[at] != kinds[at - 1]]
    return [measured.run(begin, end) for begin, end in pairwise([0, *bounds, len(kinds)])]


@dataclass(frozen=True, slots=True)
class _MeasuredSteps:
    """Steps that share a plan, with the columns of its shown spans (steps × spans).

    ``model_ns`` has the self time of the hidden spans by phase. ``values`` and ``times`` are those of ``make_runs``.
    """

    raws: Sequence[RawStep]
    plan: Plan
    values: Nanoseconds
    times: Nanoseconds
    layout: Layout
    host: Nanoseconds
    total: Nanoseconds
    device: DeviceColumns | None
    model_ns: Mapping[Phase, list[int]]

    def run(self, begin: int, end: int) -> FrameRun:
        """Return the run of the steps from ``begin`` to ``end``."""
        raws, device = self.raws[begin:end], self.device
        known = raws[-1].scalars  # most steps share them
        numbers = _numbers(known)
        scalars = [
            numbers if raw.scalars is known else _numbers(raw.scalars) if raw.scalars else _NOTHING for raw in raws
        ]
        gap_scalars = [_sums(raw.gap_scalars) if raw.gap_scalars else _NOTHING for raw in raws]
        duration_ns = self.times[begin:end, -1].tolist()
        step_ns = duration_ns if device is None else [ns for ns in device.duration_ns[begin:end] if ns is not None]
        untimed = len(step_ns) < len(duration_ns)
        return FrameRun(
            [raw.step for raw in raws],
            scalars,
            gap_scalars,
            lambda: self.frames(begin, end, scalars, gap_scalars),
            self.layout,
            raws[0].cut,
            raws[0].warmup,
            raws[0].mark_batch.dropped,
            untimed,
            self.plan.memory is not None,
            duration_ns if untimed else step_ns,
            [Gap(raw.gap_steps, raw.gap_ns, raw.gap_overhead_ns) if raw.gap_steps else NO_GAP for raw in raws],
            self.total[begin:end],
            None if device is None else device.host_bound_ns[begin:end].clip(min=0),
            sum(self._overhead_ns(begin, end)),
            [raw.memory for raw in raws],
            {phase: column[begin:end] for phase, column in self.model_ns.items()},
            None if device is None else device.waited_ns[begin:end],
            0 if device is None else device.events_ns,
        )

    def frames(
        self, begin: int, end: int, scalars: list[Mapping[str, float]], gap_scalars: list[Mapping[str, float]]
    ) -> list[StepFrame]:
        """Return a frame of each step from ``begin`` to ``end``, with these scalars."""
        raws, plan, device, host = self.raws[begin:end], self.plan, self.device, self.host[begin:end]
        overhead_ns = self._overhead_ns(begin, end)
        start = self._starts(begin, end)
        memory = [NO_MEMORY] * len(raws)
        if plan.memory is not None:
            memory = memory_columns(plan.memory, plan.layout, self.values[begin:end])
        if plan.hidden:
            memory = [level.only(plan.shown.spans) for level in memory]
        ends = self.times[begin:end, -1].tolist()
        return [
            StepFrame.of(
                step=raw.step,
                start_unix_ns=raw.start_unix_ns,
                duration_ns=ends[i],
                layout=self.layout,
                start_ns=start[i],
                host_ns=host[i],
                device_duration_ns=None if device is None else device.duration_ns[begin + i],
                device_start_ns=None if device is None else device.start_ns[begin + i],
                device_ns=None if device is None else device.ns[begin + i],
                host_bound_ns=None if device is None else device.host_bound_ns[begin + i],
                **level._asdict(),
                scalars=scalars[i],
                memory=raw.memory,
                overhead_ns=overhead_ns[i],
                dropped=raw.mark_batch.dropped,
                warmup=raw.warmup,
                gap_steps=raw.gap_steps,
                gap_ns=raw.gap_ns,
                gap_overhead_ns=raw.gap_overhead_ns,
                gap_scalars=gap_scalars[i],
                model_ns={phase: column[begin + i] for phase, column in self.model_ns.items()},
                cut=raw.cut,
            )
            for i, (raw, level) in enumerate(zip(raws, memory, strict=True))
        ]

    def _overhead_ns(self, begin: int, end: int) -> list[int]:
        """Return the cost of recording each of these steps."""
        raws = self.raws[begin:end]
        host = [raw.overhead_ns + self.plan.overhead_ns for raw in raws]
        device = self.device
        return host if device is None else [device.overhead_ns(begin + i, ns) for i, ns in enumerate(host)]

    def _starts(self, begin: int, end: int) -> Nanoseconds:
        """Return the start of each shown span in these steps; a logged duration ends at its mark."""
        shown: Any = self.plan.shown.spans if self.plan.hidden else slice(None)
        start: Nanoseconds = self.times[begin:end].take(self.plan.starts[shown], axis=1)
        logged = self.plan.logged[shown] >= 0
        start[:, logged] -= self.host[begin:end, logged]
        return start


def _numbers(scalars: Mapping[str, Any]) -> Mapping[str, float]:
    return {name: float(value) for name, value in scalars.items()} if scalars else _NOTHING


def _sums(scalars: Mapping[str, Sequence[Any]]) -> Mapping[str, float]:
    return {name: sum(map(float, values)) for name, values in scalars.items()} if scalars else _NOTHING


def _without_pauses(times: Nanoseconds, pauses: Sequence[tuple[int, int]]) -> Nanoseconds:
    """Remove pauses: marks inside one move to its start, later marks become that much earlier."""
    times = times.copy()
    for paused, resumed in pauses:
        for step in times:
            start, end = 0 if paused < 0 else step[paused], step[resumed]
            step[max(paused, 0) : resumed] = start
            step[resumed:] -= end - start
    return times


def _with_logged(device: DeviceColumns, spans: Nanoseconds, host_ns: Nanoseconds) -> DeviceColumns:
    """Give logged durations, which have no device clock, their own length on the device too."""
    ns, host_bound_ns = device.ns.copy(), device.host_bound_ns.copy()
    ns[:, spans] = host_ns[:, spans]
    host_bound_ns[:, spans] = NOT_MEASURED
    return replace(device, ns=ns, host_bound_ns=host_bound_ns)
