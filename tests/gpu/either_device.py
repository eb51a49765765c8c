"""One way to say what a device is to do, for the fake device and for CUDA: the same tests run on both."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter_ns
from typing import Any

import torch
from engine_laws import everything
from torch import Tensor, nn

import autoprof
from autoprof import Session
from autoprof.devices import Place
from autoprof.testing import FakeClock, FakeDevice, ListSink, open_session
from benchmarks.gpu.kernels import calibrate
from benchmarks.gpu.target import no_synchronisation

CONFIG = everything(targets=[{"match": r"ops\..+"}])


class Fake(FakeDevice):
    """The fake device: exact, and a wait is counted instead of forbidden."""

    def __init__(self) -> None:
        super().__init__(FakeClock(), lag_ns=70)

    def tolerance_ns(self, _length_ns: int) -> int:
        """Return by how much a span of this length may be off."""
        return 0

    def input(self) -> Tensor:
        """Return what a model takes."""
        return torch.ones(1, requires_grad=True)

    def open(self, model: nn.Module, sink: ListSink) -> Session:
        """Open a session that reads this device's clock."""
        return open_session(model, CONFIG, clock=self.device_clock(), sinks=[sink])

    @contextmanager
    def never_waiting(self) -> Iterator[None]:
        """Fail where somebody waits for the device."""
        before = self.waits
        yield
        assert self.waits == before

    def finish(self) -> None:
        """Wait for the device as a user would."""
        self.wait_here()


class _Busy:
    @staticmethod
    def advance(ns: int) -> None:
        until = perf_counter_ns() + ns
        while perf_counter_ns() < until:
            pass


class Cuda:
    """The first CUDA device: its kernels are calibrated sleeps, its stream 0 is the default one."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self.work = sleep
        self.clock = _Busy()
        self._streams: dict[Any, Any] = {0: torch.cuda.default_stream()}

    def tolerance_ns(self, length_ns: int) -> int:
        """Return twice the scatter of events where a queue runs dry, and one in twenty for the sleeps' calibration."""
        return 60_000 + length_ns // 20

    def _stream(self, number: Any) -> Any:
        if number not in self._streams:
            self._streams[number] = torch.cuda.Stream()
        return self._streams[number]

    @property
    def place(self) -> Place:
        """The device and the number of the stream current in this thread."""
        current = torch.cuda.current_stream()
        return 0, next(number for number, stream in self._streams.items() if stream == current)

    def on(self, _device: int = 0, stream: Any = 0) -> AbstractContextManager[Any]:
        """Make another stream current."""
        return torch.cuda.stream(self._stream(stream))

    def switch_to(self, _device: int = 0, stream: Any = 0) -> None:
        """Make another stream current, for good."""
        torch.cuda.set_stream(self._stream(stream))

    def wait_for(self, _device: int = 0, stream: Any = 0) -> None:
        """Have the current stream wait for another one."""
        torch.cuda.current_stream().wait_stream(self._stream(stream))

    def input(self) -> Tensor:
        """Return what a model takes."""
        return torch.ones(1, device="cuda", requires_grad=True)

    def open(self, model: nn.Module, sink: ListSink) -> Session:
        """Open a session as a user does."""
        return autoprof.instrument(model, CONFIG, sinks=[sink])

    def never_waiting(self) -> AbstractContextManager[None]:
        """Have torch raise where somebody waits for the device."""
        return no_synchronisation()

    def finish(self) -> None:
        """Wait for the device as a user would."""
        torch.cuda.synchronize()


def make_device(kind: str) -> Any:
    """Return the device of this name."""
    return Fake() if kind == "fake" else Cuda(calibrate())


class Model(nn.Module):
    """Operators under test, and a parameter that says where the model is."""

    def __init__(self, device: Any, ops: nn.Module) -> None:
        super().__init__()
        self.ops = ops
        self.anchor = nn.Parameter(torch.ones(1, device=device.input().device))

    def forward(self, x: Tensor) -> Tensor:
        return self.ops(x)
