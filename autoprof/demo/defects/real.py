"""Defects that no clock can stand for: memory, the garbage collector, the compiler. They take their real course."""
# mypy: allow-untyped-calls
# (torch leaves Tensor.backward without types.)

from __future__ import annotations

import gc
import mmap
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import autoprof

from ...summary import Summary
from .models import REAL_CONFIG, STEPS, WIDTH


def _real(steps: int, in_step: Callable[[int, Tensor], None]) -> Summary:
    """Train on the real clock."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    session = autoprof.instrument(model, REAL_CONFIG, optimizer=optimizer)
    for number in range(steps):
        output = model(torch.randn(4, WIDTH))
        output.pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        in_step(number, output)
        session.step()
    session.close()
    return session.summary()


def leak(broken: bool) -> Summary:
    kept = []

    def keep(_number: int, output: Tensor) -> None:
        # 2 MiB of new pages: the allocator would take them from what the rest of the process has freed.
        activation = torch.frombuffer(mmap.mmap(-1, 2**21), dtype=torch.float32).fill_(output.detach().mean().item())
        if broken:
            kept.append(activation)
        time.sleep(0.021)  # memory is read each 20 ms at most

    return _real(STEPS, keep)


def collections(broken: bool) -> Summary:
    # What is alive makes a full collection long, and every full collection looks at all of it.
    work = torch.randn(128, 128)
    alive: list[list[int]] = [[] for _ in range(1_000_000)] if broken else []

    def collect(number: int, _output: Tensor) -> None:
        until = time.perf_counter() + 0.02  # a step that autoprof's own work is little beside
        while time.perf_counter() < until:
            work.mm(work)
        if broken and number % 5 == 4:
            gc.collect()

    summary = _real(60, collect)
    alive.clear()
    return summary


def changing_shapes(broken: bool) -> Summary:
    """Compile for one shape and feed another one every eighth step; the twin keeps to one.

    The backend is dynamo's own ``eager``: what compiles again is the tracing, and no C++ compiler is needed.
    """
    torch._dynamo.reset()  # or the second run would find the graphs of the first one

    def scale(values: Tensor) -> Tensor:
        return (values * 2).tanh()

    compiled: Any = torch.compile(scale, backend="eager", dynamic=False)

    def run(number: int, _output: Tensor) -> None:
        compiled(torch.ones(16 + (number // 8 if broken else 0)))
        time.sleep(0.01)  # beside which what else runs on the machine is little

    return _real(STEPS, run)
