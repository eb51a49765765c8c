"""Copies to a CUDA device: seen on the device's clock, without waiting."""

from __future__ import annotations

import pytest
import torch
from engine_laws import check_laws, everything
from torch import nn

import autoprof
from autoprof import Phase
from autoprof.testing import ListSink
from benchmarks.gpu.target import no_synchronisation

pytestmark = pytest.mark.gpu

BYTES = 256 << 20


@pytest.mark.parametrize("pinned", [True, False])
def test_a_copy_takes_as_long_as_the_device_says(pinned: bool) -> None:
    """A pinned copy returns at once and takes its time on the device; the span has both."""
    model, sink = nn.Linear(2, 2).cuda(), ListSink()
    batch = torch.ones(BYTES, dtype=torch.uint8, pin_memory=pinned)
    with autoprof.instrument(model, everything(), sinks=[sink]) as session:
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        if pinned:
            with no_synchronisation():
                moved = batch.to("cuda", non_blocking=True)
        else:
            moved = batch.cuda()
        after.record()
        moved.to("cuda")
        session.step()
        after.synchronize()
    frame = sink.frames[0]
    check_laws(frame)
    (span,) = [span for span in frame.spans if span.phase is Phase.H2D]
    assert span.device_ns is not None
    expected_ns = before.elapsed_time(after) * 1e6
    assert 0.5 * expected_ns <= span.device_ns <= expected_ns + 60_000  # twice the scatter of events
    assert torch.equal(moved.cpu(), batch)
