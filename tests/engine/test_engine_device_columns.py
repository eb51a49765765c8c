"""Device times of spans by themselves: pauses, streams, plans by their streams, and spans that have no time."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from autoprof import Phase
from autoprof._resolve.device import (
    ACROSS_PAUSE,
    DeviceColumns,
    DeviceTimer,
    is_on_one_stream,
)
from autoprof._resolve.plan import Plan, as_column
from autoprof.devices import DeviceTimes, Times
from autoprof.frame import NOT_MEASURED, STREAM_LANES, TRAINING_LANE, UNTIMED_LANE, Layout

NONE = NOT_MEASURED
STREAMS = ((0, 0), (0, 1), (0, 2))


def plan_of(*spans: tuple[int, int], pauses: tuple[tuple[int, int], ...] = ()) -> Plan:
    """Return a plan of forward spans from mark to mark, counted from 0."""
    layout = Layout(
        names=tuple(f"span{index}" for index in range(len(spans))),
        fqns=(None,) * len(spans),
        phases=(Phase.FORWARD,) * len(spans),
        parents=(-1,) * len(spans),
        calls=(1,) * len(spans),
        lanes=(TRAINING_LANE,) * len(spans),
    )
    return Plan(
        layout=layout,
        starts=as_column([start for start, _ in spans]),
        ends=as_column([end for _, end in spans]),
        memory=None,
        logged=as_column([NONE] * len(spans)),
        values=as_column([]),
        pauses=pauses,
        hidden=(),
        calls={},
        unmatched=0,
        foreign_recomputes=0,
        overhead_ns=0,
        repeatable=True,
    )


def times_of(
    ns: list[int],
    place: list[int] | None = None,
    *,
    host: list[int] | None = None,
    streams: tuple[tuple[int, int], ...] = STREAMS,
) -> Times:
    """Return times of the step's start, its marks and its end."""
    places = streams if place is not None else streams[:1]
    device = DeviceTimes(as_column(ns), places, None if place is None else as_column(place))
    return Times(as_column(ns if host is None else host), device)


class OneStep(NamedTuple):
    """The columns of one step, an entry a span."""

    start_ns: npt.NDArray[np.int64]
    ns: npt.NDArray[np.int64]
    host_bound_ns: npt.NDArray[np.int64]
    duration_ns: int | None


def one_step(columns: DeviceColumns | None) -> OneStep:
    assert columns is not None
    return OneStep(columns.start_ns[0], columns.ns[0], columns.host_bound_ns[0], columns.duration_ns[0])


def columns_of(plan: Plan, times: Times, timer: DeviceTimer | None = None) -> tuple[Plan, OneStep]:
    """Return the plan by streams and the columns of a step with these times, computed in each way that it may be."""
    marks = len(times.host_ns) - 2
    placed, columns = (timer or DeviceTimer()).columns(plan, marks, times)
    if is_on_one_stream(plan, times) and timer is None:
        together = DeviceTimer().columns_of_run(plan, marks, [times, times])
        for name in ("start_ns", "ns", "host_bound_ns"):
            assert getattr(together, name)[0].tolist() == getattr(columns, name)[0].tolist()
        assert together.duration_ns[0] == one_step(columns).duration_ns
    return placed, one_step(columns)


# Without a device, and on one stream.


def test_recording_costs_what_the_device_waited_for_the_host_or_its_time_for_the_events() -> None:
    """Whichever is more, and never more than the host's own work."""
    columns = replace(
        DeviceTimer().columns_of_run(plan_of(), 0, [times_of([0, 9])] * 2), waited_ns=[0, 50], events_ns=8
    )
    assert [columns.overhead_ns(0, host_ns) for host_ns in (0, 5, 100)] == [0, 5, 8]
    assert [columns.overhead_ns(1, host_ns) for host_ns in (0, 5, 30, 100)] == [0, 5, 30, 50]


def test_the_time_in_which_the_device_waits_for_the_host_is_that_of_the_step() -> None:
    """Between two marks at the second of which the queue is empty; and each event takes the device's time for one."""
    timer, plan = DeviceTimer(), plan_of((0, 1))
    timer.event_ns = 3
    for place in (None, [0, 0, 1, 0]):
        times = times_of([0, 40_000, 90_000, 500_000], place, host=[0, 40_000, 10_000, 20_000])
        _, columns = timer.columns(plan, 2, times)
        assert columns is not None
        assert (list(columns.waited_ns), columns.events_ns) == ([40_000], 12)
    together = timer.columns_of_run(plan, 2, [times_of([0, 40_000, 90_000, 500_000], host=[0, 40_000, 10_000, 20_000])])
    assert (together.waited_ns, together.events_ns) == ([40_000], 12)


# Pauses.


def test_an_idle_device_in_a_pause_is_not_host_bound() -> None:
    """It waits for the pause to end, and the pause is in no step."""
    plan = plan_of((0, 3), pauses=((1, 2),))
    _, columns = columns_of(plan, times_of([0, 10, 20, 1_020, 1_050, 1_100]))
    assert columns.host_bound_ns.tolist() == [40]


@pytest.mark.parametrize("unseen", [1, 2, (1, 2)])
def test_a_pause_whose_ends_the_steps_stream_does_not_show_leaves_the_step_without_a_device_time(
    unseen: int | tuple[int, int],
) -> None:
    """Nobody knows how long it was there."""
    place = [0] * 6
    for mark in [unseen] if isinstance(unseen, int) else unseen:
        place[mark + 1] = 1
    plan = plan_of((0, 3), pauses=((1, 2),))
    placed, columns = columns_of(plan, times_of([0, 10, 20, 1_020, 1_050, 1_100], place))
    assert columns.duration_ns is None
    assert placed is plan


def test_spans_of_another_stream_across_pauses_have_no_time_and_each_is_counted() -> None:
    """Whatever pause it is; those before, between and after them have theirs."""
    spans = (0, 3), (1, 2), (4, 5), (6, 9), (10, 11)
    place = [0, 1, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0]
    plan, timer = plan_of(*spans, pauses=((1, 2), (7, 8))), DeviceTimer()
    placed, columns = columns_of(plan, times_of([10 * at for at in range(14)], place), timer)
    assert columns.ns.tolist() == [NONE, 0, 10, NONE, 10]
    assert timer.untimed == {ACROSS_PAUSE: 2}
    assert [placed.layout.lanes[index] for index in (0, 3)] == [UNTIMED_LANE] * 2


# Streams.


def test_a_stream_keeps_its_number_from_step_to_step() -> None:
    """Also where others come first, and where the step begins on another one."""
    timer, plan, ns = DeviceTimer(), plan_of((0, 1), (2, 3)), [10 * at for at in range(6)]
    lanes = []
    for place, streams in (
        ([0, 1, 1, 2, 2, 0], STREAMS),
        ([0, 1, 1, 2, 2, 0], (STREAMS[0], STREAMS[2], STREAMS[1])),
        ([0, 1, 1, 2, 2, 0], (STREAMS[1], STREAMS[0], STREAMS[2])),
    ):
        placed, _ = columns_of(plan, times_of(ns, place, streams=streams), timer)
        lanes.append([lane // STREAM_LANES for lane in placed.layout.lanes])
    assert lanes == [[1, 2], [2, 1], [3, 2]]


# Host-bound time.


def test_a_device_that_starts_later_has_an_empty_queue_of_its_own() -> None:
    """The lag of one device tells nothing about that of another."""
    spans = (0, 1), (2, 3)
    times = times_of(
        [0, 100_000, 300_000, 5_000_000, 5_600_000, 900_000],
        [0, 0, 0, 1, 1, 0],
        host=[0, 100_000, 300_000, 310_000, 910_000, 900_000],
        streams=((0, 0), (1, 0)),
    )
    _, columns = columns_of(plan_of(*spans), times)
    assert columns.host_bound_ns.tolist() == [200_000, 600_000]
