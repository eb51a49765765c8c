"""Copies to the device are ``h2d`` spans. ``meta`` stands for the device: to torch it is not the host.

What the copy takes there is the fake device's to say; that CUDA agrees is checked in tests/gpu.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from engine_laws import Watched, check_laws, count, everything
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from autoprof import Phase
from autoprof.probes import copies
from autoprof.testing import FakeClock, FakeDevice

ORIGINAL = torch._C.TensorBase.to
DATA = everything(targets=[{"match": "0"}])


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    """A device that takes 40 ns for a copy."""
    made, tell = FakeDevice(FakeClock(), lag_ns=5), copies._copy

    def copy(inner: Any, listeners: Any, *rest: Any) -> Any:
        def slow(*args: Any, **kwargs: Any) -> Any:
            made.work(40)
            return inner(*args, **kwargs)

        return tell(slow, listeners, *rest)

    monkeypatch.setattr(copies, "_copy", copy)
    yield made
    assert torch.Tensor.to is ORIGINAL
    assert "to" not in vars(torch.Tensor)
    assert "cuda" not in vars(torch.Tensor)


def model() -> nn.Module:
    """Return a small model; it stays on the host."""
    return nn.Sequential(nn.Linear(2, 2))


def test_a_copy_to_the_device_is_a_span_of_the_devices_time(device: FakeDevice) -> None:
    """By a device, a string, a keyword or another tensor; each one call of one row."""
    x, there = torch.ones(2), torch.empty(1, device="meta")
    with Watched(model(), clock=device.device_clock(), config=DATA) as watched:
        for moved in (x.to("meta"), x.to(torch.device("meta")), x.to(device="meta"), x.to(there), x.to(tensor=there)):
            assert moved.device.type == "meta"
        device.wait_here()
        watched.step()
    frame = watched.sink.frames[0]
    check_laws(frame)
    assert count(frame, Phase.H2D) == {"To device": 5}
    assert frame.phase_ns()[Phase.H2D] == 5 * 40 == frame.device_duration_ns


def test_what_moves_nothing_is_no_copy(device: FakeDevice) -> None:
    """A change of type, a device it is on already, and the way back."""
    x, there = torch.ones(2), torch.empty(2, device="meta")
    with Watched(model(), clock=device.device_clock(), config=DATA) as watched:
        x.to(torch.float64)
        x.to("cpu")
        x.to("cpu", torch.float64)
        x.to(x)
        x.to(dtype=torch.float64)
        x.to(memory_format=torch.preserve_format)
        x.to(None, torch.float64)
        there.to("meta")
        there.to(torch.float64)
        watched.step()
    assert not count(watched.sink.frames[0], Phase.H2D)


def test_a_run_on_the_host_has_no_copies_and_tensor_is_untouched() -> None:
    """Nothing is wrapped where the host's clock is the one that counts."""
    with Watched(model()) as watched:
        assert torch.Tensor.to is ORIGINAL
        torch.ones(2).to("meta")
        watched.step()
    assert not count(watched.frames[0], Phase.H2D)


def test_overrides_hear_of_the_call_and_of_nothing_else(device: FakeDevice) -> None:
    """A subclass with ``__torch_function__`` and a mode: the same calls with and without a session."""
    heard: list[str] = []

    class Loud(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            heard.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            heard.append("mode " + func.__name__)
            return func(*args, **(kwargs or {}))

    def calls() -> list[str]:
        heard.clear()
        loud = torch.ones(2).as_subclass(Loud)
        loud.to("meta")
        loud.to(loud)
        with Mode():
            torch.ones(1).to("meta")
        return heard[:]

    bare = calls()
    with Watched(model(), clock=device.device_clock(), config=DATA):
        assert calls() == bare


def test_a_compiled_function_that_copies_is_compiled_once(device: FakeDevice) -> None:
    """No guard sees the wrapper come and go."""
    graphs: list[Any] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=backend)
    def work(x: Tensor) -> Tensor:
        return (x * 2).to("meta")

    torch._dynamo.reset()
    with Watched(model(), clock=device.device_clock(), config=DATA) as watched:
        for _ in range(3):
            work(torch.ones(2))
            with watched.session.pause():
                work(torch.ones(2))
            watched.step()
    work(torch.ones(2))
    torch._dynamo.reset()
    assert len(graphs) == 1
