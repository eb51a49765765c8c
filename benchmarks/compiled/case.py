"""A model with its training step, and a clock that is independent of autoprof's."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import nn

Times = tuple[float, float, float]
"""Milliseconds of a step in forward, backward and recompute."""
PHASES = ("forward", "backward", "recompute")
Build = Callable[[], tuple[nn.Module, Callable[[int], Any], Callable[[Any, Any], Any]]]
"""Return a model, the function that makes the batch of a step (args, kwargs, target), and the loss function."""


@dataclasses.dataclass
class Case:
    """A model and the way in which it is compiled and trained."""

    name: str
    build: Build
    truth: dict[str, Times] = dataclasses.field(default_factory=dict)
    """The modules whose time is known."""
    compile: Callable[[Any], Any] | None = None
    """The case's own way of compilation; None for ``torch.compile(model)``."""
    fullgraph: bool = True
    dynamic: bool | None = None
    train: bool = True
    context: Callable[[], Any] = contextlib.nullcontext
    """The context around the model and the loss, such as autocast."""
    note: str = ""
    own: dict[str, Times] = dataclasses.field(default_factory=dict)
    """The time of operations of known length in each module's own forward."""
    owners: dict[int, list[str]] = dataclasses.field(default_factory=dict)
    """The modules that call each operation, call by call."""
    back_only: dict[int, str] = dataclasses.field(default_factory=dict)
    """The modules of operations that only the backward calls."""

    def compiled(self, model: nn.Module) -> Any:
        """Return the callable to train with."""
        if self.compile is not None:
            return self.compile(model)
        return torch.compile(model, fullgraph=self.fullgraph, dynamic=self.dynamic)


class Clock:
    """The log of the operations of known length: tag, phase, nanoseconds and module of each call."""

    def __init__(self) -> None:
        self.log: list[tuple[int, str, int, str | None]] = []
        self.in_backward = False
        self.stack: list[str] | None = None


CLOCK = Clock()


class Training(NamedTuple):
    """A model that is ready to train."""

    case: Case
    model: nn.Module
    run: Any
    make_batch: Callable[[int], Any]
    loss: Callable[[Any, Any], Any]
    optimizer: torch.optim.Optimizer

    def step(self, at: int) -> tuple[Any, float, float]:
        """Train one step; return the model's output, and the milliseconds of forward with loss, and of backward."""
        args, kwargs, target = self.make_batch(at)
        CLOCK.in_backward = False
        began = time.perf_counter()
        with torch.set_grad_enabled(self.case.train), self.case.context():
            output = self.run(*args, **kwargs)
            loss = self.loss(output, target)
        middle = time.perf_counter()
        if self.case.train:
            CLOCK.in_backward = True
            loss.backward()
            CLOCK.in_backward = False
        ended = time.perf_counter()
        if self.case.train:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return output, (middle - began) * 1e3, (ended - middle) * 1e3


def prepare(case: Case, *, compiled: bool = True) -> Training:
    """Make the model of a case, and wrap it for compilation; the first step compiles it."""
    torch.manual_seed(0)
    model, make_batch, loss = case.build()
    model.train(case.train)
    run = case.compiled(model) if compiled else model
    parameters = [one for one in model.parameters() if one.requires_grad]
    return Training(case, model, run, make_batch, loss, torch.optim.SGD(parameters, lr=1e-3))


def inclusive(model: nn.Module, own: dict[str, Times], skip: Iterable[str] = ()) -> dict[str, Times]:
    """Return the time of each module that has a forward, with the modules inside it."""
    found = {}
    for path, module in model.named_modules():
        if isinstance(module, (nn.ModuleList, nn.ModuleDict)) or path in skip:
            continue
        inside = [times for at, times in own.items() if not path or at == path or at.startswith(f"{path}.")]
        found[path] = (sum(one[0] for one in inside), sum(one[1] for one in inside), sum(one[2] for one in inside))
    return found
