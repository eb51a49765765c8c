"""What the trainings are made of: layers that take time and memory, and the loop around them."""
# mypy: allow-untyped-calls
# (torch leaves Tensor.backward without types.)

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...summary import Summary
from ...testing import FakeAllocator, FakeClock, FakeDevice, open_session

MS: Final = 1_000_000
STEPS: Final = 48
WIDTH: Final = 8
CONFIG: Final[dict[str, Any]] = {"targets": [{"match": r"\d(\.layer)?"}], "sinks": {}, "sample": {"warmup": 3}}
MEMORY_CONFIG: Final[dict[str, Any]] = {**CONFIG, "targets": [{"match": r"\d(\.layer)?", "memory": True}]}
GIB: Final = 2**30
REAL_CONFIG: Final = {**CONFIG, "targets": [{"match": r"\d"}], "sample": {"warmup": 3, "budget": 0.05}}
"""On the real clock steps of milliseconds have a cost that is not what these programs are about."""


class _Spend(torch.autograd.Function):
    """Take time in forward and in backward, on the host and, where there is one, on the device."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Layer) -> Tensor:
        ctx.layer = layer
        ctx.save_for_backward(x)  # else a recompute would stop before it gets here
        layer.spend(layer.forward_ns)
        layer.keep()
        return x.square()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        ctx.layer.spend(ctx.layer.backward_ns)
        ctx.layer.let_go()
        return 2 * x * grads[0], None


class Layer(nn.Module):
    """A linear layer that takes ``forward_ms`` and ``backward_ms`` (twice as long, unless given)."""

    def __init__(
        self,
        clock: FakeClock,
        forward_ms: float = 60,
        backward_ms: float | None = None,
        device: FakeDevice | None = None,
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.clock = clock
        self.device = device
        self.launch_ns = 0
        self.allocator: FakeAllocator | None = None
        self.activation_bytes = 0
        self.checkpointed = False
        self._kept: list[int] = []
        self.forward_ns = round(forward_ms * MS)
        self.backward_ns = round((2 * forward_ms if backward_ms is None else backward_ms) * MS)

    def spend(self, ns: int) -> None:
        """Let the time pass that an operator takes."""
        if self.device is None:
            self.clock.advance(ns)
        else:  # the host has its own work before a launch and after it
            self.clock.advance(self.launch_ns // 2)
            self.device.work(ns)
            self.clock.advance(self.launch_ns // 2)

    def keep(self) -> None:
        """Take the memory of the activations; of a checkpointed layer only the second time."""
        again = torch._C._current_graph_task_id() != -1
        if self.allocator is not None and (again or not self.checkpointed):
            self._kept.append(self.allocator.allocate(self.activation_bytes))

    def let_go(self) -> None:
        """Give that memory back, after backward."""
        if self.allocator is not None:
            self.allocator.free(self._kept.pop())

    def forward(self, x: Tensor) -> Tensor:
        return _Spend.apply(self.linear(x), self)  # type: ignore[no-any-return]


class Checkpointed(nn.Module):
    """A layer whose forward runs a second time in backward."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer
        layer.checkpointed = True

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.layer, x, use_reentrant=False)  # type: ignore[no-any-return]


class SlowSGD(torch.optim.SGD):
    """Update parameter by parameter, each taking ``each_ns``."""

    def __init__(self, model: nn.Module, clock: FakeClock, each_ns: int) -> None:
        super().__init__(model.parameters(), lr=0.01)
        self.clock, self.each_ns = clock, each_ns

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update every parameter in a loop of its own."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=-group["lr"])
                self.clock.advance(self.each_ns)
        return None


def batches(clock: FakeClock, wait_ms: float, steps: int) -> Iterator[Tensor]:
    """Yield random batches, each after a wait."""
    for _ in range(steps):
        clock.advance(round(wait_ms * MS))
        yield torch.randn(4, WIDTH)


def train(
    model: nn.Module,
    clock: FakeClock,
    *,
    wait_ms: float = 2,
    each_ms: float = 0.5,
    steps: int = STEPS,
    take: Callable[[Tensor], Tensor] | None = None,
    before_update: Callable[[], None] | None = None,
    in_step: Callable[[int], None] | None = None,
    device: FakeDevice | None = None,
    config: Mapping[str, Any] = CONFIG,
    memory: FakeAllocator | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> Summary:
    """Train on the fake clock and return the summary.

    ``take`` gets each batch before the model does, ``before_update`` runs after backward, ``in_step`` at the end of
    each step.
    """
    optimizer = optimizer or SlowSGD(model, clock, round(each_ms * MS))
    reads = clock if device is None else device.device_clock()
    session = open_session(model, config, clock=reads, optimizer=optimizer, memory=memory)
    for number, batch in enumerate(session.loader(batches(clock, wait_ms, steps))):
        model(batch if take is None else take(batch)).pow(2).mean().backward()
        if before_update is not None:
            before_update()
        optimizer.step()
        optimizer.zero_grad()
        if in_step is not None:
            in_step(number)
        session.log(samples=len(batch))
        session.step()
    session.close()
    return session.summary()


def four(clock: FakeClock, **settings: Any) -> nn.Sequential:
    """Return four equal layers."""
    return nn.Sequential(*(Layer(clock, **settings) for _ in range(4)))
