"""Operators on a fake device, and what the autograd engine does with streams there: tests need no GPU for it.

``Op``, ``On`` and ``Beside`` run on whatever has ``work``, ``on`` and ``wait_for``, so tests/gpu runs them on CUDA.
"""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from autoprof.devices import Place
from autoprof.testing import FakeDevice


class _Launch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, device: Any, forward_ns: int, backward_ns: int, at: int | None) -> Tensor:
        ctx.device, ctx.backward_ns = device, backward_ns
        device.work(forward_ns) if at is None else device.work(forward_ns, device=at)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        ctx.device.work(ctx.backward_ns)
        return grads[0] * 2, None, None, None, None


def launch(device: Any, x: Tensor, forward_ns: int, backward_ns: int, at: int | None = None) -> Tensor:
    """Queue an operator, on tensors of the device ``at`` or of the current one.

    Its backward runs on the forward's stream, which waits for the one before, as torch has it.
    """
    made: Tensor = _Launch.apply(x, device, forward_ns, backward_ns, at)
    if at is not None:
        device.move(made, at)
    if made.grad_fn is not None and isinstance(device, FakeDevice):  # elsewhere the engine does it
        made.register_hook(_follow(device, device.place if at is None else device.place_on(at)))  # before any mark
    return made


def transfer(device: FakeDevice, x: Tensor, to: int) -> Tensor:
    """Copy a tensor to another device, whose stream waits for what its own has queued: ``x.to(...)``."""
    index = device.index_of(x)
    assert index is not None
    device.wait_for(*device.place_on(index), on=to)
    return launch(device, x, 0, 0, to)


def backward_by_devices(value: Tensor, device: FakeDevice) -> None:
    """Run the backward pass; in this thread the device and its streams stay what they were."""
    with device.on(*device.place):
        torch.autograd.backward(value)


def _follow(device: FakeDevice, place: Place) -> Callable[[Any], None]:
    def follow(_grads: Any) -> None:
        before = device.place
        device.switch_to(*place)
        if place != before:
            device.wait_for(*before)

    return follow


def backward_on_thread(value: Tensor, device: FakeDevice) -> None:
    """Run the backward pass on a thread of its own while this one waits, then wait for its streams as torch does."""
    left: list[Place] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            value.backward()
        except BaseException as error:
            errors.append(error)
        left.append(device.place)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    device.wait_for(*left[0])


class Op(nn.Module):
    """One operator, after some time on the host."""

    def __init__(self, device: Any, forward_ns: int, backward_ns: int = 0, host_ns: int = 0) -> None:
        super().__init__()
        self.device, self.forward_ns, self.backward_ns, self.host_ns = device, forward_ns, backward_ns, host_ns

    def forward(self, x: Tensor) -> Tensor:
        self.device.clock.advance(self.host_ns)
        return launch(self.device, x, self.forward_ns, self.backward_ns)


class Weighted(nn.Module):
    """One operator on the device that its weight lies on, whichever is current; its input is fetched from elsewhere."""

    def __init__(self, device: FakeDevice, forward_ns: int, backward_ns: int = 0, at: int = 0) -> None:
        super().__init__()
        self.device, self.forward_ns, self.backward_ns = device, forward_ns, backward_ns
        self.weight = nn.Parameter(torch.ones(1))
        device.move(self, at)

    def forward(self, x: Tensor) -> Tensor:
        at = self.device.index_of(self.weight)
        assert at is not None
        if self.device.index_of(x) not in (None, at):
            x = transfer(self.device, x, at)
        return launch(self.device, x, self.forward_ns, self.backward_ns, at)


class Activation(nn.Module):
    """One operator on the device that its input lies on."""

    def __init__(self, device: FakeDevice, forward_ns: int, backward_ns: int = 0) -> None:
        super().__init__()
        self.device, self.forward_ns, self.backward_ns = device, forward_ns, backward_ns

    def forward(self, x: Tensor) -> Tensor:
        return launch(self.device, x, self.forward_ns, self.backward_ns, self.device.index_of(x))


class On(nn.Module):
    """Run the child on another stream, or on another device, and wait for it."""

    def __init__(self, device: Any, child: nn.Module, place: Place) -> None:
        super().__init__()
        self.device, self.child, self.place = device, child, place

    def forward(self, x: Tensor) -> Tensor:
        before = self.device.place
        with self.device.on(*self.place):
            self.device.wait_for(*before)
            value = self.child(x)
        self.device.wait_for(*self.place)
        return value


class Beside(nn.Module):
    """Run one child on a side stream while the other runs on this one, then wait for both."""

    def __init__(self, device: Any, side: nn.Module, main: nn.Module, stream: int = 1) -> None:
        super().__init__()
        self.device, self.side, self.main, self.stream = device, side, main, stream

    def forward(self, x: Tensor) -> Tensor:
        index, before = self.device.place
        with self.device.on(index, self.stream):
            self.device.wait_for(index, before)
            aside = self.side(x)
        here = self.main(x)
        self.device.wait_for(index, self.stream)
        return aside + here
