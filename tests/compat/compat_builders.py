"""A program whose clock a test moves: intervals of known length, logged as the old code logs them."""

from collections.abc import Iterator
from contextlib import contextmanager

from autoprof.compat.timing_logger import TimingLogger
from autoprof.testing import FakeClock

MS = 1_000_000


class Program:
    """Log intervals that take time on a fake clock."""

    def __init__(self, logger: TimingLogger, clock: FakeClock) -> None:
        self.logger = logger
        self.clock = clock

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        start_ns = self.clock.now_ns
        yield
        self.logger.log_timing(name, (self.clock.now_ns - start_ns) / MS)

    def take(self, name: str, ms: float) -> None:
        """Let a name take so long."""
        with self.timed(name):
            self.wait(ms)

    def wait(self, ms: float) -> None:
        """Let time pass in which nothing is logged."""
        self.clock.advance(round(ms * MS))

    def vrt_step(self) -> None:
        """One step of the second seed: a forward of 1805.28 ms, nearly all of it in a name of its own."""
        with self.timed("前向传播总耗时"):
            self.take("Spike编码器", 5.26)
            with self.timed("VRT处理"):
                self.take("VRT处理/Stage8", 965)
                self.take("VRT处理/Stage2", 269)
                self.wait(565.99)
            self.wait(0.03)
        self.logger.step()
