"""Raw steps → ``StepFrame``, in order, on the training thread, and never by waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

import numpy as np

from ..base.frame import TRAINING_LANE, FrameRun
from ..capture.marks.codes import ORDINAL_SHIFT, STEP_STRIDE, Label
from ..capture.marks.mark_batch import MarkBatch
from ..devices import Clock, Reading, Times
from .device import DeviceColumns, DeviceTimer, is_on_one_stream
from .frames import make_runs
from .plan import BackwardCall, Plan
from .planner import Planner
from .raw import RawStep

PENDING: Final = 64
"""Raw steps that may wait for the device; the driver's queue holds about a thousand launches, so a few is the rule."""
PLANS: Final = 64
"""Plans kept; a run has a handful of sequences (training, the last batch), one that has no two alike keeps these."""
KEPT_PLANS: Final = 16
"""Steps whose plans are remembered with their serials, the last ones."""
MAX_READINGS: Final = 1 << 17
"""Readings of the steps that are resolved together, a megabyte: the work for them takes about a millisecond."""
MAX_EVENTS: Final = 512
"""The same for a device's clock: its events are asked one by one, which on an H200 took 4.5 to 6 µs each."""


class Resolver:
    """Hold raw steps until the device has passed them, then make their frames.

    Steps that wait together and have the same marks are resolved together, as one matrix: with tens of modules most of
    a step's cost is the fixed cost of the array operations.
    """

    def __init__(self, labels: Sequence[Label], mark_ns: float) -> None:
        self.late_steps = 0
        self.unmatched = 0
        self.device_timer = DeviceTimer()
        self._labels = labels
        self._mark_ns = mark_ns
        self.waiting: deque[RawStep] = deque()
        """The closed steps, in order, that wait for the device or for a pass."""
        self._last_end: tuple[Clock, Reading] | None = None
        """The end of the last step of a device's clock, kept for the length of the gap after it."""
        self._resolved: deque[FrameRun] = deque()
        self._plans: dict[tuple[bytes, tuple[int, ...] | None], Plan] = {}
        self._history: deque[tuple[int, Plan]] = deque(maxlen=KEPT_PLANS)
        """Steps whose calls a later backward may still refer to."""

    def give_up(self) -> None:
        """Give up the steps that still wait for the device, and count them."""
        self.late_steps += len(self.waiting)
        self.waiting.clear()

    def give_up_oldest(self) -> None:
        """Give up the oldest steps where too many wait for the device."""
        while len(self.waiting) > PENDING:
            oldest = self.waiting[0]
            # Other steps wait for nothing but their turn: those of the host's clock, those that the device has passed.
            if oldest.clock.device_type is None or _has_passed(oldest, readings := oldest.readings()):
                return
            self.waiting.popleft()
            self._release_last_end()
            oldest.clock.release(readings[:-1])
            self.late_steps += 1

    def next_run(self, *, wait: bool = False) -> FrameRun | None:
        """Return the next frames in order, several where they can be added up at once; None where there are none.

        ``wait`` blocks until the device has passed them.
        """
        if self._resolved or self._resolve_next(wait):
            return self._resolved.popleft()
        return None

    def _resolve_next(self, wait: bool) -> bool:
        """Resolve the oldest step that waits, with those like it; return False when there is none or it is not over."""
        if not self.waiting:
            return False
        raw = self.waiting[0]
        clock = raw.clock
        if clock.device_type is None:
            self._resolve_on_host()
            return True
        readings = raw.readings()
        if wait:
            clock.wait(readings)
        elif not _has_passed(raw, readings):
            return False
        self._resolve_on_device(raw, readings)
        return True

    def _resolve_on_host(self) -> None:
        pending = self.waiting
        first = pending.popleft()
        lanes = first.lanes()
        raws, plan = [first], self._plan(first, lanes)
        most = _most_together(first)
        if plan.repeatable:
            raws += [pending.popleft() for _ in range(_alike(islice(pending, most - 1), first, lanes))]
        if plan.calls:
            self._history.extend([(raw.serial, plan) for raw in raws[-KEPT_PLANS:]])
        count = len(raws)
        readings = np.empty((count, first.mark_batch.mark_count + 1), dtype=np.int64)
        readings[:, :-1] = MarkBatch.matrix([raw.mark_batch for raw in raws])
        readings[:, -1] = [raw.end for raw in raws]
        times = readings - np.array([raw.start for raw in raws], dtype=np.int64)[:, None]
        if len(plan.values):
            times[:, plan.values] = 0  # no readings of the clock
        self.unmatched += plan.unmatched * count
        self._resolved.extend(make_runs(raws, plan, readings[:, :-1], times))

    def _resolve_on_device(self, first: RawStep, readings: list[Reading]) -> None:
        """Resolve the oldest step, and the next ones like it that the device has passed."""
        pending, clock = self.waiting, first.clock
        lanes, count, most = first.lanes(), first.mark_batch.mark_count, _most_together(first)
        plan = self._plan(first, lanes)
        raws, times, raw = list[RawStep](), list[Times](), first
        while True:
            found = clock.times(readings)
            if raws and not _is_same_stream(found, times[0]):
                break
            pending.popleft()
            if plan.calls:
                self._history.append((raw.serial, plan))
            if raw.gap_steps:
                raw = self._with_device_gap(raw)
            clock.release(readings[:-1])  # a step without a gap before it begins with the end of the last one
            self._last_end = clock, raw.end
            raws.append(raw)
            times.append(found)
            if not (pending and plan.repeatable and len(raws) < most and is_on_one_stream(plan, found)):
                break
            raw = pending[0]
            readings = raw.readings()
            if not (_alike((raw,), first, lanes) and _has_passed(raw, readings)):
                break
        is_time = np.ones(count + 1, dtype=bool)
        is_time[plan.values] = False
        host = np.zeros((len(raws), count + 1), dtype=np.int64)
        host[:, is_time] = [one.host_ns[1:] - one.host_ns[0] for one in times]
        values = np.zeros((len(raws), count), dtype=np.int64)
        if len(plan.values):
            at = plan.values.tolist()
            values[:, plan.values] = [[raw.mark_batch.readings[value] for value in at] for raw in raws]
        self.unmatched += plan.unmatched * len(raws)
        if is_on_one_stream(plan, times[0]):
            columns: DeviceColumns | None = self.device_timer.columns_of_run(plan, count, times)
        else:
            plan, columns = self.device_timer.columns(plan, count, times[0])
        self._resolved.extend(make_runs(raws, plan, values, host, columns))

    def _with_device_gap(self, raw: RawStep) -> RawStep:
        """Return the step with the device's time for the gap before it, where one stream has both ends of the gap.

        The host's time for unsampled steps lacks what the host was further ahead of the device at their end.
        """
        ahead_ns = 0
        if self._last_end is not None and self._last_end[0] is raw.clock:
            ends = raw.clock.times([self._last_end[1], raw.start])
            if ends.device is not None and ends.device.place is None:
                ahead_ns = int(np.diff(ends.device.ns - ends.host_ns)[0])
        self._release_last_end()
        return raw._replace(gap_ns=max(raw.gap_ns + ahead_ns, 0))

    def _release_last_end(self) -> None:
        """Release the end of the last step: no other step begins with it, or that one is given up."""
        if self._last_end is not None:
            clock, end = self._last_end
            clock.release((end,))
            self._last_end = None

    def _plan(self, raw: RawStep, lanes: tuple[int, ...] | None) -> Plan:
        key = raw.mark_batch.raw_codes, lanes
        cut = raw.mark_batch.dropped > 0
        plan = None if cut else self._plans.get(key)
        if plan is None:
            planner = Planner(self._labels, self._mark_ns, self._finder(raw.serial))
            codes = tuple(raw.mark_batch.codes)
            plan = planner.plan(codes, lanes or (TRAINING_LANE,) * len(codes), cut=cut)
            if plan.repeatable:
                if len(self._plans) >= PLANS:
                    del self._plans[next(iter(self._plans))]
                self._plans[key] = plan
        return plan

    def _finder(self, serial: int) -> Callable[[int], BackwardCall | None]:
        """Return the look-up of calls of earlier steps by their ordinals, as they count from the step ``serial``."""
        steps = tuple(self._history)

        def find(ordinal: int) -> BackwardCall | None:
            for earlier, plan in steps:
                offset = (earlier - serial) * STEP_STRIDE >> ORDINAL_SHIFT
                call = plan.calls.get(ordinal - offset)
                if call is not None:
                    return BackwardCall(call.index, None if call.parent is None else call.parent + offset)
            return None

        return find


def _has_passed(raw: RawStep, readings: list[Reading]) -> bool:
    """Return whether the device has passed the end of a step, and everything in it on other streams."""
    return raw.clock.passed((raw.end,)) and raw.clock.passed(readings)


def _most_together(first: RawStep) -> int:
    """Return how many steps like this one are resolved together."""
    most = MAX_READINGS if first.clock.device_type is None else MAX_EVENTS
    # Steps that are resolved together: making a frame of each for the sinks takes about two milliseconds.
    return min(max(most // (first.mark_batch.mark_count + 1), 1), 256)


def _is_same_stream(one: Times, other: Times) -> bool:
    """Return whether both steps are on one stream, the same."""
    here, there = one.device, other.device
    return here is not None and there is not None and here.place is there.place is None and here.places == there.places


def _alike(steps: Iterable[RawStep], first: RawStep, lanes: tuple[int, ...] | None) -> int:
    """Return how many steps at the begin have the clock and the marks of ``first``, on the same lanes."""
    count, codes = 0, first.mark_batch.raw_codes
    for one in steps:
        marks = one.mark_batch
        if marks.dropped or first.mark_batch.dropped or one.clock is not first.clock or marks.raw_codes != codes:
            break
        if one.lanes() != lanes if marks.multithreaded else lanes is not None:
            break
        count += 1
    return count
