"""Device times → columns of spans: the stream on which a span is timed, and the time the device waited for the host.

A stream is a timeline: the spans on it nest as their marks do, so children + self = parent holds exactly. Streams run
in parallel, so a span on another stream than the step's is not part of the step's time; it has a lane of its own, like
a span of another thread. A span whose marks are on two streams has no device time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ..base.frame import LOGGED_LANE, NOT_MEASURED, STREAM_LANES, UNTIMED_LANE, Layout, Nanoseconds
from ..devices import DeviceTimes, Place, Times
from .launch_lag import LaunchLag, host_bound_ns
from .plan import Plan

TWO_STREAMS: Final = "spans that begin and end on different streams"
NO_DEVICE_TIME: Final = "spans that the device clock did not see"
ACROSS_PAUSE: Final = "spans across a pause on another stream"


@dataclass(frozen=True, slots=True)
class DeviceColumns:
    """Steps on the device (steps × spans), and the length of each (None: its ends have no common stream).

    ``waited_ns`` is the time of each step in which the device waited for the host, at most; ``events_ns`` the device's
    time for the events of a step.
    """

    start_ns: Nanoseconds
    ns: Nanoseconds
    host_bound_ns: Nanoseconds
    duration_ns: Sequence[int | None]
    waited_ns: Sequence[int]
    events_ns: int

    def only(self, spans: Nanoseconds) -> DeviceColumns:
        """Return the columns of these spans."""
        start_ns, ns, host_bound_ns = (each[:, spans] for each in (self.start_ns, self.ns, self.host_bound_ns))
        return replace(self, start_ns=start_ns, ns=ns, host_bound_ns=host_bound_ns)

    def overhead_ns(self, step: int, host_ns: int) -> int:
        """Return the cost of recording a step, of which ``host_ns`` are the host's own work.

        The host's work makes a step longer where the device waits for it, the events where the device does not.
        """
        return max(min(host_ns, self.waited_ns[step]), min(self.events_ns, host_ns))


def is_on_one_stream(plan: Plan, times: Times) -> bool:
    """Return whether all marks of a step without a pause are on one stream: such steps are computed together."""
    return times.device is not None and times.device.place is None and not plan.pauses


class _MarkTimes:
    """The times of a step's start, its marks and its end.

    ``stream`` is the index of the stream of each time, ``NOT_MEASURED`` where there is none.
    """

    def __init__(self, plan: Plan, marks: int, host_ns: Nanoseconds, device: DeviceTimes) -> None:
        is_time = np.ones(marks + 2, dtype=bool)
        is_time[plan.values + 1] = False
        columns: Nanoseconds = np.full((3, marks + 2), NOT_MEASURED, dtype=np.int64)
        columns[0, is_time], columns[1, is_time] = host_ns, device.ns
        columns[2, is_time] = 0 if device.place is None else device.place
        self.host, self.ns, self.stream = columns
        self.step_stream = int(self.stream[0])
        """The stream on which the step began."""

    def on_step_stream(self, position: int) -> int | None:
        """Return when the step's stream passed a position, None where no event on it shows that."""
        return int(self.ns[position]) if self.stream[position] == self.step_stream >= 0 else None

    def remove_pause(self, paused: int, resumed: int) -> bool:
        """Remove the time between two positions; return False where the step's stream has no time for them."""
        start, end = self.on_step_stream(paused), self.on_step_stream(resumed)
        if start is None or end is None:
            return False
        inside = slice(paused, resumed)
        self.ns[inside][self.stream[inside] == self.step_stream] = start
        self.ns[resumed:][self.stream[resumed:] >= 0] -= end - start
        return True

    def host_bound(self, lag: Nanoseconds) -> Nanoseconds:
        """Return for each time the host-bound time of its stream up to there."""
        waited: Nanoseconds = np.zeros_like(self.ns)
        for stream in range(int(self.stream.max(initial=-1)) + 1):
            here = np.flatnonzero(self.stream == stream)
            waited[here] = host_bound_ns(self.ns[here], lag[here])
        return waited


_StreamPlan: TypeAlias = tuple[Plan, npt.NDArray[np.bool_], Counter[str]]
"""A plan with its spans on the lanes of their streams, the spans with a device time, and the others by reason."""


class DeviceTimer:
    """Compute the device times of spans. It remembers the numbers of streams."""

    def __init__(self) -> None:
        self.untimed: Counter[str] = Counter()
        """The number of spans without device time, by reason."""
        self.event_ns = 0
        """The device's time for an event, as far as it is known."""
        self._lag = LaunchLag()
        self._numbers: dict[Place, int] = {}

    def columns(self, plan: Plan, marks: int, times: Times) -> tuple[Plan, DeviceColumns | None]:
        """Return the plan of a step of so many ``marks`` with its spans on their lanes, and their device times."""
        device = times.device
        if device is None:
            return plan, None
        passed = _MarkTimes(plan, marks, times.host_ns - times.host_ns[0], device)
        of_stream = np.array([*(index for index, _ in device.places), NOT_MEASURED])  # the last is that of stream -1
        end = len(passed.ns) - 1
        lag = self._lag.of(int(times.host_ns[0]), passed.host, passed.ns, of_stream[passed.stream], end)
        complete = [passed.remove_pause(paused + 1, resumed + 1) for paused, resumed in plan.pauses]
        duration_ns = passed.on_step_stream(end) if all(complete) else None
        waited, starts, ends = passed.host_bound(lag), plan.starts + 1, plan.ends + 1
        in_step = int(waited[passed.stream == passed.step_stream].max(initial=0))
        on_streams, timed, untimed = self._stream_plan(plan, passed, device.places)
        start, ns, bound = (
            np.where(timed, column, NOT_MEASURED)[None]
            for column in (passed.ns[starts], passed.ns[ends] - passed.ns[starts], waited[ends] - waited[starts])
        )
        columns = DeviceColumns(start, ns, bound, (duration_ns,), (in_step,), self.event_ns * len(times.host_ns))
        if duration_ns is None:  # host time is used instead, in which every thread is one timeline
            return plan, columns
        self.untimed.update(untimed)
        return on_streams, columns

    def columns_of_run(self, plan: Plan, marks: int, times: Sequence[Times]) -> DeviceColumns:
        """Return the device times of steps in a row that are on one stream."""
        host = np.stack([one.host_ns for one in times])
        ns = np.stack([one.device.ns for one in times if one.device is not None])
        begun_ns = host[:, 0].tolist()
        host -= host[:, :1]
        waited = host_bound_ns(ns, self._lag.of_run(begun_ns, host, ns))
        is_time = np.ones(marks + 2, dtype=bool)
        is_time[plan.values + 1] = False
        passed = np.full((2, len(times), marks + 2), NOT_MEASURED, dtype=np.int64)
        passed[1] = 0
        passed[:, :, is_time] = ns, waited
        start, bound = passed.take(plan.starts + 1, axis=2)
        end, bound_to_end = passed.take(plan.ends + 1, axis=2)
        lengths, in_step, events_ns = ns[:, -1].tolist(), waited[:, -1].tolist(), self.event_ns * ns.shape[1]
        return DeviceColumns(start, end - start, bound_to_end - bound, lengths, in_step, events_ns)

    def _stream_plan(self, plan: Plan, passed: _MarkTimes, streams: tuple[Place, ...]) -> _StreamPlan:
        numbers = [self._number(stream, streams[passed.step_stream]) for stream in streams]
        key = passed.stream.tobytes(), tuple(numbers)
        if key not in plan.by_stream:
            if len(plan.by_stream) >= 16:
                plan.by_stream.clear()
            plan.by_stream[key] = _by_stream(plan, passed, numbers)
        found: _StreamPlan = plan.by_stream[key]
        return found

    def _number(self, stream: Place, step_stream: Place) -> int:
        """Return a stream's number, the same in every step: 0 for the step's own."""
        return 0 if stream == step_stream else self._numbers.setdefault(stream, len(self._numbers) + 1)


def _by_stream(plan: Plan, passed: _MarkTimes, numbers: list[int]) -> _StreamPlan:
    """Find the stream of each span, and its parent among the spans of that stream."""
    starts, ends, stream = plan.starts + 1, plan.ends + 1, passed.stream
    begun, ended = stream[starts], stream[ends]
    across_pause = np.zeros(len(starts), dtype=bool)
    for paused, resumed in plan.pauses:
        across_pause |= (begun != passed.step_stream) & (plan.starts < resumed) & (plan.ends > paused)
    unseen = (begun < 0) | (ended < 0)
    two_streams = begun != ended
    timed = ~(unseen | two_streams | across_pause)
    logged = np.array(plan.layout.lanes) == LOGGED_LANE
    untimed: Counter[str] = Counter()
    for i in np.flatnonzero(~timed & ~logged).tolist():
        untimed[NO_DEVICE_TIME if unseen[i] else TWO_STREAMS if two_streams[i] else ACROSS_PAUSE] += 1
    streams = [numbers[at] if at >= 0 else None for at in np.where(timed, begun, NOT_MEASURED).tolist()]
    layout = _on_lanes(plan.layout, streams)
    return replace(plan, layout=layout), timed, untimed


def _on_lanes(layout: Layout, streams: list[int | None]) -> Layout:
    """Put each span on the lane of its thread and stream; its parent is the innermost span around it on that lane."""
    lanes: list[int] = []
    parents: list[int] = []
    for stream, lane, around in zip(streams, layout.lanes, layout.parents, strict=True):
        if lane != LOGGED_LANE:
            lane = UNTIMED_LANE if stream is None else lane + STREAM_LANES * stream
            while around >= 0 and lanes[around] != lane:
                around = layout.parents[around]
        lanes.append(lane)
        parents.append(NOT_MEASURED if lane == UNTIMED_LANE else around)
    return replace(layout, lanes=tuple(lanes), parents=tuple(parents))
