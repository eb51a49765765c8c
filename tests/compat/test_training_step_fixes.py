"""The document of training-step fixes: autoprof itself never communicates between ranks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import autoprof


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Any]:
    """A process group of one, which counts its collectives."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def _train(session: Any, model: nn.Module, optimizer: Any, steps: int) -> None:
    for _ in range(steps):
        loss = model(torch.ones(2, 4)).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        session.log(loss=loss.detach(), samples=2)
        session.step()


def test_autoprof_never_communicates(group: Any, tmp_path: Path) -> None:
    """No broadcast per measurement, and no other collective: not at the start, in a step, in a summary or at the end.

    The group counts its collectives, also those from C++.
    """
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    config = {
        "output": str(tmp_path / "runs"),
        "sample": {"budget": None},
        "targets": [{"match": ".+", "memory": True}],
    }
    before = group._get_sequence_number_for_group()
    with autoprof.instrument(model, config, optimizer=optimizer) as session:
        _train(session, model, optimizer, 40)
        session.summary()
    assert group._get_sequence_number_for_group() == before
    dist.broadcast(torch.ones(1), src=0)  # the counter does see one
    assert group._get_sequence_number_for_group() == before + 1
