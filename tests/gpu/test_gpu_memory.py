"""Memory on a device: the user's counters, bounds of peaks, snapshots, and a failure that stays the user's."""

import gc
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import autoprof
from benchmarks.gpu.target import no_synchronisation

pytestmark = pytest.mark.gpu
MIB = 2**20
CONFIG: dict[str, Any] = {"targets": [{"match": r"\d", "memory": True}], "sinks": {}, "sample": {"warmup": 0}}


class Scratch(nn.Module):
    """Take ``scratch`` MiB for the length of its call, and keep ``keeps`` MiB for backward."""

    def __init__(self, scratch: int, keeps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(keeps * MIB // 4, device="cuda"))
        self.scratch = scratch

    def forward(self, x: Tensor) -> Tensor:
        torch.empty(self.scratch * MIB, dtype=torch.uint8, device="cuda")
        return x + (self.weight * x).mean()


def model() -> nn.Sequential:
    return nn.Sequential(Scratch(64, 4), Scratch(16, 4))


def train(net: nn.Module, optimizer: torch.optim.Optimizer, session: Any = None, steps: int = 4) -> None:
    for _ in range(steps):
        net(torch.ones(1, device="cuda", requires_grad=True)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if session is not None:
            session.step()


def counters() -> tuple[int, int, int]:
    return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_allocated()


def test_the_users_counters_read_the_same_with_and_without() -> None:
    """Peaks since the user's own reset, and what is allocated now."""
    read = []
    for on in (True, False):
        net = model()
        optimizer = torch.optim.Adam(net.parameters())
        train(net, optimizer, steps=1)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        if on:
            with autoprof.instrument(net, CONFIG, optimizer=optimizer) as session:
                train(net, optimizer, session)
        else:
            train(net, optimizer)
        read.append(counters()[::2])
    assert read[0] == read[1]


@pytest.mark.parametrize("config", [CONFIG, {"sinks": {}}], ids=["rules", ""])
def test_a_closed_session_gives_all_memory_of_the_training_back(config: dict[str, Any]) -> None:
    """At once, while the program still has the session: the next model finds the device as this one did."""
    gc.collect()
    gc.disable()
    try:
        before, sessions = torch.cuda.memory_allocated(), []
        for _ in range(3):
            net = model()
            optimizer = torch.optim.Adam(net.parameters())
            with autoprof.instrument(net, config, optimizer=optimizer) as session:
                train(net, optimizer, session)
            sessions.append(session)
            del net, optimizer
            assert torch.cuda.memory_allocated() == before
    finally:
        gc.enable()


def test_reading_memory_never_waits_for_the_device() -> None:
    """Torch sees no synchronisation in a step whose modules are measured."""
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), capturable=True)
    train(net, optimizer, steps=2)
    with autoprof.instrument(net, CONFIG, optimizer=optimizer) as session, no_synchronisation():
        train(net, optimizer, session)


def test_when_memory_runs_out_the_exception_is_the_users(tmp_path: Path) -> None:
    """It comes out as torch raised it, and what was held is written; training goes on after it."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    config = {**CONFIG, "output": str(tmp_path), "memory_snapshot": {"oom": True}}
    with autoprof.instrument(net, config, optimizer=optimizer) as session:
        train(net, optimizer, session, steps=1)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        train(net, optimizer, session, steps=2)
    (path,) = tmp_path.rglob("memory_snapshot_rank0_oom.pickle")
    assert pickle.loads(path.read_bytes())["segments"]
    assert session.summary().steps == 3
