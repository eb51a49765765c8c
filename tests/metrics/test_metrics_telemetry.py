"""Telemetry of the GPU and the host over a run: the newest with a step, what they came to in the summary."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_nvml import FakeNvml
from torch import nn

import autoprof
from autoprof._metrics.telemetry import DEVICE, Telemetry, open_telemetry
from autoprof._resolve import RawStep
from autoprof.devices import HostReader, Monitor
from autoprof.devices._nvml import open_reader
from autoprof.testing import FakeClock

UUID = "GPU-aaaa"


def step(*, warmup: bool = False, **scalars: float) -> RawStep:
    """Return a closed step."""
    raw = RawStep(step=1, start_unix_ns=0, serial=0, clock=FakeClock(), start=0, warmup=warmup)
    raw.scalars.update(scalars)
    return raw


class StillMonitor(Monitor):
    """A monitor that reads when the test says so; its readings are told apart by their number."""

    def start(self) -> None:
        pass


def of_device(nvml: FakeNvml) -> tuple[Telemetry, StillMonitor]:
    """Return readings of the first device."""
    reader, reason = open_reader(nvml, 0, UUID)
    assert reader is not None, reason
    numbers = iter(range(1, 1000))
    reader._unix_ns = lambda: next(numbers)
    monitor = StillMonitor({DEVICE: reader})
    return Telemetry(None, monitor), monitor


def host(tmp_path: Path, now: list[int], cpu: list[int]) -> tuple[Telemetry, list[float]]:
    """Return readings of a made-up host, and its seconds."""
    stat = tmp_path / "stat"
    stat.write_text("cpu 0 0 0 0 0 0 0 0\n", encoding="ascii")
    seconds = [0.0]
    reader = HostReader(stat, now_ns=lambda: now[0], cpu_ns=lambda: cpu[0])
    reader.read()
    return Telemetry(reader, now_s=lambda: seconds[0]), seconds


def test_a_new_reading_goes_with_the_step_in_which_it_came() -> None:
    """The same one is not given twice."""
    readings, monitor = of_device(FakeNvml({"uuid": UUID}))
    monitor.read_now()
    first, second = step(), step()
    readings.closed(first)
    readings.closed(second)
    assert first.scalars["gpu_utilization"] == 0.87
    assert first.scalars["gpu_power_w"] == 650.0
    assert second.scalars == {}
    readings.close()


def test_readings_come_to_mean_least_and_most() -> None:
    """Over the recorded steps; the warm-up is kept apart."""
    device: dict[str, Any] = {"uuid": UUID, "busy": 1}
    readings, monitor = of_device(FakeNvml(device))
    for busy, warmup in ((1, True), (20, False), (60, False), (40, False)):
        device["busy"] = busy
        monitor.read_now()
        readings.closed(step(warmup=warmup))
    use = readings.metrics()["gpu_utilization"]
    assert (round(use.mean, 6), use.low, use.high, use.last, use.readings) == (0.4, 0.2, 0.6, 0.4, 3)
    readings.close()


def test_throttling_is_a_share_of_the_readings_with_its_causes() -> None:
    """Whatever held the clocks down, in so many of the readings."""
    device: dict[str, Any] = {"uuid": UUID}
    readings, monitor = of_device(FakeNvml(device))
    for bits in (0, 0x04, 0x04, 0x40):
        device["throttle"] = bits
        monitor.read_now()
        readings.closed(step())
    gauges = readings.metrics()
    assert gauges["gpu_throttled"].mean == 0.75
    assert gauges["gpu_throttled_by_power_cap"].mean == 0.5
    assert gauges["gpu_throttled_by_hardware_thermal_slowdown"].mean == 0.25
    readings.close()


def test_what_a_device_does_not_tell_is_missing() -> None:
    """Not zero."""
    nvml = FakeNvml({"uuid": UUID})
    nvml.unsupported |= {"power", "limit", "utilization"}
    readings, monitor = of_device(nvml)
    monitor.read_now()
    readings.closed(step())
    assert not {"gpu_power_w", "gpu_power_limit_w", "gpu_utilization"} & set(readings.metrics())
    assert "gpu_temperature_c" in readings.metrics()
    readings.close()
    assert nvml.users == 0


def test_a_scalar_of_the_user_s_with_the_same_name_stays() -> None:
    """What the user logs is the user's."""
    readings, monitor = of_device(FakeNvml({"uuid": UUID}))
    monitor.read_now()
    raw = step(gpu_utilization=5.0)
    readings.closed(raw)
    assert raw.scalars["gpu_utilization"] == 5.0
    readings.close()


def test_a_device_that_fails_is_said_once_in_the_summary() -> None:
    """The run goes on."""
    readings, monitor = of_device(FakeNvml({"uuid": UUID}))
    assert readings.problem() is None
    monitor.problems[DEVICE] = "RuntimeError: gone"
    assert readings.problem() == "readings of the GPU failed: RuntimeError: gone"
    readings.close()


def test_the_host_is_read_once_a_second(tmp_path: Path) -> None:
    """The first reading after the warm-up begins the account; rates are those since the one before."""
    now, cpu = [0], [0]
    readings, seconds = host(tmp_path, now, cpu)
    for at, used, warmup in ((1, 1, True), (2, 2, False), (2, 2, False), (3, 5, False), (3, 5, False), (4, 6, False)):
        now[0], cpu[0], seconds[0] = at * 10**9, used * 10**9, float(at)
        readings.closed(step(warmup=warmup))
    cores = readings.metrics()["host_cpu_cores"]
    assert (cores.readings, cores.low, cores.high, cores.mean) == (2, 1.0, 3.0, 2.0)
    readings.close()


def test_a_run_too_short_to_be_read_in_is_read_at_its_end(tmp_path: Path) -> None:
    """One reading over all of its recorded steps."""
    now, cpu = [0], [0]
    readings, _ = host(tmp_path, now, cpu)
    readings.closed(step())
    now[0], cpu[0] = 10**8, 2 * 10**8
    readings.closed(step())
    assert readings.metrics() == {}
    readings.finish()
    assert readings.metrics()["host_cpu_cores"].mean == 2.0
    readings.close()


def test_a_session_reads_the_host_without_a_thread() -> None:
    """Only a GPU's driver needs one."""
    before = threading.active_count()
    with autoprof.instrument(nn.Linear(4, 4), {"sinks": {}, "sample": {"warmup": 0}}) as session:
        for _ in range(3):
            session.step()
        assert threading.active_count() == before
    assert session.summary().metrics["host_rss_bytes"].high > 0


def test_monitor_off_reads_nothing() -> None:
    """No reading, no scalar."""
    with autoprof.instrument(nn.Linear(4, 4), {"sinks": {}, "monitor": "off", "sample": {"warmup": 0}}) as session:
        session.step()
    assert session.summary().metrics == {}


def test_without_the_extra_there_is_one_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the command that installs it; the host is read all the same."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(torch.version, "hip", None)
    readings, note = open_telemetry(torch.device("cuda", 0))
    assert note is not None
    assert note.startswith("no telemetry of the GPU: ")
    assert "pip install 'torch-autoprof[gpu]'" in note
    readings.close()


def test_a_driver_that_does_not_start_is_one_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine whose driver was updated under the program."""
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr("autoprof.devices.cuda.import_nvml", lambda: FakeNvml(starts=False))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: object())
    readings, note = open_telemetry(torch.device("cuda", 0))
    assert note == "no telemetry of the GPU: NVML does not start: Driver Not Loaded"
    readings.close()


def test_a_device_is_read_by_a_thread_that_ends_with_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML is given back."""
    nvml = FakeNvml({"uuid": UUID})
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr("autoprof.devices.cuda.import_nvml", lambda: nvml)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: object())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    before = threading.active_count()
    readings, note = open_telemetry(torch.device("cuda", 0))
    assert note is None
    assert (threading.active_count(), nvml.users) == (before + 1, 1)
    readings.close()
    assert (threading.active_count(), nvml.users) == (before, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_reads_nothing(tmp_path: Path) -> None:
    """What it inherits is the parent's: closing it there gives back nothing of the parent's."""
    nvml = FakeNvml({"uuid": UUID})
    readings, monitor = of_device(nvml)
    child = os.fork()
    if not child:
        try:
            readings.close()
            os._exit(0 if nvml.users == 1 and monitor.readings == 0 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    readings.close()
    assert nvml.users == 0
