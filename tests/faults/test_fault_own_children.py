"""A child that autoprof starts is none of the program's: its handler of SIGCHLD learns of its own children alone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from autoprof._core.signals import own_children


@pytest.fixture
def told() -> Iterator[list[int]]:
    """The signals of which the program's handler has learnt."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGCHLD, lambda number, _frame: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGCHLD, before)


def test_the_handler_learns_nothing_of_a_child_of_the_block(told: list[int]) -> None:
    """The block waits for it."""
    with own_children():
        subprocess.run([sys.executable, "-S", "-c", ""], check=True)
    assert told == []


def test_the_handler_learns_of_a_child_of_the_program_that_ends_in_the_block(told: list[int]) -> None:
    """It is waited for without being fetched, as the program's own look at it must find it."""
    child = os.fork()
    if not child:
        os._exit(7)
    with own_children():
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        told.clear()  # it may have ended before the block
    assert told == [signal.SIGCHLD]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_handler_that_the_program_has_set_to_ignore_stays(told: list[int]) -> None:
    """Only functions are replaced."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with own_children():
        assert signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
