"""Small trainings for the defects of rules: layers that take time and memory, and the training loop around them.

They are real trainings of torch modules with autograd, an optimizer and a loader. Time is that of a fake clock, which
the operators advance, so findings do not depend on the machine.
"""
# mypy: allow-untyped-calls
# (torch leaves Tensor.backward without types, autoprof.testing its FakeDevice.)

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import autoprof
from autoprof.base.summary import MetricStats, Summary, Work
from autoprof.diagnose import Environment, Evidence, PythonThread, RunFacts, StackTable, diagnose
from autoprof.testing import FakeClock, FakeDevice, open_session
from tests.fake_memory import FakeAllocator

MS: Final = 1_000_000
GIB: Final = 2**30
STEPS: Final = 48
WIDTH: Final = 8
CONFIG: Final[dict[str, Any]] = {"targets": [{"match": r"\d(\.layer)?"}], "sinks": {}, "sample": {"warmup": 3}}
MEMORY_CONFIG: Final[dict[str, Any]] = {**CONFIG, "targets": [{"match": r"\d(\.layer)?", "memory": True}]}
COUNTED_CONFIG: Final[dict[str, Any]] = {**CONFIG, "targets": [{"match": r"\d"}]}
COUNTED_STEP_NS: Final = 50_000


class _Spend(torch.autograd.Function):
    """Take time in forward and in backward, on the host and, where there is one, on the device."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Layer) -> Tensor:
        ctx.layer = layer
        ctx.save_for_backward(x)  # otherwise a recompute would stop before this operator
        layer.spend(layer.forward_ns)
        layer.allocate()
        return x.square()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        ctx.layer.spend(ctx.layer.backward_ns)
        ctx.layer.free()
        return 2 * x * grads[0], None


class Layer(nn.Module):
    """A linear layer that takes ``forward_ms`` and ``backward_ms`` (default: twice ``forward_ms``).

    On a ``device`` the host takes ``launch_ns`` for each operator. With an ``allocator`` it keeps
    ``activation_bytes`` from forward to backward.
    """

    def __init__(
        self,
        clock: FakeClock,
        forward_ms: float = 60,
        backward_ms: float | None = None,
        device: FakeDevice | None = None,
        launch_ns: int = 0,
        allocator: FakeAllocator | None = None,
        activation_bytes: int = 0,
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.clock = clock
        self.device = device
        self.launch_ns = launch_ns
        self.allocator = allocator
        self.activation_bytes = activation_bytes
        self.checkpointed = False
        self._allocated: list[int] = []
        self.forward_ns = round(forward_ms * MS)
        self.backward_ns = round((2 * forward_ms if backward_ms is None else backward_ms) * MS)

    def spend(self, ns: int) -> None:
        """Advance the clock, or occupy the device, for an operator."""
        if self.device is None:
            self.clock.advance(ns)
        else:  # the host works before a launch and after it
            self.clock.advance(self.launch_ns // 2)
            self.device.work(ns)
            self.clock.advance(self.launch_ns // 2)

    def allocate(self) -> None:
        """Allocate the activations; a checkpointed layer only in its recompute."""
        recomputing = torch._C._current_graph_task_id() != -1
        if self.allocator is not None and (recomputing or not self.checkpointed):
            self._allocated.append(self.allocator.allocate(self.activation_bytes))

    def free(self) -> None:
        """Free the activations after backward."""
        if self.allocator is not None:
            self.allocator.free(self._allocated.pop())

    def forward(self, x: Tensor) -> Tensor:
        return _Spend.apply(self.linear(x), self)  # type: ignore[no-any-return]


class Checkpointed(nn.Module):
    """A layer under activation checkpointing."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer
        layer.checkpointed = True

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.layer, x, use_reentrant=False)  # type: ignore[no-any-return]


class SlowSGD(torch.optim.SGD):
    """Update the parameters in a Python loop, taking ``each_ns`` for each."""

    def __init__(self, model: nn.Module, clock: FakeClock, each_ns: int) -> None:
        super().__init__(model.parameters(), lr=0.01)
        self.clock, self.each_ns = clock, each_ns

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=-group["lr"])
                self.clock.advance(self.each_ns)
        return None


def four_layers(clock: FakeClock, **settings: Any) -> nn.Sequential:
    """Return four equal layers; ``settings`` are those of ``Layer``."""
    return nn.Sequential(*(Layer(clock, **settings) for _ in range(4)))


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
    samples: int | None = None,
    processor_ns: Callable[[], int] | None = None,
) -> Summary:
    """Train on the fake clock and return the summary.

    The loader takes ``wait_ms`` for a batch, the optimizer ``each_ms`` for a parameter. ``samples`` are logged for each
    step, by default those of the batch. ``take`` transforms each batch
    before the model, ``before_update`` runs after backward, ``in_step`` at the end of each step with its number.
    """
    optimizer = optimizer or SlowSGD(model, clock, round(each_ms * MS))
    session_clock = clock if device is None else device.device_clock()
    session = open_session(
        model, config, clock=session_clock, optimizer=optimizer, memory=memory, processor_ns=processor_ns
    )
    for number, batch in enumerate(session.loader(_batches(clock, wait_ms, steps))):
        model(batch if take is None else take(batch)).pow(2).mean().backward()
        if before_update is not None:
            before_update()
        optimizer.step()
        optimizer.zero_grad()
        if in_step is not None:
            in_step(number)
        session.log(samples=samples or len(batch))
        session.step()
    session.close()
    return session.summary()


def _batches(clock: FakeClock, wait_ms: float, steps: int) -> Iterator[Tensor]:
    """Yield random batches, each after a wait."""
    for _ in range(steps):
        clock.advance(round(wait_ms * MS))
        yield torch.randn(4, WIDTH)


def train_counted(model: nn.Module, batch: Tensor, step_ns: int = COUNTED_STEP_NS) -> Summary:
    """Train on the fake device in steps of this length, always with this batch; the model's FLOPs are counted."""
    clock = FakeClock()
    device = FakeDevice(clock)

    def compute() -> None:
        with autoprof.span("Compute"):
            device.work(step_ns)

    return train(
        model, clock, device=device, steps=24, each_ms=0, wait_ms=0, take=lambda _batch: batch, before_update=compute,
        config=COUNTED_CONFIG, optimizer=torch.optim.SGD(model.parameters(), lr=1e-3),
    )  # fmt: skip


def diagnose_again(
    summary: Summary,
    *,
    work: Work | None = None,
    memory_capacity_bytes: int | None = None,
    metrics: Mapping[str, float] | None = None,
    environment: Environment | None = None,
    leaf_modules: int | None = None,
    threads: tuple[PythonThread, ...] = (),
    training_cores: float | None = None,
    stacks: Mapping[str, StackTable] = MappingProxyType({}),
) -> Summary:
    """Diagnose a run as if its device or its machine had other properties; each metric has one value throughout."""
    constant = {name: MetricStats(value, value, value, value, 5) for name, value in (metrics or {}).items()}
    summary = replace(summary, work=work or summary.work, metrics=constant or summary.metrics, findings=())
    facts = RunFacts(
        budget=0.01,
        memory_capacity_bytes=memory_capacity_bytes,
        leaf_modules=leaf_modules,
        environment=environment or Environment(),
        threads=threads,
        training_cores=training_cores,
        stacks=stacks,
    )
    return diagnose(Evidence(summary, facts, longest=()))
