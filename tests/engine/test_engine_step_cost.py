"""A recorded step that repeats calls few functions of autoprof: counted, so that no clock decides."""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import autoprof
from autoprof.devices import HostClock
from autoprof.probes import debug_modes
from autoprof.probes.stacks import StackProbe

STEPS = 1000
MAX_CALLS = 60
"""Python functions of autoprof per step, its part of the passes included."""
MAX_CLOCKS = 14
"""Readings of clocks per step by functions of autoprof."""
CLOCKS = {"perf_counter_ns", "thread_time_ns", "time_ns", "monotonic_ns"}
ROOT = str(Path(autoprof.__file__).parent)


class CallCount:
    """The calls of autoprof's functions in a block, by function, and its readings of clocks."""

    def __init__(self) -> None:
        self.calls = Counter[str]()
        self.clocks = Counter[str]()

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if not frame.f_code.co_filename.startswith(ROOT):
            return
        if event == "call":
            self.calls[f"{frame.f_code.co_filename[len(ROOT) + 1 :]}:{frame.f_code.co_name}"] += 1
        elif event == "c_call" and argument.__name__ in CLOCKS:
            self.clocks[argument.__name__] += 1

    def __enter__(self) -> None:
        sys.setprofile(self._note)

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> CallCount:
    """Return the count of a thousand steps of a model of three modules, a millisecond and two passes a second each."""
    now_ns = [0]

    def peek() -> int:
        now_ns[0] += 300_000  # it is read at the end of a step, and a few times in a pass
        return now_ns[0]

    monkeypatch.setattr(HostClock, "peek", staticmethod(peek))
    monkeypatch.setattr(StackProbe, "enable", lambda _probe: None)  # samples come by the time that a step really takes
    monkeypatch.setattr(debug_modes, "_profile", lambda: None)  # the count is itself what the probe looks for
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, found = torch.randn(4, 8), CallCount()

    def train(steps: int) -> None:
        for _ in range(steps):
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    # Without a budget each step is recorded, on a machine of any speed; the rest is the default of one line.
    with autoprof.instrument(model, {"sinks": {}, "sample": {"budget": None}}) as session:
        train(300)
        with found:
            train(STEPS)
        assert session.summary().steps > STEPS
    return found


def table(counts: Counter[str]) -> str:
    """Return the calls per step, most first."""
    rows = [f"{calls / STEPS:7.2f}  {name}" for name, calls in counts.most_common(60)]
    return "\n".join([f"{sum(counts.values()) / STEPS:7.2f}  per step", *rows])


def test_a_step_that_repeats_calls_few_functions_and_reads_few_clocks(count: CallCount) -> None:
    """What can wait for the pass waits, and an event that repeats is compared with the one before."""
    assert sum(count.calls.values()) / STEPS <= MAX_CALLS, table(count.calls)
    assert sum(count.clocks.values()) / STEPS <= MAX_CLOCKS, table(count.clocks)
