"""Requests of deep captures: by a signal, by a file, one at a time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoprof._core.signals import DeferSignals
from autoprof._flight.requests import MAX_CAPTURES, CaptureRequests, SignalTrigger, take_file


@pytest.fixture
def requests() -> CaptureRequests:
    return CaptureRequests()


@pytest.fixture(autouse=True)
def default_signal() -> Iterator[None]:
    """Each test begins and ends without a handler."""
    before = signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    yield
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
    signal.signal(signal.SIGUSR2, before)


def test_one_request_waits_at_a_time_and_a_run_has_so_many(requests: CaptureRequests) -> None:
    """A second one is refused until the first is taken; the run's limit is three."""
    for _ in range(MAX_CAPTURES):
        assert requests.add("a")
        assert not requests.add("b")
        assert requests.pending
        assert (requests.take(), requests.take()) == ("a", None)
    assert not requests.add("d")


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


def test_a_file_in_the_folder_of_a_rank_asks_it_once(tmp_path: Path) -> None:
    """The file is removed."""
    (tmp_path / "rank1").mkdir()
    (tmp_path / "rank1" / "capture.request").touch()
    found = [take_file(tmp_path / "rank1") for _ in range(2)]
    assert found == ["the file rank1/capture.request", None]
    assert list((tmp_path / "rank1").iterdir()) == []
