"""Check the promises on a device: autoprof never waits for it, and reads a known kernel's length from it."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

import torch
from torch import nn

import autoprof
from autoprof import Phase, StepFrame
from autoprof.testing import ListSink

from ..engine import OPTIONS
from ..workloads import Workload
from .kernels import Sleep, sleepers
from .target import Target, cuda

SLEEP_NS: Final = 2_000_000
"""Long beside the 10 to 30 µs by which events scatter."""
TOLERANCE: Final = 0.05
STEPS: Final = 8
AHEAD_NS: Final = 400_000_000
"""How long the device sleeps at least while the host records steps."""


def never_waits(workload: Workload, target: Target | None = None) -> dict[str, Any]:
    """Record whole steps, ``session.step()`` included, with synchronisation an error and behind a sleeping device.

    Torch does not know of every way to wait, so the host time is compared with a kernel queued before it.
    Where the bare step already waits (the driver takes about a thousand launches ahead), only torch's word is left.
    """
    target = target or cuda()
    sleep = target.calibrate()
    began = perf_counter_ns()
    for _ in range(3):
        workload.step()
    ahead_ns = max(AHEAD_NS, 2 * (perf_counter_ns() - began))  # on a slow host six of its steps
    bare_error, bare_ns = _behind(ahead_ns, sleep, workload.step, target)
    session = autoprof.instrument(workload.model, {**workload.config, **OPTIONS}, optimizer=workload.optimizer)

    def step() -> None:
        workload.step()
        session.step()

    try:
        error, host_ns = _behind(ahead_ns, sleep, step, target)
    finally:
        session.close()
    free = host_ns < ahead_ns // 2 or bare_ns >= ahead_ns // 2
    return {
        "error": error,
        "bare_error": bare_error,
        "bare_ns": bare_ns,
        "host_ns": host_ns,
        "device_ns": ahead_ns,
        "passed": bare_error is not None or (error is None and free),
    }


def _behind(ahead_ns: int, sleep: Sleep, step: Callable[[], object], target: Target) -> tuple[str | None, int]:
    """Return the synchronisation that a step does, and its host time while the device sleeps."""
    for _ in range(3):
        step()
    target.synchronize()
    error = None
    began = perf_counter_ns()
    sleep(ahead_ns)
    try:
        with target.no_synchronisation():
            step()
    except RuntimeError as raised:
        error = str(raised).splitlines()[0]
    host_ns = perf_counter_ns() - began
    target.synchronize()
    return error, host_ns


def record(model: nn.Module, step: Callable[[], object], steps: int = STEPS, **config: Any) -> list[StepFrame]:
    """Run steps in a session and return their frames."""
    sink = ListSink()
    with autoprof.instrument(model, {**OPTIONS, **config}, sinks=[sink]) as session:
        for _ in range(steps):
            step()
            session.step()
    return sink.frames


def device_ns(frames: list[StepFrame], fqn: str, phase: Phase) -> list[int]:
    """Return the device times of a module's spans, the first step left out: its kernels are still being loaded."""
    return [
        span.device_ns
        for frame in frames[1:]
        for span in frame.spans
        if span.fqn == fqn and span.phase is phase and span.device_ns is not None
    ]


def known_kernels(target: Target | None = None) -> dict[str, Any]:
    """Read sleeps of known length through autoprof: in forward, in backward, and both on a side stream."""
    target = target or cuda()
    sleep = target.calibrate()
    results: dict[str, Any] = {}
    for name, stream in (("main stream", None), ("side stream", target.stream())):
        model = sleepers(sleep, (SLEEP_NS, 2 * SLEEP_NS), device=target.place.type)
        frames = record(model, on_stream(model, stream, target), targets=[{"match": "1"}])
        for phase, expected in ((Phase.FORWARD, SLEEP_NS), (Phase.BACKWARD, 2 * SLEEP_NS)):
            seen = sorted(device_ns(frames, "1", phase))
            measured = seen[len(seen) // 2] if seen else None
            results[f"{phase}, {name}"] = {
                "expected_ns": expected,
                "measured_ns": measured,
                "spans": len(seen),
                "passed": measured is not None and abs(measured / expected - 1) <= TOLERANCE,
            }
    return results


def on_stream(model: nn.Module, stream: Any, target: Target | None = None) -> Callable[[], None]:
    """Return a training step of the model on this stream, ordered with the main one on both sides."""
    chosen = target or cuda()
    x = torch.randn(4, 8, device=chosen.place)

    def step() -> None:
        if stream is None:
            model(x).sum().backward()
            return
        main = chosen.current_stream()
        stream.wait_stream(main)
        with chosen.on(stream):
            model(x).sum().backward()
        main.wait_stream(stream)

    return step
