"""Models on a device that is not current, and on two: kernels of known length, read where they run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from engine_laws import check_laws
from torch import Tensor, nn

from autoprof import Phase
from autoprof.frame import TRAINING_LANE
from benchmarks.gpu.checks import device_ns, record
from benchmarks.gpu.kernels import Sleeper, calibrate

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]
MS = 1_000_000


class There(Sleeper):
    """Sleep on the device that the input lies on; before and after, the current device is what it was."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.cuda.device(x.device):
            return super().forward(x)


class To(nn.Module):
    """Copy to another device."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def forward(self, x: Tensor) -> Tensor:
        return x.to(f"cuda:{self.index}", non_blocking=True)


@pytest.fixture(scope="module")
def sleep() -> Callable[[float], None]:
    return calibrate()


def middle(values: list[int]) -> int:
    assert values
    return sorted(values)[len(values) // 2]


def test_a_model_on_a_device_that_is_not_current_has_its_own_times(sleep: Callable[[float], None]) -> None:
    """``model.to("cuda:1")`` without ``set_device``: the step's account is that of device 1, and closes."""
    model = nn.Sequential(nn.Linear(8, 8), There(sleep, 2 * MS, 3 * MS), nn.Linear(8, 8)).to("cuda:1")
    x = torch.randn(4, 8, device="cuda:1")
    assert torch.cuda.current_device() == 0
    frames = record(model, lambda: model(x).sum().backward(), targets=[{"match": ".+"}])
    assert torch.cuda.current_device() == 0
    assert middle(device_ns(frames, "1", Phase.FORWARD)) == pytest.approx(2 * MS, rel=0.05)
    assert middle(device_ns(frames, "1", Phase.BACKWARD)) == pytest.approx(3 * MS, rel=0.05)
    for frame in frames:
        check_laws(frame)
        assert {span.lane for span in frame.spans} == {TRAINING_LANE}


def test_each_part_of_a_model_on_two_devices_has_its_own_time(sleep: Callable[[float], None]) -> None:
    """Forward and backward of both parts; the second part is beside the step of the first."""
    model = nn.Sequential(
        nn.Linear(8, 8).to("cuda:0"),
        There(sleep, 2 * MS, 3 * MS),
        To(1),
        nn.Linear(8, 8).to("cuda:1"),
        There(sleep, 4 * MS, 5 * MS),
        nn.Linear(8, 8).to("cuda:1"),
    )
    x = torch.randn(4, 8, device="cuda:0")

    def step() -> None:
        model(x).sum().backward()
        for index in (0, 1):
            torch.cuda.synchronize(index)

    frames = record(model, step, targets=[{"match": ".+"}])
    for fqn, phase, expected in (
        ("1", Phase.FORWARD, 2 * MS),
        ("1", Phase.BACKWARD, 3 * MS),
        ("4", Phase.FORWARD, 4 * MS),
        ("4", Phase.BACKWARD, 5 * MS),
    ):
        assert middle(device_ns(frames, fqn, phase)) == pytest.approx(expected, rel=0.05)
    for frame in frames:
        check_laws(frame)
        lanes = {span.fqn: span.lane for span in frame.spans if span.phase is Phase.FORWARD}
        assert lanes["1"] == TRAINING_LANE
        assert lanes["4"] > TRAINING_LANE
