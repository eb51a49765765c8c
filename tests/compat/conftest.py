"""Fixtures of the tests of the old tools' interfaces."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from compat_builders import Program

from autoprof.compat import global_timer, timing_logger
from autoprof.compat.timing_logger import TimingLogger
from autoprof.sinks._terminal import PinnedLines
from autoprof.testing import FakeClock


@pytest.fixture(autouse=True)
def nothing_global(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Each test has a folder of its own, no rank, no global logger and an unused timer."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "AUTOPROF"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(global_timer, "_timer", global_timer.MyTimer())
    yield
    timing_logger.set_global_timing_logger(None)


@pytest.fixture
def stream() -> io.StringIO:
    """Where a logger prints."""
    return io.StringIO()


@pytest.fixture
def make_program(stream: io.StringIO) -> Iterator[Callable[..., Program]]:
    """Make a logger on a fake clock, and the program that logs to it."""
    made: list[TimingLogger] = []

    def make(**options: Any) -> Program:
        clock = FakeClock()
        made.append(TimingLogger(**{"log_dir": "logs", "stream": stream, "clock": clock, **options}))
        return Program(made[-1], clock)

    yield make
    for logger in made:
        logger.close()


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """Make a terminal of 80 × 24 without colours, whose screen can be read."""
    from fake_terminal import TerminalStream

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((80, 24)))
    yield TerminalStream
    PinnedLines._holder = None
