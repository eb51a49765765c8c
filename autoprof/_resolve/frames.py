"""``Plan`` × times → ``StepFrame``s: a few array operations for all steps that share the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ..frame import NOT_MEASURED, Nanoseconds, Phase, StepFrame
from .device import DeviceColumns
from .memory import NO_MEMORY, memory_columns
from .plan import Plan
from .raw import RawStep

_NO_MODEL_NS: Final[Mapping[Phase, int]] = {}
_NOTHING: Final[Mapping[str, float]] = {}


def make_frames(
    raws: Sequence[RawStep], plan: Plan, values: Nanoseconds, times: Nanoseconds, device: DeviceColumns | None = None
) -> list[StepFrame]:
    """Measure the plan's spans in each of these steps; with ``device`` there is one step.

    ``times`` (steps × marks + 1; the last is the step's end) are host nanoseconds since the step's start. ``values``
    (steps × marks) has the values that stand in place of clock readings.
    """
    if plan.pauses:
        times = _without_pauses(times, plan.pauses)
    start = times.take(plan.starts, axis=1)
    host = times.take(plan.ends, axis=1) - start
    spans = plan.logged_spans
    if len(spans):
        host[:, spans] = values[:, plan.logged[spans]]
        start[:, spans] -= host[:, spans]
        if device is not None:
            device = _with_logged(device, spans, host[0])
    memory = [NO_MEMORY] * len(raws) if plan.memory is None else memory_columns(plan.memory, plan.layout, values)
    ends = times[:, -1].tolist()
    layout, model_ns = plan.layout, [_NO_MODEL_NS] * len(raws)
    if plan.hidden:
        shown, layout = plan.shown.spans, plan.shown.layout
        model_ns = _model_ns(
            plan, host if device is None or device.duration_ns is None else device.ns.clip(min=0)[None]
        )
        start, host = start[:, shown], host[:, shown]
        device = None if device is None else device.only(shown)
        memory = [level.only(shown) for level in memory]
    return [
        StepFrame.of(
            step=raw.step,
            start_unix_ns=raw.start_unix_ns,
            duration_ns=ends[i],
            layout=layout,
            start_ns=start[i],
            host_ns=host[i],
            device_duration_ns=None if device is None else device.duration_ns,
            device_start_ns=None if device is None else device.start_ns,
            device_ns=None if device is None else device.ns,
            host_bound_ns=None if device is None else device.host_bound_ns,
            memory_start_bytes=level.memory_start_bytes,
            memory_end_bytes=level.memory_end_bytes,
            memory_peak_bytes=level.memory_peak_bytes,
            memory_bound_bytes=level.memory_bound_bytes,
            memory_reserved_bytes=level.memory_reserved_bytes,
            scalars={name: float(value) for name, value in raw.scalars.items()} if raw.scalars else raw.scalars,
            memory=raw.memory,
            overhead_ns=raw.overhead_ns + plan.overhead_ns + raw.mark_batch.detail_ns,
            dropped=raw.mark_batch.dropped,
            warmup=raw.warmup or raw.settles,
            gap_steps=raw.gap_steps,
            gap_ns=raw.gap_ns,
            gap_overhead_ns=raw.gap_overhead_ns,
            gap_scalars=_sums(raw.gap_scalars),
            shapes=raw.mark_batch.shapes,
            micro_steps=plan.micro_steps,
            model_ns=model_ns[i],
            cut=raw.cut,
        )
        for i, (raw, level) in enumerate(zip(raws, memory, strict=True))
    ]


def _model_ns(plan: Plan, total_ns: Nanoseconds) -> list[Mapping[Phase, int]]:
    """Return for each step (rows of ``total_ns``) the self time of the hidden spans by phase."""
    own = plan.layout.self_ns(total_ns)
    columns = [(phase, own[:, spans].sum(axis=1).tolist()) for phase, spans in plan.shown.hidden]
    return [{phase: column[step] for phase, column in columns} for step in range(len(own))]


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
    ns[spans] = host_ns[spans]
    host_bound_ns[spans] = NOT_MEASURED
    return replace(device, ns=ns, host_bound_ns=host_bound_ns)
