"""Requests of deep captures: by a signal, by a file, one at a time."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoprof._flight.requests import ANY_STEP, CaptureRequests, FileTrigger, SignalTrigger
from autoprof._flight.ring import FILE_BYTES, StepRing
from autoprof._process.signals import DeferSignals


@pytest.fixture
def requests() -> CaptureRequests:
    return CaptureRequests(StepRing([0] * (FILE_BYTES // 8), 0), 2)


@pytest.fixture(autouse=True)
def default_signal() -> Iterator[None]:
    """Each test begins and ends without a handler."""
    before = signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    yield
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
    signal.signal(signal.SIGUSR2, before)


def test_one_request_waits_at_a_time_and_a_run_has_so_many(requests: CaptureRequests) -> None:
    """A second one is refused until the first is taken; the run's limit is 2."""
    assert requests.add("a")
    assert not requests.add("b")
    assert requests.pending
    assert (requests.take(), requests.take()) == ("a", None)
    assert requests.add("c")
    assert requests.take() == "c"
    assert not requests.add("d")


def test_a_request_ends_the_next_step_of_a_gap() -> None:
    """The ring reports each step until the request is taken."""
    ring = StepRing([0] * (FILE_BYTES // 8), 0)
    requests = CaptureRequests(ring, 1)
    assert not ring.end_step(1)
    requests.add("a")
    assert ring.limit_ns == ANY_STEP
    assert ring.end_step(2)
    requests.take()
    assert not ring.end_step(3)


class BusyRing(StepRing):
    """A ring whose limit becomes another one at the moment at which another thread asks for a capture."""

    __slots__ = ("requests",)

    def __setattr__(self, name: str, value: object) -> None:
        requests = getattr(self, "requests", None)
        if name == "limit_ns" and requests is not None:
            del self.requests
            requests.add("b")
        super().__setattr__(name, value)


def test_a_request_that_comes_while_another_is_taken_is_not_forgotten() -> None:
    """From another thread: it is refused, or it ends the next step of a gap."""
    ring = BusyRing([0] * (FILE_BYTES // 8), 0)
    requests = CaptureRequests(ring, 2)
    requests.add("a")
    ring.requests = requests
    assert requests.take() == "a"
    assert requests.pending == (ring.limit_ns == ANY_STEP)


def test_a_request_that_comes_while_the_limit_of_slow_steps_changes_is_not_forgotten() -> None:
    """It ends the next step of a gap, however short that is."""
    ring = BusyRing([0] * (FILE_BYTES // 8), 0)
    requests = CaptureRequests(ring, 2)
    ring.requests = requests
    requests.limit_steps(1_000_000)
    assert requests.pending
    assert ring.limit_ns == ANY_STEP
    requests.limit_steps(1_000_000)
    assert ring.limit_ns == ANY_STEP


def test_a_signal_asks_for_a_capture_and_its_handler_goes_again(requests: CaptureRequests) -> None:
    """SIGUSR2, which would end the process without a handler."""
    trigger = SignalTrigger(requests)
    trigger.attach()
    assert signal.getsignal(signal.SIGUSR2) is not signal.SIG_DFL
    os.kill(os.getpid(), signal.SIGUSR2)
    assert requests.take() == "the signal SIGUSR2"
    trigger.remove()
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_the_handler_goes_inside_a_block_that_defers_signals(requests: CaptureRequests) -> None:
    """As where a session is closed: the block does not bring it back."""
    trigger = SignalTrigger(requests)
    trigger.attach()
    with DeferSignals():
        os.kill(os.getpid(), signal.SIGUSR2)
        trigger.remove()
    assert requests.take() == "the signal SIGUSR2"
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_a_handler_of_the_program_stays(requests: CaptureRequests) -> None:
    """One that is there before, and one that is installed later."""
    received: list[int] = []

    def handler(number: int, _frame: object) -> None:
        received.append(number)

    signal.signal(signal.SIGUSR2, handler)
    trigger = SignalTrigger(requests)
    trigger.attach()
    os.kill(os.getpid(), signal.SIGUSR2)
    assert received == [signal.SIGUSR2]
    assert not requests.pending
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    trigger.attach()
    signal.signal(signal.SIGUSR2, handler)
    trigger.remove()
    assert signal.getsignal(signal.SIGUSR2) is handler
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)


def test_another_thread_installs_no_handler(requests: CaptureRequests) -> None:
    """Python allows it on the main thread only."""
    trigger = SignalTrigger(requests)
    thread = threading.Thread(target=trigger.attach)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_a_file_in_the_folder_of_a_rank_asks_it_once(tmp_path: Path) -> None:
    """The text is the reason; the file is removed."""
    (tmp_path / "rank1").mkdir()
    FileTrigger(tmp_path, 0).ask(1, "step 7 took 3 s")
    trigger = FileTrigger(tmp_path, 1)
    assert (trigger.take(), trigger.take()) == ("step 7 took 3 s", None)
    assert list((tmp_path / "rank1").iterdir()) == []
    with pytest.raises(FileNotFoundError):
        trigger.ask(2, "no such rank here")


@pytest.mark.parametrize(("text", "ranks"), [("", []), ("3\n", [3]), ("0, 2 x", [0, 2])])
def test_a_file_in_the_folder_of_the_run_is_read_by_rank_0(tmp_path: Path, text: str, ranks: list[int]) -> None:
    """It may name ranks."""
    (tmp_path / "capture.request").write_text(text)
    assert FileTrigger(tmp_path, 1).take_common() is None
    trigger = FileTrigger(tmp_path, 0)
    assert trigger.take_common() == ranks
    assert trigger.take_common() is None
