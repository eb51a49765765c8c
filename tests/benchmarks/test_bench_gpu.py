"""The part of the GPU benchmarks that runs without a GPU."""

from __future__ import annotations

import pytest
import torch

from autoprof.testing import FakeClock, FakeDevice
from benchmarks import machine
from benchmarks.floors import ForwardFloor
from benchmarks.gpu import events, table
from benchmarks.gpu.__main__ import main
from benchmarks.gpu.run import _on_host
from benchmarks.run import measure_workload
from benchmarks.variant import Variant
from benchmarks.workloads import tiny_layers


def device() -> FakeDevice:
    return FakeDevice(FakeClock(tick_ns=100))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_without_cuda_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, with a status of its own."""
    assert main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_events_are_counted_and_reused() -> None:
    """Each mark is one event, none is waited for, and there are no more of them than some steps in a row need."""
    workload = tiny_layers(torch.device("cpu"))
    counted = events.per_step(device(), workload.model, workload.step, workload.config, steps=100)
    assert counted["recorded"] > 2 * len(workload.targets)
    assert counted["waited"] == 0
    assert counted["skipped"] == {}
    assert counted["made"]["100"] < 50 * counted["recorded"]


def test_costs_are_measured_through_any_source_of_events() -> None:
    """The double stands in for the device."""
    source = device()
    costs = events.costs(source, source.device_clock(), lambda: source.clock.advance(10**9))
    assert set(costs) == {"record_ns", "read_ns", "resolve_ns"}
    assert all(cost > 0 for cost in costs.values())


def test_the_table_shows_the_device_and_the_host() -> None:
    """One workload is two tables: until the device has finished, and the host's own time."""
    workload = tiny_layers(torch.device("cpu"))
    measured = measure_workload(workload, [Variant(), ForwardFloor()], rounds=1, progress=lambda line: None)
    measured["host_blocks"] = {
        name: [_on_host(block) for block in blocks] for name, blocks in measured["blocks"].items()
    }
    source = device()
    waits = {"error": None, "bare_ns": 1e6, "host_ns": 2e6, "device_ns": 4e8, "passed": True}
    kernel = {"expected_ns": 2e6, "measured_ns": None, "passed": False}
    results = {
        "machine": machine.describe(),
        "options": {},
        "workloads": {"layers": measured},
        "events": events.per_step(source, workload.model, workload.step, workload.config, steps=100),
        "costs": events.costs(source, source.device_clock(), lambda: None),
        "never_waits": {"layers": waits},
        "kernels": {"forward, main stream": kernel},
    }
    lines = table.render(results).splitlines()
    assert sum("floor: hand-written forward hooks" in line for line in lines) == 2
    assert any("no span" in line and "FAIL" in line for line in lines)
    assert max(map(len, lines)) <= 110


def test_a_check_that_fails_is_said_and_counts() -> None:
    """One failure is enough."""
    good, bad = {"passed": True}, {"passed": False}
    assert table.passed({"never_waits": {"layers": good}, "kernels": {"forward": good}})
    assert not table.passed({"never_waits": {"layers": good}, "kernels": {"forward": bad}})
