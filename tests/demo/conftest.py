"""What the tests of the reference workload share: one thread, a tiny model, a batch of real clips."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.data import default_collate

from examples.demo.data import BlurredClips, Clip, load_photographs
from examples.demo.model import VRTWithSpike
from examples.demo.presets import PRESETS


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Keep the sums in one order, and the other tests of the machine at work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def batch() -> Clip:
    """Two clips of the tiny size."""
    clips = BlurredClips(load_photographs(), PRESETS["tiny"], length=2, seed=5)
    collated: Clip = default_collate([clips[0], clips[1]])
    return collated


@pytest.fixture(scope="session")
def tiny_model() -> Callable[..., VRTWithSpike]:
    """Return a function that builds the tiny model with the weights of seed 0, some settings changed."""

    def build(**changes: Any) -> VRTWithSpike:
        torch.manual_seed(0)
        return VRTWithSpike(replace(PRESETS["tiny"].model, **changes))

    return build
