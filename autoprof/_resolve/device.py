"""Device times → columns of spans: which stream a span is timed on, and where the device waited for the host.

A stream is a timeline: what lies on one nests as its marks do, so children and self make the parent there exactly.
Streams run beside one another, so a span on another stream than the step's is no part of the step's account; it has
a lane, as a thread beside the training thread has. A span whose marks lie on two streams has no device time at all.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ..devices import DeviceTimes, Place, Times
from ..frame import LOGGED_LANE, NOT_MEASURED, STREAM_LANES, UNTIMED_LANE, Layout, Nanoseconds, Phase
from .launch_lag import QueueLead, waited_ns
from .spans import Plan

APART: Final = "spans that begin and end on different streams"
UNSEEN: Final = "spans that the device clock did not see"
CUT: Final = "spans across a pause on another stream"

SPLITS: Final = 64
"""Plans kept by the streams of their marks."""


@dataclass(frozen=True, slots=True)
class DeviceColumns:
    """One step on the device: an entry a span, and the step's own length (None: its ends are on no common stream)."""

    start_ns: Nanoseconds
    ns: Nanoseconds
    host_bound_ns: Nanoseconds
    duration_ns: int | None


class _Instants:
    """A step's instants: the step's start, each mark, the step's end; then the same on the streams that were left.

    ``place`` is the index of an instant's stream, ``NOT_MEASURED`` where there is none. ``half`` is the number of
    instants before those of left streams; without any there is only the first half.
    """

    def __init__(self, plan: Plan, count: int, host_ns: Nanoseconds, device: DeviceTimes) -> None:
        self.half = count + 2
        at = np.zeros_like(device.ns) if device.place is None else device.place
        pairs = [(device.ns, at)]
        if device.previous_place is not None and device.previous_ns is not None:
            pairs.append((device.previous_ns, device.previous_place))
        is_time = np.ones(self.half, dtype=bool)
        is_time[plan.values + 1] = False
        columns: Nanoseconds = np.full((3, len(pairs), self.half), NOT_MEASURED, dtype=np.int64)
        for half, pair in enumerate(pairs):
            columns[0, half, is_time] = host_ns
            columns[1:, half, is_time] = pair
        self.host, self.ns, self.place = columns.reshape(3, -1)
        self.home = int(self.place[0])
        """The stream that the step began on."""
        self.position = np.arange(len(self.ns)) % self.half

    def at_home(self, position: int) -> int | None:
        """Return when the step's stream passed an instant, None where no event on it says so."""
        for index in range(position, len(self.ns), self.half):
            if self.place[index] == self.home >= 0:
                return int(self.ns[index])
        return None

    def take_out(self, paused: int, resumed: int) -> bool:
        """Take the time between two instants out; return False where the step's stream does not know them."""
        start, end = self.at_home(paused), self.at_home(resumed)
        if start is None or end is None:
            return False
        seen, after = self.place >= 0, self.position >= resumed
        self.ns[(self.place == self.home) & (self.position >= paused) & ~after] = start
        self.ns[seen & after] -= end - start
        return True

    def waited(self, lead: Nanoseconds) -> Nanoseconds:
        """Return for each instant for how long its stream had been host-bound since the stream's first."""
        waited = np.zeros_like(self.ns)
        for place in range(int(self.place.max(initial=-1)) + 1):
            here = np.flatnonzero(self.place == place)
            here = here[np.argsort(self.position[here], kind="stable")]
            waited[here] = waited_ns(self.ns[here], lead[here])
        return waited


@dataclass(frozen=True, slots=True)
class _Split:
    """A plan by the streams of its marks: where its spans end, which of them are timed, and why the others are not."""

    source: Plan
    plan: Plan
    ends: Nanoseconds
    timed: npt.NDArray[np.bool_]
    untimed: Counter[str]


class DeviceAccount:
    """Give the spans of steps their device times. Remembers the numbers of streams and the plans that they split."""

    def __init__(self) -> None:
        self.untimed: Counter[str] = Counter()
        self._lead = QueueLead()
        self._numbers: dict[Place, int] = {}
        self._splits: OrderedDict[tuple[int, bytes, tuple[int, ...]], _Split] = OrderedDict()

    def columns(self, plan: Plan, count: int, times: Times) -> tuple[Plan, DeviceColumns | None]:
        """Return the plan of a step of ``count`` marks with its spans on their lanes, and their device times."""
        device = times.device
        if device is None:
            return plan, None
        instants = _Instants(plan, count, times.host_ns - times.host_ns[0], device)
        of_place = np.array([*(index for index, _ in device.places), NOT_MEASURED])  # the last one is that of place -1
        end = instants.half - 1
        lead = self._lead.of(int(times.host_ns[0]), instants.host, instants.ns, of_place[instants.place], end)
        whole = [instants.take_out(paused + 1, resumed + 1) for paused, resumed in plan.pauses]
        duration_ns = instants.at_home(end) if all(whole) else None
        waited, starts = instants.waited(lead), plan.starts + 1
        if device.place is None:
            ends = plan.ends + 1
            start = instants.ns[starts]
            return plan, DeviceColumns(start, instants.ns[ends] - start, waited[ends] - waited[starts], duration_ns)
        split = self._split(plan, instants, device.places)
        columns = DeviceColumns(
            np.where(split.timed, instants.ns[starts], NOT_MEASURED),
            np.where(split.timed, instants.ns[split.ends] - instants.ns[starts], NOT_MEASURED),
            np.where(split.timed, waited[split.ends] - waited[starts], NOT_MEASURED),
            duration_ns,
        )
        if duration_ns is None:  # the host's clock counts, on which every thread is one timeline
            return plan, columns
        self.untimed.update(split.untimed)
        return split.plan, columns

    def _split(self, plan: Plan, instants: _Instants, places: tuple[Place, ...]) -> _Split:
        numbers = [self._number(place, places[instants.home]) for place in places]
        key = id(plan), instants.place.tobytes(), tuple(numbers)
        split = self._splits.get(key)
        if split is None:
            split = self._splits[key] = _split(plan, instants, numbers)
            if len(self._splits) > SPLITS:
                self._splits.popitem(last=False)
        return split

    def _number(self, place: Place, home: Place) -> int:
        """Return a stream's number, the same in every step: 0 for the step's own."""
        return 0 if place == home else self._numbers.setdefault(place, len(self._numbers) + 1)


def _split(plan: Plan, instants: _Instants, numbers: list[int]) -> _Split:
    """Find the stream of each span, and its parent among the spans of its stream."""
    starts, ends, place = plan.starts + 1, plan.ends + 1, instants.place
    begun, ended = place[starts], place[ends]
    by_left = np.zeros(len(starts), dtype=bool)
    if len(place) > instants.half:
        # A backward is where its nodes run, which its start knows. The node that ends it may run elsewhere.
        backward = np.array([phase is Phase.BACKWARD for phase in plan.layout.phases], dtype=bool)
        by_left = backward & (begun != ended) & (begun == place[ends + instants.half]) & (begun >= 0)
    cut = np.zeros(len(starts), dtype=bool)
    for paused, resumed in plan.pauses:
        cut |= (begun != instants.home) & (plan.starts < resumed) & (plan.ends > paused)
    unseen = (begun < 0) | ((ended < 0) & ~by_left)
    apart = (begun != ended) & ~by_left
    logged = np.array(plan.layout.lanes) == LOGGED_LANE
    untimed: Counter[str] = Counter()
    for i in np.flatnonzero((unseen | apart | cut) & ~logged).tolist():
        untimed[UNSEEN if unseen[i] else APART if apart[i] else CUT] += 1
    timed = ~(unseen | apart | cut)
    streams = [numbers[at] if at >= 0 else None for at in np.where(timed, begun, NOT_MEASURED).tolist()]
    layout = _by_stream(plan.layout, streams)
    return _Split(plan, replace(plan, layout=layout), np.where(by_left, ends + instants.half, ends), timed, untimed)


def _by_stream(layout: Layout, streams: list[int | None]) -> Layout:
    """Put each span on the lane of its thread and stream; its parent is the innermost around it that is there too."""
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
