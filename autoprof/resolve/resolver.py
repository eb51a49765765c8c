"""Raw steps → ``StepFrame``, in order, on the training thread, and never by waiting."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch

from .. import recorder as marks
from ..clocks import Clock, Reading
from ..price import Price
from ..recorder import ORDINAL_SHIFT, STEP, Label, Taken
from ..span import NOT_MEASURED, TRAINING_LANE, Nanoseconds, StepFrame
from .plan import Planner
from .spans import Call, Plan

PENDING: Final = 64
"""Raw steps that may wait for the device; the driver's queue holds about a thousand launches, so a few is the rule."""
PLANS: Final = 64
"""Plans kept; a run has a handful of sequences (training, the last batch), one that has no two alike keeps these."""
HISTORY: Final = 16
"""Steps whose calls a later backward may still refer to."""

_BESIDE: Final = frozenset({marks.ENTER, marks.RESUME, marks.LOGGED})
"""Kinds of marks that show a thread to work on its own, not for the training thread's backward pass."""


NO_MARKS: Final = Taken([], 0, False, 0)


@dataclass(slots=True)
class RawStep:
    """One closed step as it was recorded: marks, the readings around it, and what is known of it otherwise."""

    step: int
    start_unix_ns: int
    serial: int
    clock: Clock
    start: Reading
    end: Reading = None
    taken: Taken = NO_MARKS
    scalars: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    overhead_ns: int = 0
    warmup: bool = False

    def log(self, name: str, value: Any) -> None:
        """Note a number, or a tensor of one element; a device's is copied without waiting and read when resolved.

        Raises ``TypeError`` or ``ValueError`` for anything else.
        """
        if not isinstance(value, torch.Tensor):
            self.scalars[name] = float(value)
        elif value.numel() != 1:
            raise ValueError(f"it has {value.numel()} elements")
        elif value.device.type == "cpu":
            self.scalars[name] = float(value.detach())
        else:
            self.scalars[name] = value.detach().to("cpu", non_blocking=True)

    def readings(self) -> list[Reading]:
        """Return all readings of the clock in the step, its start first and its end last."""
        inside = [
            reading
            for code, reading in zip(self.taken.marks[0::2], self.taken.marks[1::2], strict=True)
            if code & marks.KIND_MASK not in marks.VALUES
        ]
        return [self.start, *inside, self.end]


class Resolver:
    """Hold raw steps until the device has passed them, then make their frames."""

    def __init__(self, labels: Sequence[Label], price: Price) -> None:
        self.late_steps = 0
        self.unmatched = 0
        self._labels = labels
        self._price = price
        self._pending: deque[RawStep] = deque()
        self._plans: OrderedDict[tuple[tuple[int, ...], tuple[int, ...] | None], Plan] = OrderedDict()
        self._history: deque[tuple[int, Plan]] = deque(maxlen=HISTORY)

    @property
    def crowded(self) -> bool:
        """Whether so many steps wait that they should be looked at now."""
        return len(self._pending) >= PENDING // 2

    def submit(self, raw: RawStep) -> None:
        """Take a closed step; the oldest is given up where too many wait."""
        self._pending.append(raw)
        if len(self._pending) > PENDING:
            lost = self._pending.popleft()
            lost.clock.release(lost.readings()[:-1])
            self.late_steps += 1

    def ready(self, *, wait: bool = False) -> Iterator[StepFrame]:
        """Yield the frames of the steps that the device has passed, in order; ``wait`` blocks for the rest."""
        while self._pending:
            raw = self._pending[0]
            if raw.clock.device_type is None:
                self._pending.popleft()
                yield self._host_frame(raw)
                continue
            if wait:
                raw.clock.wait(raw.readings())
            elif not raw.clock.passed((raw.end,)) or not raw.clock.passed(raw.readings()):
                return
            self._pending.popleft()
            frame = self._device_frame(raw)
            raw.clock.release(raw.readings()[:-1])  # the end is the next step's start
            yield frame

    def _host_frame(self, raw: RawStep) -> StepFrame:
        plan = self._plan(raw)
        flat = raw.taken.marks
        readings = np.fromiter((raw.start, *flat[1::2], raw.end), np.int64, len(flat) // 2 + 2)
        times = readings[1:] - raw.start
        if len(plan.values):
            times[plan.values] = 0  # no readings of the clock
        return self._frame(raw, plan, readings[1:-1], times, None)

    def _device_frame(self, raw: RawStep) -> StepFrame:
        plan = self._plan(raw)
        resolved = raw.clock.times(raw.readings())
        count = len(raw.taken.marks) // 2
        is_time = np.ones(count + 1, dtype=bool)
        is_time[plan.values] = False
        host = np.zeros(count + 1, dtype=np.int64)
        host[is_time] = resolved.host_ns[1:] - resolved.host_ns[0]
        device = None
        if resolved.device_ns is not None:
            device = np.full(count + 1, NOT_MEASURED, dtype=np.int64)
            device[is_time] = resolved.device_ns[1:]
        values = np.zeros(count, dtype=np.int64)
        values[plan.values] = [raw.taken.marks[2 * at + 1] for at in plan.values.tolist()]
        return self._frame(raw, plan, values, host, device)

    def _frame(
        self, raw: RawStep, plan: Plan, values: Nanoseconds, times: Nanoseconds, device: Nanoseconds | None
    ) -> StepFrame:
        """Measure the plan's spans on ``times`` (and ``device``): one entry a mark and one for the step's end."""
        for paused, resumed in plan.pauses:
            for clock in (times,) if device is None else (times, device):
                _take_out(clock, paused, resumed)
        start = times[plan.starts]
        host = times[plan.ends] - start
        device_start = device_ns = device_duration = None
        if device is not None:
            device_start, device_ns, device_duration = _on_device(plan, device)
        spans = plan.logged_spans
        if len(spans):
            host[spans] = values[plan.logged[spans]]
            start[spans] -= host[spans]
            if device_ns is not None:
                device_ns[spans] = host[spans]
        self.unmatched += plan.unmatched
        return StepFrame.of(
            step=raw.step,
            start_unix_ns=raw.start_unix_ns,
            duration_ns=int(times[-1]),
            layout=plan.layout,
            start_ns=start,
            host_ns=host,
            device_duration_ns=device_duration,
            device_start_ns=device_start,
            device_ns=device_ns,
            memory_start_bytes=_bytes(plan.memory_starts, values),
            memory_end_bytes=_bytes(plan.memory_ends, values),
            scalars={name: float(value) for name, value in raw.scalars.items()} if raw.scalars else raw.scalars,
            memory=raw.memory,
            overhead_ns=raw.overhead_ns + plan.overhead_ns,
            dropped=raw.taken.dropped,
            warmup=raw.warmup,
        )

    def _plan(self, raw: RawStep) -> Plan:
        codes = tuple(raw.taken.marks[0::2])
        lanes = _lanes(codes, raw.taken) if raw.taken.mixed else None
        plan = self._plans.get((codes, lanes))
        if plan is None:
            plan = Planner(self._labels, self._price, self._finder(raw.serial)).plan(
                codes, lanes or (TRAINING_LANE,) * len(codes)
            )
            if min(codes, default=0) >= 0:  # a reference to an earlier step means another call each time
                self._plans[codes, lanes] = plan
                if len(self._plans) > PLANS:
                    self._plans.popitem(last=False)
        elif len(self._plans) > PLANS // 2:
            self._plans.move_to_end((codes, lanes))
        if plan.calls:
            self._history.append((raw.serial, plan))
        return plan

    def _finder(self, serial: int) -> Callable[[int], Call | None]:
        """Return the look-up of calls of earlier steps by their ordinals, as they count from the step ``serial``."""
        steps = tuple(self._history)

        def find(ordinal: int) -> Call | None:
            for earlier, plan in steps:
                offset = (earlier - serial) * STEP >> ORDINAL_SHIFT
                call = plan.calls.get(ordinal - offset)
                if call is not None:
                    return Call(call.index, None if call.parent is None else call.parent + offset)
            return None

        return find


def _take_out(clock: Nanoseconds, paused: int, resumed: int) -> None:
    """Take a pause out of the readings: marks inside fall on its start, later ones come that much earlier."""
    start, end = 0 if paused < 0 else clock[paused], clock[resumed]
    if start == NOT_MEASURED or end == NOT_MEASURED:
        return
    inside, after = clock[max(paused, 0) : resumed], clock[resumed:]
    inside[inside != NOT_MEASURED] = start
    # Streams run apart: an event on another one may lie before the pause's end, but not before its start.
    after[:] = np.where(after == NOT_MEASURED, NOT_MEASURED, np.maximum(after - (end - start), start))


def _on_device(plan: Plan, device: Nanoseconds) -> tuple[Nanoseconds, Nanoseconds, int | None]:
    start, end = device[plan.starts], device[plan.ends]
    seen = (start != NOT_MEASURED) & (end != NOT_MEASURED)
    # On two streams an end may lie before its start: such a span has no length that means anything, so it has none.
    length = np.where(seen, np.maximum(end - start, 0), NOT_MEASURED)
    whole = int(device[-1])
    return np.where(seen, start, NOT_MEASURED), length, None if whole == NOT_MEASURED else whole


def _bytes(at: Nanoseconds | None, values: Nanoseconds) -> Nanoseconds | None:
    if at is None:
        return None
    return np.where(at == NOT_MEASURED, NOT_MEASURED, values[at])


def _lanes(codes: Sequence[int], taken: Taken) -> tuple[int, ...]:
    """Give the training thread lane 0, and with it the one thread that runs its backward; others their own lanes."""
    threads, thread = [], taken.thread
    for code, reading in zip(codes, taken.marks[1::2], strict=True):
        if code == marks.THREAD:
            thread = reading
            threads.append(thread)
        else:
            threads.append(thread)
            thread = taken.thread
    kinds: dict[int, set[int]] = {}
    for thread, code in zip(threads, codes, strict=True):
        kinds.setdefault(thread, set()).add(code & marks.KIND_MASK)
    lane_of, worker = {taken.thread: TRAINING_LANE}, False
    for thread in kinds:
        if thread == taken.thread:
            continue
        if not worker and not _BESIDE & kinds[thread]:
            worker, lane_of[thread] = True, TRAINING_LANE
        else:
            lane_of[thread] = len(lane_of)
    return tuple(lane_of[thread] for thread in threads)
