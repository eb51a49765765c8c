"""Modules of known length: they sleep in forward and in backward and enter both in the program's clock."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, TypeVar

import torch
import torch.utils.checkpoint as torch_checkpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

import autoprof

from .clock import CLOCK, EXCLUDED
from .judge import Judge


def in_backward() -> bool:
    """Whether this thread runs inside a backward pass."""
    return bool(torch._C._current_graph_task_id() != -1)


@contextmanager
def recomputed() -> Iterator[None]:
    """Charge the block to ``recompute`` if it runs in a backward pass."""
    if not in_backward():
        yield
        return
    with CLOCK.phase("recompute"):
        yield


def clock_checkpoints() -> None:
    """Charge all that torch's checkpoint does to run a function again to ``recompute``: its random state, autocast.

    The report's ``recompute`` is the time that goes when checkpointing is switched off, so torch's own work is in it.
    """
    frame: Any = torch_checkpoint._CheckpointFrame
    make = frame.__init__

    @wraps(make)
    def clocked_frame(self: Any, recompute: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        def again(*inputs: Any) -> Any:
            with CLOCK.phase("recompute"):
                return recompute(*inputs)

        make(self, again, *args, **kwargs)

    frame.__init__ = clocked_frame


def rest(ms: float) -> None:
    """Sleep in plain code."""
    time.sleep(ms / 1e3)


class _SleepBoth(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, forward_ms: float, backward_ms: float, name: str) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.backward_ms, ctx.name = backward_ms, name
        rest(forward_ms)
        return x * weight

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        with CLOCK.named(ctx.name, "backward"):
            rest(ctx.backward_ms)
            return gradients[0] * weight, (gradients[0] * x).sum().reshape(1), None, None, None


def sleep_op(x: Tensor, weight: Tensor, forward_ms: float, backward_ms: float, name: str = "op") -> Tensor:
    """Multiply by a weight of one element; sleep in forward and in backward.

    A sleep is no work that could explain its time, so the count of the work ends here: it depends on a value.
    """
    with recomputed(), CLOCK.named(name, "recompute" if in_backward() else "forward"):
        x.detach().reshape(-1)[:1].tolist()
        result: Tensor = _SleepBoth.apply(x, weight, forward_ms, backward_ms, name)  # type: ignore[no-untyped-call]
    return result


def clocked(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Charge a model's ``forward`` to the phase of that name; the hooks around the call are not in it."""

    @wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        with CLOCK.phase("forward"):
            return forward(*args, **kwargs)

    return run


class Root(nn.Module):
    """A whole model: the ``forward`` of every class derived from it is charged to the program's clock."""

    def __init_subclass__(cls) -> None:
        if "forward" in cls.__dict__:
            cls.forward = clocked(cls.forward)


class Chain(nn.Sequential):
    """A whole model of layers in a row."""

    forward = clocked(nn.Sequential.forward)


class Parts(Root):
    """A whole model of named parts, and the function that is its forward."""

    def __init__(self, call: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.call = call
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(self, *args, **kwargs)


def weight() -> nn.Parameter:
    """Return a parameter of one element."""
    return nn.Parameter(torch.ones(1))


class Sleep(nn.Module):
    """A layer of known length; ``name`` is its name in the program's clock."""

    def __init__(self, forward_ms: float, backward_ms: float, name: str = "sleep") -> None:
        super().__init__()
        self.forward_ms, self.backward_ms, self.name = forward_ms, backward_ms, name
        self.weight = weight()

    def forward(self, x: Tensor) -> Tensor:
        return sleep_op(x, self.weight, self.forward_ms, self.backward_ms, self.name)


class Unlike(Sleep):
    """A layer of another class than its siblings, so that it is no part of their group."""


class Layer(Sleep):
    """A layer whose forward is charged to the program's clock, for models that nothing calls as a whole."""

    forward = clocked(Sleep.forward)


class Block(nn.Module):
    """A block with an attention and an MLP that are layers of known length."""

    def __init__(self, attention: tuple[float, float] = (2, 3), mlp: tuple[float, float] = (1, 1)) -> None:
        super().__init__()
        self.attention = Sleep(*attention, "attention")
        self.mlp = Sleep(*mlp, "mlp")

    def forward(self, x: Tensor) -> Any:
        with recomputed():
            return self.mlp(self.attention(x)) + x


class SlowSamples(Dataset[Tensor]):
    """Samples that take a known time each; loading and collating a batch is charged to the program's clock."""

    def __init__(self, count: int, ms: float, features: int = 16) -> None:
        self.count, self.ms, self.features = count, ms, features

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        rest(self.ms)
        return torch.zeros(self.features)

    def __getitems__(self, indices: list[int]) -> list[Tensor]:
        """Return the samples of a batch, as ``DataLoader`` asks for them."""
        with CLOCK.phase("data"):
            return [self[index] for index in indices]

    def loader(self, batch_size: int = 8) -> DataLoader[Tensor]:
        """Return a loader without workers."""
        return DataLoader(self, batch_size=batch_size, collate_fn=_clocked_collate)


def _clocked_collate(samples: list[Tensor]) -> Any:
    with CLOCK.phase("data"):
        return default_collate(samples)


def two_layers() -> Chain:
    """Return a model whose forward takes 3 ms and whose backward takes 5."""
    return Chain(Sleep(2, 3, "first"), Sleep(1, 2, "second"))


def loader_of(steps: int, size: int = 8, **options: Any) -> DataLoader[tuple[Tensor, ...]]:
    """Return a loader with a random batch for each of so many steps."""
    return DataLoader(TensorDataset(torch.randn(size * steps, 16)), batch_size=size, **options)


def batches(count: int, size: int = 8, features: int = 16) -> Iterator[Tensor]:
    """Make random batches, outside every clock of data."""
    for _ in range(count):
        yield torch.randn(size, features)


class ClockedSGD(torch.optim.Optimizer):
    """A plain SGD that charges its update and ``zero_grad`` to the program's clock; hooks around them are not in it."""

    def __init__(self, parameters: Iterable[Tensor], lr: float = 1e-4, sleep_ms: float = 0.0) -> None:
        super().__init__(parameters, {"lr": lr})
        self.sleep_ms = sleep_ms

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters."""
        with CLOCK.phase("optimizer"):
            rest(self.sleep_ms)
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.add_(parameter.grad, alpha=-group["lr"])

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients."""
        with CLOCK.phase("optimizer"):
            super().zero_grad(set_to_none)


def sgd(model: nn.Module, sleep_ms: float = 0.0) -> ClockedSGD:
    """Return a plain SGD with a rate so small that nothing grows."""
    return ClockedSGD(model.parameters(), sleep_ms=sleep_ms)


def instrumented(model: nn.Module, config: Any = None) -> tuple[Any, ClockedSGD]:
    """Return a session of a model and the optimizer that it was told."""
    optimizer = sgd(model)
    return autoprof.instrument(model, config, optimizer=optimizer), optimizer


Item = TypeVar("Item")


def clocked_steps(data: Iterable[Item]) -> Iterator[Item]:
    """Start the program's clock and yield the batches; each one is a step, until the next is asked for."""
    CLOCK.start()
    for item in data:
        yield item
        CLOCK.step()


def update(loss: Tensor, *optimizers: torch.optim.Optimizer) -> None:
    """Make the backward pass and the steps of the optimizers."""
    with CLOCK.phase("backward"):
        loss.backward()  # type: ignore[no-untyped-call]
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def train_step(model: Callable[[Tensor], Tensor], optimizer: torch.optim.Optimizer, batch: Tensor) -> None:
    """Make one usual training step; its phases are charged to the program's clock."""
    update(model(batch).square().mean(), optimizer)


@contextmanager
def evaluated(model: nn.Module) -> Iterator[None]:
    """Switch a model to eval mode inside the block, as excluded time of the program."""
    with CLOCK.phase(EXCLUDED):
        model.eval()
        try:
            yield
        finally:
            model.train()


def validate(model: nn.Module, count: int = 4, size: int = 8) -> None:
    """Evaluate a model on some batches, without gradients."""
    with evaluated(model), torch.no_grad():
        for batch in batches(count, size):
            model(batch)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, data: Iterable[Tensor] | int) -> None:
    """Run the plainest training loop."""
    for batch in clocked_steps(batches(data) if isinstance(data, int) else data):
        train_step(model, optimizer, batch)


def judge_loop(
    model: nn.Module,
    step: Callable[[Any], object],
    data: Iterable[Any] | int,
    optimizer: Any = None,
    config: Any = None,
) -> Judge:
    """Instrument a model, run ``step`` on each batch as one step of the program's clock; return the comparison."""
    session = autoprof.instrument(model, config, optimizer=optimizer)
    for batch in clocked_steps(batches(data) if isinstance(data, int) else data):
        step(batch)
    return Judge(session)


def judge_plain(model: nn.Module, data: Iterable[Tensor] | int, config: Any = None) -> Judge:
    """Run the plainest training loop and return the comparison."""
    optimizer = sgd(model)
    return judge_loop(model, partial(train_step, model, optimizer), data, optimizer, config)
