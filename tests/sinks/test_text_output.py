"""Texts for a reader that may not read: a stopped terminal, a full pipe, a reader that has left."""

import os
import pty
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TextIO

import pytest
from waiting import LIMIT_S

from autoprof.base.text_output import TextOutput


def _in_time(call: Callable[[], bool]) -> bool:
    """Return the result of a call that must not block."""
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    assert results, "the call blocks"
    return results[0]


def _fill(fd: int) -> int:
    """Fill a pipe; return the number of bytes in it."""
    os.set_blocking(fd, False)
    filled = 0
    with suppress(BlockingIOError):
        while True:
            filled += os.write(fd, b"." * 4096)
    os.set_blocking(fd, True)
    return filled


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """The end of a pipe to read from, and a stream to write to it."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        yield reader, stream
        with suppress(OSError):
            os.close(reader)


@pytest.fixture
def terminal() -> Iterator[tuple[int, TextIO]]:
    """The end of a terminal to read from, and a stream to write to it."""
    master, slave = pty.openpty()
    with os.fdopen(slave, "w", encoding="utf-8") as stream:
        yield master, stream
    os.close(master)


def test_the_text_follows_what_the_program_has_buffered(pipe: tuple[int, TextIO]) -> None:
    """Its own half line comes first, and the program's descriptor still blocks."""
    reader, stream = pipe
    output = TextOutput(stream)
    stream.write("loss: ")
    assert output.offer("panel 损失\n")
    stream.write("0.5\n")
    stream.flush()
    assert os.read(reader, 100).decode() == "loss: panel 损失\n0.5\n"
    assert os.get_blocking(stream.fileno())


def test_a_full_pipe_gets_nothing_and_blocks_nothing(pipe: tuple[int, TextIO]) -> None:
    """A pager that waits for a key reads no more; the next text after it has read is written."""
    reader, stream = pipe
    output = TextOutput(stream)
    filled = _fill(stream.fileno())
    assert not _in_time(lambda: output.offer("lost\n"))
    os.read(reader, filled)
    assert output.offer("shown\n")
    assert os.read(reader, 100) == b"shown\n"


def test_a_stopped_terminal_gets_nothing_and_blocks_nothing(terminal: tuple[int, TextIO]) -> None:
    """After Ctrl-S nothing is written until Ctrl-Q."""
    master, stream = terminal
    output = TextOutput(stream)
    termios.tcflow(stream.fileno(), termios.TCOOFF)
    assert not _in_time(lambda: output.offer("lost"))
    termios.tcflow(stream.fileno(), termios.TCOON)
    assert output.offer("shown")
    assert os.read(master, 100) == b"shown"


def test_the_end_waits_some_seconds_only(pipe: tuple[int, TextIO]) -> None:
    """A reader that takes nothing gets no report; one that reads on gets all of it."""
    reader, stream = pipe
    output = TextOutput(stream, end_wait_s=0.05)
    filled = _fill(stream.fileno())
    assert not _in_time(lambda: output.write("report"))
    output = TextOutput(stream, end_wait_s=LIMIT_S)
    read = threading.Timer(0.05, lambda: os.read(reader, filled))
    read.start()
    assert _in_time(lambda: output.write("report"))
    read.join()
    assert os.read(reader, 100) == b"report"


def test_a_reader_that_left_is_an_error_that_leaves_nothing_behind(pipe: tuple[int, TextIO]) -> None:
    """The program's own flush at its end then has nothing of ours to fail on."""
    reader, stream = pipe
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        TextOutput(stream).offer("text")
    stream.flush()
