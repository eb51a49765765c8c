"""``Plan`` × times → ``StepFrame``s: a few array operations for as many steps as share the plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..span import NOT_MEASURED, Nanoseconds, StepFrame
from .raw import RawStep
from .spans import Plan


def make_frames(
    raws: Sequence[RawStep], plan: Plan, values: Nanoseconds, times: Nanoseconds, device: Nanoseconds | None = None
) -> list[StepFrame]:
    """Measure the plan's spans in each of these steps.

    ``times`` and ``device`` (steps × marks + 1; the last is the step's end) are nanoseconds from the step's start and
    are changed in place; ``values`` (steps × marks) holds what stands in place of a reading.
    """
    for paused, resumed in plan.pauses:
        for clock in (times,) if device is None else (times, device):
            for step in clock:
                _take_out(step, paused, resumed)
    start = times.take(plan.starts, axis=1)
    host = times.take(plan.ends, axis=1) - start
    device_start = device_ns = None
    if device is not None:
        device_start, device_ns = _on_device(plan, device)
    spans = plan.logged_spans
    if len(spans):
        host[:, spans] = values[:, plan.logged[spans]]
        start[:, spans] -= host[:, spans]
        if device_ns is not None:
            device_ns[:, spans] = host[:, spans]
    memory_start, memory_end = _bytes(plan.memory_starts, values), _bytes(plan.memory_ends, values)
    ends = times[:, -1].tolist()
    return [
        StepFrame.of(
            step=raw.step,
            start_unix_ns=raw.start_unix_ns,
            duration_ns=ends[i],
            layout=plan.layout,
            start_ns=start[i],
            host_ns=host[i],
            device_duration_ns=None if device is None else _measured(int(device[i, -1])),
            device_start_ns=None if device_start is None else device_start[i],
            device_ns=None if device_ns is None else device_ns[i],
            memory_start_bytes=None if memory_start is None else memory_start[i],
            memory_end_bytes=None if memory_end is None else memory_end[i],
            scalars={name: float(value) for name, value in raw.scalars.items()} if raw.scalars else raw.scalars,
            memory=raw.memory,
            overhead_ns=raw.overhead_ns + plan.overhead_ns,
            dropped=raw.taken.dropped,
            warmup=raw.warmup,
        )
        for i, raw in enumerate(raws)
    ]


def _take_out(clock: Nanoseconds, paused: int, resumed: int) -> None:
    """Take a pause out of the readings: marks inside fall on its start, later ones come that much earlier."""
    start, end = 0 if paused < 0 else clock[paused], clock[resumed]
    if start == NOT_MEASURED or end == NOT_MEASURED:
        return
    inside, after = clock[max(paused, 0) : resumed], clock[resumed:]
    inside[inside != NOT_MEASURED] = start
    # Streams run apart: an event on another one may lie before the pause's end, but not before its start.
    after[:] = np.where(after == NOT_MEASURED, NOT_MEASURED, np.maximum(after - (end - start), start))


def _on_device(plan: Plan, device: Nanoseconds) -> tuple[Nanoseconds, Nanoseconds]:
    start, end = device.take(plan.starts, axis=1), device.take(plan.ends, axis=1)
    seen = (start != NOT_MEASURED) & (end != NOT_MEASURED)
    # On two streams an end may lie before its start: such a span has no length that means anything, so it has none.
    length = np.where(seen, np.maximum(end - start, 0), NOT_MEASURED)
    return np.where(seen, start, NOT_MEASURED), length


def _measured(ns: int) -> int | None:
    return None if ns == NOT_MEASURED else ns


def _bytes(at: Nanoseconds | None, values: Nanoseconds) -> Nanoseconds | None:
    if at is None:
        return None
    return np.where(at == NOT_MEASURED, NOT_MEASURED, values[:, at])
