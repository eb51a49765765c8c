"""Several ranks on a device that torch itself drives, whose thread runs the backward pass without Python below it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from test_simulated_times import Kernel, layer
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore

import autoprof
from autoprof import Phase
from autoprof.testing import ListSink

if TYPE_CHECKING:
    from simulated_accelerator import Simulated

MS = 1_000_000
STEPS = 4


@pytest.fixture
def ranks(sim: Simulated | None) -> Iterator[None]:
    """Two ranks, of which the other one is not there: its communication is over at once."""
    if sim is None:  # the child runs the test
        yield
        return
    dist.init_process_group("cpu:fake,sim:fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def all_reduce(_state, bucket):  # torch compares annotations with its own
    """Communicate a bucket of gradients; the future of the fake group's own work has no value."""
    dist.all_reduce(bucket.buffer(), async_op=True)
    done: torch.futures.Future[Any] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


@pytest.mark.usefixtures("ranks")
@pytest.mark.filterwarnings("ignore:.*registering a comm hook")
def test_the_backward_of_ddp_is_the_steps_own(sim: Simulated) -> None:
    """Each module's backward has its kernel's length, on the step's own stream; DDP's wait is communication."""
    lengths = {"1": 2 * MS, "2": 5 * MS}
    kernels = [Kernel(sim, MS, length) for length in lengths.values()]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(layer(), *kernels, layer()))
    model.register_comm_hook(None, all_reduce)
    sink = ListSink()
    config: dict[str, Any] = {
        "targets": [{"match": ".+"}],
        "step": "manual",
        "sample": {"warmup": 0, "budget": None},
        "flops": "off",
        "sinks": {},
    }
    with autoprof.instrument(model, config, sinks=[sink]) as session:
        for step in range(STEPS):
            # Behind a hold the last step has no gap, however late the host is; in the first ones DDP waits itself.
            with sim.held() if step == STEPS - 1 else nullcontext():
                model(torch.ones(4, 8, device="sim", requires_grad=True)).sum().backward()
                session.step()
            sim.finish()
    summary = session.summary()
    assert "marks without a counterpart" not in summary.skipped
    assert not any("communication" in reason for reason in summary.skipped)
    spans = {span.name: span for span in sink.frames[-1].spans if span.phase is Phase.BACKWARD and span.fqn}
    assert {span.lane for span in spans.values()} == {0}
    for name, length in lengths.items():
        (found,) = [span for span in spans.values() if span.fqn.endswith(name)]
        assert found.device_ns == length
    assert [row.calls for row in summary.rows if row.phase is Phase.COMM] == [STEPS]
