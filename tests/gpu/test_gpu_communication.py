"""Communication over NCCL: no event on its stream, and no wait."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import autoprof
from autoprof.probes import collectives
from autoprof.testing import ListSink
from benchmarks.gpu.target import no_synchronisation

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::UserWarning:torch")]
CONFIG: dict[str, Any] = {"step": "manual", "sample": {"warmup": 0, "budget": None}, "flops": "off", "sinks": {}}
STEPS = 8


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A group of this process alone, which autoprof takes for one of several: a machine has one device."""
    dist.init_process_group(
        "nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1, device_id=torch.device("cuda", 0)
    )
    monkeypatch.setattr(collectives, "has_ranks", dist.is_initialized)
    yield
    dist.destroy_process_group()


def train(profiled: bool) -> tuple[list[torch.Tensor], Any]:
    """Return the parameters and the summary."""
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32)).cuda())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    session = autoprof.instrument(model, CONFIG, optimizer=optimizer, sinks=[ListSink()]) if profiled else None
    x = torch.ones(8, 32, device="cuda")
    for number in range(STEPS):
        if number < 3:
            _step(model, optimizer, x)
        else:
            with no_synchronisation():
                _step(model, optimizer, x)
        if session is not None:
            session.step()
    if session is not None:
        session.close()
    parameters = [one.detach().clone() for one in model.parameters()]
    return parameters, session and session.summary()


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


@pytest.mark.usefixtures("group")
def test_the_training_by_ddp_waits_for_nothing() -> None:
    """Its steps keep their bits and do not wait for the device; the wait for the reducer is a span of each."""
    bare = train(False)[0]
    seen, summary = train(True)
    assert all(torch.equal(one, other) for one, other in zip(seen, bare, strict=True))
    assert [row.calls for row in summary.rows if row.name.startswith("Comm/DDP")] == [STEPS]
