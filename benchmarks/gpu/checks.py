"""Check the promise on a device that only real models can show: autoprof never waits for it."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

import autoprof

from ..engine import OPTIONS
from ..workloads import Workload
from .kernels import Sleep
from .target import Target

AHEAD_NS: Final = 400_000_000
"""How long the device sleeps at least while the host records steps."""


def never_waits(workload: Workload, target: Target) -> dict[str, Any]:
    """Record whole steps, ``session.step()`` included, with synchronisation an error and behind a sleeping device.

    Torch does not know of every way to wait, so the host time is compared with a kernel queued before it.
    Where the bare step already waits (the driver takes about a thousand launches ahead), only torch's word is left.
    """
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
