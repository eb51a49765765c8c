"""What the clock cannot tell is measured at the start, kept with the run, and never shown as a figure."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autoprof
from autoprof import read_run
from autoprof.capture import calibration
from autoprof.capture.calibration import CALLS, COLD, EMPTY_CALLS, LimitMeter, measure_mark_ns
from autoprof.devices import ClockLimits, DeviceClock
from autoprof.reports.panel import render_plain
from autoprof.testing import FakeClock, FakeDevice, open_session

CONFIG: dict[str, Any] = {
    "targets": [{"match": ".+"}], "step": "manual", "sample": {"every": 1, "warmup": 0, "budget": None},
    "sinks": {}, "flops": "off",
}  # fmt: skip


class Coarse(FakeClock):
    """A clock whose limits nobody knows: it shows multiples of ``quantum_ns``, and a reading takes ``tick_ns``."""

    def __init__(self, tick_ns: int, quantum_ns: int = 1) -> None:
        super().__init__(tick_ns=tick_ns)
        self.limits = None
        self.quantum_ns = quantum_ns

    def read(self) -> int:
        """Return the time rounded down."""
        return super().read() // self.quantum_ns * self.quantum_ns


class Taking(nn.Module):
    """Take some time of a fake clock in forward."""

    def __init__(self, clock: FakeClock, ns: int) -> None:
        super().__init__()
        self.clock, self.ns = clock, ns
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the input, weighed."""
        self.clock.advance(self.ns)
        return x * self.weight


def limits_of(clock: Any) -> ClockLimits:
    """Measure a clock that answers at once."""
    limits = LimitMeter(clock).limits
    assert limits is not None
    return limits


def test_a_call_of_nothing_reads_what_a_reading_takes() -> None:
    """It is the median; with a steady clock there is no scatter, and the smallest difference is one reading."""
    assert limits_of(Coarse(tick_ns=70)) == ClockLimits(resolution_ns=70, mark_ns=70, scatter_ns=0)


def test_a_device_is_asked_and_never_waited_for() -> None:
    """Its limits are known once it has passed the readings, which then go back to their pool."""
    clock = FakeClock()
    device = FakeDevice(clock, lag_ns=1000)
    events = DeviceClock(device, now=clock.read)
    meter = LimitMeter(events)
    assert meter.limits is None
    clock.advance(1000)
    assert meter.limits == ClockLimits()
    assert device.waits == 0
    made = device.made
    LimitMeter(events)
    assert made == device.made >= 2 * (COLD + EMPTY_CALLS)


def test_a_run_keeps_the_clocks_limit(tmp_path: Path) -> None:
    """In its summary, which is read back."""
    config = {**CONFIG, "sinks": {"jsonl": {}}, "output": str(tmp_path)}
    session = autoprof.instrument(nn.Sequential(nn.Linear(2, 2)), config)
    session.close()
    assert session.folder is not None
    summary = read_run(session.folder).summary
    assert summary is not None
    assert summary.clock_limit_ns == session.summary().clock_limit_ns > 0


def columns(report: str, name: str) -> list[str]:
    """Return the words after a name in the first table of a text."""
    return next(line.split()[1:] for line in report.splitlines() if line.split()[:1] == [name])


@pytest.fixture
def reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[int, int], dict[str, str]]:
    """Return a function that runs two steps of a module of so many ns with every report, and what they say."""

    def run(module_ns: int, limit_ns: int) -> dict[str, str]:
        clock = FakeClock(limit_ns=limit_ns)
        model = nn.Sequential(Taking(clock, module_ns), Taking(clock, 40_000_000))
        config = {**CONFIG, "output": str(tmp_path), "sinks": {"console": {"every": 1}, "log": {}, "jsonl": {}}}
        with open_session(model, config, clock=clock) as session:
            for _ in range(2):
                model(torch.ones(1))
                session.step()
            folder = session.folder
            assert folder is not None
        return {
            "console": capsys.readouterr().out,
            "line": render_plain(session.summary(), step=2),
            "html": session.summary()._repr_html_(),
            "summary": (folder / "summary.txt").read_text(),
            "log": (folder / "rank0" / "timing.log").read_text(),
            "jsonl": (folder / "rank0" / "steps.jsonl").read_text(),
        }

    return run


def test_a_span_below_the_limit_is_less_than_the_limit_in_every_report(
    reports: Callable[[int, int], dict[str, str]],
) -> None:
    """Also its part of the step. The records keep the readings as they are."""
    told = reports(30_000, 500_000)
    assert columns(told["console"], "0") == ["<1.3", "%", "<0.50", "<0.50"]
    assert columns(told["summary"], "0") == ["1", "<1.3", "%", "<0.50", "<0.50"]
    assert ["0", "forward", *["<0.50", "ms"] * 4] in [line.split() for line in told["summary"].splitlines()]
    assert columns(told["html"], "0") == ["&lt;1.3", "%", "&lt;0.50", "&lt;0.50"]
    for name in ("console", "summary", "html"):
        assert "cannot resolve spans below 500.0 µs" in told[name]
    assert " 0 <2% |" in told["line"]
    assert ":     <0.500ms ( <1.3%) [avg:     <0.500ms]" in told["log"]
    shown = [told[name] for name in ("console", "summary", "html", "log")]
    assert not [text for text in shown if re.search(r"\b0\.03\b|\b0\.030ms", text)]
    assert '"forward":40.03' in told["jsonl"]


def test_rounds_that_another_process_interrupts_are_not_the_cost_of_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five rounds with marks three take 4 ms longer: a high cost would close rows that the budget allows."""
    lengths = [ns for number in range(5) for ns in (100_000, 220_000 + 4_000_000 * (number in (0, 2, 3)))]
    times = [ns for at, length in enumerate(lengths) for ns in (at * 10**9, at * 10**9 + length)]
    readings = iter(times)
    monkeypatch.setattr(calibration, "thread_time_ns", lambda: next(readings))
    assert measure_mark_ns(FakeClock()) == 120_000 / (3 * CALLS)
