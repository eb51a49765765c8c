"""Signal handlers that a C library has installed stay: Python does not see them, and could not put them back.

MPI, ROS and ``faulthandler.register`` install such handlers over those of Python.
"""

import ctypes
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import autoprof

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX: its signals")


def ask(number: int) -> int | None:
    """Return the address of the handler that the system has; None for the default."""
    address: int | None = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_int)(("PyOS_getsig", ctypes.pythonapi))(number)
    return address


def install_in_c(number: int) -> int:
    """Install a function in C that does nothing with the number that it gets; return its address."""
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    address = ctypes.cast(libc.abs, ctypes.c_void_p).value
    assert address is not None
    libc.signal(number, address)
    return address


@pytest.fixture(params=["SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGTSTP"])
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    """Yield the number of a signal, whose handler is put back afterwards."""
    signal_number = int(getattr(signal, request.param))
    before = signal.getsignal(signal_number)
    yield signal_number
    signal.signal(signal_number, before)


def _train(config: dict[str, Any]) -> None:
    model = nn.Linear(2, 2)
    with autoprof.instrument(model, config) as session:
        for _ in range(3):
            model(torch.ones(1, 2)).sum().backward()
            session.step()


@pytest.mark.parametrize("below", ["default", "python"])
def test_a_handler_in_c_stays(number: int, below: str) -> None:
    """While a session is open and afterwards, over a handler of Python's or over none."""
    signal.signal(number, signal.SIG_DFL if below == "default" else signal.default_int_handler)
    address = install_in_c(number)
    _train({"sinks": {"console": {}}})
    assert ask(number) == address


def test_a_handler_in_c_that_comes_during_a_session_stays(number: int) -> None:
    """It is installed over the session's own one, if there is one."""
    signal.signal(number, signal.SIG_DFL)
    model = nn.Linear(2, 2)
    with autoprof.instrument(model, {"sinks": {"console": {}}}) as session:
        session.step()
        address = install_in_c(number)
        session.step()
    assert ask(number) == address
