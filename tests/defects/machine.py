"""Defects of the process and its machine: other processes, threads, debug modes, the compiler, autoprof itself."""

from itertools import count
from typing import Any

import torch
from torch import Tensor

import autoprof
from autoprof.base.summary import Summary
from autoprof.diagnose import Environment, PythonThread
from autoprof.testing import FakeClock

from .training import MS, diagnose_again, four_layers, train


def train_beside_a_polling_thread(broken: bool) -> Summary:
    """Have another thread hold the interpreter for nine tenths of the time; in the healthy twin it computes in C."""
    clock = FakeClock()
    return diagnose_again(
        train(four_layers(clock), clock),
        metrics={"host_cpu_cores": 1.9, "host_cpu_busy": 0.5, "host_cpu_waiting": 0.0},
        environment=Environment("cpu", machine_cores=4),
        threads=(PythonThread("Reporter", 0.9),),
        training_cores=0.15 if broken else 1.0,
    )


def train_with_many_threads(broken: bool) -> Summary:
    """Have torch use 16 threads on two processors; the healthy twin uses two."""
    clock = FakeClock()
    environment = Environment("cpu", threads=16 if broken else 2, cores=2, machine_cores=2)
    return diagnose_again(train(four_layers(clock), clock), environment=environment)


def train_with_anomaly_detection(broken: bool) -> Summary:
    """Detect anomalies in each backward, which doubles the time; the healthy twin does not."""
    clock = FakeClock()
    before = torch.is_anomaly_enabled()
    torch.autograd.set_detect_anomaly(broken, check_nan=False)
    try:
        return train(four_layers(clock, forward_ms=120 if broken else 60), clock)
    finally:
        torch.autograd.set_detect_anomaly(before)


def train_with_changing_shapes(broken: bool) -> Summary:
    """Change the shape every eighth step, and compile for three seconds; the healthy twin keeps one shape."""
    torch._dynamo.reset()  # otherwise the second training would reuse the graphs of the first
    clock = FakeClock()

    def scale(values: Tensor) -> Tensor:
        return (values * 2).tanh()

    def compile_slowly(graph: torch.fx.GraphModule, _inputs: list[Tensor]) -> Any:
        clock.advance(3_000 * MS)
        return graph.forward

    compiled: Any = torch.compile(scale, backend=compile_slowly, dynamic=False)

    def run(number: int) -> None:
        with autoprof.span("Compiled"):
            compiled(torch.ones(16 + (number // 8 if broken else 0)))

    return train(four_layers(clock), clock, in_step=run)


def train_in_short_steps(broken: bool) -> Summary:
    """Train in steps of microseconds on the fake clock; the healthy twin's steps take seconds.

    autoprof's work takes 0.1 ms between two readings of its clock in both.
    """
    clock, readings = FakeClock(), count()
    model = four_layers(clock, forward_ms=0.001 if broken else 500)
    return train(model, clock, steps=600, each_ms=0, wait_ms=0, processor_ns=lambda: next(readings) * 100_000)
