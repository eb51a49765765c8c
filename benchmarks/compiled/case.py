"""A model with its training step, and a clock that is independent of autoprof's."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from ..models import Built

PHASES = ("forward", "backward", "recompute")
Build = Callable[[], Built]


@dataclasses.dataclass
class Case:
    """A model and the way in which it is compiled and trained."""

    name: str
    build: Build
    compile: Callable[[Any], Any] | None = None
    """The case's own way of compilation; None for ``torch.compile(model)``."""
    fullgraph: bool = True
    dynamic: bool | None = None
    context: Callable[[], Any] = contextlib.nullcontext
    """The context around the model and the loss, such as autocast."""
    note: str = ""
    owners: dict[int, list[str]] = dataclasses.field(default_factory=dict)
    """The modules that call each operation of known length, call by call."""
    rows: tuple[str, ...] = ()
    """The modules whose time is known: those that call such operations, and all around them."""

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
        with self.case.context():
            output = self.run(*args, **kwargs)
            loss = self.loss(output, target)
        middle = time.perf_counter()
        CLOCK.in_backward = True
        loss.backward()
        CLOCK.in_backward = False
        ended = time.perf_counter()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return output, (middle - began) * 1e3, (ended - middle) * 1e3


def prepare(case: Case) -> Training:
    """Make the model of a case, and wrap it for compilation; the first step compiles it."""
    torch.manual_seed(0)
    model, make_batch, loss = case.build()
    model.train()
    parameters = [one for one in model.parameters() if one.requires_grad]
    return Training(case, model, case.compiled(model), make_batch, loss, torch.optim.SGD(parameters, lr=1e-3))
