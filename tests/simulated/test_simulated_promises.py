"""The promises on a device that torch itself drives: bits, waits, launches, rules, memory, moves."""

from __future__ import annotations

import hashlib
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from engine_laws import everything, make_each_pass
from test_simulated_times import Kernel, layer
from torch import Tensor, nn

import autoprof
from autoprof import Phase
from autoprof.devices import DeviceClock, _device_clock
from autoprof.devices.accelerator import AcceleratorEvents
from autoprof.testing import ListSink, open_session
from benchmarks.engine import OPTIONS
from benchmarks.workloads import Workload, reference, small_gpt, tiny_layers

if TYPE_CHECKING:
    from simulated_accelerator import Simulated

MS = 1_000_000
MIB = 2**20
MAX_POLLS = 1_000
"""Queries of a held device after which a wait that ignores signals is ended."""


def digest(values: list[Tensor]) -> list[str]:
    return [hashlib.sha256(value.detach().cpu().contiguous().view(torch.uint8).numpy()).hexdigest() for value in values]


def few_layers(device: torch.device) -> Workload:
    return tiny_layers(device, layers=24)


def train(make: Any, profiled: bool) -> list[str]:
    """Return the bits of the outputs, gradients and parameters of two steps, and the generator's state."""
    torch.manual_seed(0)
    workload = make(torch.device("sim"))
    kept: list[Tensor] = []
    workload.model.register_forward_hook(lambda _m, _a, output: kept.append(output.detach().clone()))
    session = None
    if profiled:
        config = {**workload.config, **OPTIONS, "flops": "auto" if make is few_layers else "off"}
        session = autoprof.instrument(workload.model, config, optimizer=workload.optimizer)
    for _ in range(2):
        workload.step()
        kept += [p.grad.clone() for p in workload.model.parameters() if p.grad is not None]
        if session is not None:
            session.step()
    if session is not None:
        session.close()
        summary = session.summary()
        assert summary.steps + summary.warmup_steps == 2  # counting FLOPs may make one a warm-up step
    return digest([*kept, *workload.model.parameters(), torch.get_device_module("sim").get_rng_state()])


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(few_layers, id="layers"),
        pytest.param(small_gpt, id="gpt"),
        pytest.param(lambda device: reference(device, "tiny"), id="reference", marks=pytest.mark.slow),
    ],
)
def test_steps_are_bit_identical(sim: Simulated, make: Any) -> None:
    """Outputs, gradients, parameters and random numbers are equal to the last bit."""
    assert train(make, True) == train(make, False)


def test_nothing_waits_for_the_device_before_close(sim: Simulated) -> None:
    """The device stands still behind a hold while forty steps are recorded and delivered as far as they can be."""
    workload, sink = tiny_layers(torch.device("sim")), ListSink()
    session = autoprof.instrument(workload.model, {**workload.config, **OPTIONS}, sinks=[sink])
    workload.step()
    session.step()
    before = sim.waits
    with sim.held():
        for _ in range(9):
            workload.step()
            session.step()
        assert len(sink.frames) <= 1
    assert sim.waits == before
    sim.finish()
    session.close()
    assert [frame.step for frame in sink.frames] == list(range(1, 11))
    assert all(frame.device_ns is not None for frame in sink.frames)


def test_ctrl_c_ends_a_close_that_waits_for_a_device_which_hangs(
    sim: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal during the wait reaches its handler at once, and the report is written."""

    class Interrupted(Exception):
        pass

    def interrupt(_number: int, _frame: object) -> None:
        raise Interrupted

    polls = 0

    def poll(_seconds: float) -> None:
        nonlocal polls
        polls += 1
        if polls == 1:
            signal.raise_signal(signal.SIGALRM)
        if polls == MAX_POLLS:
            sim.release()

    model = nn.Sequential(layer(), layer())
    session = autoprof.instrument(model, everything())
    monkeypatch.setattr(_device_clock, "sleep", poll)
    before = signal.signal(signal.SIGALRM, interrupt)
    with sim.held():
        model(torch.ones(4, 8, device="sim")).sum()
        session.step()
        try:
            with pytest.raises(Interrupted):
                session.close()
        finally:
            signal.signal(signal.SIGALRM, before)
    assert polls == 1
    assert session.summary().skipped == {"steps that the device had not passed": 1}


def test_nothing_waits_for_the_device_at_set_up(sim: Simulated) -> None:
    """Its queue may be long, or hang; nor does a step wait in which the model moves to the device."""
    model = nn.Sequential(layer(), layer())
    with sim.held():
        before = sim.waits
        session = autoprof.instrument(model, everything())
        model(torch.ones(4, 8, device="sim")).sum()
        session.step()
        assert sim.waits == before
    session.close()
    assert session.summary().clock == "device"
    moving, sink = nn.Sequential(nn.Linear(8, 8)), ListSink()
    with autoprof.instrument(moving, everything(), sinks=[sink]) as session:
        moving.to("sim")
        x = torch.ones(4, 8).to("sim")
        before = sim.waits
        for _ in range(3):
            moving(x).sum()
            session.step()
        assert sim.waits == before
    assert sink.frames[0].device_duration_ns is None
    assert sink.frames[-1].device_duration_ns is not None


def test_no_step_is_lost_that_the_device_has_passed(sim: Simulated) -> None:
    """Under the default budget resolving steps is spread over the ends of many; none of them is given up for it."""
    model = nn.Sequential(layer(), Kernel(sim, MS), layer())
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.1), torch.ones(4, 8, device="sim")
    with autoprof.instrument(
        model, {"step": "manual", "sinks": {}}, sinks=[ListSink()], optimizer=optimizer
    ) as session:
        for _ in range(100):
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            sim.finish()
            session.step()
    summary = session.summary()
    assert "steps that the device had not passed" not in summary.skipped
    assert summary.all_steps == 100


@pytest.mark.parametrize("rule", ["sync-call", "h2d-copy"])
def test_a_defect_on_the_device_is_found_by_its_rule(sim: Simulated, rule: str) -> None:
    """A value read before the host works on, and a large copy from pageable memory in each step."""
    model = nn.Linear(8, 8, device="sim")
    batch = torch.ones(10 * MIB, dtype=torch.uint8)
    config = {"targets": [{"match": ".*"}], "step": "manual", "sinks": {}, "sample": {"budget": None}}
    with sim.stopped_clock():
        session = open_session(model, config, clock=DeviceClock(AcceleratorEvents("sim"), now=sim.now_ns))
        for _ in range(40):
            loss = model(torch.ones(4, 8, device="sim")).sum()
            if rule == "sync-call":
                sim.sleep(10 * MS)
                loss.item()
                sim.advance(10 * MS)  # the host works on
            else:
                batch.to("sim")
            loss.backward()
            session.step()
        sim.finish()
        session.close()
    assert rule in {finding.rule for finding in session.summary().findings if finding.severity != "info"}


@pytest.mark.parametrize("pinned", [True, False])
def test_a_copy_to_the_device_takes_as_long_as_the_device_says(sim: Simulated, pinned: bool) -> None:
    """A pinned copy returns at once and takes its time on the device."""
    model, sink = nn.Linear(2, 2, device="sim"), ListSink()
    batch = torch.ones(40 * MIB, dtype=torch.uint8)
    batch = batch.pin_memory() if pinned else batch
    with autoprof.instrument(model, everything(), sinks=[sink]) as session:
        before = sim.waits
        moved = batch.to("sim", non_blocking=pinned)
        assert sim.waits == before + (not pinned)
        session.step()
    (span,) = [span for span in sink.frames[0].spans if span.phase is Phase.H2D]
    expected_ns = 1_000 + 40 * MIB * 1_000 // 10_000
    assert span.device_ns is not None
    assert span.device_ns >= expected_ns
    assert torch.equal(moved.cpu(), batch)


def test_the_report_of_a_device_run_says_whose_time_it_shows(
    sim: Simulated, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report says device time, has the copies, and the allocator's memory."""
    workload = tiny_layers(torch.device("sim"), layers=2)
    config = {**workload.config, **OPTIONS, "sinks": {"console": {"every": 5}}, "output": str(tmp_path)}
    make_each_pass(monkeypatch)
    with autoprof.instrument(workload.model, config) as session:
        for _ in range(20):
            torch.ones(1 << 20).to("sim")
            workload.step()
            session.step()
            sim.finish()
        live = capsys.readouterr().out
    assert "autoprof | step " in live
    report = capsys.readouterr().out.partition("autoprof: ")[2]
    assert report.splitlines()[0].endswith("device time")
    assert "To device" in report
    assert re.search(r"memory +peak .* allocated", report)


class Scratch(nn.Module):
    """Take ``scratch`` MiB for the length of its call, and keep ``keeps`` MiB for backward."""

    def __init__(self, scratch: int, keeps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(keeps * MIB // 4, device="sim"))
        self.scratch = scratch

    def forward(self, x: Tensor) -> Tensor:
        torch.empty(self.scratch * MIB, dtype=torch.uint8, device="sim")
        return x + (self.weight * x).mean()


def test_memory_of_each_module_is_the_allocators(sim: Simulated) -> None:
    """64 MiB of scratch above the level it began at, 16 in the shadow of that; the table has each part exactly."""
    model, sink = nn.Sequential(Scratch(64, 4), Scratch(16, 4)), ListSink()
    optimizer = torch.optim.Adam(model.parameters())
    torch.accelerator.reset_peak_memory_stats()
    config = {"targets": [{"match": r"\d", "memory": True}], "sinks": {}, "sample": {"warmup": 0}}
    with autoprof.instrument(model, config, optimizer=optimizer, sinks=[sink]) as session:
        for _ in range(4):
            model(torch.ones(1, device="sim", requires_grad=True)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            session.step()
    first, second = (next(s for s in sink.frames[0].spans if s.name == name) for name in ("0", "1"))
    assert first.memory_start_bytes is not None
    assert first.memory_peak_bytes is not None
    assert first.memory_start_bytes + 64 * MIB <= first.memory_peak_bytes <= first.memory_start_bytes + 70 * MIB
    assert second.memory_peak_bytes is not None
    assert second.memory_start_bytes is not None
    assert second.memory_start_bytes <= second.memory_peak_bytes < first.memory_peak_bytes
    whole = session.summary().memory_table[0]
    assert (whole.parameter_bytes, whole.gradient_bytes) == (8 * MIB, 8 * MIB)
    assert whole.peak_bytes is not None
    assert whole.held_bytes < whole.peak_bytes
