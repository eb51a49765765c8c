"""Defects whose time is a fake clock's, which the operators advance: the same verdict on every machine."""

from __future__ import annotations

import io
import logging
from dataclasses import replace

from torch import nn

import autoprof

from ...diagnose import Evidence, Facts, diagnose
from ...summary import Summary
from ...testing import FakeClock
from .models import MS, Checkpointed, Layer, four, train


def slow_loader(broken: bool) -> Summary:
    clock = FakeClock()
    return train(four(clock), clock, wait_ms=500 if broken else 2)


def checkpointing(broken: bool) -> Summary:
    clock = FakeClock()
    layers = [Layer(clock) for _ in range(4)]
    return train(nn.Sequential(*(Checkpointed(one) if broken else one for one in layers)), clock)


def backward(broken: bool) -> Summary:
    clock = FakeClock()
    model = four(clock)
    model[2] = Layer(clock, backward_ms=900 if broken else 120)
    return train(model, clock)


def dominant(broken: bool) -> Summary:
    clock = FakeClock()
    model = four(clock)
    model[1] = Layer(clock, forward_ms=600 if broken else 60)
    return train(model, clock)


def loop_optimizer(broken: bool) -> Summary:
    clock = FakeClock()
    return train(four(clock), clock, each_ms=60 if broken else 0.5)


def metrics(broken: bool) -> Summary:
    clock = FakeClock()

    def log(_number: int) -> None:
        with autoprof.span("Logging/Metrics"):
            clock.advance(200 * MS if broken else 1 * MS)

    return train(four(clock), clock, in_step=log)


class SlowStream(io.StringIO):
    """What is logged goes over a slow line."""

    def __init__(self, clock: FakeClock, ns: int) -> None:
        super().__init__()
        self.clock, self.ns = clock, ns

    def write(self, text: str) -> int:
        """Take the text, and the time that the line takes for it."""
        self.clock.advance(self.ns)
        return super().write(text)


def log_lines(broken: bool) -> Summary:
    """Log a line in every step; the twin logs in each twentieth."""
    clock = FakeClock()
    logger = logging.getLogger("autoprof.demo.defects")
    handler = logging.StreamHandler(SlowStream(clock, 120 * MS))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False

    def show(number: int) -> None:
        if broken or number % 20 == 0:
            logger.info("step %d", number)

    try:
        return train(four(clock), clock, in_step=show)
    finally:
        logger.removeHandler(handler)


def stalls(broken: bool) -> Summary:
    clock = FakeClock()

    def save(number: int) -> None:
        with autoprof.span("Snapshot"):
            clock.advance(4_000 * MS if broken and number % 6 == 5 else 1 * MS)

    return train(four(clock), clock, in_step=save)


def own_cost(broken: bool) -> Summary:
    # What autoprof does takes real time; beside a step of this clock's it is much, or nothing.
    clock = FakeClock()
    return train(four(clock, forward_ms=0.001 if broken else 500), clock, steps=80, each_ms=0, wait_ms=0)


def small_memory(broken: bool) -> Summary:
    """The same training on a machine with hardly more memory than it takes, or with plenty."""
    clock = FakeClock()
    summary = train(four(clock), clock)
    peak = summary.memory["rss_peak_bytes"]
    facts = Facts(budget=0.01, memory_capacity_bytes=round(peak * (1.02 if broken else 8)))
    return diagnose(Evidence(replace(summary, findings=()), facts, longest=()))
