"""The processor time of a session outside of steps: counted once, and in every report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

import autoprof
from autoprof._process.start_time import StartTime
from autoprof._session.session_cost import SessionCost
from autoprof.summary import Summary
from autoprof.testing import FakeClock, open_session


class Thread:
    """A thread whose processor time the test sets."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def test_a_block_inside_another_counts_once() -> None:
    """Opening a session loads a part of autoprof, which counts its own loading."""
    thread = Thread()
    start = StartTime(thread)
    with start.counted():
        thread.ns = 30
        with start.counted():
            thread.ns = 50
        thread.ns = 60
    thread.ns = 1000
    assert start.take() == 60


def test_a_session_takes_the_time_since_the_one_before() -> None:
    """The first session of a process has the imports; the block that opens it is still counted."""
    thread = Thread()
    start = StartTime(thread)
    start.add(5)
    with start.counted():
        thread.ns = 100
        assert start.take() == 105
        thread.ns = 103
    assert start.take() == 3
    assert start.take() == 0


def test_the_end_is_counted_up_to_the_summary() -> None:
    """The time between the start and the end belongs to the steps."""
    thread = Thread()
    cost = SessionCost(thread)
    cost.opened(70)
    thread.ns = 5000
    assert cost.annotate(Summary.empty()).end_ns is None
    cost.end_begins()
    thread.ns = 5040
    summary = cost.annotate(Summary.empty())
    assert (summary.start_ns, summary.end_ns) == (70, 40)


def test_a_clock_of_the_callers_own_shows_no_cost() -> None:
    """Its steps take no real time, so that real time beside them would mislead."""
    session = open_session(nn.Linear(2, 2), {"sinks": {}}, clock=FakeClock(tick_ns=1000))
    session.close()
    assert session.summary().start_ns is None
    assert session.summary().end_ns is None


def test_every_report_has_the_start_and_the_end(tmp_path: Path, capsys: Any) -> None:
    """The console, ``summary.txt`` and ``summary.json`` state them beside the cost of the steps."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = autoprof.instrument(model, {"output": str(tmp_path), "monitor": "off"}, optimizer=optimizer)
    for _ in range(6):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        session.step()
    assert session.summary().end_ns is None
    session.close()
    summary = session.summary()
    assert summary.start_ns is not None
    assert summary.end_ns is not None
    assert min(summary.start_ns, summary.end_ns) > 0
    assert session.folder is not None
    saved = json.loads((session.folder / "summary.json").read_text())
    assert (saved["start_ns"], saved["end_ns"]) == (summary.start_ns, summary.end_ns)
    for text in (capsys.readouterr().out, (session.folder / "summary.txt").read_text()):
        (line,) = [line for line in text.splitlines() if line.startswith("overhead ")]
        assert "start " in line
        assert ", steps " in line
        assert ", end " in line
