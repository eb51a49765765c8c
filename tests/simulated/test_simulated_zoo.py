"""The zoo's unusual models, on the simulated accelerator: bits with and without autoprof, laws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import pytest
import torch
from bits import bits
from engine_laws import check_laws, everything
from torch import Tensor
from torch.utils import _pytree as pytree
from zoo_case import Arguments, Case, seed_everything
from zoo_registry import NASTIES
from zoo_train import Record, train

import autoprof
from autoprof.testing import ListSink

if TYPE_CHECKING:
    from simulated_accelerator import Simulated

CASES: Final = NASTIES
"""A layer of ``torch.nn`` alone does on this device what it does in one of these."""
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.filterwarnings("error:::autoprof")]
CANNOT_RUN: Final[Mapping[str, str]] = {
    "nasty/packed LSTM": "a fused cell of the device",
    "nasty/packed LSTM with projection": "a fused cell of the device",
    "nasty/packed GRU": "a fused cell of the device",
    "nasty/quantised input": "quantised memory",
    "nasty/sparse input": "sparse memory",
    "nasty/sparse gradients": "sparse memory",
    "nasty/sparse output": "sparse memory",
    "nasty/DataParallel on the CPU": "a torch that is built for CUDA",
    "nasty/hooks on tensors that are saved": "the host: it keeps saved tensors there as arrays of NumPy",
}
"""What each case needs that the simulated accelerator has not. These do not run on it without autoprof either."""
LAZY: Final = ("nasty/lazy modules",)
"""Built on the device: a move to another backend replaces the parameters, and torch forgets that they are lazy."""
WARMED: Final = ("nasty/scripted inside",)
"""TorchScript rewrites the backward after its first run in a process; its bits are the same from then on."""


def trained(case: Case, sink: ListSink | None) -> Record:
    seed_everything(0)
    with torch.device("sim" if str(case) in LAZY else "cpu"):
        subject = case.build()
    subject.model.to("sim")
    draw = subject.draw
    subject = subject._replace(draw=lambda: moved(draw()))
    seed_everything(1)
    if sink is None:
        return [*train(subject), ("device generator", random_state())]
    with autoprof.instrument(subject.model, everything(), sinks=[sink]) as session:
        record = train(subject, end_step=session.step)
    return [*record, ("device generator", random_state())]


def moved(arguments: Arguments) -> Any:
    """Copy a batch to the device; leaves stay leaves."""
    return pytree.tree_map_only(Tensor, lambda t: t.detach().to("sim").requires_grad_(t.requires_grad), arguments)


def random_state() -> str:
    return bits(torch.get_device_module("sim").get_rng_state())


@pytest.mark.parametrize("case", [case for case in CASES if str(case) not in CANNOT_RUN], ids=str)
def test_the_model_is_unharmed(sim: Simulated, case: Case) -> None:
    """Outputs, gradients, parameters, buffers and random numbers; every step is recorded and closes."""
    if str(case) in WARMED:
        trained(case, None)
    bare = trained(case, None)
    sink = ListSink()
    found = trained(case, sink)
    assert [name for name, _ in found] == [name for name, _ in bare]
    assert [name for (name, a), (_, b) in zip(found, bare, strict=True) if a != b] == []
    assert len(sink.frames) == 2
    for frame in sink.frames:
        check_laws(frame)


def test_each_case_that_is_left_out_is_one_of_the_zoo() -> None:
    """So that the reasons stay true when a case gets another name."""
    assert {*CANNOT_RUN, *LAZY, *WARMED} <= {str(case) for case in CASES}
