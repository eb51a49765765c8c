"""Python's garbage collector beside our own work."""

import gc
import signal
from collections.abc import Iterator

import pytest
from torch import nn

from autoprof import StepFrame
from autoprof.base.process.gc_paused import GcPaused, collects_garbage
from autoprof.devices import HostClock
from autoprof.testing import ListSink, open_session

QUIET = {"sinks": {}}


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    """It runs before a test, and after it whatever that did."""
    assert gc.isenabled()
    yield
    gc.enable()


def test_frames_are_delivered_without_it() -> None:
    """A sink draws hundreds of rows in a step of the user's; when that step has ended, the collector runs."""

    class Watched(ListSink):
        def write(self, frame: StepFrame) -> None:
            seen.append(gc.isenabled())

    seen: list[bool] = []
    with open_session(nn.Identity(), QUIET, clock=HostClock(), sinks=[Watched()]) as session:
        session.step()
        assert gc.isenabled()
        session.step()
        session.summary()
    assert False in seen


@pytest.mark.parametrize("collects", [True, False])
def test_a_pause_of_our_own_is_not_the_program_s(collects: bool) -> None:
    """Whether garbage is collected is asked in such a pause."""
    if not collects:
        gc.disable()
    assert collects_garbage() is collects
    with GcPaused():
        assert not gc.isenabled()
        assert collects_garbage() is collects
    assert collects_garbage() is collects


def test_an_exception_that_cuts_the_end_short_leaves_it_running(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time limit of the user's that strikes where the block ends: the run goes on, and the collector with it."""

    def strike(number: int, frame: object) -> None:
        raise TimeoutError("the user's limit")

    enable, left = gc.enable, [signal.SIGTERM]

    def late() -> None:
        if left:
            signal.raise_signal(left.pop())
        enable()

    before = signal.signal(signal.SIGTERM, strike)
    try:
        with open_session(nn.Identity(), QUIET, clock=HostClock()) as session:
            monkeypatch.setattr("autoprof.base.process.gc_paused.gc.enable", late)
            session.step()
            with pytest.raises(TimeoutError):
                session.summary()
            assert gc.isenabled()
    finally:
        signal.signal(signal.SIGTERM, before)
