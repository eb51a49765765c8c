"""What a mark costs here: the same hooks on a module that does nothing, against the module without them."""

from __future__ import annotations

from statistics import median
from time import perf_counter_ns
from typing import Final

import torch
from torch import nn

from .clocks import Clock
from .price import Price
from .probes import ModuleProbe, make_hooks
from .recorder import Recorder
from .span import Phase

CALLS: Final = 40
ROUNDS: Final = 5


class _Scratch(nn.Module):
    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value * 1.0


def measure_price(clock: Clock) -> Price:
    """Measure both prices in about 5 ms. Touches no random state, no device memory and no module of the user's."""
    forward = frozenset((Phase.FORWARD, Phase.RECOMPUTE))
    with torch.enable_grad():
        plain = _extra_ns(clock, forward, backward=False) / (2 * CALLS)
        followed = _extra_ns(clock, forward | {Phase.BACKWARD}, backward=True) / (3 * CALLS)
    return Price(plain, followed)


def _extra_ns(clock: Clock, phases: frozenset[Phase], *, backward: bool) -> float:
    """Return what the hooks add to ``CALLS`` calls in a chain: the difference of medians over interleaved rounds."""
    from .targets import Target  # it brings the configuration's packages, which import slowly

    recorder = Recorder(clock)
    module = _Scratch()
    probe = ModuleProbe(recorder, make_hooks(recorder), Target(module, "", "calibration", phases, False, 0))
    bare, hooked = [], []
    for _ in range(ROUNDS):
        bare.append(_run(module, backward=backward))
        probe.attach()
        hooked.append(_run(module, backward=backward))
        probe.detach()
        clock.release(recorder.take().marks[1::2])
    return max(median(hooked) - median(bare), 0.0)


def _run(module: nn.Module, *, backward: bool) -> int:
    value = torch.zeros(1, requires_grad=backward)
    start = perf_counter_ns()
    for _ in range(CALLS):
        value = module(value)
    if backward:
        torch.autograd.backward(value)
    return perf_counter_ns() - start
