"""Ranges on a device, where the backward runs in a thread of autograd's own."""

from __future__ import annotations

from threading import get_ident

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import autoprof
from autoprof._capture.hooks import ranges
from benchmarks.workloads import small_gpt

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")
OPTIONS = {"sinks": {}, "sample": {"warmup": 0}, "ranges": "profiler"}


class Depths:
    """The depth of each thread's stack of ranges: without a tool that takes them, NVTX has none."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}
        self.most = 0

    def range_push(self, name: str) -> None:
        self.of[get_ident()] = depth = self.of.get(get_ident(), 0) + 1
        self.most = max(self.most, depth)

    def range_pop(self) -> None:
        self.of[get_ident()] -= 1

    def mark(self, name: str) -> None:
        pass


def test_nvtx_ranges_are_balanced_on_the_training_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each step the stack of this thread is as deep as it was, also beside a backward thread."""
    workload, depths = small_gpt(CUDA), Depths()
    monkeypatch.setattr(ranges, "nvtx", depths)
    with autoprof.instrument(workload.model, {**workload.config, "sinks": {}, "ranges": "nvtx"}) as session:
        for _ in range(3):
            workload.step()
            session.step()
            assert depths.of[get_ident()] == 0
        assert depths.most > 1
        assert not [reason for reason in session.summary().skipped if "range" in reason]


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events:UserWarning")
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
