"""Small trainings with one defect each, and their healthy twins: what every rule that judges is proved by.

They are real: a model of torch's modules, autograd, an optimizer, a loader. Time is the fake clock's, which the
operators advance (on a fake device where the defect is the device's), so a verdict does not depend on the machine.
Only what no clock can stand for, memory and the garbage collector, takes its real course.
"""
# mypy: allow-untyped-calls
# (torch leaves Tensor.backward without types.)

from __future__ import annotations

import gc
import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor, nn

import autoprof

from ..diagnose import Evidence, Facts, diagnose
from ..summary import Summary
from ..testing import FakeClock, FakeDevice
from .memory_defects import large_state, needless_checkpointing, pieces
from .programs import MS, REAL_CONFIG, STEPS, WIDTH, Checkpointed, Layer, four, train


def _slow_loader(broken: bool) -> Summary:
    clock = FakeClock()
    return train(four(clock), clock, wait_ms=500 if broken else 2)


def _checkpointing(broken: bool) -> Summary:
    clock = FakeClock()
    layers = [Layer(clock) for _ in range(4)]
    return train(nn.Sequential(*(Checkpointed(one) if broken else one for one in layers)), clock)


def _backward(broken: bool) -> Summary:
    clock = FakeClock()
    model = four(clock)
    model[2] = Layer(clock, backward_ms=900 if broken else 120)
    return train(model, clock)


def _dominant(broken: bool) -> Summary:
    clock = FakeClock()
    model = four(clock)
    model[1] = Layer(clock, forward_ms=600 if broken else 60)
    return train(model, clock)


def _loop_optimizer(broken: bool) -> Summary:
    clock = FakeClock()
    return train(four(clock), clock, each_ms=60 if broken else 0.5)


def _launches(broken: bool) -> Summary:
    clock = FakeClock()
    device = FakeDevice(clock)
    model = four(clock, device=device, forward_ms=0.5 if broken else 60)
    for layer in model:
        assert isinstance(layer, Layer)
        layer.launch_ns = 20 * MS if broken else 1 * MS
    return train(model, clock, device=device, each_ms=0.01, wait_ms=0.1)


def _metrics(broken: bool) -> Summary:
    clock = FakeClock()

    def log(_number: int) -> None:
        with autoprof.span("Logging/Metrics"):
            clock.advance(200 * MS if broken else 1 * MS)

    return train(four(clock), clock, in_step=log)


def _stalls(broken: bool) -> Summary:
    clock = FakeClock()

    def save(number: int) -> None:
        with autoprof.span("Snapshot"):
            clock.advance(4_000 * MS if broken and number % 6 == 5 else 1 * MS)

    return train(four(clock), clock, in_step=save)


def _own_cost(broken: bool) -> Summary:
    # What autoprof does takes real time; beside a step of this clock's it is much, or nothing.
    clock = FakeClock()
    return train(four(clock, forward_ms=0.001 if broken else 500), clock, steps=80, each_ms=0, wait_ms=0)


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


def _leak(broken: bool) -> Summary:
    kept = []

    def keep(_number: int, output: Tensor) -> None:
        # 2 MiB of new pages: the allocator would take them from what the rest of the process has freed.
        activation = torch.frombuffer(mmap.mmap(-1, 2**21), dtype=torch.float32).fill_(output.detach().mean().item())
        if broken:
            kept.append(activation)
        time.sleep(0.021)  # memory is read each 20 ms at most

    return _real(STEPS, keep)


def _collections(broken: bool) -> Summary:
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


def _small_memory(broken: bool) -> Summary:
    """The same training on a machine with hardly more memory than it takes, or with plenty."""
    clock = FakeClock()
    summary = train(four(clock), clock)
    peak = summary.memory["rss_peak_bytes"]
    facts = Facts(budget=0.01, memory_capacity_bytes=round(peak * (1.02 if broken else 8)))
    return diagnose(Evidence(replace(summary, findings=()), facts, longest=()))


@dataclass(frozen=True, slots=True)
class Program:
    """A defect: the rule that must find it, and the training with it (``run(True)``) or without (``run(False)``)."""

    name: str
    rule: str
    run: Callable[[bool], Summary]
    on_machine: bool = False
    """Whether it takes its course on the real clock, where other programs of the machine may add a finding."""


PROGRAMS: Final = (
    Program("slow loader", "data-wait", _slow_loader),
    Program("activation checkpointing", "recompute", _checkpointing),
    Program("backward 15 x forward", "backward-ratio", _backward),
    Program("one module ten times the others", "hot-module", _dominant),
    Program("optimizer in a Python loop", "optimizer", _loop_optimizer),
    Program("tiny kernels, slow launches", "launch-bound", _launches),
    Program("metrics in every step", "logging", _metrics),
    Program("a snapshot every sixth step", "jitter", _stalls),
    Program("garbage collected by hand", "jitter", _collections, on_machine=True),
    Program("a list that keeps activations", "memory-growth", _leak, on_machine=True),
    Program("memory nearly full", "memory-pressure", _small_memory),
    Program("steps too short to profile", "overhead", _own_cost),
    Program("checkpoints with room to spare", "recompute", needless_checkpointing),
    Program("sequences that grow", "fragmentation", pieces),
    Program("Adam's state in a full memory", "optimizer", large_state),
)
