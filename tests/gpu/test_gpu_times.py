"""Device times: autoprof reads from the device what a kernel of known length took."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from autoprof import Phase, StepFrame
from benchmarks.gpu.checks import device_ns, on_stream, record
from benchmarks.gpu.kernels import calibrate, sleepers

pytestmark = pytest.mark.gpu
MS = 1_000_000
EVERY_MODULE = [{"match": ".+"}]


@pytest.fixture(scope="module")
def sleep() -> Callable[[float], None]:
    return calibrate()


def middle(values: list[int]) -> int:
    assert values
    return sorted(values)[len(values) // 2]


def test_a_forward_kernel_has_its_length(sleep: Callable[[float], None]) -> None:
    """The span of a module that sleeps 2 ms in forward is 2 ms long on the device."""
    model = sleepers(sleep, (2 * MS, 0))
    frames = record(model, on_stream(model, None), targets=[{"match": "1"}])
    assert middle(device_ns(frames, "1", Phase.FORWARD)) == pytest.approx(2 * MS, rel=0.05)


def test_a_backward_kernel_has_its_length(sleep: Callable[[float], None]) -> None:
    """The backward span of a module that sleeps 3 ms on the way back is 3 ms long on the device."""
    model = sleepers(sleep, (0, 3 * MS))
    frames = record(model, on_stream(model, None), targets=[{"match": "1"}])
    assert middle(device_ns(frames, "1", Phase.BACKWARD)) == pytest.approx(3 * MS, rel=0.05)


def test_a_side_stream_is_read_on_that_stream(sleep: Callable[[float], None]) -> None:
    """Marks go where the work runs: on the wrong stream the kernel would read as nothing."""
    model = sleepers(sleep, (2 * MS, 3 * MS))
    frames = record(model, on_stream(model, torch.cuda.Stream()), targets=[{"match": "1"}])
    assert middle(device_ns(frames, "1", Phase.FORWARD)) == pytest.approx(2 * MS, rel=0.05)
    assert middle(device_ns(frames, "1", Phase.BACKWARD)) == pytest.approx(3 * MS, rel=0.05)


def test_the_account_closes_on_the_device(sleep: Callable[[float], None]) -> None:
    """On every step children and self make the parent, and the phases and the rest make the step."""
    model = nn.Sequential(sleepers(sleep, (MS, MS), (MS, MS)), sleepers(sleep, (MS, MS)))
    for frame in record(model, on_stream(model, None), targets=EVERY_MODULE):
        closes(frame)


def closes(frame: StepFrame) -> None:
    assert frame.device_duration_ns is not None
    total, own = frame.total_ns, frame.layout.self_ns(frame.total_ns)
    for parent in range(len(total)):
        children = [i for i, of in enumerate(frame.layout.parents) if of == parent]
        assert own[parent] + sum(int(total[child]) for child in children) == total[parent]
        assert own[parent] >= 0
    assert sum(frame.phase_ns().values()) == frame.step_ns
