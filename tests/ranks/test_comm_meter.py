"""The table of communication, from calls and frames whose times are known."""

from __future__ import annotations

from typing import Any

import pytest

from autoprof._metrics.communication import CommMeter, bus_bandwidth
from autoprof._reports.summary_text import render_summary
from autoprof._resolve.raw import RawStep
from autoprof.devices import HostClock
from autoprof.frame import FrameRun, Phase, Span
from autoprof.probes._communication import CommCall, CommRecord
from autoprof.summary import Communication, Summary
from autoprof.testing import make_frame

MS = 1_000_000
BEGIN = 1_000 * MS
"""The host's time at the start of each step."""


class Run:
    """A meter, with steps fed to it by hand."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.record = CommRecord(self.failures.append, [])
        self.meter = CommMeter(self.record)
        self.step = 0

    def add(self, calls: list[CommCall], spans: list[Span], duration_ns: int, **fields: Any) -> None:
        """Let one step pass."""
        self.step += 1
        self.record.calls += calls
        self.meter.step(RawStep(self.step, 0, 0, HostClock(), BEGIN, BEGIN + duration_ns))
        frame = make_frame(spans, step=self.step, duration_ns=duration_ns, **fields)
        self.meter.frames(FrameRun.of([frame]))

    def table(self) -> Communication:
        """Return the table."""
        found = self.meter.table()
        assert found is not None
        return found


def call(kind: str, begin_ms: float, end_ms: float | None, count: int = 8 * MS, **changes: Any) -> CommCall:
    """Return a communication of the present step."""
    values = {"group": "dp", "ranks": 4, "phase": Phase.BACKWARD, "caller": "DDP"} | changes
    group, ranks, phase, caller = (values[name] for name in ("group", "ranks", "phase", "caller"))
    made = CommCall(kind, group, ranks, count, phase, caller, BEGIN + round(begin_ms * MS))
    made.ended_ns = 0 if end_ms is None else BEGIN + round(end_ms * MS)
    return made


def span(phase: Phase, begin_ms: float, end_ms: float, **fields: Any) -> Span:
    """Return a span of the training thread."""
    return Span(str(phase), None, phase, None, round(begin_ms * MS), round((end_ms - begin_ms) * MS), **fields)


def test_compute_exposed_and_idle_are_the_step() -> None:
    """Two all-reduces overlap each other and backward; the thread waits for the second one, and for a batch."""
    run = Run()
    spans = [span(Phase.DATA, 0, 10), span(Phase.BACKWARD, 10, 70), span(Phase.COMM, 70, 90)]
    run.add([call("all_reduce", 30, 60), call("all_reduce", 50, 85)], spans, 100 * MS)
    table = run.table()
    assert (table.compute_ns, table.exposed_ns, table.idle_ns) == (70 * MS, 20 * MS, 10 * MS)
    assert table.compute_ns + table.exposed_ns + table.idle_ns == table.step_ns == 100 * MS
    assert table.overlapped_ns == 40 * MS  # from 30 to 70
    assert table.unassigned_ns == 5 * MS  # from 85 to 90
    (row,) = table.rows
    assert (row.calls, row.timed, row.ns, row.exposed_ns) == (2, 2, 55 * MS, 15 * MS)
    assert (row.kind, row.caller, row.group, row.ranks, row.phase) == ("all_reduce", "DDP", "dp", 4, "backward")


def test_rows_are_by_kind_group_phase_and_size() -> None:
    """Sizes within a factor of 16 share a row; the exposed time of all rows is at most that of the step."""
    run = Run()
    calls = [
        call("all_gather", 0, 20, phase=Phase.FORWARD, caller="FSDP"),
        call("all_gather", 10, 30, phase=Phase.BACKWARD, caller="FSDP"),
        call("reduce_scatter", 15, 40, caller="FSDP"),
        call("all_reduce", 20, 40, group="tp", ranks=2, caller="DTensor"),
        call("all_reduce", 30, 45, 64, group="tp", ranks=2, caller="DTensor"),
    ]
    run.add(calls, [span(Phase.COMM, 5, 45)], 50 * MS)
    table = run.table()
    assert len(table.rows) == 5
    assert sum(row.exposed_ns for row in table.rows) == table.exposed_ns == 40 * MS


def test_a_communication_without_an_end_has_no_time() -> None:
    """It is counted, with its bytes; the wait for it is in no row."""
    run = Run()
    run.add([call("send", 10, None, caller="")], [span(Phase.COMM, 10, 20)], 30 * MS)
    (row,) = run.table().rows
    assert (row.calls, row.timed, row.ns, row.bus_bytes_per_s) == (1, 0, 0, None)
    assert run.table().unassigned_ns == 10 * MS


def test_on_a_device_the_stream_that_computes_tells_what_is_exposed() -> None:
    """No event lies on a communication stream: the waits are device times, the ends unmeasured."""
    run = Run()
    spans = [span(Phase.COMM, 10, 11, device_start_ns=30 * MS, device_ns=20 * MS)]
    run.add([call("all_reduce", 10.5, None)], spans, 40 * MS, device_duration_ns=100 * MS)
    table = run.table()
    assert (table.compute_ns, table.exposed_ns, table.idle_ns) == (80 * MS, 20 * MS, 0)
    assert table.overlapped_ns is None
    assert (table.rows[0].exposed_ns, table.rows[0].timed) == (20 * MS, 0)


def test_a_step_without_communication_counts() -> None:
    """Also one that ended in the extension, so that no observer saw its end."""
    run = Run()
    run.add([call("all_reduce", 0, 5)], [], 10 * MS)
    frame = make_frame([], step=2, duration_ns=30 * MS)
    run.meter.frames(FrameRun.of([frame]))
    table = run.table()
    assert (table.steps, table.step_ns, table.rows[0].calls) == (2, 40 * MS, 1)


@pytest.mark.parametrize(
    ("kind", "ranks", "expected"),
    [
        ("all_reduce", 4, 1.5),
        ("all_gather", 4, 0.75),
        ("reduce_scatter", 8, 0.875),
        ("send", 4, 1.0),
    ],
)
def test_bus_bandwidth_has_the_factors_of_nccl_tests(kind: str, ranks: int, expected: float) -> None:
    """A GB in a second, times the factor."""
    assert bus_bandwidth(kind, ranks, 10**9, 10**9) == pytest.approx(expected * 1e9)


def test_bandwidth_is_bytes_over_the_time_in_which_any_call_ran() -> None:
    """Two all-reduces at once share the links: their bytes add up, their common time does not."""
    run = Run()
    run.add([call("all_reduce", 0, 10, 10**7), call("all_reduce", 0, 10, 10**7)], [], 20 * MS)
    assert run.table().rows[0].bus_bytes_per_s == pytest.approx(1.5 * 2e9)


def test_a_summary_with_communication_goes_through_json_and_into_the_report() -> None:
    """Equal after a round trip; the report says the sum, and a row."""
    run = Run()
    run.add([call("all_reduce", 10, 30)], [span(Phase.COMM, 20, 35)], 100 * MS)
    summary = run.meter.annotate(Summary.empty())
    assert Summary.from_dict(summary.to_dict()) == summary
    lines = render_summary(summary)
    text = "\n".join(lines)
    assert "compute 85.0 ms + exposed 15.0 ms + idle 0.00 ms = step 100.0 ms" in text
    assert "all_reduce DDP, bwd, dp ×4" in text
    assert max(map(len, lines)) <= 80
