"""Wrappers of torch.distributed and of training frameworks train a recorded model to the bits of the bare one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from mark_promises import as_bare, backwards, forwards, train_step, two_layers
from torch.nn.parallel import DistributedDataParallel

from autoprof import StepFrame


def of_layers(frame: StepFrame) -> dict[str, int]:
    """Return the forward calls of the three layers, whatever wraps them."""
    return {name: forwards(frame)[name] for name in "012"}


LAYERS = {"0": 1, "1": 1, "2": 1}

# One rank.


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    """Be the only rank of a process group on the host."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("options", [{}, {"static_graph": True}, {"find_unused_parameters": True}], ids=str)
@pytest.mark.filterwarnings("ignore:find_unused_parameters=True")
def test_a_model_in_ddp_trains_as_without_a_session(options: dict[str, Any]) -> None:
    """The wrapper is instrumented; its layers are recorded, forward and backward."""
    for frame in as_bare(lambda: DistributedDataParallel(two_layers(), **options), train_step, steps=3):
        assert of_layers(frame) == LAYERS
        assert {name: backwards(frame)[name] for name in "012"} == LAYERS


# Frameworks that may be there.
