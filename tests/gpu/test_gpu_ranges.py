"""Ranges on a device, where the backward runs in a thread of autograd's own."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import autoprof
from benchmarks.workloads import small_gpt

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")
OPTIONS = {"sinks": {}, "sample": {"warmup": 0}, "ranges": "both"}


def test_nvtx_ranges_are_balanced_on_the_training_thread() -> None:
    """After each step the stack of this thread is as deep as it was: a push answers with its depth."""
    workload = small_gpt(CUDA)
    with autoprof.instrument(workload.model, {**workload.config, "sinks": {}, "ranges": "nvtx"}) as session:
        for _ in range(3):
            workload.step()
            session.step()
            assert torch.cuda.nvtx.range_push("depth") == 0
            torch.cuda.nvtx.range_pop()
        assert not [reason for reason in session.summary().skipped if "range" in reason]


def test_the_profiler_shows_a_backward_for_each_forward_on_a_device() -> None:
    """Ranges that autograd's thread opens are there, as many as the spans that the session has."""
    workload = small_gpt(CUDA)
    with autoprof.instrument(workload.model, {**workload.config, **OPTIONS}) as session:
        workload.step()
        session.step()
        with profile(activities=[ProfilerActivity.CPU]) as found:
            workload.step()
            torch.cuda.synchronize()
        session.step()
        names = {row.name for row in session.summary().rows if row.phase is autoprof.Phase.BACKWARD and row.fqn}
    seen = {event.name for event in found.events()}
    assert names
    assert {f"{name} [backward]" for name in names} <= seen
