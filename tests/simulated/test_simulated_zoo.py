"""Small models of the zoo on the simulated accelerator: the same bits with and without autoprof, and an account."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from engine_laws import check_laws, everything
from zoo_bits import bits
from zoo_case import Case, seed_everything
from zoo_nasties import CASES
from zoo_train import Record, train

import autoprof
from autoprof.testing import ListSink

if TYPE_CHECKING:
    from simulated_accelerator import Simulated

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.filterwarnings("error:::autoprof")]
TRAINABLE = [case for case in CASES if not case.name.startswith(("packed", "output: "))]
"""Packed sequences need lengths on the host, and these cases draw theirs on the device."""


def trained(case: Case, sink: ListSink | None) -> Record:
    seed_everything(0)
    with torch.device("sim"):
        subject = case.build()
        seed_everything(1)
        if sink is None:
            return [*train(subject), ("device generator", random_state())]
        with autoprof.instrument(subject.model, everything(), sinks=[sink]) as session:
            record = train(subject, end_step=session.step)
        return [*record, ("device generator", random_state())]


def random_state() -> str:
    return bits(torch.get_device_module("sim").get_rng_state())


@pytest.mark.parametrize("case", TRAINABLE, ids=str)
def test_the_model_is_unharmed(sim: Simulated, case: Case) -> None:
    """Outputs, gradients, parameters, buffers and random numbers; every step is recorded and closes."""
    bare = trained(case, None)
    sink = ListSink()
    found = trained(case, sink)
    assert [name for name, _ in found] == [name for name, _ in bare]
    assert [name for (name, a), (_, b) in zip(found, bare, strict=True) if a != b] == []
    assert len(sink.frames) == 2
    for frame in sink.frames:
        check_laws(frame)
