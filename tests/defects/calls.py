"""Defects of the training loop: calls that wait, log, collect, save, validate or stall."""
# mypy: allow-untyped-calls

import gc
import io
import logging

import torch
from torch import Tensor, nn

import autoprof
from autoprof.base.summary import Summary
from autoprof.testing import FakeClock, FakeDevice
from tests.fake_memory import value_on

from .training import MS, WIDTH, four_layers, train


def train_with_reads(broken: bool) -> Summary:
    """Read a value after each layer to branch on it; the healthy twin reads one value at the end of the step."""
    clock = FakeClock()
    device = FakeDevice(clock)

    class ReadAfter(nn.Module):
        """A layer after which the host reads a value from the device."""

        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor) -> Tensor:
            x = self.layer(x)
            peak = value_on(device, x.abs().max())
            if peak > 1e6:
                x = x / 1e6
            return x

    def read(_number: int) -> None:
        if not broken:
            value_on(device, torch.ones(())).item()

    layers = four_layers(clock, device=device, forward_ms=10, launch_ns=8 * MS)
    model = nn.Sequential(*(ReadAfter(layer) if broken else layer for layer in layers))
    return train(model, clock, device=device, each_ms=0.01, wait_ms=0.1, in_step=read)


def _train_with_span(name: str, every: int, ms: int) -> Summary:
    """Spend milliseconds in a span in every so many steps, and one in the others; 0: in no step."""
    clock = FakeClock()

    def spend(number: int) -> None:
        with autoprof.span(name):
            clock.advance(ms * MS if every and number % every == every - 1 else 1 * MS)

    return train(four_layers(clock), clock, in_step=spend)


def train_with_metrics(broken: bool) -> Summary:
    """Compute metrics for 200 ms in every step; the healthy twin takes 1 ms."""
    return _train_with_span("Logging/Metrics", int(broken), 200)


def train_with_stalls(broken: bool) -> Summary:
    """Stall for 4 s in every sixth step; the healthy twin takes 1 ms there."""
    return _train_with_span("Snapshot", 6 if broken else 0, 4_000)


def train_with_log_lines(broken: bool) -> Summary:
    """Log a line in every step over a slow connection; the healthy twin logs every twentieth step."""
    clock = FakeClock()

    class SlowStream(io.StringIO):
        """A stream that takes 120 ms for each text."""

        def write(self, text: str) -> int:
            clock.advance(120 * MS)
            return super().write(text)

    logger = logging.getLogger("autoprof.demo.defects")
    handler = logging.StreamHandler(SlowStream())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False

    def log(number: int) -> None:
        if broken or number % 20 == 0:
            logger.info("step %d", number)

    try:
        return train(four_layers(clock), clock, in_step=log)
    finally:
        logger.removeHandler(handler)


def train_with_collections(broken: bool) -> Summary:
    """Collect garbage every fifth step, four seconds each time; the healthy twin never does.

    Python does not collect by itself meanwhile: which steps that lengthens depends on the rest of the process.
    """
    clock = FakeClock()

    def pass_time(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            clock.advance(4_000 * MS)

    def collect(number: int) -> None:
        with autoprof.span("Clean"):
            if broken and number % 5 == 4:
                gc.collect()

    enabled = gc.isenabled()
    gc.disable()
    gc.callbacks.insert(0, pass_time)
    try:
        return train(four_layers(clock), clock, in_step=collect)
    finally:
        gc.callbacks.remove(pass_time)
        if enabled:
            gc.enable()


def train_with_images(broken: bool) -> Summary:
    """Draw a picture for 400 ms in each step; the healthy twin draws for a millisecond."""
    clock = FakeClock()
    return train(four_layers(clock), clock, in_step=lambda _number: clock.advance((400 if broken else 1) * MS))


def train_with_saving(broken: bool) -> Summary:
    """Save a checkpoint for 200 ms after each step; the healthy twin saves after every thirtieth."""
    clock = FakeClock()
    model = four_layers(clock)

    class SlowFile:
        """A file that takes this long to write to."""

        taken = False

        def write(self, data: bytes) -> int:
            clock.advance(0 if self.taken else 200 * MS)
            self.taken = True
            return len(data)

        def flush(self) -> None:
            pass

    def save(number: int) -> None:
        if broken or number % 30 == 29:
            torch.save(model.state_dict(), SlowFile())  # type: ignore[arg-type]

    return train(model, clock, in_step=save)


def train_with_validation(broken: bool) -> Summary:
    """Validate for two seconds after every fourth step; the healthy twin after every thirtieth."""
    clock = FakeClock()
    model = four_layers(clock)
    every = 4 if broken else 30

    def validate(number: int) -> None:
        if number % every != every - 1:
            return
        model.eval()
        with torch.no_grad():
            for _ in range(8):  # forwards of 240 ms
                model(torch.zeros(4, WIDTH))
        model.train()

    return train(model, clock, in_step=validate)
