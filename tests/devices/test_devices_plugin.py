"""A device of another package: one file, found through its entry point, answers everything for its type."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autoprof
from autoprof.devices import DEVICES, device_of
from autoprof.probes import sync_calls
from autoprof.probes.metrics import open_telemetry
from autoprof.probes.metrics.flop_meter import peak_of
from autoprof.testing import FakeClock, FakeDevice, ListSink, open_session

CONFIG = {"sinks": {}, "flops": "off", "monitor": "off", "sample": {"warmup": 0, "budget": None}}
ACME = '''
"""An accelerator whose tensors torch takes for the CPU's: it needs no hardware."""

from autoprof.devices import Device, Peak
from tests.fake_memory import FakeAllocator
from autoprof.testing import FakeClock, FakeDevice


class AcmeEvents(FakeDevice):
    device_type = "acme"

    def index_of(self, tensor):
        return 0


class AcmeTelemetry:
    def read(self):
        return {"gpu_utilization": 0.5, "gpu_power_w": 75.0}

    def close(self):
        pass


class Acme(Device):
    types = ("cpu",)

    def __init__(self):
        self.events = AcmeEvents(FakeClock(tick_ns=1_000), lag_ns=5_000)
        self.allocator = FakeAllocator(16_000, base_bytes=4_000)

    def clock(self, place):
        return self.events.device_clock(), None

    def memory(self, place):
        return self.allocator

    def name(self, place):
        return "Acme One"

    def peak(self, place):
        return Peak("card", {"fp32": 0.000_001}), None

    def telemetry(self, place):
        return AcmeTelemetry(), None

    def waiting_calls(self):
        yield type(self), "drain"

    def drain(self):
        self.events.wait_here()


ACME = Acme()
'''


class Layer(nn.Linear):
    """A layer that queues 40 µs of work on the accelerator."""

    def forward(self, x: Tensor) -> Tensor:
        acme().events.work(40_000)
        return super().forward(x)


def acme() -> Any:
    return DEVICES.parts["acme"]


@pytest.fixture(autouse=True)
def acme_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with an entry point of ``autoprof.devices`` is installed."""
    (tmp_path / "acme_autoprof.py").write_text(ACME, encoding="utf-8")
    info = tmp_path / "acme_autoprof-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-autoprof\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[autoprof.devices]\nacme = acme_autoprof:ACME\n")
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield
    forget()
    sys.modules.pop("acme_autoprof", None)


def forget() -> None:
    for cached in ("parts", "entry_points"):
        vars(DEVICES).pop(cached, None)
    sync_calls.replacements.cache_clear()


def test_another_package_s_device_precedes_the_built_in_one() -> None:
    """Its types are its own; other types keep their device."""
    assert type(device_of(torch.device("cpu"))).__name__ == "Acme"
    assert type(device_of(torch.device("cuda"))).__name__ == "Cuda"
    assert type(device_of(torch.device("xpu"))).__name__ == "Accelerator"


def test_a_session_reads_the_device_s_clock_and_memory() -> None:
    """Spans have device times to the nanosecond, and steps the allocator's levels."""
    model, sink = nn.Sequential(Layer(4, 4)), ListSink()
    with autoprof.instrument(model, CONFIG, sinks=[sink]) as session:
        for _ in range(3):
            model(torch.ones(2, 4))
            session.step()
    spans = [span for frame in sink.frames for span in frame.spans if span.fqn == "0"]
    assert [span.device_ns for span in spans] == [40_000] * 3
    assert sink.frames[0].memory["allocated_bytes"] == 4_000
    assert session.summary().clock == "device"


def test_its_waiting_calls_are_timed_while_a_session_is_open() -> None:
    """The call is replaced from the first recorded step on, still waits, and is the original after the session."""
    model, device = nn.Sequential(Layer(4, 4)), acme()
    original = vars(type(device))["drain"]
    with autoprof.instrument(model, CONFIG) as session:
        for _ in range(3):
            model(torch.ones(2, 4))
            device.drain()
            assert isinstance(device.drain, partial)
            session.step()
    assert vars(type(device))["drain"] is original


def test_its_peak_and_telemetry_are_read() -> None:
    """Utilization is against the peak of this device, and its readings are metrics of the run."""
    peak = peak_of(nn.Linear(4, 4), torch.device("cpu"))
    assert (peak.name, peak.peak.form_factor if peak.peak else None) == ("Acme One", "card")
    telemetry, note = open_telemetry(acme(), torch.device("cpu"))
    assert note is None
    assert telemetry._monitor is not None
    telemetry._monitor.read_now()
    scalars = telemetry.complete({}, warmup=False)
    assert (scalars["gpu_utilization"], scalars["gpu_power_w"]) == (0.5, 75.0)
    telemetry.close()


def test_a_device_that_cannot_be_loaded_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The built-in device of the type is used, with one warning."""
    (tmp_path / "acme_autoprof.py").write_text("ACME = object()", encoding="utf-8")
    sys.modules.pop("acme_autoprof", None)
    forget()
    assert type(device_of(torch.device("cpu"))).__name__ == "Cpu"
    assert "device 'acme' of another package: TypeError" in caplog.text


def test_a_device_without_its_driver_costs_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its answers raise: sessions on other devices run, and the other devices' calls are timed."""
    absent = ACME.replace('types = ("cpu",)', 'types = ("acme",)').replace("yield type(self)", "yield torch.acme")
    assert absent != ACME
    (tmp_path / "acme_autoprof.py").write_text(f"import torch\n{absent}", encoding="utf-8")
    sys.modules.pop("acme_autoprof", None)
    forget()
    monkeypatch.setattr(DEVICES, "_failed", set())
    for _ in range(2):
        model, sink = nn.Linear(4, 4), ListSink()
        clock = FakeDevice(FakeClock(tick_ns=1_000)).device_clock()
        with open_session(model, CONFIG, sinks=[sink], clock=clock) as session:
            for _ in range(2):
                model(torch.ones(2, 4))
                session.step()
        assert len(sink.frames) == 2
        sync_calls.replacements.cache_clear()
    assert caplog.text.count("device 'acme' of another package: AttributeError") == 1
