"""The document of training-step fixes: autoprof itself never communicates between ranks."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
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


COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "all_to_all_single",
    "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list", "gather", "gather_object", "irecv", "isend",
    "monitored_barrier", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter",
    "scatter_object_list", "send",
)  # fmt: skip


@contextlib.contextmanager
def _counted_collectives(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Note each collective of ``torch.distributed`` that is called, and from where."""
    called: list[str] = []

    def watch(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            called.append(f"{name} from {inspect.stack()[1].filename}")
            return original(*args, **kwargs)

        return call

    with monkeypatch.context() as patch:
        for name in COLLECTIVES:
            patch.setattr(dist, name, watch(name, getattr(dist, name)))
        yield called


def _train(session: Any, model: nn.Module, optimizer: Any, steps: int) -> None:
    for _ in range(steps):
        loss = model(torch.ones(2, 4)).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        session.log(loss=loss.detach(), samples=2)
        session.step()


def test_autoprof_never_communicates(group: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No broadcast per measurement, and no other collective: not at the start, in a step, in a summary or at the end.

    Both the calls from Python and the group's own count, which includes those from C++. Every sink is on.
    """
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    config = {
        "output": str(tmp_path / "runs"),
        "sample": {"budget": None},
        "targets": [{"match": ".+", "memory": True}],
    }
    with _counted_collectives(monkeypatch) as called:
        before = group._get_sequence_number_for_group()
        with autoprof.instrument(model, config, optimizer=optimizer) as session:
            _train(session, model, optimizer, 40)
            session.summary()
        assert called == []
        assert group._get_sequence_number_for_group() == before
        dist.broadcast(torch.ones(1), src=0)  # both counters do see one
        assert len(called) == 1
        assert group._get_sequence_number_for_group() == before + 1
