"""Measure the cost of a mark and the limits of the clock, on modules that do nothing."""

from __future__ import annotations

from collections.abc import Sequence
from time import thread_time_ns
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from ..base.frame import Phase
from ..devices import Clock, ClockLimits, Reading
from .hooks.module import ModuleProbe
from .hooks.module_hooks import make_hooks
from .recorder import Recorder
from .torch_compat import without_modes

CALLS: Final = 40
EMPTY_CALLS: Final = 100
"""Empty calls from which a clock's limits are computed, after ``COLD`` ones that fill the caches."""
COLD: Final = 10


class _Scratch(nn.Module):
    """A module of almost no work, whose calls run no hook that the program has registered for all modules."""

    def _call_impl(self, value: Any) -> Any:
        return None if value is None else value * 1.0


def _probe(module: nn.Module, clock: Clock, phases: frozenset[Phase]) -> ModuleProbe:
    """Return the probe of a module, by which the marks are those of a step."""
    from ..targets import Target  # it imports the configuration's packages, which is slow

    recorder = Recorder(clock)
    return ModuleProbe(recorder, make_hooks(recorder), Target(module, "", "calibration", phases, False, 0))


def measure_mark_ns(clock: Clock) -> float:
    """Measure the processor time of a mark in about 5 ms, without random state, device memory or the user's modules.

    It is the cost where the backward of a call is timed as well, an upper bound for other marks. Nothing of the user's
    sees it: no hook for all modules, and no mode of functions or operators.
    """
    with without_modes(), torch.enable_grad():
        try:
            return _extra_ns(clock, backward=True) / (3 * CALLS)
        except RuntimeError:  # torch runs no backward in a fork of a process that ran one on several threads
            return _extra_ns(clock, backward=False) / (2 * CALLS)


def _extra_ns(clock: Clock, *, backward: bool) -> float:
    """Return the cost of marks on ``CALLS`` chained calls: the difference of the cheapest of interleaved rounds."""
    module, bare, hooked = _Scratch(), [], []
    probe = _probe(module, clock, frozenset(Phase))
    # The cheapest of so many rounds counts: other processes fill the caches between them.
    for _ in range(5):
        bare.append(_run(module, backward=backward))
        probe.attach()
        hooked.append(_run(module, backward=backward))
        probe.detach()
        clock.release(list(probe.recorder.take().readings))
    probe.remove()
    return max(float(min(hooked) - min(bare)), 0.0)


def _run(module: nn.Module, *, backward: bool) -> int:
    """Return the processor time of this thread for ``CALLS`` calls."""
    value = torch.zeros(1, requires_grad=backward)
    start = thread_time_ns()
    for _ in range(CALLS):
        value = module(value)
    if backward:
        torch.autograd.backward(value)
    return thread_time_ns() - start


class LimitMeter:
    """Measure the limits of a clock: take the readings at once, and compute the limits when the device has passed them.

    It takes about a millisecond of the host and never waits for a device.
    """

    def __init__(self, clock: Clock) -> None:
        self.use(clock)

    def use(self, clock: Clock) -> None:
        """Measure this clock, which is read from now on."""
        self._clock = clock
        self._limits = clock.limits
        self._readings: list[Reading] = [] if self._limits is not None else _read_empty_calls(clock)
        self.span_ns()  # a host clock shows its limits at once, before a step begins

    @property
    def limits(self) -> ClockLimits | None:
        """The clock's limits; None until the device has passed the readings."""
        if self._limits is None and self._clock.passed(self._readings):
            self._limits = _limits(self._clock, self._readings)
            self._clock.release(self._readings)
            self._readings = []
        return self._limits

    def span_ns(self) -> int:
        """Return the shortest measurable span; 0 as long as the limits are unknown."""
        return 0 if self.limits is None else self.limits.span_ns

    def event_ns(self) -> int:
        """Return how much longer an event makes the work of a device; 0 as long as the limits are unknown."""
        # An event costs the device so many times the least time between two events: the kernels around it cannot
        # overlap. On an H200 it was 1.6 to 2.7 times (2.1 to 3.5 µs beside 1.3), and the budget is an upper limit.
        return 0 if self.limits is None else 3 * self.limits.resolution_ns


def _read_empty_calls(clock: Clock) -> list[Reading]:
    """Return two readings of each empty call, taken by the marks that a step uses."""
    module = _Scratch()
    probe = _probe(module, clock, frozenset((Phase.FORWARD,)))
    probe.attach()
    with without_modes():
        for _ in range(COLD + EMPTY_CALLS):
            module(None)
    probe.remove()
    return list(probe.recorder.take().readings)


def _limits(clock: Clock, readings: Sequence[Reading]) -> ClockLimits:
    times = clock.times(readings)
    ns = times.host_ns if times.device is None else times.device.ns
    steps = np.diff(ns)
    if times.device is None:  # a host clock can be read without a mark around it
        steps = np.diff(np.array([clock.read() for _ in range(2 * EMPTY_CALLS)], dtype=np.int64))
    spans = (ns[1::2] - ns[0::2])[COLD:]
    ordered = np.sort(spans)  # np.quantile would import numpy.ma, which takes as long as all of this
    # The quantile of the empty calls that is the limit; longer ones were interrupted by other processes.
    middle, most = (int(ordered[int(q * (len(ordered) - 1))]) for q in (0.5, 0.95))
    return ClockLimits(resolution_ns=int(min(steps[steps > 0], default=0)), mark_ns=middle, scatter_ns=most - middle)
