"""Frames and runs by themselves: all that is known of a closed step is in its frame, and in the columns of its run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoprof import Phase
from autoprof._capture.marks import codes as marks
from autoprof._capture.marks.mark_batch import MarkBatch
from autoprof._capture.recorder import Recorder
from autoprof._resolve import RawStep, Resolver
from autoprof.frame import FrameRun
from autoprof.testing import FakeClock

THREAD = 1
LENGTH_NS = 100
CLOCK = FakeClock()


class Bench:
    """A resolver, and steps of 100 ns that enter a layer after 10 ns and leave it after 30."""

    def __init__(self) -> None:
        recorder = Recorder(CLOCK)
        self.resolver = Resolver(recorder.labels, 3.0)
        self.layer = recorder.label("layer", "layer", Phase.FORWARD, frozenset((Phase.FORWARD,)))

    def step(self, number: int, dropped: int = 0, detail_ns: int = 0, **fields: Any) -> RawStep:
        """Submit a step with these fields; return it."""
        start = number * LENGTH_NS
        codes = np.array([self.layer | marks.ENTER, self.layer | marks.LEAVE], np.int64).tobytes()
        batch = MarkBatch(codes, [start + 10, start + 30], THREAD, False, dropped, (), detail_ns)
        raw = RawStep(number, 7_000 + number, number, CLOCK, start, start + LENGTH_NS, batch)._replace(**fields)
        self.resolver.submit(raw)
        return raw

    def runs(self) -> list[FrameRun]:
        """Return the runs that are ready."""
        return list(iter(self.resolver.next_run, None))


def test_a_frame_has_all_that_is_known_of_its_step() -> None:
    """Each field of the closed step, and those that its marks give."""
    bench = Bench()
    bench.step(
        4,
        dropped=2,
        detail_ns=700,
        scalars={"loss": np.float32(0.5), "samples": 8},
        memory={"allocated_bytes": 12},
        overhead_ns=1_000,
        gap_steps=5,
        gap_ns=600,
        gap_overhead_ns=60,
        gap_scalars={"samples": [8, 4]},
        cut=3,
    )
    (run,) = bench.runs()
    (frame,) = run.frames
    assert (frame.step, frame.start_unix_ns, frame.duration_ns) == (4, 7_004, LENGTH_NS)
    assert [(span.name, span.start_ns, span.host_ns) for span in frame.spans] == [("layer", 10, 20)]
    assert frame.scalars == {"loss": 0.5, "samples": 8.0}
    assert all(type(value) is float for value in frame.scalars.values())
    assert frame.memory == {"allocated_bytes": 12}
    assert frame.overhead_ns == 1_000 + 700 + 2 * 3
    assert frame.dropped == 2
    assert not frame.warmup
    assert (frame.gap_steps, frame.gap_ns, frame.gap_overhead_ns, frame.gap_scalars) == (5, 600, 60, {"samples": 12.0})
    assert frame.cut == 3
    assert frame.micro_steps is None
    assert frame.device_duration_ns is None


@pytest.mark.parametrize(
    "other",
    [
        {"warmup": True},
        {"dropped": 1},
        {"cut": 9},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_step_that_statistics_take_by_itself_is_a_run_of_its_own(other: dict[str, Any]) -> None:
    """Between plain ones, in order; another cut begins a run as well."""
    bench = Bench()
    for number in (1, 2, 3, 4, 5):
        bench.step(number, **(other if number == 3 else {}))
    runs = bench.runs()
    assert [[frame.step for frame in run.frames] for run in runs] == [[1, 2], [3], [4, 5]]
    assert [run.plain for run in runs] == [True, "cut" in other, True]
    assert [run.frames[0].cut for run in runs] == [0, other.get("cut", 0), 0]
