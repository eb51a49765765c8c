"""Calls of groups that are a part of the ranks: two groups of one name never meet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

import autoprof
from autoprof.probes._communication import UNKNOWN_MEMBERS
from autoprof.testing import ListSink

CONFIG: dict[str, Any] = {
    "targets": [{"match": ".+"}],
    "step": "manual",
    "sample": {"warmup": 0, "budget": None},
    "flops": "off",
    "sinks": {},
}


@pytest.fixture
def rank_2() -> Iterator[None]:
    """Rank 2 of 4; the communication with the others, which are not there, is over at once."""
    dist.init_process_group("fake", store=FakeStore(), rank=2, world_size=4)
    yield
    dist.destroy_process_group()


def train(step: Any, model: nn.Module | None = None) -> list[str]:
    """Train two steps; return the name of each call of a collective in the last one."""
    model, sink = nn.Sequential(nn.Linear(2, 2)) if model is None else model, ListSink()
    with autoprof.instrument(model, CONFIG, sinks=[sink]) as session:
        for _ in range(2):
            step(model)
            session.step()
    return [span.name for span in sink.frames[-1].spans if span.phase is autoprof.Phase.COMM]


@pytest.mark.usefixtures("rank_2")
def test_a_call_of_some_ranks_names_them() -> None:
    """By position or by keyword; a group of all ranks is no part, and a rank outside of a group calls nothing."""
    pair, every, apart = (dist.new_group(ranks) for ranks in ([2, 3], [0, 1, 2, 3], [0, 1]))
    x = torch.ones(2)

    def step(model: nn.Module) -> None:
        model(x).sum().backward()
        dist.all_reduce(x)
        dist.all_reduce(x, dist.ReduceOp.SUM, pair)
        dist.all_reduce(x, group=pair)
        dist.all_reduce(x, group=every)
        dist.barrier(group=pair)

    assert train(step) == [
        "Comm/all_reduce",
        "Comm/all_reduce (ranks 2-3)",
        "Comm/all_reduce (ranks 2-3)",
        "Comm/all_reduce",
        "Comm/barrier (ranks 2-3)",
    ]
    with pytest.warns(UserWarning, match="does not belong to"):
        assert train(lambda model: dist.all_reduce(x, group=apart)) == []


@pytest.mark.usefixtures("rank_2")
def test_the_reducers_wait_names_the_ranks_of_its_group() -> None:
    """As the replicas of one stage of a pipeline do."""
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(2, 2)), process_group=dist.new_group([0, 2]))

    def all_reduce(_state, bucket):  # torch compares annotations with its own
        done: torch.futures.Future[Any] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    model.register_comm_hook(None, all_reduce)
    assert train(lambda ddp: ddp(torch.ones(2)).sum().backward(), model) == ["Comm/DDP (ranks 0, 2)"]


@pytest.mark.usefixtures("rank_2")
def test_a_group_of_unknown_ranks_meets_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that torch.distributed did not make: the name of its calls says so."""

    def unknown(_group: object) -> list[int]:
        raise KeyError("no such group")

    pair = dist.new_group([2, 3])
    monkeypatch.setattr(dist, "get_process_group_ranks", unknown)
    sink = ListSink()
    with autoprof.instrument(nn.Sequential(nn.Linear(2, 2)), CONFIG, sinks=[sink]) as session:
        dist.all_reduce(torch.ones(2), group=pair)
        session.step()
    names = [span.name for span in sink.frames[-1].spans]
    assert f"Comm/all_reduce{UNKNOWN_MEMBERS}" in names
