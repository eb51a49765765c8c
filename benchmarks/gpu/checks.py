"""Check the promises on a device: autoprof never waits for it, and reads a known kernel's length from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any, Final

import torch
from torch import nn

import autoprof
from autoprof import Phase, StepFrame
from autoprof.testing import ListSink

from ..engine import OPTIONS
from ..workloads import Workload
from .kernels import calibrate, sleepers

SLEEP_NS: Final = 2_000_000
"""Long beside the 10 to 30 µs by which events scatter."""
TOLERANCE: Final = 0.05
STEPS: Final = 8
AHEAD_NS: Final = 400_000_000
"""How long the device sleeps while the host records steps."""


@contextmanager
def no_synchronisation() -> Iterator[None]:
    """Make torch raise wherever it knows that the host waits for the device."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def never_waits(workload: Workload) -> dict[str, Any]:
    """Record whole steps, ``session.step()`` included, with synchronisation an error and behind a sleeping device.

    Torch does not know of every way to wait, so the host time is compared with a kernel queued before it.
    Where the bare step already waits (the driver takes about a thousand launches ahead), only torch's word is left.
    """
    sleep = calibrate()
    _, bare_ns = _behind(sleep, workload.step)
    session = autoprof.instrument(workload.model, {**workload.config, **OPTIONS}, optimizer=workload.optimizer)

    def step() -> None:
        workload.step()
        session.step()

    try:
        error, host_ns = _behind(sleep, step)
    finally:
        session.close()
    free = host_ns < AHEAD_NS // 2 or bare_ns >= AHEAD_NS // 2
    return {
        "error": error,
        "bare_ns": bare_ns,
        "host_ns": host_ns,
        "device_ns": AHEAD_NS,
        "passed": error is None and free,
    }


def _behind(sleep: Callable[[float], None], step: Callable[[], object]) -> tuple[str | None, int]:
    """Return torch's synchronisation warnings of a step, and its host time while the device sleeps."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    error = None
    began = perf_counter_ns()
    sleep(AHEAD_NS)
    try:
        with no_synchronisation():
            step()
    except RuntimeError as raised:
        error = str(raised).splitlines()[0]
    host_ns = perf_counter_ns() - began
    torch.cuda.synchronize()
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


def known_kernels() -> dict[str, Any]:
    """Read sleeps of known length through autoprof: in forward, in backward, and both on a side stream."""
    sleep = calibrate()
    results: dict[str, Any] = {}
    for name, stream in (("main stream", None), ("side stream", torch.cuda.Stream())):  # type: ignore[no-untyped-call]
        model = sleepers(sleep, (SLEEP_NS, 2 * SLEEP_NS))
        frames = record(model, on_stream(model, stream), targets=[{"match": "1"}])
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


def on_stream(model: nn.Module, stream: torch.cuda.Stream | None) -> Callable[[], None]:
    """Return a training step of the model on this stream, ordered with the main one on both sides."""
    x = torch.randn(4, 8, device="cuda")

    def step() -> None:
        if stream is None:
            model(x).sum().backward()
            return
        main = torch.cuda.current_stream()
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            model(x).sum().backward()
        main.wait_stream(stream)

    return step
