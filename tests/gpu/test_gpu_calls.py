"""Calls that wait for a real device are seen with their time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attached import diagnosis_of
from torch import nn

import autoprof
from benchmarks.gpu.kernels import calibrate

pytestmark = pytest.mark.gpu
CONFIG: dict[str, Any] = {"targets": [{"match": ".*"}], "step": "manual", "sample": {"warmup": 2}, "sinks": {}}


def waits(session: Any) -> Any:
    diagnosis = diagnosis_of(session)
    session.close()
    return diagnosis.facts().waits


def test_a_value_read_behind_a_long_kernel_is_charged_to_its_line() -> None:
    """Ten milliseconds of kernel, so about that long a wait; a tensor of the host waits for nothing."""
    sleep = calibrate()
    model = nn.Linear(8, 8).cuda()
    session = autoprof.instrument(model, CONFIG)
    for _ in range(12):
        loss = model(torch.randn(4, 8, device="cuda")).sum()
        sleep(10_000_000)
        loss.item()
        torch.ones(()).item()
        session.step()
    facts = waits(session)
    (site,) = facts.sites
    assert (site.call, site.count) == ("item", 10)
    assert 8_000_000 < facts.mean_ns < 30_000_000


def test_synchronising_by_hand_is_seen() -> None:
    """``torch.cuda.synchronize``, of a stream, of an event."""
    sleep = calibrate()
    session = autoprof.instrument(nn.Linear(8, 8).cuda(), CONFIG)
    for _ in range(4):
        sleep(2_000_000)
        torch.cuda.synchronize()
        sleep(2_000_000)
        torch.cuda.current_stream().synchronize()
        event = torch.cuda.Event()
        event.record()
        event.synchronize()
        session.step()
    facts = waits(session)
    assert {site.call for site in facts.sites} == {"synchronize"}
    assert len(facts.sites) == 3
