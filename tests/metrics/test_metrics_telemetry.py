"""Telemetry of the GPU and the host over a run: new readings with a step, statistics in the summary."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_nvml import FakeNvml
from torch import nn

import autoprof
from autoprof.devices import HostReader, Monitor
from autoprof.devices._nvml import open_reader
from autoprof.devices.cuda import Cuda
from autoprof.probes.metrics.telemetry import Telemetry, open_telemetry

UUID = "GPU-aaaa"


class StillMonitor(Monitor):
    """A monitor that reads when the test calls it; its readings differ by their number."""

    def start(self) -> None:
        pass


def of_device(nvml: FakeNvml) -> tuple[Telemetry, StillMonitor]:
    """Return telemetry of the first device."""
    reader, reason = open_reader(nvml, UUID)
    assert reader is not None, reason
    monitor = StillMonitor(reader)
    return Telemetry(None, monitor), monitor


def host(tmp_path: Path, now: list[int], cpu: list[int]) -> tuple[Telemetry, list[float]]:
    """Return telemetry of a simulated host, and its seconds."""
    stat = tmp_path / "stat"
    stat.write_text("cpu 0 0 0 0 0 0 0 0\n", encoding="ascii")
    seconds = [0.0]
    reader = HostReader(stat, now_ns=lambda: now[0], cpu_ns=lambda: cpu[0])
    reader.read()
    return Telemetry(reader, now_s=lambda: seconds[0]), seconds


def test_a_new_reading_goes_with_the_step_in_which_it_came() -> None:
    """Each reading goes with one step only."""
    telemetry, monitor = of_device(FakeNvml({"uuid": UUID}))
    monitor.read_now()
    first = telemetry.complete({}, warmup=False)
    second = telemetry.complete({}, warmup=False)
    assert first["gpu_utilization"] == 0.87
    assert first["gpu_power_w"] == 650.0
    assert second == {}
    telemetry.close()


def test_the_statistics_are_mean_least_and_most() -> None:
    """Over the recorded steps; the warm-up is excluded."""
    device: dict[str, Any] = {"uuid": UUID, "busy": 1}
    telemetry, monitor = of_device(FakeNvml(device))
    for busy, warmup in ((1, True), (20, False), (60, False), (40, False)):
        device["busy"] = busy
        monitor.read_now()
        telemetry.complete({}, warmup=warmup)
    use = telemetry.statistics()["gpu_utilization"]
    assert (round(use.mean, 6), use.low, use.high, use.last, use.readings) == (0.4, 0.2, 0.6, 0.4, 3)
    telemetry.close()


def test_throttling_is_a_share_of_the_readings_with_its_causes() -> None:
    """Each cause as a share of all readings."""
    device: dict[str, Any] = {"uuid": UUID}
    telemetry, monitor = of_device(FakeNvml(device))
    for bits in (0, 0x04, 0x04, 0x40):
        device["throttle"] = bits
        monitor.read_now()
        telemetry.complete({}, warmup=False)
    stats = telemetry.statistics()
    assert stats["gpu_throttled"].mean == 0.75
    assert stats["gpu_throttled_by_power_cap"].mean == 0.5
    assert stats["gpu_throttled_by_hardware_thermal_slowdown"].mean == 0.25
    telemetry.close()


def test_the_host_is_read_once_a_second(tmp_path: Path) -> None:
    """The first reading after the warm-up begins the account; rates are those since the one before."""
    now, cpu = [0], [0]
    telemetry, seconds = host(tmp_path, now, cpu)
    for at, used, warmup in ((1, 1, True), (2, 2, False), (2, 2, False), (3, 5, False), (3, 5, False), (4, 6, False)):
        now[0], cpu[0], seconds[0] = at * 10**9, used * 10**9, float(at)
        telemetry.complete({}, warmup=warmup)
    cores = telemetry.statistics()["host_cpu_cores"]
    assert (cores.readings, cores.low, cores.high, cores.mean) == (2, 1.0, 3.0, 2.0)
    telemetry.close()


def test_a_session_reads_the_host_without_a_thread() -> None:
    """Only a GPU's driver needs one."""
    before = threading.active_count()
    with autoprof.instrument(nn.Linear(4, 4), {"sinks": {}, "sample": {"warmup": 0}}) as session:
        for _ in range(3):
            session.step()
        assert threading.active_count() == before
    assert session.summary().metrics["host_rss_bytes"].high > 0


def test_without_the_extra_there_is_one_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the command that installs it; the host is read all the same."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(torch.version, "hip", None)
    telemetry, note = open_telemetry(Cuda(), torch.device("cuda", 0))
    assert note is not None
    assert note.startswith("no telemetry of the GPU: ")
    assert "pip install 'torch-autoprof[gpu]'" in note
    telemetry.close()


def test_a_device_is_read_by_a_thread_that_ends_with_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML is given back."""
    nvml = FakeNvml({"uuid": UUID})
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr("autoprof.devices.cuda.import_nvml", lambda: nvml)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=UUID))
    before = threading.active_count()
    telemetry, note = open_telemetry(Cuda(), torch.device("cuda", 0))
    assert note is None
    assert (threading.active_count(), nvml.users) == (before + 1, 1)
    telemetry.close()
    assert (threading.active_count(), nvml.users) == (before, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_reads_nothing(tmp_path: Path) -> None:
    """Its resources belong to the parent: closing it in the fork releases nothing."""
    nvml = FakeNvml({"uuid": UUID})
    telemetry, monitor = of_device(nvml)
    child = os.fork()
    if not child:
        try:
            telemetry.close()
            os._exit(0 if nvml.users == 1 and monitor.latest is None else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    telemetry.close()
    assert nvml.users == 0
